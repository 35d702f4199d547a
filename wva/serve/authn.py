"""Who is asking: the bearer token of a request, reviewed by the API server and remembered for a while.

A token is in the request and in the review and nowhere else: the memory has only its SHA-256, and no log line or error
carries it. An accepted token is remembered for five minutes, but never beyond its own expiry.

Each token that is not remembered costs a review, and any client can make up tokens. So an address may cause a few of
them at a time, and all addresses together some more. A client that has got in before is apart from that: its token has
a limit of its own, and a new token from its address counts for that address alone. So no flood from elsewhere keeps it
out, and one through the same address only while its token is one that has never opened a page.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from wva.api import wire
from wva.serve.review_cache import Answer, ReviewCache
from wva.serve.reviews import Identity, Reviews
from wva.serve.throttle import Buckets, Recent

ALLOWED_SECONDS: Final = 300.0
DENIED_SECONDS: Final = 30.0
CAPACITY: Final = 1024
BURST: Final = 20.0
PER_SECOND: Final = 1.0
"""Reviews that one address may cause."""
BURST_OF_ALL: Final = 100.0
PER_SECOND_OF_ALL: Final = 10.0
"""Reviews that all addresses together may cause that never had a token with the right to a page."""
MAX_TOKEN_BYTES: Final = 12 * 1024
"""Far more than a ServiceAccount's; tokens of identity providers with many groups reach a few thousand."""
_TOKEN: Final = re.compile(r"[!-~]+")
_JWT_PARTS: Final = 3


class _Claims(msgspec.Struct):
    exp: float | None = None


_claims: Final = msgspec.json.Decoder(_Claims)


def bearer_token(headers: Sequence[str]) -> str | None:
    """Return the token of a request's Authorization headers; None without exactly one usable bearer token."""
    if len(headers) != 1:
        return None
    scheme, _, token = headers[0].strip().partition(" ")
    token = token.strip(" ")
    if scheme.lower() != "bearer" or len(token) > MAX_TOKEN_BYTES or not _TOKEN.fullmatch(token):
        return None
    return token


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


class Authenticator:
    """Tells whose a token is."""

    def __init__(self, reviews: Reviews, *, monotonic: Callable[[], float], now: Callable[[], float]) -> None:
        """Ask ``reviews``. ``monotonic`` tells seconds, ``now`` seconds since the epoch."""
        self._reviews = reviews
        self._now = now
        self._known: ReviewCache[bytes, Identity | None] = ReviewCache(capacity=CAPACITY, monotonic=monotonic)
        self._trusted_tokens: Recent[bytes] = Recent()
        self._trusted_addresses: Recent[str] = Recent()
        self._of_token: Buckets[bytes] = Buckets(burst=BURST, per_second=PER_SECOND, monotonic=monotonic)
        self._of_address: Buckets[str] = Buckets(burst=BURST, per_second=PER_SECOND, monotonic=monotonic)
        self._of_all: Buckets[None] = Buckets(burst=BURST_OF_ALL, per_second=PER_SECOND_OF_ALL, monotonic=monotonic)

    async def identify(self, token: str, *, address: str) -> Identity | None:
        """Return whose token this is, None when the API server does not know it.

        ``address`` is where the request comes from. Raises ReviewFailed, and Throttled for too many unknown tokens.
        """
        digest = _digest(token)

        async def review() -> Answer[Identity | None]:
            with self._reviews.throttling("token"):
                self._charge(digest, address)
            identity = await self._reviews.identity(token)
            return Answer(identity, DENIED_SECONDS if identity is None else self._lifetime(token))

        identity, known = await self._known.get(digest, review)
        if known:
            self._reviews.cached("token")
        return identity

    def trust(self, token: str, *, address: str) -> None:
        """Remember that this token has opened a page, and from where."""
        self._trusted_tokens.add(_digest(token))
        self._trusted_addresses.add(address)

    def _charge(self, digest: bytes, address: str) -> None:
        """Take a review from the right bucket. Raises Throttled when that is empty."""
        if digest in self._trusted_tokens:
            self._of_token.take(digest)
            return
        self._of_address.take(address)
        if address not in self._trusted_addresses:
            self._of_all.take(None)

    def _lifetime(self, token: str) -> float:
        """Return for how many seconds an accepted token counts: not beyond its own end, if it is a JWT and names one.

        The signature need not be checked again: a wrong claim can only make the time shorter.
        """
        parts = token.split(".")
        if len(parts) != _JWT_PARTS:
            return ALLOWED_SECONDS
        try:
            claims = wire.decode(_claims, base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        except (binascii.Error, ValueError, msgspec.DecodeError):
            return ALLOWED_SECONDS
        if claims.exp is None:
            return ALLOWED_SECONDS
        return max(0.0, min(ALLOWED_SECONDS, claims.exp - self._now()))
