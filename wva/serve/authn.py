"""Who is asking: the bearer token of a request, reviewed by the API server and remembered for a while.

A token is in the request and in the review and nowhere else: the memory has only its SHA-256, and no log line or error
carries it. An accepted token is remembered for five minutes, but never beyond its own expiry.
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

ALLOWED_SECONDS: Final = 300.0
DENIED_SECONDS: Final = 30.0
CAPACITY: Final = 1024
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


class Authenticator:
    """Tells whose a token is."""

    def __init__(self, reviews: Reviews, *, monotonic: Callable[[], float], now: Callable[[], float]) -> None:
        """Ask ``reviews``. ``monotonic`` tells seconds, ``now`` seconds since the epoch."""
        self._reviews = reviews
        self._now = now
        self._known: ReviewCache[bytes, Identity | None] = ReviewCache(capacity=CAPACITY, monotonic=monotonic)

    async def identify(self, token: str) -> Identity | None:
        """Return whose token this is, None when the API server does not know it. Raises ReviewFailed."""

        async def review() -> Answer[Identity | None]:
            identity = await self._reviews.identity(token)
            return Answer(identity, DENIED_SECONDS if identity is None else self._lifetime(token))

        identity, known = await self._known.get(hashlib.sha256(token.encode()).digest(), review)
        if known:
            self._reviews.cached("token")
        return identity

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
