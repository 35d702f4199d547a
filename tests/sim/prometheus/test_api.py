"""The HTTP API of the embedded Prometheus: results, errors, request log, faults and access."""

import asyncio
import json
import ssl

import aiohttp
import pytest
import trustme

from wva.sim.prometheus import EmbeddedPrometheus

NOW = 1_700_000_000.5


@pytest.fixture
async def prometheus():
    """Serve two series."""
    async with EmbeddedPrometheus(now=lambda: NOW) as prom:
        for pod, value in (("a", 0.75), ("b", 1e6)):
            for ago in (120, 60, 0):
                prom.tsdb.append({"__name__": "m", "pod": pod}, NOW - ago, value)
        yield prom


@pytest.fixture
async def session():
    """Return an HTTP client."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as client:
        yield client


async def _get(session, prometheus, path: str, **parameters) -> tuple[int, dict]:
    async with session.get(prometheus.url + path, params=parameters) as response:
        return response.status, await response.json()


async def test_vector(prometheus, session):
    """Values are text as Prometheus prints it, times are numbers, and the default time is the world's."""
    _, body = await _get(session, prometheus, "/api/v1/query", query="m")
    assert body == {
        "status": "success",
        "data": {
            "resultType": "vector",
            "result": [
                {"metric": {"__name__": "m", "pod": "a"}, "value": [NOW, "0.75"]},
                {"metric": {"__name__": "m", "pod": "b"}, "value": [NOW, "1000000"]},
            ],
        },
    }


@pytest.mark.parametrize(
    ("query", "data"),
    [
        ("1.5", {"resultType": "scalar", "result": [NOW, "1.5"]}),
        ('"x"', {"resultType": "string", "result": [NOW, "x"]}),
        ("nothing[1m]", {"resultType": "matrix", "result": []}),
        (
            'm{pod="a"}[90s]',
            {
                "resultType": "matrix",
                "result": [{"metric": {"__name__": "m", "pod": "a"}, "values": [[NOW - 60, "0.75"], [NOW, "0.75"]]}],
            },
        ),
        *(
            (f"vector({number})", {"resultType": "vector", "result": [{"metric": {}, "value": [NOW, text]}]})
            for number, text in {
                "0/0": "NaN",
                "1/0": "+Inf",
                "-1/0": "-Inf",
                "-0": "-0",
                "0.000001": "0.000001",
                "0.0000001": "1e-07",
                "123456789012345678901": "123456789012345680000",
                "1e21": "1e+21",
            }.items()
        ),
    ],
)
async def test_other_results(prometheus, session, query: str, data: dict):
    """Each type of result has its shape, and numbers print as Go prints them."""
    status, body = await _get(session, prometheus, "/api/v1/query", query=query)
    assert (status, body["data"]) == (200, data)


async def test_form_counts_before_the_address(prometheus, session):
    """For a POST, a parameter in the body counts before the same one in the URL."""
    url = f"{prometheus.url}/api/v1/query"
    async with session.post(url, params={"query": "nope(", "time": "5"}, data={"query": "time()"}) as response:
        assert (await response.json())["data"]["result"] == [5, "5"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1700000000.25", 1_700_000_000.25),
        ("2023-11-14T22:13:20Z", 1_700_000_000),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000),
    ],
)
async def test_time_as_seconds_or_rfc_3339(prometheus, session, text: str, seconds: float):
    """The API accepts a time as seconds or in RFC 3339."""
    _, body = await _get(session, prometheus, "/api/v1/query", query="time()", time=text)
    assert body["data"]["result"][0] == seconds


async def test_range_query(prometheus, session):
    """A range query gives one point for each step at which the expression has a value."""
    parameters = {"query": 'm{pod="a"} or vector(3)', "start": NOW - 180, "end": NOW, "step": "1m"}
    _, body = await _get(session, prometheus, "/api/v1/query_range", **parameters)
    assert body["data"] == {
        "resultType": "matrix",
        "result": [
            {"metric": {}, "values": [[NOW - 180 + 60 * step, "3"] for step in range(4)]},
            {"metric": {"__name__": "m", "pod": "a"}, "values": [[NOW - 120 + 60 * step, "0.75"] for step in range(3)]},
        ],
    }


@pytest.mark.parametrize(
    ("path", "parameters", "status", "kind"),
    [
        ("/api/v1/query", {}, 400, "bad_data"),
        ("/api/v1/query", {"query": "m", "time": "noon"}, 400, "bad_data"),
        ("/api/v1/query", {"query": "m[5m:]"}, 400, "bad_data"),
        ("/api/v1/query", {"query": "m + on () m"}, 422, "execution"),
        ("/api/v1/query", {"query": "m", "limit": "x"}, 400, "bad_data"),
        ("/api/v1/query_range", {"query": "m", "start": "1", "step": "1"}, 400, "bad_data"),
        ("/api/v1/query_range", {"query": "m", "start": "2", "end": "1", "step": "1"}, 400, "bad_data"),
        ("/api/v1/query_range", {"query": "m", "start": "1", "end": "2", "step": "0"}, 400, "bad_data"),
        ("/api/v1/query_range", {"query": "m", "start": "1", "end": "20000", "step": "1"}, 400, "bad_data"),
        ("/api/v1/query_range", {"query": "m[1m]", "start": "1", "end": "2", "step": "1"}, 400, "bad_data"),
        ("/api/v1/series", {}, 400, "bad_data"),
        ("/api/v1/series", {"match[]": "rate(m[1m])"}, 400, "bad_data"),
    ],
)
async def test_errors(prometheus, session, path: str, parameters: dict, status: int, kind: str):
    """Errors have the status, the kind and the shape of Prometheus."""
    actual, body = await _get(session, prometheus, path, **parameters)
    assert (actual, body["status"], body["errorType"]) == (status, "error", kind)
    assert body["error"]


async def test_meta_data(prometheus, session):
    """Series, label names and label values can be restricted by matchers, times and a limit."""
    _, series = await _get(session, prometheus, "/api/v1/series", **{"match[]": 'm{pod="a"}'})
    _, names = await _get(session, prometheus, "/api/v1/labels")
    _, values = await _get(session, prometheus, "/api/v1/label/pod/values", **{"match[]": 'm{pod!="a"}'})
    _, limited = await _get(session, prometheus, "/api/v1/label/pod/values", limit="1")
    _, before = await _get(session, prometheus, "/api/v1/label/pod/values", end=NOW - 200)
    assert series["data"] == [{"__name__": "m", "pod": "a"}]
    assert names["data"] == ["__name__", "pod"]
    assert values["data"] == ["b"]
    assert limited["data"] == ["a"]
    assert before["data"] == []


async def test_probes_and_build_information(prometheus, session):
    """The API answers probes and the build information, and gives 404 for an unknown path."""
    for path in ("/-/ready", "/-/healthy"):
        async with session.get(prometheus.url + path) as response:
            assert response.status == 200
    _, body = await _get(session, prometheus, "/api/v1/status/buildinfo")
    assert body["data"]["version"]
    async with session.get(f"{prometheus.url}/api/v1/nothing") as response:
        assert response.status == 404


async def test_requests_are_counted_by_query_text(prometheus, session):
    """The log counts queries by text, failed ones included. Probes are entries, but no queries."""
    for query in ("m", "m", "sum("):
        await _get(session, prometheus, "/api/v1/query", query=query)
    async with session.get(f"{prometheus.url}/-/ready"):
        pass
    assert prometheus.requests.queries == {"m": 2, "sum(": 1}
    assert prometheus.requests.query_count == 3
    assert [entry.at_seconds for entry in prometheus.requests.entries] == [NOW] * 4
    prometheus.requests.clear()
    assert prometheus.requests.query_count == 0


async def test_fault_status(prometheus, session):
    """A faulty status replaces every answer until the faults are cleared."""
    prometheus.faults.status = 503
    async with session.get(f"{prometheus.url}/api/v1/query", params={"query": "m"}) as response:
        assert response.status == 503
    prometheus.faults.clear()
    assert (await _get(session, prometheus, "/api/v1/query", query="m"))[0] == 200


async def test_fault_malformed(prometheus, session):
    """The malformed body is JSON that ends in the middle."""
    prometheus.faults.malformed = True
    async with session.get(f"{prometheus.url}/api/v1/query", params={"query": "m"}) as response:
        text = await response.text()
    assert response.status == 200
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)


async def test_fault_partial_result(prometheus, session):
    """For the chosen queries only, some series are missing and a warning says so."""
    prometheus.faults.warnings = ("a store is down",)
    prometheus.faults.hide = lambda labels: labels.get("pod") == "a"
    prometheus.faults.applies_to = lambda query: query == "m"
    _, partial = await _get(session, prometheus, "/api/v1/query", query="m")
    _, whole = await _get(session, prometheus, "/api/v1/query", query="count(m)")
    assert [element["metric"]["pod"] for element in partial["data"]["result"]] == ["b"]
    assert partial["warnings"] == ["a store is down"]
    assert whole["data"]["result"][0]["value"][1] == "2"
    assert "warnings" not in whole


async def test_fault_hang_up(prometheus, session):
    """The server closes the connection without an answer."""
    prometheus.faults.hang_up = True
    with pytest.raises(aiohttp.ClientConnectionError):
        await _get(session, prometheus, "/api/v1/query", query="m")


async def test_fault_delay(prometheus, session):
    """A delayed answer makes the client's timeout expire."""
    prometheus.faults.delay_seconds = 3600.0
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await _get(session, prometheus, "/api/v1/query", query="m")


async def test_unreachable(prometheus, session):
    """The port refuses connections inside the block, and answers at the same address after it."""
    url = prometheus.url
    assert (await _get(session, prometheus, "/api/v1/query", query="m"))[0] == 200
    async with prometheus.unreachable():
        with pytest.raises(aiohttp.ClientConnectorError):
            await _get(session, prometheus, "/api/v1/query", query="m")
    assert prometheus.url == url
    assert (await _get(session, prometheus, "/api/v1/query", query="m"))[0] == 200


async def test_tls_and_token(session):
    """Over TLS, the server accepts the right token and answers 401 to another."""
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    async with EmbeddedPrometheus(now=lambda: NOW, tls=server, token="secret") as prom:
        assert prom.url.startswith("https://")
        for token, status in (("secret", 200), ("wrong", 401)):
            headers = {"Authorization": f"Bearer {token}"}
            url = f"{prom.url}/api/v1/query"
            async with session.get(url, params={"query": "1"}, headers=headers, ssl=client) as response:
                assert response.status == status


async def test_another_token_is_demanded_from_the_next_request_on(session):
    """The server may demand another token at any request, as when an identity provider renews its keys."""
    async with EmbeddedPrometheus(now=lambda: NOW, token="old") as prom:
        prom.token = "new"
        statuses = []
        for token in ("old", "new"):
            headers = {"Authorization": f"Bearer {token}"}
            async with session.get(f"{prom.url}/api/v1/query", params={"query": "1"}, headers=headers) as response:
                statuses.append(response.status)
    assert statuses == [401, 200]


async def test_client_certificates_are_demanded(session):
    """With CERT_REQUIRED, the server answers only clients with a certificate of its authority."""
    authority, other = trustme.CA(), trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(server)
    server.verify_mode = ssl.CERT_REQUIRED
    answered = []
    async with EmbeddedPrometheus(now=lambda: NOW, tls=server) as prom:
        for issuer in (authority, other, None):
            client = ssl.create_default_context()
            authority.configure_trust(client)
            if issuer is not None:
                issuer.issue_cert("client@example.com").configure_cert(client)
            try:
                async with session.get(f"{prom.url}/-/ready", ssl=client) as response:
                    answered.append(response.status == 200)
            except aiohttp.ClientError:
                answered.append(False)
    assert answered == [True, False, False]
