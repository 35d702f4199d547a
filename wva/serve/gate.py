"""The gate in front of the pages. Only clients that the API server knows and allows get past it.

The gate answers before a page is chosen, so a client without the right does not learn which pages exist. It answers 401
without a good token, 403 without the right, 429 when a client causes too many reviews, and 500 when the API server
cannot be asked. A client can ask for any path, so all paths without a page count as one.

The API server reviews the bearer token. The token is in the request and in the review and nowhere else: this process
remembers only its SHA-256, and no log line or error carries it. An accepted token is remembered for five minutes, but
never beyond its own expiry. Then the API server reviews what the client may do, and that answer is remembered as long.
RBAC grants the verb ``get`` on ``nonResourceURLs``, and where a page is about VariantAutoscalings, a verb on them.
One right is enough for every method, as no page changes data.

Each token that is not remembered costs a review, and any client can make up tokens. So there is a limit for each
address, and one for all addresses together. They do not apply to a client that has opened a page: its token has a limit
of its own, and a new token from its address counts for that address alone. So no flood from elsewhere keeps this client
out. A flood from its own address keeps it out only while its token has never opened a page. Access reviews have a limit
for each user, because tokens of one user can differ in more than the name.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Final, Generic, Protocol, TypeVar

import msgspec
from aiohttp import web

from wva import log
from wva.api.core import UserInfo
from wva.serve.reviews import TELL_EVERY_SECONDS, PageRight, ReviewFailed, Reviews
from wva.serve.tokens import claims
from wva.slices import Slices

VERB: Final = "get"
UNKNOWN: Final = PageRight(VERB, "/-/unknown")
"""What to review when there is no page. Only a right to all paths has it, so no other client sees a 404."""
ALLOWED_SECONDS: Final = 300.0
DENIED_SECONDS: Final = 30.0
CAPACITY: Final = 1024
"""How many answers, buckets and clients are remembered."""
BURST: Final = 20.0
PER_SECOND: Final = 1.0
"""Token reviews that one address may cause, and access reviews that one user may cause."""
BURST_OF_ALL: Final = 100.0
PER_SECOND_OF_ALL: Final = 10.0
"""Token reviews that all addresses together may cause that have never opened a page."""
MAX_TOKEN_BYTES: Final = 12 * 1024
"""Far more than the token of a ServiceAccount has. Tokens with many groups reach a few thousand."""
_MAX_LOGGED_CHARACTERS: Final = 100
_TOKEN: Final = re.compile(r"[!-~]+")
_USER: Final = web.RequestKey("user", str)
"""Where the gate notes the user of a request that it lets in."""
_PORT: Final = re.compile(r":\d*\Z")


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def plain(status: HTTPStatus, text: str, **headers: str) -> web.Response:
    """Return a short answer in plain text."""
    return web.Response(
        status=status, text=text + "\n", headers={name.replace("_", "-"): value for name, value in headers.items()}
    )


def bearer_token(headers: Sequence[str]) -> str | None:
    """Return the bearer token of a request's Authorization headers; None unless there is exactly one usable."""
    if len(headers) != 1:
        return None
    scheme, _, token = headers[0].strip().partition(" ")
    token = token.strip(" ")
    if scheme.lower() != "bearer" or len(token) > MAX_TOKEN_BYTES or not _TOKEN.fullmatch(token):
        return None
    return token


def accepted_seconds(token: str, *, now: float) -> float:
    """Return for how many seconds an accepted token counts: not beyond its own expiry, if it is a JWT with one.

    ``now`` is in seconds since the epoch. The signature is not checked again. A wrong claim can only shorten the time.
    """
    expires = claims(token).exp
    return ALLOWED_SECONDS if expires is None else max(0.0, min(ALLOWED_SECONDS, expires - now))


def client_of(request: web.BaseRequest) -> str:
    """Return whose request it is: the user that the gate let in, or the address where there is no gate."""
    return str(request.get(_USER) or request.remote or "")


class Guard(Protocol):
    """Says who may have a page."""

    async def refusal(self, request: web.BaseRequest, right: PageRight) -> web.Response | None:
        """Return the answer to a request that may not pass, None for one that may. ``right`` is what its page needs."""
        ...


class Loopback:
    """The guard of a server that listens on this machine alone: everybody on the machine may have every page.

    The Host of a request has to be this machine, too. A site in a browser may give its own name the address 127.0.0.1,
    and so read a page of this machine; its requests still carry its name.
    """

    HOSTS: Final = frozenset({"127.0.0.1", "::1", "localhost"})

    async def refusal(self, request: web.BaseRequest, _right: PageRight) -> web.Response | None:
        """Return the answer to a request for another host, None for this machine."""
        if _PORT.sub("", request.host).strip("[]").lower() in self.HOSTS:
            return None
        return plain(HTTPStatus.FORBIDDEN, f"forbidden: expected one of {', '.join(sorted(self.HOSTS))} as the Host")


class Throttled(Exception):  # noqa: N818 - called after what happened
    """A client has asked for too much. It may ask again after ``retry_after_seconds``."""

    def __init__(self, retry_after_seconds: float) -> None:
        """Keep the time."""
        super().__init__(f"again in {retry_after_seconds:.1f} s")
        self.retry_after_seconds = retry_after_seconds

    def answer(self, text: str) -> web.Response:
        """Return the answer to the client: 429 with the text, and when it may ask again."""
        return plain(HTTPStatus.TOO_MANY_REQUESTS, text, Retry_After=str(math.ceil(self.retry_after_seconds)))


class Latest(OrderedDict[K, V]):
    """A mapping of the ``capacity`` entries that were set last."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        """Start empty."""
        super().__init__()
        self._capacity = capacity

    def __setitem__(self, key: K, value: V) -> None:
        """Set an entry and make it the latest one. Drop the oldest entry when there are too many."""
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._capacity:
            self.popitem(last=False)


class Buckets(Generic[K]):
    """Token buckets: each key may do ``burst`` things at once and ``per_second`` in the long run.

    The keys that were not used for longest are forgotten. A bucket that is forgotten is full.
    """

    def __init__(
        self, *, burst: float, per_second: float, monotonic: Callable[[], float], capacity: int = CAPACITY
    ) -> None:
        """Start with full buckets; ``monotonic`` tells seconds."""
        self._burst = burst
        self._per_second = per_second
        self._monotonic = monotonic
        self._levels: Latest[K, tuple[float, float]] = Latest(capacity)

    def take(self, key: K) -> None:
        """Take one token from the bucket of ``key``. Raises Throttled when less than one token is left."""
        now = self._monotonic()
        level, at = self._levels.get(key, (self._burst, now))
        level = min(self._burst, level + (now - at) * self._per_second)
        enough = level >= 1.0
        self._levels[key] = (level - 1.0 if enough else level, now)
        if not enough:
            raise Throttled((1.0 - level) / self._per_second)


class ReviewCache(Generic[K, V]):
    """Keeps answers for a while, at most ``capacity``. The answer that was not used for longest goes first.

    An answer is asked for once, however many clients want it at a time.
    """

    def __init__(self, *, monotonic: Callable[[], float], capacity: int = CAPACITY) -> None:
        """Start empty; ``monotonic`` tells seconds."""
        self._monotonic = monotonic
        self._answers: Latest[K, tuple[V, float]] = Latest(capacity)
        self._pending: dict[K, asyncio.Future[V | BaseException]] = {}
        self._slices = Slices()
        """Shared by those who wait: one answer may wake a hundred of them."""

    async def get(self, key: K, ask: Callable[[], Awaitable[tuple[V, float]]]) -> tuple[V, bool]:
        """Return an answer, and whether it was known already. All who ask while it is asked for wait for it.

        ``ask`` returns an answer, and for how many seconds it may be used again. What it raises is raised to all who
        wait, and not kept. If the client that asks is cancelled, the next one that waits asks again.
        """
        while True:
            cached = self._answers.get(key)
            if cached is not None and self._monotonic() < cached[1]:
                self._answers.move_to_end(key)
                return cached[0], True
            running = self._pending.get(key)
            if running is None:
                break
            outcome = await asyncio.shield(running)
            await self._slices.rest()
            if isinstance(outcome, Exception):
                raise outcome
            if not isinstance(outcome, BaseException):
                return outcome, True
        running = self._pending[key] = asyncio.get_running_loop().create_future()
        try:
            answer, seconds = await ask()
        except BaseException as error:
            running.set_result(error)
            raise
        else:
            running.set_result(answer)
            self._answers[key] = answer, self._monotonic() + seconds
            return answer, False
        finally:
            del self._pending[key]


class Gate:
    """Authenticates clients, then authorizes them."""

    def __init__(self, reviews: Reviews, *, monotonic: Callable[[], float], now: Callable[[], float]) -> None:
        """Ask ``reviews``. ``monotonic`` tells seconds, ``now`` seconds since the epoch."""
        self._reviews = reviews
        self._now = now
        self._identities: ReviewCache[bytes, UserInfo | None] = ReviewCache(monotonic=monotonic)
        self._rights: ReviewCache[tuple[bytes, PageRight], bool] = ReviewCache(monotonic=monotonic)
        self._trusted_tokens: Latest[bytes, None] = Latest()
        self._trusted_addresses: Latest[str, None] = Latest()
        self._of_token: Buckets[bytes] = Buckets(burst=BURST, per_second=PER_SECOND, monotonic=monotonic)
        self._of_address: Buckets[str] = Buckets(burst=BURST, per_second=PER_SECOND, monotonic=monotonic)
        self._of_all: Buckets[None] = Buckets(burst=BURST_OF_ALL, per_second=PER_SECOND_OF_ALL, monotonic=monotonic)
        self._of_user: Buckets[str] = Buckets(burst=BURST, per_second=PER_SECOND, monotonic=monotonic)
        self._monotonic = monotonic
        self._refused: Latest[tuple[str, str], int] = Latest()
        self._throttle = log.Throttle(TELL_EVERY_SECONDS, most=CAPACITY)
        self._logger = log.get("serve.gate")

    async def refusal(self, request: web.BaseRequest, right: PageRight) -> web.Response | None:
        """Return the answer to a request that may not pass, None for one that may. ``right`` is what its page needs."""
        address = request.remote or ""
        token = bearer_token(request.headers.getall("Authorization", []))
        try:
            identity = None if token is None else await self.identify(token, address=address)
            if token is None or identity is None:
                text = "unauthorized: a valid bearer token is needed"
                return plain(HTTPStatus.UNAUTHORIZED, text, WWW_Authenticate="Bearer")
            if await self.allows(identity, right):
                self.trust(token, address=address)
                request[_USER] = identity.username
                return None
        except Throttled as throttled:
            self._tell("client_throttled", address, address=address)
            return throttled.answer("too many requests with credentials that the API server has to review")
        except ReviewFailed:
            return plain(HTTPStatus.INTERNAL_SERVER_ERROR, "the API server could not be asked about this client")
        user = identity.username
        self._tell("client_forbidden", user, user=_shortened(user), path=_shortened(request.path), verb=right.verb)
        resources = "this path (nonResourceURLs of a ClusterRole)" if right.path else "these VariantAutoscalings"
        return plain(HTTPStatus.FORBIDDEN, f"forbidden: {user} lacks the verb {right.verb} on {resources}")

    async def identify(self, token: str, *, address: str) -> UserInfo | None:
        """Return the user of a token, None when the API server does not know it.

        ``address`` is the client's. Raises ReviewFailed, and Throttled for too many unknown tokens.
        """
        digest = _digest(token)

        async def review() -> tuple[UserInfo | None, float]:
            with self._throttling("token"):
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
            self._reviews.count("token", "cached")
        return identity

    async def allows(self, identity: UserInfo, right: PageRight) -> bool:
        """Return whether ``identity`` has a right. Raises ReviewFailed, and Throttled for too many reviews."""

        async def review() -> tuple[bool, float]:
            with self._throttling("access"):
                self._of_user.take(identity.username)
            allowed = await self._reviews.allowed(identity, right)
            return allowed, ALLOWED_SECONDS if allowed else DENIED_SECONDS

        everything = msgspec.json.encode(identity, order="sorted")  # two clients may differ in their groups alone
        allowed, known = await self._rights.get((everything, right), review)
        if known:
            self._reviews.count("access", "cached")
        return allowed

    @contextmanager
    def _throttling(self, review: str) -> Iterator[None]:
        """Count a review that a limit forbids, when the body raises Throttled."""
        try:
            yield
        except Throttled:
            self._reviews.count(review, "throttled")
            raise

    def trust(self, token: str, *, address: str) -> None:
        """Remember that this token has opened a page, and its address."""
        self._trusted_tokens[_digest(token)] = None
        self._trusted_addresses[address] = None

    def _tell(self, event: str, caller: str, **values: str) -> None:
        """Log refused requests, for each caller once a minute. ``requests`` are those since the last line."""
        refusal_key = (event, caller)
        self._refused[refusal_key] = self._refused.get(refusal_key, 0) + 1
        if self._throttle.permits(caller, event, self._monotonic()):
            self._logger.warning(event, **values, requests=self._refused.pop(refusal_key))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _shortened(text: str) -> str:
    """Return a client's text for the log, cut and in printable ASCII."""
    escaped = ascii(text[:_MAX_LOGGED_CHARACTERS])[1:-1][:_MAX_LOGGED_CHARACTERS]
    return escaped if len(text) <= _MAX_LOGGED_CHARACTERS and len(escaped) < _MAX_LOGGED_CHARACTERS else f"{escaped}..."
