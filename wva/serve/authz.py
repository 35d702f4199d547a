"""May this client do that: an access review by the API server for the path and the verb, remembered for a while.

RBAC grants it as ``nonResourceURLs`` with the verb ``get``. HEAD asks for ``get`` too, since it tells less; any other
method asks for its own name in lower case, as the API server does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wva import log
from wva.serve.review_cache import Answer, ReviewCache
from wva.serve.reviews import Identity, Reviews

ALLOWED_SECONDS: Final = 300.0
DENIED_SECONDS: Final = 30.0
CAPACITY: Final = 1024


def verb_of(method: str) -> str:
    """Return the verb that a method needs."""
    return "get" if method == "HEAD" else method.lower()


class Authorizer:
    """Tells what an identity may do."""

    def __init__(self, reviews: Reviews, *, monotonic: Callable[[], float]) -> None:
        """Ask ``reviews``; ``monotonic`` tells seconds."""
        self._reviews = reviews
        self._logger = log.get("serve.authz")
        self._known: ReviewCache[tuple[Identity, str, str], bool] = ReviewCache(capacity=CAPACITY, monotonic=monotonic)

    async def allows(self, identity: Identity, *, path: str, method: str) -> bool:
        """Return whether ``identity`` may use ``method`` on ``path``. Raises ReviewFailed."""
        verb = verb_of(method)

        async def review() -> Answer[bool]:
            allowed = await self._reviews.allowed(identity, path=path, verb=verb)
            if not allowed:
                self._logger.warning("client_forbidden", user=identity.username, path=path, verb=verb)
            return Answer(allowed, ALLOWED_SECONDS if allowed else DENIED_SECONDS)

        allowed, known = await self._known.get((identity, path, verb), review)
        if known:
            self._reviews.cached("access")
        return allowed
