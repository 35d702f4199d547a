"""Reading what proves an identity: token and PEM files in; a token, a TLS context or what is wrong with which file out.

The same code judges the files at the start of the process and every time they change while it runs. A message names
the file and the setting that points to it, never what is in the file.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from wva.config.declare import is_header_safe, strip_token
from wva.config.prometheus import PrometheusSettings

CA_KEY: Final = "PROMETHEUS_CA_CERT_PATH"
CERTIFICATE_KEY: Final = "PROMETHEUS_CLIENT_CERT_PATH"
PRIVATE_KEY_KEY: Final = "PROMETHEUS_CLIENT_KEY_PATH"
TOKEN_KEY: Final = "PROMETHEUS_TOKEN_PATH"  # noqa: S105 - the name of a setting

_EXPECTED: Final = {
    CA_KEY: "a file with CA certificates in PEM",
    CERTIFICATE_KEY: "a file with a certificate in PEM",
    PRIVATE_KEY_KEY: "a file with the private key of the certificate in PEM, not encrypted",
    TOKEN_KEY: "a file with one line of printable ASCII",
}
_MAX_FILE_BYTES: Final = 4 * 1024 * 1024
"""A bundle of every public CA has a quarter of a MiB."""


class UnusableFileError(Exception):
    """A file that cannot be used; the message says which, why, and what was expected."""


def read_file(key: str, path: str) -> bytes:
    """Return what the file behind a setting holds. Raises UnusableFileError.

    A pipe or a device is no file: reading it might block the process, or never end.
    """
    file = Path(path)
    try:
        if file.exists() and not file.is_file():
            raise _unusable(key, path, "is not a regular file")
        with file.open("rb") as opened:
            content = opened.read(_MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: no path at all, such as one with a NUL inside
        raise _unusable(key, path, f"cannot be read: {_reason(error)}") from error
    if len(content) > _MAX_FILE_BYTES:
        raise _unusable(key, path, f"is larger than {_MAX_FILE_BYTES // 1024 // 1024} MiB")
    return content


def read_token(path: str) -> str:
    """Return the bearer token in a file. Raises UnusableFileError."""
    token = strip_token(read_file(TOKEN_KEY, path).decode("utf-8", errors="replace"))
    if not token or not is_header_safe(token):
        raise _unusable(TOKEN_KEY, path, "contains no token")
    return token


def verifying_context(ca_path: str) -> ssl.SSLContext:
    """Return a client context that trusts the CAs of a PEM file, or the system's when the path is empty.

    Raises UnusableFileError.
    """
    try:
        context = ssl.create_default_context(cafile=ca_path or None)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise _unusable(CA_KEY, ca_path, f"cannot be used: {_reason(error)}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def unverified_context() -> ssl.SSLContext:
    """Return a client context that believes any server."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def load_client_pair(context: ssl.SSLContext, certificate_path: str, key_path: str) -> None:
    """Let a context present a client certificate. Raises UnusableFileError, also when they do not belong together."""
    try:
        context.load_cert_chain(certificate_path, key_path, password=_no_password)
    except (OSError, ValueError) as error:
        files = f"{CERTIFICATE_KEY}={certificate_path!r} and {PRIVATE_KEY_KEY}={key_path!r}"
        problem = (
            f"{files} are no pair: {_reason(error)}; expected a certificate and its private key in PEM, not encrypted"
        )
        raise UnusableFileError(problem) from error


def connection_problems(settings: PrometheusSettings) -> list[str]:
    """Return what is wrong with a connection at the start of the process, one sentence each, the files included.

    A file that goes or breaks later is no reason to end: the last good one stays in force (``credentials``).
    """
    found = settings.problems()
    if found:
        return found

    def check(*checks: Callable[[], object]) -> list[str]:
        told = []
        for each in checks:
            try:
                each()
            except UnusableFileError as error:
                told.append(str(error))
        return told

    if settings.token_path and not strip_token(settings.bearer_token):
        found = check(lambda: read_token(settings.token_path))
    if settings.insecure_skip_verify or settings.base_url.startswith("http://"):
        return found  # the files of TLS do not matter without it, or without verification
    # Each file is read on its own first: the errors of a TLS library do not say which one they mean.
    paths = {
        CA_KEY: settings.ca_cert_path,
        CERTIFICATE_KEY: settings.client_cert_path,
        PRIVATE_KEY_KEY: settings.client_key_path,
    }
    unreadable = check(*(partial(read_file, key, path) for key, path in paths.items() if path))
    if unreadable:
        return found + unreadable
    certificate, key = settings.client_cert_path, settings.client_key_path
    pair = [lambda: load_client_pair(unverified_context(), certificate, key)] if certificate else []
    return found + check(lambda: verifying_context(settings.ca_cert_path), *pair)


def _unusable(key: str, path: str, problem: str) -> UnusableFileError:
    return UnusableFileError(f"{key}={path!r} {problem}; expected {_EXPECTED[key]}")


def _no_password() -> str:
    """Answer for an encrypted key: without this OpenSSL would ask on the terminal and block the process."""
    return ""


def _reason(error: OSError | ValueError) -> str:
    said = error.strerror if isinstance(error, OSError) else None
    return said or str(error) or type(error).__name__
