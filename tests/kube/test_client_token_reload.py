"""Tokens that change while the process runs: each request has the current one."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme
from structlog.testing import capture_logs

from wva.api.kinds import PODS
from wva.kube import credentials, errors
from wva.kube.credentials import Renewal, TokenFile

VERSION = {"gitVersion": "v1.34.1"}


def swap(path: Path, text: str) -> None:
    """Replace a file as the kubelet does, by renaming."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


@pytest.fixture
def service_account(
    tls_server: Any, authority: trustme.CA, clean_environment: pytest.MonkeyPatch, tmp_path: Path
) -> Path:
    """Return the folder of a pod's service account for the server."""
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("first", encoding="utf-8")
    authority.cert_pem.write_to_path(str(folder / "ca.crt"))
    host, port = tls_server.url.removeprefix("https://").split(":")
    clean_environment.setenv("KUBERNETES_SERVICE_HOST", host)
    clean_environment.setenv("KUBERNETES_SERVICE_PORT", port)
    clean_environment.setattr(credentials, "SERVICE_ACCOUNT", folder)
    return folder


async def test_in_cluster_token_is_reloaded(tls_server: Any, service_account: Path, connect: Any) -> None:
    """The next request has the new token, over TLS with the CA of the service account."""
    tls_server.say(VERSION)
    async with connect() as client:
        await client.request_json("GET", "/version")
        swap(service_account / "token", "second")
        await client.request_json("GET", "/version")
    assert tls_server.tokens == ["Bearer first", "Bearer second"]


async def test_watches_carry_the_current_token(tls_server: Any, service_account: Path, connect: Any) -> None:
    """A stream is opened with the current token."""
    tls_server.say(b"")
    async with connect() as client:
        for token in ("first", "second"):
            swap(service_account / "token", token)
            lines = client.stream(PODS, resource_version="1", timeout_seconds=300, idle_seconds=5)
            assert [line async for line in lines] == []
    assert tls_server.tokens == ["Bearer first", "Bearer second"]


async def test_token_file_of_a_kubeconfig_is_reloaded(
    server: Any, kubeconfig: Any, connect: Any, tmp_path: Path
) -> None:
    """The client reads a tokenFile again, which the library does not. Its path is relative to the kubeconfig."""
    server.say(VERSION)
    token = tmp_path / "token"
    token.write_text("first\n", encoding="utf-8")
    kubeconfig(server.url, user={"tokenFile": "token"})
    async with connect() as client:
        await client.request_json("GET", "/version")
        swap(token, "second\n")
        await client.request_json("GET", "/version")
        await client.request_json("GET", "/version")
    assert server.tokens == ["Bearer first", "Bearer second", "Bearer second"]


async def test_token_in_the_kubeconfig_is_sent(server: Any, kubeconfig: Any, connect: Any) -> None:
    """The client sends the token of the kubeconfig."""
    server.say(VERSION)
    kubeconfig(server.url, user={"token": "fixed"})
    async with connect() as client:
        await client.request_json("GET", "/version")
    assert server.tokens == ["Bearer fixed"]


async def test_no_credentials_no_header(server: Any, kubeconfig: Any, connect: Any) -> None:
    """Without credentials the client sends no Authorization header."""
    server.say(VERSION)
    kubeconfig(server.url)
    async with connect() as client:
        await client.request_json("GET", "/version")
    assert server.tokens == [None]


@pytest.fixture
def token_path(tmp_path: Path) -> Path:
    """Return a token file."""
    path = tmp_path / "token"
    path.write_text("first", encoding="utf-8")
    return path


def test_unreadable_token_keeps_the_last_one(token_path: Path) -> None:
    """While the file is missing, the client uses the old token. It logs that once, without the token."""
    hook, configuration = TokenFile(token_path), SimpleNamespace(api_key={})
    hook(configuration)
    token_path.unlink()
    with capture_logs() as logs:
        hook(configuration)
        hook(configuration)
    assert configuration.api_key == {"BearerToken": "Bearer first"}
    assert [entry["event"] for entry in logs] == ["credentials_unreadable"]
    assert "first" not in str(logs)
    token_path.write_text("second", encoding="utf-8")
    hook(configuration)
    assert configuration.api_key == {"BearerToken": "Bearer second"}


def test_empty_token_keeps_the_last_one(token_path: Path) -> None:
    """An empty file does not replace the token."""
    hook, configuration = TokenFile(token_path), SimpleNamespace(api_key={})
    hook(configuration)
    token_path.write_text("\n", encoding="utf-8")
    hook(configuration)
    assert configuration.api_key == {"BearerToken": "Bearer first"}


def test_swapped_link_is_followed(tmp_path: Path) -> None:
    """The kubelet replaces a symbolic link to a folder, and the client reads the file in the new folder."""
    for name in ("first", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "token").write_text(name, encoding="utf-8")
        os.utime(tmp_path / name / "token", (1, 1))
    link = tmp_path / "data"
    link.symlink_to("first")
    hook, configuration = TokenFile(link / "token"), SimpleNamespace(api_key={})
    hook(configuration)
    link.unlink()
    link.symlink_to("other")
    hook(configuration)
    assert configuration.api_key == {"BearerToken": "Bearer other"}


class NumberedTokenLoader:
    """Replaces the loader of the library, and returns numbered tokens."""

    provider: object = None

    def __init__(self, *, expires: bool = False) -> None:
        """Start without loads. ``expires`` sets what an exec plug-in with an expiry sets."""
        self.loads = 0
        self.broken = False
        if expires:
            self.exec_plugin_expiry: Any = "soon"

    async def load_and_set(self, client_configuration: Any) -> None:
        """Load the next token."""
        self.loads += 1
        if self.broken:
            raise RuntimeError("plug-in says secret-value")
        client_configuration.api_key["BearerToken"] = f"Bearer {self.loads}"


class Time:
    """A clock that a test sets."""

    seconds = 0.0

    def __call__(self) -> float:
        """Return the seconds."""
        return self.seconds


async def test_expiring_credentials_are_looked_at_once_per_minute() -> None:
    """The client asks the loader at most once per minute. The loader decides whether they have expired."""
    loader, time, configuration = NumberedTokenLoader(expires=True), Time(), SimpleNamespace(api_key={})
    renewal = Renewal(loader, monotonic=time)
    for time.seconds in range(130):
        await renewal(configuration)
    assert loader.loads == 2


async def test_lasting_credentials_are_renewed_only_when_refused() -> None:
    """A plug-in without an expiry runs again only after a 401, and at most every ten seconds."""
    loader, time, configuration = NumberedTokenLoader(), Time(), SimpleNamespace(api_key={})
    renewal = Renewal(loader, monotonic=time)
    time.seconds = 1000.0
    await renewal(configuration)
    assert loader.loads == 0
    for _ in range(3):
        renewal.refused()
        await renewal(configuration)
    assert loader.loads == 1
    time.seconds += 10.0
    await renewal(configuration)
    time.seconds += 10.0
    await renewal(configuration)
    assert loader.loads == 2


async def test_refusal_overrules_the_date_of_the_plug_in() -> None:
    """After a 401 the credentials are loaded again, even if they have not expired."""
    loader, time, configuration = NumberedTokenLoader(expires=True), Time(), SimpleNamespace(api_key={})
    renewal = Renewal(loader, monotonic=time)
    time.seconds = 10.0
    renewal.refused()
    await renewal(configuration)
    assert loader.loads == 1
    assert not hasattr(loader, "exec_plugin_expiry")


async def test_failed_renewal_keeps_the_credentials() -> None:
    """The old credentials stay. The log has only the class of the error, because its text may contain secrets."""
    loader, time, configuration = (
        NumberedTokenLoader(expires=True),
        Time(),
        SimpleNamespace(api_key={"BearerToken": "Bearer old"}),
    )
    renewal = Renewal(loader, monotonic=time)
    loader.broken, time.seconds = True, 60.0
    with capture_logs() as logs:
        await renewal(configuration)
    assert configuration.api_key == {"BearerToken": "Bearer old"}
    assert [(entry["event"], entry["error"]) for entry in logs] == [("credentials_not_renewed", "RuntimeError")]


async def test_exec_plug_in_is_asked_again_after_a_401(
    server: Any, kubeconfig: Any, connect: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real plug-in runs again after a 401, and the next request has its new token."""
    monkeypatch.setattr("wva.kube.credentials.REFUSED_SECONDS", 0.0)
    runs = tmp_path / "runs"
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "T"}}
    code = (
        f"open({str(runs)!r}, 'a').write('x'); number = open({str(runs)!r}).read().count('x');"
        f"print({json.dumps(credential)!r}.replace('\"T\"', '\"token-%d\"' % number))"
    )
    plug_in = {"command": sys.executable, "args": ["-c", code], "apiVersion": credential["apiVersion"]}
    kubeconfig(server.url, user={"exec": plug_in})
    server.say({"kind": "Status", "code": 401, "reason": "Unauthorized"}, status=401)
    async with connect(timeout_seconds=30.0) as client:
        with pytest.raises(errors.Unauthorized):
            await client.request_json("GET", "/version")
        server.say(VERSION)
        await client.request_json("GET", "/version")
    assert server.tokens == ["Bearer token-1", "Bearer token-2"]
