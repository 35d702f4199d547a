"""Headers and parameters that a store of Prometheus data, or a proxy in front of it, wants with every query."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.collect.doubles import NOW
from tests.prometheus.prometheus_server import status
from wva.prometheus.additions import read_headers, read_parameters
from wva.prometheus.answers import ErrorKind, PrometheusError, shorten
from wva.prometheus.authentication import connection_of, connection_problems
from wva.prometheus.client import PrometheusClient
from wva.prometheus.settings import PrometheusSettings

TENANT = "team-a|team-b"


@pytest.fixture
def connect(clock, instruments):
    """Return a function that makes a client, to be used as a context."""

    def made(url, **rest):
        settings = PrometheusSettings(url, allow_http=True, **rest)
        return PrometheusClient(settings, clock=clock, instruments=instruments)

    return made


async def _ask(client):
    return await client.query("up", name="kv_cache_usage", at=NOW)


async def test_every_query_has_the_headers_and_the_parameters(connect, server):
    """Parameters are in the URL, where proxies look for them; the query itself stays in the form."""
    headers, parameters = f"X-Scope-OrgID: {TENANT}\nX-Team:  two words \n", "namespace=llm\nnamespace=a&b=c d\n"
    async with connect(server.url, headers=headers, parameters=parameters) as client:
        await _ask(client)
        server.plan = ['{"status":"success","data":{"resultType":"matrix","result":[]}}']
        await client.query_range("up", name="x", start=1, end=2, step_seconds=1, timeout_seconds=5)
    for request in server.requests:
        assert request["headers"]["X-Scope-OrgID"] == TENANT
        assert request["headers"]["X-Team"] == "two words"
        assert request["parameters"] == [("namespace", "llm"), ("namespace", "a&b=c d")]
        assert request["form"]["query"] == "up"


async def test_tenants_are_different_sources(connect):
    """``wva backtest`` keeps what it has read. The history of one tenant is not that of another."""
    sources = {
        connect("https://p", headers=headers, parameters=parameters).source
        for headers in ("", "X-Scope-OrgID: a", "X-Scope-OrgID: b")
        for parameters in ("", "namespace=a", "namespace=b")
    }
    assert len(sources) == 9
    assert "https://p" in sources


async def test_a_server_that_takes_no_post_gets_them_too(connect, server):
    """With GET the query comes behind the parameters."""
    server.plan = [status(405), status(400)]
    async with connect(server.url, headers="X-Scope-OrgID: a", parameters="namespace=llm") as client:
        with pytest.raises(PrometheusError):
            await _ask(client)
    request = server.requests[1]
    assert request["headers"]["X-Scope-OrgID"] == "a"
    assert [name for name, _ in request["parameters"]] == ["namespace", "query", "time"]


async def test_files_are_read_again_when_they_change(connect, server, tmp_path, output, metric):
    """While a file cannot be used, the last good content stays in force, and no log line has any of it."""
    headers, parameters = tmp_path / "headers", tmp_path / "parameters"
    headers.write_text("X-Scope-OrgID: first\n")
    parameters.write_text("namespace=first\n")
    async with connect(server.url, headers_path=str(headers), parameters_path=str(parameters)) as client:
        await _ask(client)
        headers.write_text("third\n")
        parameters.unlink()
        await _ask(client)
        assert [metric("wva_prometheus_credentials_usable", kind=kind) for kind in ("headers", "parameters")] == [0, 0]
        headers.write_text("X-Scope-OrgID: other")
        parameters.write_text("namespace=other")
        await _ask(client)
    assert [metric("wva_prometheus_credentials_usable", kind=kind) for kind in ("headers", "parameters")] == [1, 1]
    sent = [(request["headers"]["X-Scope-OrgID"], request["parameters"][0][1]) for request in server.requests]
    assert sent == [("first", "first"), ("first", "first"), ("other", "other")]
    assert {line["what"] for line in output() if line["event"] == "credentials_unusable"} == {"headers", "parameters"}
    assert not any(value in str(output()) for value in ("first", "third", "other"))


async def test_without_a_usable_file_no_query_is_sent(connect, server, tmp_path):
    """A query without its tenant would get the answer of another one."""
    async with connect(server.url, headers_path=str(tmp_path / "none")) as client:
        with pytest.raises(PrometheusError, match="PROMETHEUS_HEADERS_PATH") as caught:
            await _ask(client)
    assert caught.value.kind is ErrorKind.UNAUTHORIZED
    assert server.requests == []


@pytest.mark.parametrize("tenant", ["7", "tenant-7 of 12", TENANT])
async def test_a_value_that_comes_back_in_an_error_is_masked(connect, server, tenant):
    """Stores name the tenant in their errors. A number that only contains a short value stays readable."""
    server.plan = [status(422, f"tenant {tenant}: more than 50700 samples, user={tenant}")]
    async with connect(server.url, headers=f"X-Scope-OrgID: {tenant}") as client:
        with pytest.raises(PrometheusError) as caught:
            await _ask(client)
    assert caught.value.message.endswith("tenant ***: more than 50700 samples, user=***")


@given(st.text(min_size=1), st.lists(st.text(), max_size=4))
def test_no_text_has_a_long_secret_after_masking(secret, parts):
    """Wherever the secret stands, it is masked before the text is cut."""
    secret = f"{secret}-0123456789"
    assert secret not in shorten(secret.join(parts), secrets=("", secret))


HEADERS = {
    "no colon": "hunter2secret",
    "no name": ": hunter2secret",
    "a space in the name": "X Scope: hunter2secret",
    "the token": "Authorization: hunter2secret",
    "the host": "host: hunter2secret",
    "a connection": "Connection: hunter2secret",
    "a length": "Content-Length: hunter2secret",
    "a line end": "X-A: hunter2secret\rX-B: b",
    "a character": "X-A: hunter2secret\u00e9",
    "no value": "X-A:",
    "twice": "X-A: hunter2secret\nx-a: hunter2secret",
    "many": "\n".join(f"X-{number}: hunter2secret" for number in range(17)),
    "long": "X-A: " + "hunter2secret" * 1000,
    "a long value": "X-A: " + "hunter2secret" * 200,
    "a long name": "X" * 200 + ": hunter2secret",
    "blank": " \n",
}
PARAMETERS = {
    "no sign": "hunter2secret",
    "no name": "=hunter2secret",
    "a query": "query=hunter2secret",
    "a time": "time=hunter2secret",
    "a space": "name space=hunter2secret",
    "no value": "namespace=",
    "a control character": "namespace=hunter2secret\x00",
    "many": "namespace=hunter2secret\n" * 17,
    "blank": "\n",
}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *[pytest.param("headers", text, id=f"headers: {name}") for name, text in HEADERS.items()],
        *[pytest.param("parameters", text, id=f"parameters: {name}") for name, text in PARAMETERS.items()],
    ],
)
def test_a_wrong_text_ends_the_start_and_is_not_shown(kind, text, tmp_path):
    """The process does not start: its queries would be about another tenant. The message says what is expected."""
    path = tmp_path / kind
    path.write_text(text, newline="")
    for given_ in ({kind: text}, {f"{kind}_path": str(path)}):
        (problem,) = connection_problems(PrometheusSettings("https://p", **given_))
        assert problem.startswith(f"PROMETHEUS_{kind.upper()}")
        assert "expected one `" in problem
        assert "hunter2" not in problem.replace(str(path), "")


@given(st.text())
def test_what_is_read_can_be_sent(text):
    """Of any text, either each header and parameter is one line of printable ASCII, or it is refused."""
    for read in (read_headers, read_parameters):
        try:
            found = read(text)
        except ValueError:
            continue
        assert 0 < len(found) <= 16
        assert all(part.isascii() and part.isprintable() and part == part.strip() for pair in found for part in pair)


def test_the_commands_take_them_from_the_environment(tmp_path):
    """``wva report`` and ``wva backtest`` ask the same store as the controller."""
    path = tmp_path / "parameters"
    path.write_text("namespace=llm")
    environment = {"PROMETHEUS_HEADERS": "X-Scope-OrgID: a", "PROMETHEUS_PARAMETERS_PATH": str(path)}
    settings = connection_of("https://p", "--prometheus", environment)
    assert (settings.headers, settings.parameters_path) == ("X-Scope-OrgID: a", str(path))
