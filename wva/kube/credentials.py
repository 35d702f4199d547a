"""Credentials that change while the process runs. They are asked for before each request.

The token that the library's hooks put into its configuration goes out as the Authorization header of the request. New
connections present the certificate that ``TlsFiles`` loads. Neither is logged.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from wva import log

RENEWAL_SECONDS: Final = 60.0
"""How often an expiring token is looked at; client-go re-reads credentials once per minute, too."""
REFUSED_SECONDS: Final = 10.0
"""How soon after the last look a refusal (401) may run the exec plug-in again."""

_log = log.get("kube.credentials")


class ClientConfiguration(Protocol):
    """The library's configuration, as far as it is used here."""

    api_key: dict[str, str]


class TlsConfiguration(Protocol):
    """The library's configuration of TLS: paths (None: not given) and how strict to be."""

    ssl_ca_cert: str | None
    cert_file: str | None
    key_file: str | None
    verify_ssl: bool
    disable_strict_ssl_verification: bool


class Loader(Protocol):
    """The library's kubeconfig loader, as far as it is used here.

    ``exec_plugin_expiry`` exists once an exec plug-in has named a date.
    """

    exec_plugin_expiry: Any

    @property
    def provider(self) -> object:
        """The auth provider's name, or None."""
        ...

    async def load_and_set(self, client_configuration: Any) -> None:
        """Load the credentials anew, unless those from an exec plug-in are still good."""
        ...


class TokenFile:
    """A token in a file, read again when the file changes.

    The library would do this only for in-cluster tokens, once per minute, and would keep a trailing newline, which
    is no header. A stat per request costs microseconds, and it follows the symbolic links that a kubelet swaps.
    """

    def __init__(self, path: Path) -> None:
        """Read nothing yet."""
        self._path = path
        self._seen: tuple[int, int, int] | None = None

    def __call__(self, configuration: ClientConfiguration) -> None:
        """Put the current token into ``configuration``; an unreadable or empty file leaves the last one."""
        try:
            stat = self._path.stat()
            seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if seen == self._seen:
                return
            token = self._path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            if self._seen is not None:
                _log.warning("credentials_unreadable", file_path=str(self._path), error=type(error).__name__)
            self._seen = None
            return
        if token:
            configuration.api_key["BearerToken"] = f"Bearer {token}"
            self._seen = seen


class Renewal:
    """Credentials that end: an exec plug-in or auth provider is asked again when its token expires or is refused.

    The library does this only in a task of its own, which this program does not start.
    """

    def __init__(self, loader: Loader, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Count from now: the loader has just loaded. ``monotonic`` tells seconds."""
        self._loader = loader
        self._monotonic = monotonic
        self._looked_at = monotonic()
        self._refused = False

    def refused(self) -> None:
        """Note that the server did not accept the credentials."""
        self._refused = True

    async def __call__(self, configuration: ClientConfiguration) -> None:
        """Renew when due. A failure is logged and leaves the old credentials: the server will say what it thinks."""
        if not self._due():
            return
        self._looked_at = self._monotonic()
        if self._refused and hasattr(self._loader, "exec_plugin_expiry"):
            # The plug-in's own date says "still good", the server says no: the server is right.
            del self._loader.exec_plugin_expiry
        self._refused = False
        try:
            await self._loader.load_and_set(configuration)
        except Exception as error:  # noqa: BLE001 - plug-ins and providers fail in their own ways; none may end a watch
            _log.warning("credentials_not_renewed", error=type(error).__name__)

    def _due(self) -> bool:
        since_seconds = self._monotonic() - self._looked_at
        expires = self._loader.provider is not None or hasattr(self._loader, "exec_plugin_expiry")
        return (expires and since_seconds >= RENEWAL_SECONDS) or (self._refused and since_seconds >= REFUSED_SECONDS)


class TlsFiles:
    """The TLS context of the connection, into which changed files of CA and client certificate are loaded.

    New connections use them; open ones go on, watches among them. Half a rotation (a certificate without its new key)
    leaves what is loaded. A CA that was taken out of its file stays trusted: a context cannot forget one.
    """

    def __init__(self, configuration: TlsConfiguration) -> None:
        """Load the files as they are. Raises OSError or ssl.SSLError (a subclass)."""
        self._ca, self._certificate, self._key = (
            configuration.ssl_ca_cert,
            configuration.cert_file,
            configuration.key_file,
        )
        self._verify = configuration.verify_ssl
        self._seen = self._look()
        self._told = ""
        self.context = ssl.create_default_context(cafile=self._ca)
        if self._certificate:
            self.context.load_cert_chain(self._certificate, self._key, password=_no_password)
        if not self._verify:
            self.context.check_hostname = False
            self.context.verify_mode = ssl.CERT_NONE
        if configuration.disable_strict_ssl_verification:
            self.context.verify_flags &= ~ssl.VERIFY_X509_STRICT

    def renew(self) -> None:
        """Load what has changed; what cannot be used is logged once and tried again."""
        try:
            seen = self._look()
            if seen == self._seen:
                return
            # A failing load would leave a context with half of a pair, so another one goes first.
            self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
            self._load(self.context)
        except OSError as error:
            reason = error.strerror or str(error)
            if reason != self._told:
                _log.warning("tls_files_unusable", files=self._paths(), reason=reason, in_force="the last good ones")
            self._told = reason
            return
        self._seen, self._told = seen, ""
        _log.info("tls_files_reloaded", files=self._paths())

    def _load(self, context: ssl.SSLContext) -> None:
        if self._ca and self._verify:
            context.load_verify_locations(self._ca)
        if self._certificate:
            context.load_cert_chain(self._certificate, self._key, password=_no_password)

    def _look(self) -> tuple[tuple[int, int, int], ...]:
        stats = [Path(path).stat() for path in self._paths()]
        return tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats)

    def _paths(self) -> list[str]:
        return [path for path in (self._ca, self._certificate, self._key) if path]


def _no_password() -> str:
    """Answer for an encrypted key: without this OpenSSL would ask on the terminal and block the process."""
    return ""
