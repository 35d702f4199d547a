"""Asks the API server who a client is and what it may do.

The reviews go out through a client without write guard, because a standby serves ``/metrics`` too, and a review changes
nothing. The API server's own words never leave this module. They may quote what was sent, and that was a token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from wva import log
from wva.api.core import SubjectAccessReview, TokenReview, UserInfo
from wva.api.kinds import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, VARIANT_AUTOSCALINGS
from wva.api.meta import KubeObject
from wva.api.resource import Resource
from wva.instruments import Instruments
from wva.kube.backoff import Backoff
from wva.kube.client import KubeClient
from wva.kube.errors import ApiError, TooManyRequests, Unavailable, Unreachable
from wva.serve.tokens import claims

REVIEW_SECONDS: Final = 5.0
"""A scrape usually has ten seconds, and needs two reviews."""
_ATTEMPTS: Final = 3
_AT_A_TIME: Final = 8
_TRANSIENT: Final = (TooManyRequests, Unavailable, Unreachable)
TELL_EVERY_SECONDS: Final = 60.0

R = TypeVar("R", bound=KubeObject)


class PageRight(msgspec.Struct, frozen=True):
    """A right that RBAC can grant: a verb on a path, or, without a path, on VariantAutoscalings.

    No ``name`` means all of the namespace, no ``namespace`` all of the cluster.
    """

    verb: str
    path: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def attributes(self) -> dict[str, dict[str, str]]:
        """What a SubjectAccessReview has of it."""
        if self.path:
            return {"nonResourceAttributes": {"path": self.path, "verb": self.verb}}
        resource = {
            "verb": self.verb,
            "group": VARIANT_AUTOSCALINGS.group,
            "resource": VARIANT_AUTOSCALINGS.plural,
            "namespace": self.namespace,
            "name": self.name,
        }
        return {"resourceAttributes": resource}


class ReviewFailed(Exception):  # noqa: N818 - it says what happened
    """The API server did not answer, or refused to. The message has only status and reason."""


class Reviews:
    """Asks for both reviews, a few at a time."""

    def __init__(
        self, client: KubeClient, *, audience: str, instruments: Instruments, timeout_seconds: float = REVIEW_SECONDS
    ) -> None:
        """Ask through ``client``. Tokens for ``audience`` count as well as those for the API server.

        ``timeout_seconds`` limits one review, with its retries and its wait for a turn.
        """
        self._client = client
        self._audience = audience
        self._instruments = instruments
        self._timeout_seconds = timeout_seconds
        self._turns = asyncio.Semaphore(_AT_A_TIME)
        self._logger = log.get("serve.reviews")
        self._throttle = log.Throttle(TELL_EVERY_SECONDS)

    async def identity(self, token: str) -> UserInfo | None:
        """Return the user of a token, None when the API server does not know it. Raises ReviewFailed.

        A token that says that it is for our audience is reviewed for that audience. With every other token no audience
        is named, so the API server takes its own; a token for a third audience is unknown here. What the token says
        only chooses the question: the API server checks it.
        """
        for_us = claims(token).names(self._audience)
        spec: dict[str, object] = {"token": token}
        if for_us:
            spec["audiences"] = [self._audience]
        review: TokenReview = await self._ask("token", TOKEN_REVIEWS, spec)
        user = review.status.user
        # An API server whose authenticator knows no audiences names none that fits.
        fits = not for_us or self._audience in review.status.audiences
        allowed = review.status.authenticated and fits and bool(user.username)
        self.count("token", "allowed" if allowed else "denied")
        return user if allowed else None

    async def allowed(self, identity: UserInfo, right: PageRight) -> bool:
        """Return whether ``identity`` has a right. Raises ReviewFailed."""
        spec = {
            "user": identity.username,
            "uid": identity.uid,
            "groups": identity.groups,
            "extra": identity.extra,
            **right.attributes,
        }
        review: SubjectAccessReview = await self._ask("access", SUBJECT_ACCESS_REVIEWS, spec)
        allowed = review.status.allowed and not review.status.denied
        self.count("access", "allowed" if allowed else "denied")
        return allowed

    def count(self, review: str, outcome: str) -> None:
        """Count a review, or a question that needed none (``cached``)."""
        self._instruments.endpoint_reviews.labels(review=review, outcome=outcome).inc()

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
        """Count a failure, and log it once a minute."""
        self.count(review, "failed")
        if self._throttle.permits("reviews", "failed", asyncio.get_running_loop().time()):
            self._logger.error("review_failed", review=review, reason=reason, effect="scrapes are answered with 500")
        return ReviewFailed(reason)
