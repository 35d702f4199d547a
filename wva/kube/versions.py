"""Which resourceVersion a list has to ask for, so that a collection never goes back in time.

The first list of a process may come from a server's cache ("0"). Each later one asks for at least the newest version
that was told, since another API server, or one that has just started, may be behind. Where that does not work, the
newest state is asked for (None), which a server must read consistently: after a second refusal of the version, and when
lists expire before anything was told. A list that is older all the same is used only if the newest state is
older twice in a row, for example because the store was restored from a backup.
"""

from __future__ import annotations

from http import HTTPStatus

from wva.api.meta import is_older
from wva.kube import errors

_IN_A_ROW = 2
_CANNOT_READ = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})


class Versions:
    """The newest version of a collection, and how lists at it went."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.newest = ""
        self._consistent = False
        self._refused = self._expired = self._older = 0

    @property
    def to_ask(self) -> str | None:
        """What the next list asks for: a version, "0" for any state, None for the newest."""
        return None if self._consistent else self.newest or "0"

    def listed(self, version: str) -> bool:
        """Note the version of a list; tell whether it goes back in time. Raises WentBack when it must not be used."""
        back = is_older(version, self.newest)
        if back:
            self._older += self._consistent
            if self._older < _IN_A_ROW:
                self._consistent = True
                raise errors.WentBack(0, "WentBack", f"version {version}, but {self.newest} was known before")
        self.newest = version
        self._consistent, self._refused, self._older = False, 0, 0
        return back

    def told(self, version: str) -> None:
        """Note the version that a change brings us to; empty when it does not tell."""
        if version and not is_older(version, self.newest):
            self.newest = version

    def refused(self, error: errors.ApiError) -> None:
        """Note that a list failed."""
        if isinstance(error, errors.VersionTooLarge):
            self._refused += 1
        if self._refused >= _IN_A_ROW or error.status in _CANNOT_READ:
            self._consistent = True

    def expired(self, *, told: bool) -> None:
        """Note that the server has forgotten our version; ``told`` says whether anything came since the list."""
        self._expired = 1 if told else self._expired + 1
        self._consistent = self._consistent or self._expired >= _IN_A_ROW
