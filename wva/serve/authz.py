"""May this client read that page: an access review by the API server, remembered for a while.

RBAC grants it as ``nonResourceURLs`` with the verb ``get``. Every method asks for this one right: no page changes
anything, and a client that may read it learns that there is no other method. A user may cause a few reviews at a time:
tokens of one user can differ in more than its name, and each of these identities is asked about by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wva.serve.review_cache import Answer, ReviewCache
from wva.serve.reviews import Identity, Reviews
from wva.serve.throttle import Buckets

VERB: Final = "get"
ALLOWED_SECONDS: Final = 300.0
DENIED_SECONDS: Final = 30.0
CAPACITY: Final = 1024
BURST: Final = 20.0
PER_SECOND: Final = 1.0
"""Reviews that one user may cause."""


class Authorizer:
    """Tells what an identity may do."""

    def __init__(self, reviews: Reviews, *, monotonic: Callable[[], float]) -> None:
        """Ask ``reviews``; ``monotonic`` tells seconds."""
        self._reviews = reviews
        self._known: ReviewCache[tuple[Identity, str], bool] = ReviewCache(capacity=CAPACITY, monotonic=monotonic)
        self._of_user: Buckets[str] = Buckets(burst=BURST, per_second=PER_SECOND, monotonic=monotonic)

    async def allows(self, identity: Identity, *, path: str) -> bool:
        """Return whether ``identity`` may read ``path``. Raises ReviewFailed, and Throttled for too many reviews."""

        async def review() -> Answer[bool]:
            with self._reviews.throttling("access"):
                self._of_user.take(identity.username)
            allowed = await self._reviews.allowed(identity, path=path, verb=VERB)
            return Answer(allowed, ALLOWED_SECONDS if allowed else DENIED_SECONDS)

        allowed, known = await self._known.get((identity, path), review)
        if known:
            self._reviews.cached("access")
        return allowed
