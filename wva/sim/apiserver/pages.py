"""Lists in pages: ``limit`` and ``continue``.

All pages of a list show the state of its first page. The server remembers the rest of a list as references to its
records, so a page costs nothing to keep. It keeps only the latest lists, and answers an older token with 410.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

import msgspec

from wva.sim.apiserver.collection import Record
from wva.sim.apiserver.errors import bad_request, expired

_KEPT: Final = 64


@dataclass(frozen=True, slots=True)
class ListPage:
    """A part of a list: its records, the version of the whole list, and the token and number of the remaining ones."""

    records: list[Record]
    version: int
    token: str = ""
    remaining: int = 0


class _Token(msgspec.Struct, frozen=True):
    rv: int
    start: int
    page: int
    v: str = "meta.k8s.io/v1"


class Pages:
    """The unfinished lists."""

    def __init__(self) -> None:
        """Start without unfinished lists."""
        self._rest: OrderedDict[int, list[Record]] = OrderedDict()
        self._count = 0

    def first(self, records: list[Record], *, version: int, limit: int) -> ListPage:
        """Return the first page of a list; the whole list when ``limit`` is 0 or reaches that far."""
        if not limit or len(records) <= limit:
            return ListPage(records, version)
        self._count += 1
        self._rest[self._count] = records
        if len(self._rest) > _KEPT:
            self._rest.popitem(last=False)
        return self._page(self._count, 0, version, limit)

    def next(self, text: str, *, limit: int) -> ListPage:
        """Return the page that a token leads to. Raises ApiError 400 for an invalid token, 410 for an old one."""
        try:
            token = msgspec.json.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=_Token)
        except ValueError as error:
            raise bad_request("continue key is not valid") from error
        if token.page not in self._rest:
            raise expired("The provided continue parameter is too old to display a consistent list result.")
        return self._page(token.page, token.start, token.rv, limit)

    def forget(self) -> None:
        """Let all tokens expire."""
        self._rest.clear()

    def _page(self, page: int, start: int, version: int, limit: int) -> ListPage:
        records = self._rest[page]
        end = min(start + limit, len(records)) if limit else len(records)
        if end == len(records):
            return ListPage(records[start:], version)
        token = msgspec.json.encode(_Token(rv=version, start=end, page=page))
        return ListPage(records[start:end], version, urlsafe_b64encode(token).decode().rstrip("="), len(records) - end)
