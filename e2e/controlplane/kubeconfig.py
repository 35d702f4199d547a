"""Kubeconfig files: how the real programs, and the controller under test, are told where the API server is.

A file holds one cluster, one user, one context. Certificates are embedded, so that a file is complete by itself.
"""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e.controlplane.certs import ServerCertificate


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An API server: URL and the authority that signed its certificate, PEM."""

    server: str
    authority: bytes

    def context(self) -> ssl.SSLContext:
        """Return a TLS context that trusts this server only."""
        return ssl.create_default_context(cadata=self.authority.decode())


def write_certificate_kubeconfig(path: Path, endpoint: Endpoint, pair: ServerCertificate) -> Path:
    """Write a kubeconfig whose user is the subject of a client certificate."""
    user = {
        "client-certificate-data": _encoded(pair.certificate.read_bytes()),
        "client-key-data": _encoded(pair.key.read_bytes()),
    }
    return _write(path, endpoint, user)


def write_token_kubeconfig(path: Path, endpoint: Endpoint, token: str) -> Path:
    """Write a kubeconfig whose user is the bearer of ``token``."""
    return _write(path, endpoint, {"token": token})


def read_kubeconfig(path: Path) -> tuple[Endpoint, ssl.SSLContext, str]:
    """Return endpoint, TLS context with the client certificate if there is one, and the bearer token or ``""``.

    They are those of the current context. Users with an exec plugin are not supported.
    """
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    user = _named(config["users"], context["user"]).get("user") or {}
    endpoint = Endpoint(cluster["server"], _content(cluster, "certificate-authority", path) or b"")
    tls = endpoint.context() if endpoint.authority else ssl.create_default_context()
    certificate, key = _content(user, "client-certificate", path), _content(user, "client-key", path)
    if certificate and key:
        _load_chain(tls, certificate + b"\n" + key)
    return endpoint, tls, user.get("token", "")


def _load_chain(tls: ssl.SSLContext, pem: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:  # the ssl module reads key pairs from files only
        file.write(pem)
        file.flush()
        tls.load_cert_chain(file.name)


def _write(path: Path, endpoint: Endpoint, user: dict[str, str]) -> Path:
    cluster = {"server": endpoint.server, "certificate-authority-data": _encoded(endpoint.authority)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "e2e", "cluster": cluster}],
        "users": [{"name": "e2e", "user": user}],
        "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e"}}],
        "current-context": "e2e",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        yaml.safe_dump(config, file)
    return path


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


def _content(entry: dict[str, Any], field: str, path: Path) -> bytes | None:
    if data := entry.get(f"{field}-data"):
        return base64.b64decode(data)
    if file := entry.get(field):
        return path.parent.joinpath(file).read_bytes()
    return None
