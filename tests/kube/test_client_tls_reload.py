"""The files of the CA and of the client certificate change while the client runs."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from kubernetes_asyncio.client import Configuration
from structlog.testing import capture_logs

from tests.kube.conftest import FakeServer, _serve
from wva.kube.credentials import TlsContext
from wva.kube.errors import ConfigurationError, Unreachable

VERSION = {"gitVersion": "v1.34.4"}


class Files:
    """The files of a kubeconfig, and the authority that issues them."""

    def __init__(self, folder: Path, authority: trustme.CA) -> None:
        """Write a client certificate of the authority."""
        self.folder = folder
        self.authority = authority
        self.renew(authority)

    def renew(self, issuer: trustme.CA, *, half: bool = False) -> None:
        """Replace the certificate, and its key unless ``half``."""
        issued = issuer.issue_cert("controller@example.com")
        issued.cert_chain_pems[0].write_to_path(str(self.folder / "tls.crt"))
        if not half:
            issued.private_key_pem.write_to_path(str(self.folder / "tls.key"))

    def trust(self, *authorities: trustme.CA) -> None:
        """Replace the CA file."""
        (self.folder / "ca.crt").write_bytes(b"".join(authority.cert_pem.bytes() for authority in authorities))

    def user(self) -> dict[str, str]:
        """Return the user entry of a kubeconfig."""
        return {"client-certificate": str(self.folder / "tls.crt"), "client-key": str(self.folder / "tls.key")}


@pytest.fixture
def files(tmp_path: Path, authority: trustme.CA) -> Files:
    """Return the files of a client that trusts the authority."""
    made = Files(tmp_path, authority)
    made.trust(authority)
    return made


@pytest.fixture
async def mutual(authority: trustme.CA) -> AsyncIterator[tuple[FakeServer, list[str]]]:
    """Serve HTTPS to clients with a certificate, one request per connection.

    Yield also the serial numbers of the clients.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    seen: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        seen.append(request.transport.get_extra_info("peercert")["serialNumber"])
        return web.json_response(VERSION, headers={"Connection": "close"})

    async for running in _serve(FakeServer(answer=answer), context):
        yield running, seen


async def test_a_renewed_client_certificate_is_presented(
    mutual: tuple[FakeServer, list[str]], files: Files, kubeconfig: Any, connect: Any
) -> None:
    """The next connection uses it. While only one of the two files is new, the client uses the last valid pair."""
    server, seen = mutual
    kubeconfig(server.url, user=files.user(), **{"certificate-authority": str(files.folder / "ca.crt")})
    async with connect() as client:
        await client.request_json("GET", "/version")
        await client.request_json("GET", "/version")
        files.renew(files.authority, half=True)
        await client.request_json("GET", "/version")
        files.renew(files.authority)
        await client.request_json("GET", "/version")
        (files.folder / "tls.crt").unlink()
        await client.request_json("GET", "/version")
    one, two, three, four, five = seen
    assert one == two == three
    assert four != one
    assert five == four


async def test_a_ca_that_is_added_is_trusted(tls_server: Any, files: Files, kubeconfig: Any, connect: Any) -> None:
    """During a change of the CA, a cluster provides both. The client reads the new file without a restart."""
    tls_server.say(VERSION)
    old = trustme.CA()
    files.trust(old)
    kubeconfig(tls_server.url, **{"certificate-authority": str(files.folder / "ca.crt")})
    async with connect() as client:
        with pytest.raises(Unreachable):
            await client.request_json("GET", "/version")
        (files.folder / "ca.crt").write_text("half", encoding="utf-8")
        with pytest.raises(Unreachable):
            await client.request_json("GET", "/version")
        files.trust(old, files.authority)
        await client.request_json("GET", "/version")
    assert len(tls_server.received) == 1


async def test_without_verification_any_server_is_believed(
    tls_server: Any, files: Files, kubeconfig: Any, connect: Any
) -> None:
    """With insecure-skip-tls-verify the client accepts any server, and still uses its own certificate."""
    tls_server.say(VERSION, headers={"Connection": "close"})
    kubeconfig(tls_server.url, user=files.user(), **{"insecure-skip-tls-verify": True})
    async with connect() as client:
        await client.request_json("GET", "/version")
        files.renew(files.authority)
        await client.request_json("GET", "/version")
    assert len(tls_server.received) == 2


def test_a_client_certificate_is_renewed_where_the_authorities_of_the_machine_are_trusted(files: Files) -> None:
    """Without a file of a CA there is none to load again."""
    configuration = Configuration()
    configuration.cert_file, configuration.key_file = files.user().values()
    tls = TlsContext(configuration)
    files.renew(files.authority)
    with capture_logs() as logs:
        tls.renew()
        tls.renew()
    assert [entry["event"] for entry in logs] == ["tls_files_reloaded"]


async def test_a_key_with_a_password_is_an_error(tls_server: Any, files: Files, kubeconfig: Any, connect: Any) -> None:
    """The client refuses the key. If it asked for the password at the terminal, the process would wait for ever."""
    path = files.folder / "tls.key"
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    encryption = serialization.BestAvailableEncryption(b"secret")
    form = serialization.PrivateFormat.PKCS8
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, encryption))
    kubeconfig(tls_server.url, user=files.user())
    with pytest.raises(ConfigurationError):
        async with connect():
            pass
