"""The gate in front of the pages: only clients that the API server knows and allows get past it.

The gate answers before a page is chosen, so that a client without the right does not learn which pages exist: 401
without a good token, 403 without the right, 429 when a client causes too many reviews, 500 when the API server cannot
be asked. A caller can ask for any path, so all paths without a page count as one.

Who is asking: the API server reviews the bearer token. The token is in the request and in the review and nowhere
else: the memory has only its SHA-256, and no log line or error carries it. An accepted token is remembered for five
minutes, but never beyond its own expiry.

What the client may do: the API server reviews the access, and the answer is remembered as long. RBAC grants the verb
``get`` on ``nonResourceURLs``. Every method needs this one right, because no page changes anything.

Each token that is not remembered costs a review, and any client can make up tokens. So there is a limit for each
address, and one for all addresses together. A client that has opened a page is apart from that: its token has a limit
of its own, and a new token from its address counts for that address alone. So no flood from elsewhere keeps it out, and
a flood through the same address does so only while its token has never opened a page. Access reviews have a limit for
each user, because tokens of one user can differ in more than the name.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import re
from collections.abc import Callable, Container, Sequence
from http import HTTPStatus
from typing import Final

import msgspec
from aiohttp import web

from wva import log
from wva.api import wire
from wva.serve.reviews import Identity, ReviewCache, ReviewFailed, Reviews
from wva.serve.throttle import Buckets, Latest, Refusals, Throttled

UNKNOWN_PATH: Final = "/-/unknown"
"""What is asked for when there is no page: only a right to all paths has it, so no other client learns of a 404."""
VERB: Final = "get"
ALLOWED_SECONDS: Final = 300.0
DENIED_SECONDS: Final = 30.0
CAPACITY: Final = 1024
BURST: Final = 20.0
PER_SECOND: Final = 1.0
"""Token reviews that one address may cause, and access reviews that one user may cause."""
BURST_OF_ALL: Final = 100.0
PER_SECOND_OF_ALL: Final = 10.0
"""Reviews that all addresses together may cause that never had a token with the right to a page."""
MAX_TOKEN_BYTES: Final = 12 * 1024
"""Far more than a ServiceAccount's; tokens of identity providers with many groups reach a few thousand."""
_MAX_LOGGED_CHARACTERS: Final = 100
_TOKEN: Final = re.compile(r"[!-~]+")
_JWT_PARTS: Final = 3


class _JwtClaims(msgspec.Struct):
    exp: float | None = None


_jwt_claims: Final = msgspec.json.Decoder(_JwtClaims)


def plain(status: HTTPStatus, text: str, **headers: str) -> web.Response:
    """Return a short answer in plain text."""
    return web.Response(
        status=status, text=text + "\n", headers={name.replace("_", "-"): value for name, value in headers.items()}
    )


def bearer_token(headers: Sequence[str]) -> str | None:
    """Return the token of a request's Authorization headers; None without exactly one usable bearer token."""
    if len(headers) != 1:
        return None
    scheme, _, token = headers[0].strip().partition(" ")
    token = token.strip(" ")
    if scheme.lower() != "bearer" or len(token) > MAX_TOKEN_BYTES or not _TOKEN.fullmatch(token):
        return None
    return token


def accepted_seconds(token: str, *, now: float) -> float:
    """Return for how many seconds an accepted token counts: not beyond its own end, if it is a JWT and names one.

    ``now`` is in seconds since the epoch. The signature need not be checked again: a wrong claim can only make the time
    shorter.
    """
    parts = token.split(".")
    if len(parts) != _JWT_PARTS:
        return ALLOWED_SECONDS
    try:
        claims = wire.decode(_jwt_claims, base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError, msgspec.DecodeError):
        return ALLOWED_SECONDS
    return ALLOWED_SECONDS if claims.exp is None else max(0.0, min(ALLOWED_SECONDS, claims.exp - now))


class Gate:
    """Authentication, then authorization."""

    def __init__(self, reviews: Reviews, *, monotonic: Callable[[], float], now: Callable[[], float]) -> None:
        """Ask ``reviews``. ``monotonic`` tells seconds, ``now`` seconds since the epoch."""
        self._reviews = reviews
        self._now = now
        self._identities: ReviewCache[bytes, Identity | None] = ReviewCache(capacity=CAPACITY, monotonic=monotonic)
        self._rights: ReviewCache[tuple[Identity, str], bool] = ReviewCache(capacity=CAPACITY, monotonic=monotonic)
        self._trusted_tokens: Latest[bytes, None] = Latest()
        self._trusted_addresses: Latest[str, None] = Latest()
        self._of_token: Buckets[bytes] = Buckets(burst=BURST, per_second=PER_SECOND, monotonic=monotonic)
        self._of_address: Buckets[str] = Buckets(burst=BURST, per_second=PER_SECOND, monotonic=monotonic)
        self._of_all: Buckets[None] = Buckets(burst=BURST_OF_ALL, per_second=PER_SECOND_OF_ALL, monotonic=monotonic)
        self._of_user: Buckets[str] = Buckets(burst=BURST, per_second=PER_SECOND, monotonic=monotonic)
        self._refusals = Refusals(monotonic=monotonic)
        self._logger = log.get("serve.gate")

    async def refusal(self, request: web.BaseRequest, *, pages: Container[str]) -> web.Response | None:
        """Return the answer for a request that may not pass, None for one that may. ``pages`` are those there are."""
        address = request.remote or ""
        token = bearer_token(request.headers.getall("Authorization", []))
        try:
            identity = None if token is None else await self.identify(token, address=address)
            if token is None or identity is None:
                text = "unauthorized: a valid bearer token is needed"
                return plain(HTTPStatus.UNAUTHORIZED, text, WWW_Authenticate="Bearer")
            if await self.allows(identity, path=request.path if request.path in pages else UNKNOWN_PATH):
                self.trust(token, address=address)
                return None
        except Throttled as throttled:
            self._tell("client_throttled", address, address=address)
            return plain(
                HTTPStatus.TOO_MANY_REQUESTS,
                "too many requests with credentials that the API server has to review",
                Retry_After=str(math.ceil(throttled.retry_after_seconds)),
            )
        except ReviewFailed:
            return plain(HTTPStatus.INTERNAL_SERVER_ERROR, "the API server could not be asked about this client")
        user = identity.username
        self._tell("client_forbidden", user, user=_shortened(user), path=_shortened(request.path), verb=VERB)
        text = f"forbidden: {user} lacks the verb {VERB} on this path (nonResourceURLs of a ClusterRole)"
        return plain(HTTPStatus.FORBIDDEN, text)

    async def identify(self, token: str, *, address: str) -> Identity | None:
        """Return whose token this is, None when the API server does not know it.

        ``address`` is where the request comes from. Raises ReviewFailed, and Throttled for too many unknown tokens.
        """
        digest = _digest(token)

        async def review() -> tuple[Identity | None, float]:
            with self._reviews.throttling("token"):
                if digest in self._trusted_tokens:
                    self._of_token.take(digest)
                else:
                    self._of_address.take(address)
                    if address not in self._trusted_addresses:
                        self._of_all.take(None)
            identity = await self._reviews.identity(token)
            return identity, DENIED_SECONDS if identity is None else accepted_seconds(token, now=self._now())

        identity, known = await self._identities.get(digest, review)
        if known:
            self._reviews.cached("token")
        return identity

    async def allows(self, identity: Identity, *, path: str) -> bool:
        """Return whether ``identity`` may read ``path``. Raises ReviewFailed, and Throttled for too many reviews."""

        async def review() -> tuple[bool, float]:
            with self._reviews.throttling("access"):
                self._of_user.take(identity.username)
            allowed = await self._reviews.allowed(identity, path=path, verb=VERB)
            return allowed, ALLOWED_SECONDS if allowed else DENIED_SECONDS

        allowed, known = await self._rights.get((identity, path), review)
        if known:
            self._reviews.cached("access")
        return allowed

    def trust(self, token: str, *, address: str) -> None:
        """Remember that this token has opened a page, and from where."""
        self._trusted_tokens[_digest(token)] = None
        self._trusted_addresses[address] = None

    def _tell(self, event: str, caller: str, **values: str) -> None:
        """Log a refused request, for each caller once a minute at most; ``requests`` are those since the last line."""
        requests = self._refusals.count(f"{event} {caller}")
        if requests:
            self._logger.warning(event, **values, requests=requests)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _shortened(text: str) -> str:
    """Return a caller's text for the log: printable ASCII, and not much of it."""
    escaped = ascii(text[:_MAX_LOGGED_CHARACTERS])[1:-1][:_MAX_LOGGED_CHARACTERS]
    return escaped if len(text) <= _MAX_LOGGED_CHARACTERS and len(escaped) < _MAX_LOGGED_CHARACTERS else f"{escaped}..."
