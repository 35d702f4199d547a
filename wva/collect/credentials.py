"""Token and certificates of the Prometheus connection, read again when their files change.

Kubernetes replaces mounted secrets and projected tokens under a running process. The token file is read for each query,
which is cheaper than any way of noticing; a TLS context is dear, so it is built anew only when a file's identity, size
or time changed. While a rotation is half done (a certificate without its new key) the previous context stays in use.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from wva import log
from wva.collect.answers import ErrorKind
from wva.collect.prometheus_settings import PrometheusSettings, is_header_safe, strip_token

_log = log.get("collect.prometheus")

_MAX_TOKEN_BYTES: Final = 64 * 1024

_Fingerprint = tuple[tuple[int, int, int], ...]


class CredentialError(Exception):
    """A token or certificate that cannot be used; the message names the file and never its content."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        """Keep the kind of PrometheusError that this leads to."""
        super().__init__(message)
        self.kind = kind


class BearerToken:
    """The token in force."""

    def __init__(self, settings: PrometheusSettings) -> None:
        """Take the direct token, or else the path of its file."""
        self._direct = strip_token(settings.bearer_token)
        self._path = settings.token_path

    def current(self) -> str:
        """Return the token, empty when there is none. Raises CredentialError when its file cannot be used."""
        if self._direct or not self._path:
            return self._direct
        try:
            with Path(self._path).open("rb") as file:
                token = strip_token(file.read(_MAX_TOKEN_BYTES).decode("utf-8", errors="replace"))
        except OSError as error:
            reason = error.strerror or type(error).__name__
            message = f"the token file {self._path} cannot be read: {reason}"
            raise CredentialError(ErrorKind.UNAUTHORIZED, message) from error
        if not token or not is_header_safe(token):
            raise CredentialError(ErrorKind.UNAUTHORIZED, f"the token file {self._path} contains no token")
        return token


class TlsFiles:
    """The TLS context in force."""

    def __init__(self, settings: PrometheusSettings) -> None:
        """Note the files; nothing is read yet."""
        self._settings = settings
        self._plain = settings.base_url.startswith("http://")
        self._context: ssl.SSLContext | None = None
        self._fingerprint: _Fingerprint | None = None

    def current(self) -> ssl.SSLContext | bool:
        """Return the context, or True for plain HTTP, where it is not used.

        Raises CredentialError when the files cannot be used and never could.
        """
        if self._plain:
            return True
        try:
            fingerprint = self._read_fingerprint()
            if self._context is None or fingerprint != self._fingerprint:
                self._context = build_context(self._settings)
                self._fingerprint = fingerprint
        except (OSError, ssl.SSLError) as error:
            message = f"the TLS files cannot be used: {_reason(error)}"
            if self._context is None:
                raise CredentialError(ErrorKind.UNREACHABLE, message) from error
            _log.warning("tls_files_unusable", reason=message, in_use="the previous ones")
        return self._context

    def _read_fingerprint(self) -> _Fingerprint:
        settings = self._settings
        ca_cert_path = "" if settings.insecure_skip_verify else settings.ca_cert_path
        paths = (ca_cert_path, settings.client_cert_path, settings.client_key_path)
        stats = (Path(path).stat() for path in paths if path)
        return tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats)


def build_context(settings: PrometheusSettings) -> ssl.SSLContext:
    """Return a client context for TLS 1.2 and newer. Raises OSError or ssl.SSLError (a subclass) for its files."""
    if settings.insecure_skip_verify:
        # The CA file is not even read: with verification off it must not keep the controller from working.
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context = ssl.create_default_context(cafile=settings.ca_cert_path or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.client_cert_path:
        context.load_cert_chain(settings.client_cert_path, settings.client_key_path, password=_no_password)
    return context


def _no_password() -> str:
    """Answer for an encrypted key: without this OpenSSL would ask on the terminal and block the process."""
    return ""


def _reason(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return where + (error.strerror or str(error) or type(error).__name__)
