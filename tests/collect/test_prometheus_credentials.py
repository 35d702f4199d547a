"""TLS and tokens of the Prometheus connection, rotation included."""

from __future__ import annotations

import os
import ssl

import pytest
import trustme

from tests.collect.doubles import NOW
from tests.collect.prometheus_server import PrometheusServer, status
from wva.collect.credentials import build_context
from wva.collect.prometheus import ErrorKind, PrometheusClient, PrometheusError, PrometheusSettings

TOKEN = "s3cret-token"


@pytest.fixture(scope="session")
def authority():
    """Return a CA for the tests."""
    return trustme.CA()


@pytest.fixture(scope="session")
def other_authority():
    """Return a CA that nobody trusts."""
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
    """The CA file is what makes an internal Prometheus trusted."""
    async with connect(secure.url, ca_cert_path=str(ca_file)) as client:
        await _ask(client)
    assert len(secure.requests) == 1


async def test_a_certificate_of_another_ca_is_refused(connect, secure, other_authority, tmp_path):
    """Nothing is sent to a server that cannot be verified."""
    other_authority.cert_pem.write_to_path(tmp_path / "other.crt")
    async with connect(secure.url, ca_cert_path=str(tmp_path / "other.crt"), bearer_token=TOKEN) as client:
        failure = await _failure(client)
    assert failure.kind is ErrorKind.UNREACHABLE
    assert "certificate verify failed" in failure.message
    assert secure.requests == []


async def test_verification_can_be_switched_off(connect, secure):
    """For development; a CA path that does not exist does not matter then."""
    async with connect(secure.url, insecure_skip_verify=True, ca_cert_path="/does/not/exist") as client:
        await _ask(client)
    assert len(secure.requests) == 1


async def test_the_expected_server_name_can_differ_from_the_host(connect, authority, ca_file):
    """A Prometheus behind a tunnel carries the name of its Service."""
    context = _server_context(authority, "prometheus.monitoring.svc")
    async with PrometheusServer(ssl_context=context) as server:
        async with connect(server.url, ca_cert_path=str(ca_file)) as client:
            assert (await _failure(client)).kind is ErrorKind.UNREACHABLE
        name = "prometheus.monitoring.svc"
        async with connect(server.url, ca_cert_path=str(ca_file), server_name=name) as client:
            await _ask(client)


async def test_tls_below_1_2_is_not_offered():
    """Old versions are refused whatever OpenSSL was configured with."""
    for skip in (False, True):
        context = build_context(PrometheusSettings("https://p", insecure_skip_verify=skip))
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2


async def test_a_client_certificate_is_presented_and_rotated(connect, authority, other_authority, ca_file, tmp_path):
    """New files are used without a restart."""
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
    """The message says which file."""
    async with connect("https://127.0.0.1:9", ca_cert_path="/does/not/exist") as client:
        failure = await _failure(client)
    assert failure.kind is ErrorKind.UNREACHABLE
    assert "/does/not/exist" in failure.message


@pytest.mark.parametrize("stored", [TOKEN, f" {TOKEN}\n", f"Bearer {TOKEN}"])
async def test_a_direct_token_is_sent_once_prefixed(connect, server, stored):
    """However it was stored, the word Bearer stands once."""
    async with connect(server.url, allow_http=True, bearer_token=stored, token_path="/does/not/exist") as client:
        await _ask(client)
    assert server.requests[0]["headers"]["Authorization"] == f"Bearer {TOKEN}"


async def test_no_token_means_no_header(connect, server):
    """An empty header would be refused by some proxies."""
    async with connect(server.url, allow_http=True) as client:
        await _ask(client)
    assert "Authorization" not in server.requests[0]["headers"]


async def test_a_rotated_token_file_is_read_again(connect, server, tmp_path):
    """Projected tokens change every hour under the process, through a symbolic link."""
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


@pytest.mark.parametrize("content", [None, b"", b" \n", b"a b", b"a\r\nX: y", b"\xff\xfe"])
async def test_an_unusable_token_file_is_unauthorized(connect, server, tmp_path, content):
    """Nothing is sent, and the message names the file, not what is in it."""
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    async with connect(server.url, allow_http=True, token_path=str(path)) as client:
        failure = await _failure(client)
    assert failure.kind is ErrorKind.UNAUTHORIZED
    assert str(path) in failure.message
    assert server.requests == []


async def test_a_token_that_comes_back_in_an_error_is_masked(connect, server):
    """Some proxies repeat the header in their error page."""
    server.plan = [status(400, f"bad header: Bearer {TOKEN}")]
    async with connect(server.url, allow_http=True, bearer_token=TOKEN) as client:
        failure = await _failure(client)
    assert TOKEN not in failure.message
    assert "***" in failure.message
