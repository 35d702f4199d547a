"""Credentials that change while the process runs. The library asks these hooks before each request.

What they put into the library's configuration goes out as the request's Authorization header; nothing of it is logged.
"""

from __future__ import annotations

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


class Configuration(Protocol):
    """The library's configuration, as far as it is used here."""

    api_key: dict[str, str]


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

    def __call__(self, configuration: Configuration) -> None:
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

    The library does this only in a task of its own, which nobody starts.
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

    async def __call__(self, configuration: Configuration) -> None:
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
