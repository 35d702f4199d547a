"""Token and certificates of the Prometheus connection, followed while their files change.

Kubernetes replaces mounted secrets and projected tokens under a running process: it swaps a symbolic link, or writes
one file after the other. So the files are read for every query and compared by content, which no time stamp, inode or
link can deceive; a TLS context, which is dear, is built anew only when the content is new. While the files cannot be
used (gone, half written, a certificate without its new key) the last good ones stay in force, told once in the log and
by a gauge for as long as it lasts.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Callable
from typing import Generic, TypeVar

from wva import log
from wva.collect import credential_files as files
from wva.collect.answers import ErrorKind
from wva.collect.credential_files import UnusableFileError
from wva.config.declare import strip_token
from wva.config.prometheus import PrometheusSettings

_log = log.get("collect.prometheus")

Usable = Callable[[bool], None]
"""Told after each look whether the files can be used as they are."""

_T = TypeVar("_T")


class CredentialError(Exception):
    """A token or certificate that cannot be used; the message names the file and never its content."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        """Keep the kind of PrometheusError that this leads to."""
        super().__init__(message)
        self.kind = kind


class _Followed(Generic[_T]):
    """Something made of files: made again when their content changes, kept while it cannot be made."""

    def __init__(
        self, what: str, paths: dict[str, str], *, make: Callable[[], _T], kind: ErrorKind, usable: Usable
    ) -> None:
        """Follow the files in ``paths``, by the setting that names them; ``what`` is the name for people."""
        self._what = what
        self._paths = paths
        self._make = make
        self._kind = kind
        self._usable = usable
        self._made: _T | None = None
        self._digest: bytes | None = None
        self._told = ""

    def current(self) -> _T:
        """Return what the files say, or said last. Raises CredentialError when they never could be used."""
        try:
            # The digest is taken first: what changes between the two reads is noticed at the next look.
            digest = self._read_digest()
            if self._made is None or digest != self._digest:
                self._made, changed = self._make(), self._made is not None
                self._digest = digest
                if changed:
                    _log.info("credentials_reloaded", what=self._what)
        except UnusableFileError as error:
            self._usable(False)
            if self._made is None:
                raise CredentialError(self._kind, str(error)) from error
            self._tell(str(error))
        else:
            self._told = ""
            if self._paths:
                self._usable(True)
        return self._made

    def _read_digest(self) -> bytes:
        """Return a digest of all contents, so that no private key is kept in memory for comparison."""
        contents = (files.read_file(key, path) for key, path in self._paths.items())
        return b"".join(hashlib.sha256(content).digest() for content in contents)

    def _tell(self, reason: str) -> None:
        """Log a reason once, not for every query."""
        if reason != self._told:
            self._told = reason
            _log.warning("credentials_unusable", what=self._what, reason=reason, in_force="the last good ones")


class BearerToken:
    """The token in force."""

    def __init__(self, settings: PrometheusSettings, *, usable: Usable) -> None:
        """Take the direct token, or else the path of its file."""
        self._direct = strip_token(settings.bearer_token)
        path = settings.token_path
        self._file = (
            _Followed(
                "bearer token",
                {files.TOKEN_KEY: path},
                make=lambda: files.read_token(path),
                kind=ErrorKind.UNAUTHORIZED,
                usable=usable,
            )
            if path and not self._direct
            else None
        )

    def current(self) -> str:
        """Return the token, empty when there is none. Raises CredentialError when its file never could be used."""
        return self._direct if self._file is None else self._file.current()


class TlsFiles:
    """The TLS context in force."""

    def __init__(self, settings: PrometheusSettings, *, usable: Usable) -> None:
        """Note the files; nothing is read yet."""
        self._plain = settings.base_url.startswith("http://")
        paths = {
            # With verification off the CA file is not even read: it must not keep the controller from working.
            files.CA_KEY: "" if settings.insecure_skip_verify else settings.ca_cert_path,
            files.CERTIFICATE_KEY: settings.client_cert_path,
            files.PRIVATE_KEY_KEY: settings.client_key_path,
        }
        self._followed = _Followed(
            "TLS files",
            {key: path for key, path in paths.items() if path},
            make=lambda: build_context(settings),
            kind=ErrorKind.UNREACHABLE,
            usable=usable,
        )

    def current(self) -> ssl.SSLContext | None:
        """Return the context, None for plain HTTP.

        The same object comes back until the content of a file changes. Raises CredentialError when the files cannot
        be used and never could.
        """
        return None if self._plain else self._followed.current()


def build_context(settings: PrometheusSettings) -> ssl.SSLContext:
    """Return a client context for TLS 1.2 and newer. Raises UnusableFileError."""
    skip = settings.insecure_skip_verify
    context = files.unverified_context() if skip else files.verifying_context(settings.ca_cert_path)
    if settings.client_cert_path:
        files.load_client_pair(context, settings.client_cert_path, settings.client_key_path)
    return context
