"""TLS and tokens of the Prometheus connection, rotation included."""

from __future__ import annotations

import asyncio
import os
import ssl

import pytest
import trustme
from aiohttp import web

from tests.collect.doubles import NOW
from tests.prometheus.prometheus_server import PrometheusServer, status, vector
from wva.prometheus.answers import ErrorKind, PrometheusError
from wva.prometheus.authentication import build_context
from wva.prometheus.client import PrometheusClient
from wva.prometheus.settings import PrometheusSettings

TOKEN = "s3cret-token"


@pytest.fixture(scope="session")
def authority():
    """Return a CA for the tests."""
    return trustme.CA()


@pytest.fixture(scope="session")
def other_authority():
    """Return a CA that the client does not trust."""
    return trustme.CA()


@pytest.fixture
def ca_file(authority, tmp_path):
    """Return the path of the CA's certificate."""
    path = tmp_path / "ca.crt"
    authority.cert_pem.write_to_path(path)
    return path


def _server_context(authority, *names, minimum=None, maximum=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    if maximum:
        context.minimum_version = minimum
        context.maximum_version = maximum
    return context


@pytest.fixture
async def secure(authority):
    """Return a Prometheus with TLS under its address."""
    async with PrometheusServer(ssl_context=_server_context(authority, "127.0.0.1")) as running:
        yield running


@pytest.fixture
def connect(clock, instruments):
    """Return a function that makes a client, to be used as a context."""
    return lambda url, **rest: PrometheusClient(PrometheusSettings(url, **rest), clock=clock, instruments=instruments)


async def _ask(client):
    return await client.query("up", name="kv_cache_usage", at=NOW)


async def _failure(client):
    with pytest.raises(PrometheusError) as caught:
        await _ask(client)
    return caught.value


async def test_a_certificate_of_the_given_ca_is_accepted(connect, secure, ca_file):
    """The client trusts the CA of the configured file."""
    async with connect(secure.url, ca_cert_path=str(ca_file)) as client:
        await _ask(client)
    assert len(secure.requests) == 1


async def test_a_certificate_of_another_ca_is_refused(connect, secure, other_authority, tmp_path):
    """The client sends nothing to a server that it cannot verify."""
    other_authority.cert_pem.write_to_path(tmp_path / "other.crt")
    async with connect(secure.url, ca_cert_path=str(tmp_path / "other.crt"), bearer_token=TOKEN) as client:
        failure = await _failure(client)
    assert failure.kind is ErrorKind.UNREACHABLE
    assert "certificate verify failed" in failure.message
    assert failure.message.endswith(" (PROMETHEUS_CA_CERT_PATH is the file with the CA that signed the certificate)")
    assert secure.requests == []


async def test_verification_can_be_switched_off(connect, secure):
    """With verification off, a CA path that does not exist does not matter."""
    async with connect(secure.url, insecure_skip_verify=True, ca_cert_path="/does/not/exist") as client:
        await _ask(client)
    assert len(secure.requests) == 1


async def test_the_expected_server_name_can_differ_from_the_host(connect, authority, ca_file):
    """A Prometheus behind a tunnel has a certificate with the name of its Service."""
    context = _server_context(authority, "prometheus.monitoring.svc")
    async with PrometheusServer(ssl_context=context) as server:
        async with connect(server.url, ca_cert_path=str(ca_file)) as client:
            failure = await _failure(client)
            assert failure.kind is ErrorKind.UNREACHABLE
            assert failure.message.endswith(" (PROMETHEUS_SERVER_NAME is the name that the certificate has)")
        name = "prometheus.monitoring.svc"
        async with connect(server.url, ca_cert_path=str(ca_file), server_name=name) as client:
            await _ask(client)


async def test_tls_below_1_2_is_not_offered():
    """The client requires TLS 1.2 or newer, also with verification off."""
    for skip in (False, True):
        context = build_context(PrometheusSettings("https://p", insecure_skip_verify=skip))
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2


async def test_a_client_certificate_is_presented_and_rotated(connect, authority, other_authority, ca_file, tmp_path):
    """The client uses new certificate files without a restart."""
    context = _server_context(authority, "127.0.0.1")
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"

    def write(issuer):
        issued = issuer.issue_cert("client@example.com")
        issued.cert_chain_pems[0].write_to_path(certificate)
        issued.private_key_pem.write_to_path(key)

    write(other_authority)
    files = {"client_cert_path": str(certificate), "client_key_path": str(key), "ca_cert_path": str(ca_file)}
    async with PrometheusServer(ssl_context=context) as server, connect(server.url, **files) as client:
        assert (await _failure(client)).kind is ErrorKind.UNREACHABLE
        write(authority)
        await _ask(client)
        certificate.write_text("half of a rotation")
        await _ask(client)
        assert len(server.requests) == 2


async def test_missing_tls_files_are_reported_by_path(connect):
    """The message names the file."""
    async with connect("https://127.0.0.1:9", ca_cert_path="/does/not/exist") as client:
        failure = await _failure(client)
    assert failure.kind is ErrorKind.UNREACHABLE
    assert "/does/not/exist" in failure.message


@pytest.mark.parametrize("stored", [TOKEN, f" {TOKEN}\n", f"Bearer {TOKEN}"])
async def test_a_direct_token_is_sent_once_prefixed(connect, server, stored):
    """The header has the word Bearer once, also if the setting has it."""
    async with connect(server.url, allow_http=True, bearer_token=stored, token_path="/does/not/exist") as client:
        await _ask(client)
    assert server.requests[0]["headers"]["Authorization"] == f"Bearer {TOKEN}"


async def test_no_token_means_no_header(connect, server):
    """The client sends no empty header, because some proxies refuse it."""
    async with connect(server.url, allow_http=True) as client:
        await _ask(client)
    assert "Authorization" not in server.requests[0]["headers"]


async def test_a_rotated_token_file_is_read_again(connect, server, tmp_path):
    """The kubelet replaces the file of a projected token through a symbolic link."""
    (tmp_path / "one").write_text("first\n")
    (tmp_path / "two").write_text("second\n")
    link = tmp_path / "token"
    link.symlink_to("one")
    async with connect(server.url, allow_http=True, token_path=str(link)) as client:
        await _ask(client)
        (tmp_path / "next").symlink_to("two")
        os.replace(tmp_path / "next", link)  # noqa: PTH105 - the very call that the kubelet makes
        await _ask(client)
    assert [request["headers"]["Authorization"] for request in server.requests] == ["Bearer first", "Bearer second"]


BAD_TOKENS = {
    "gone": None,
    "empty": b"",
    "blank": b" \n",
    "two words": b"a b",
    "header": b"a\r\nX: y",
    "binary": b"\xff",
}


@pytest.mark.parametrize("content", BAD_TOKENS.values(), ids=BAD_TOKENS.keys())
async def test_the_last_good_token_stays_while_its_file_cannot_be_used(
    connect, server, tmp_path, output, metric, content
):
    """The client sends the last good token while its file is missing, empty or invalid."""
    path = tmp_path / "token"
    path.write_text("first")
    async with connect(server.url, allow_http=True, token_path=str(path)) as client:
        await _ask(client)
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        await _ask(client)
        await _ask(client)
        assert metric("wva_prometheus_credentials_usable", kind="token") == 0
        path.write_text("third")
        await _ask(client)
    sent = [request["headers"]["Authorization"] for request in server.requests]
    assert sent == ["Bearer first"] * 3 + ["Bearer third"]
    assert metric("wva_prometheus_credentials_usable", kind="token") == 1
    (warning,) = [line for line in output() if line["event"] == "credentials_unusable"]
    assert warning["level"] == "warning"
    assert str(path) in warning["reason"]
    assert warning["in_force"] == "the last good ones"
    assert [line["what"] for line in output() if line["event"] == "credentials_reloaded"] == ["bearer token"]
    assert not any(secret in str(output()) for secret in ("first", "third"))


async def test_a_token_replaced_while_the_former_is_refused_is_tried_at_once(connect, server, clock, tmp_path):
    """After a 401 the client reads the file again and retries with a new token."""
    path = tmp_path / "token"
    path.write_text("first")

    async def refuse(_):
        path.write_text("other")
        return web.Response(status=401)

    server.plan = [refuse, vector()]
    async with connect(server.url, allow_http=True, token_path=str(path)) as client:
        await _ask(client)
        server.plan = [status(401)]
        assert (await _failure(client)).kind is ErrorKind.UNAUTHORIZED
    sent = [request["headers"]["Authorization"] for request in server.requests]
    assert sent == ["Bearer first", "Bearer other", "Bearer other"]
    assert clock.pauses == []


async def test_a_token_of_the_same_length_written_into_the_same_file_is_seen(connect, server, tmp_path):
    """The client sees a new token although size, inode and time stamp of the file are the same."""
    path = tmp_path / "token"
    path.write_text("first")
    before = path.stat()
    async with connect(server.url, allow_http=True, token_path=str(path)) as client:
        await _ask(client)
        path.write_text("other")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        await _ask(client)
    assert [request["headers"]["Authorization"] for request in server.requests] == ["Bearer first", "Bearer other"]


class Mount:
    """A secret as the kubelet mounts it: files are links into ``..data``, which is a link that is swapped."""

    def __init__(self, folder):
        """Mount nothing yet."""
        self._folder = folder
        self._generation = 0

    def write(self, **contents):
        """Replace all files at once; a name with an underscore stands for one with a dot."""
        self._generation += 1
        data = self._folder / f"..generation_{self._generation}"
        data.mkdir(parents=True)
        for name, content in contents.items():
            (data / name.replace("_", ".")).write_bytes(content)
            link = self._folder / name.replace("_", ".")
            if not link.is_symlink():
                link.symlink_to(f"..data/{link.name}")
        (self._folder / "..data_tmp").symlink_to(data.name)
        os.replace(self._folder / "..data_tmp", self._folder / "..data")  # noqa: PTH105 - the very call of the kubelet

    def __getitem__(self, name):
        """Return the path of a file."""
        return str(self._folder / name)


def _pair(issuer):
    """Return certificate and key of a new client in PEM."""
    issued = issuer.issue_cert("client@example.com")
    return issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes()


@pytest.fixture
async def mutual(authority):
    """Return a Prometheus that demands a client certificate of the CA; requests tell its serial number."""
    context = _server_context(authority, "127.0.0.1")
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    async with PrometheusServer(ssl_context=context) as running:
        yield running


async def test_a_swapped_mount_brings_pair_and_connection(connect, authority, mutual, tmp_path):
    """The new certificate is used for the next query, on a new connection; the old one is closed."""
    mount = Mount(tmp_path / "mount")
    certificate, key = _pair(authority)
    mount.write(ca_crt=authority.cert_pem.bytes(), tls_crt=certificate, tls_key=key)
    files = {"ca_cert_path": mount["ca.crt"], "client_cert_path": mount["tls.crt"], "client_key_path": mount["tls.key"]}
    async with connect(mutual.url, **files) as client:
        await _ask(client)
        await _ask(client)
        certificate, key = _pair(authority)
        mount.write(ca_crt=authority.cert_pem.bytes(), tls_crt=certificate, tls_key=key)
        await _ask(client)
        await _ask(client)
        one, two, three, four = mutual.peers
        assert one == two != three == four
        await mutual.closed(one)


async def test_a_query_on_its_way_ends_before_its_connection_is_closed(connect, authority, mutual, tmp_path):
    """A query that runs during a rotation gets its answer on the old connection."""
    arrived, release = asyncio.Event(), asyncio.Event()

    async def hold(_):
        arrived.set()
        await release.wait()
        return web.Response(text=vector(({}, "7")), content_type="application/json")

    mount = Mount(tmp_path / "mount")
    certificate, key = _pair(authority)
    mount.write(ca_crt=authority.cert_pem.bytes(), tls_crt=certificate, tls_key=key)
    files = {"ca_cert_path": mount["ca.crt"], "client_cert_path": mount["tls.crt"], "client_key_path": mount["tls.key"]}
    mutual.plan = [hold, vector()]
    async with connect(mutual.url, **files) as client, asyncio.TaskGroup() as group:
        slow = group.create_task(_ask(client))
        await arrived.wait()
        certificate, key = _pair(authority)
        mount.write(ca_crt=authority.cert_pem.bytes(), tls_crt=certificate, tls_key=key)
        await _ask(client)
        release.set()
        assert (await slow).series[0].value[1] == "7"
        await mutual.closed(mutual.peers[0])
    assert len(mutual.requests) == 2


async def test_a_rotated_ca_is_trusted_from_the_next_query_on(
    connect, authority, other_authority, secure, tmp_path, metric
):
    """The former CA is no longer trusted: the client does not use its connection again."""
    path = tmp_path / "ca.crt"
    authority.cert_pem.write_to_path(path)
    async with connect(secure.url, ca_cert_path=str(path)) as client:
        await _ask(client)
        other_authority.cert_pem.write_to_path(path)
        assert "certificate verify failed" in (await _failure(client)).message
        both = authority.cert_pem.bytes() + other_authority.cert_pem.bytes()
        path.write_bytes(both)
        await _ask(client)
    assert metric("wva_prometheus_credentials_usable", kind="tls") == 1


HALVES = {
    "certificate first": ("tls.crt", lambda new: new[0]),
    "key first": ("tls.key", lambda new: new[1]),
    "cut certificate": ("tls.crt", lambda new: new[0][:200]),
    "empty key": ("tls.key", lambda _: b""),
    "gone": ("tls.crt", None),
}


@pytest.fixture
async def rotating(connect, authority, mutual, ca_file, tmp_path):
    """Return (function that asks, folder of the client's pair, a new pair); the first query has been answered."""
    old = _pair(authority)
    for name, content in zip(("tls.crt", "tls.key"), old, strict=True):
        (tmp_path / name).write_bytes(content)
    paths = {"client_cert_path": str(tmp_path / "tls.crt"), "client_key_path": str(tmp_path / "tls.key")}
    async with connect(mutual.url, ca_cert_path=str(ca_file), **paths) as client:
        await _ask(client)
        yield lambda: _ask(client), tmp_path, _pair(authority)


@pytest.mark.parametrize("half", HALVES)
async def test_half_a_rotation_keeps_the_last_good_pair_and_names_the_file(rotating, mutual, output, metric, half):
    """Certificate and key are written one after the other; until both fit, the client uses the former pair."""
    ask, folder, new = rotating
    name, content = HALVES[half]
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content(new))
    await ask()
    await ask()
    assert metric("wva_prometheus_credentials_usable", kind="tls") == 0
    (folder / "tls.crt").write_bytes(new[0])
    (folder / "tls.key").write_bytes(new[1])
    await ask()
    assert metric("wva_prometheus_credentials_usable", kind="tls") == 1
    one, two, three, four = mutual.peers
    assert one == two == three != four
    (warning,) = [line for line in output() if line["event"] == "credentials_unusable"]
    assert str(folder / name) in warning["reason"]
    assert "PRIVATE KEY" not in str(output())


async def test_a_ca_file_that_goes_while_the_process_runs_is_kept(connect, secure, ca_file, output):
    """The client keeps the last good CA while the file is missing or invalid."""
    async with connect(secure.url, ca_cert_path=str(ca_file)) as client:
        await _ask(client)
        ca_file.unlink()
        await _ask(client)
        ca_file.write_text("not a certificate")
        await _ask(client)
    assert len(secure.requests) == 3
    reasons = [line["reason"] for line in output() if line["event"] == "credentials_unusable"]
    assert len(reasons) == 2  # one for each error, and not one for each query
    assert all(str(ca_file) in reason for reason in reasons)


@pytest.mark.parametrize("content", [None, b"", b" \n", b"a b", b"a\r\nX: y", b"\xff\xfe"])
async def test_an_unusable_token_file_is_unauthorized(connect, server, tmp_path, content):
    """The client sends nothing, and the message names the file but not its content."""
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    async with connect(server.url, allow_http=True, token_path=str(path)) as client:
        failure = await _failure(client)
    assert failure.kind is ErrorKind.UNAUTHORIZED
    assert str(path) in failure.message
    assert server.requests == []


async def test_a_token_that_comes_back_in_an_error_is_masked(connect, server):
    """Some proxies repeat the header in their error page, so the message masks the token."""
    server.plan = [status(400, f"bad header: Bearer {TOKEN}")]
    async with connect(server.url, allow_http=True, bearer_token=TOKEN) as client:
        failure = await _failure(client)
    assert TOKEN not in failure.message
    assert "***" in failure.message
