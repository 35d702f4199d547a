"""Asks the API server who a client is and what it may do, and remembers answers for a while.

One review in, its status out, or ReviewFailed.

The reviews go out through a client without write guard: a standby serves ``/metrics`` too, and a review changes
nothing. The API server's own words never leave this module: they may quote what was sent, and that was a token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from wva import log
from wva.api.core import SubjectAccessReview, TokenReview
from wva.api.kinds import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS
from wva.api.meta import KubeObject
from wva.api.resource import Resource
from wva.instruments import Instruments
from wva.kube.backoff import Backoff
from wva.kube.client import KubeClient
from wva.kube.errors import ApiError, TooManyRequests, Unavailable, Unreachable
from wva.serve.throttle import Latest, Throttled

REVIEW_SECONDS: Final = 5.0
"""Two reviews fit into the ten seconds that a scrape usually has."""
_ATTEMPTS: Final = 3
_AT_A_TIME: Final = 8
_TRANSIENT: Final = (TooManyRequests, Unavailable, Unreachable)
_TELL_EVERY_SECONDS: Final = 60.0

R = TypeVar("R", bound=KubeObject)
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ReviewFailed(Exception):  # noqa: N818 - it says what happened
    """The API server could not be asked, or refused to answer; the message has status and reason only."""


@dataclass(frozen=True, slots=True)
class Identity:
    """An authenticated client, in the form that an access review wants it; hashable."""

    username: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Reviews:
    """Both reviews, a few at a time."""

    def __init__(
        self, client: KubeClient, *, instruments: Instruments, timeout_seconds: float = REVIEW_SECONDS
    ) -> None:
        """Ask through ``client``; ``timeout_seconds`` limits one review with its retries and its wait for a turn."""
        self._client = client
        self._instruments = instruments
        self._timeout_seconds = timeout_seconds
        self._turns = asyncio.Semaphore(_AT_A_TIME)
        self._logger = log.get("serve.reviews")
        self._told_at = -_TELL_EVERY_SECONDS

    async def identity(self, token: str) -> Identity | None:
        """Return whose token this is, None when the API server does not know it. Raises ReviewFailed.

        No audience is named: the API server takes its own, so a token for another audience is unknown here.
        """
        review: TokenReview = await self._ask("token", TOKEN_REVIEWS, {"token": token})
        user = review.status.user
        allowed = review.status.authenticated and bool(user.username)
        self._count("token", "allowed" if allowed else "denied")
        if not allowed:
            return None
        extra = tuple(sorted((name, tuple(values)) for name, values in user.extra.items()))
        return Identity(user.username, user.uid, user.groups, extra)

    async def allowed(self, identity: Identity, *, path: str, verb: str) -> bool:
        """Return whether ``identity`` may do ``verb`` on the non-resource ``path``. Raises ReviewFailed."""
        spec = {
            "user": identity.username,
            "uid": identity.uid,
            "groups": identity.groups,
            "extra": dict(identity.extra),
            "nonResourceAttributes": {"path": path, "verb": verb},
        }
        review: SubjectAccessReview = await self._ask("access", SUBJECT_ACCESS_REVIEWS, spec)
        allowed = review.status.allowed and not review.status.denied
        self._count("access", "allowed" if allowed else "denied")
        return allowed

    def cached(self, review: str) -> None:
        """Count a question that needed no review."""
        self._count(review, "cached")

    @contextmanager
    def throttling(self, review: str) -> Iterator[None]:
        """Count a review that a limit in the body forbids."""
        try:
            yield
        except Throttled:
            self._count(review, "throttled")
            raise

    async def _ask(self, review: str, resource: Resource[R], spec: Mapping[str, object]) -> R:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            async with asyncio.timeout(self._timeout_seconds), self._turns:
                backoff, attempts = Backoff(base_seconds=0.1, cap_seconds=1.0), 1
                while True:
                    try:
                        return await self._client.create(resource, "", body)
                    except _TRANSIENT as error:  # it may be better in a moment
                        if attempts == _ATTEMPTS:
                            raise
                        pause_seconds = backoff.next(loop.time(), retry_after_seconds=error.retry_after_seconds)
                    attempts += 1
                    await asyncio.sleep(pause_seconds)
        except TimeoutError:
            raise self._failed(review, f"no answer in {self._timeout_seconds:g} s") from None
        except ApiError as error:
            # Not "from error": its text may quote the token.
            raise self._failed(review, f"{error.status} {error.reason}".strip()) from None
        finally:
            self._instruments.endpoint_review_duration.labels(review=review).observe(loop.time() - started)

    def _failed(self, review: str, reason: str) -> ReviewFailed:
        """Count a failure, and tell it now and then."""
        self._count(review, "failed")
        now = asyncio.get_running_loop().time()
        if now - self._told_at >= _TELL_EVERY_SECONDS:
            self._told_at = now
            self._logger.error("review_failed", review=review, reason=reason, effect="scrapes are answered with 500")
        return ReviewFailed(reason)

    def _count(self, review: str, outcome: str) -> None:
        self._instruments.endpoint_reviews.labels(review=review, outcome=outcome).inc()


class ReviewCache(Generic[K, V]):
    """Answers that are good for a while, at most ``capacity``: the one that was not used for longest goes first.

    However many clients want the same answer at a time, it is asked for once.
    """

    def __init__(self, *, capacity: int, monotonic: Callable[[], float]) -> None:
        """Start empty; ``monotonic`` tells seconds."""
        self._monotonic = monotonic
        self._kept: Latest[K, tuple[V, float]] = Latest(capacity)
        self._asked: dict[K, asyncio.Future[V | BaseException]] = {}

    def __len__(self) -> int:
        """Return how many answers are kept, outdated ones included."""
        return len(self._kept)

    async def get(self, key: K, ask: Callable[[], Awaitable[tuple[V, float]]]) -> tuple[V, bool]:
        """Return the answer and whether it was there already; else ask, and let all who come meanwhile wait for it.

        ``ask`` returns an answer and for how many seconds it may be used again. What it raises is raised to all callers
        that wait, and not kept. If the asking one is cancelled, the next of those who wait asks again.
        """
        while True:
            kept = self._kept.get(key)
            if kept is not None and self._monotonic() < kept[1]:
                self._kept.move_to_end(key)
                return kept[0], True
            running = self._asked.get(key)
            if running is None:
                break
            outcome = await asyncio.shield(running)
            if isinstance(outcome, Exception):
                raise outcome
            if not isinstance(outcome, BaseException):
                return outcome, True
        running = self._asked[key] = asyncio.get_running_loop().create_future()
        try:
            answer, seconds = await ask()
        except BaseException as error:
            running.set_result(error)
            raise
        else:
            running.set_result(answer)
            self._kept[key] = answer, self._monotonic() + seconds
            return answer, False
        finally:
            del self._asked[key]
