"""Reviews by the API server: how many run at a time, what an answer means, what an error contains."""

from __future__ import annotations

import asyncio
import traceback

import pytest
from prometheus_client import CollectorRegistry

from tests.serve.doubles import AUDIENCE, PATIENCE_SECONDS, Reviewer
from wva.api.core import SubjectAccessReview, SubjectAccessReviewStatus, UserInfo
from wva.instruments import Instruments
from wva.kube.errors import Forbidden
from wva.serve.reviews import PageRight, ReviewFailed, Reviews

SCRAPER = UserInfo("scraper")


@pytest.fixture
def reviewer():
    """Return the API server's side."""
    return Reviewer()


@pytest.fixture
def reviews(reviewer):
    """Return the reviews in front of it."""
    instruments = Instruments(CollectorRegistry())
    return Reviews(reviewer, audience=AUDIENCE, instruments=instruments, timeout_seconds=PATIENCE_SECONDS)


async def test_a_few_run_at_a_time(reviewer, reviews):
    """At most eight reviews run at a time, so many tokens do not overload the API server."""
    reviewer.turn = asyncio.Event()
    reviewer.users = {f"token-{number}": UserInfo(f"user-{number}") for number in range(50)}
    asking = [asyncio.create_task(reviews.identity(token)) for token in reviewer.users]
    for _ in range(20):
        await asyncio.sleep(0)
    assert reviewer.asked["TokenReview"] == 8
    reviewer.turn.set()
    assert [identity.username for identity in await asyncio.gather(*asking)] == [
        f"user-{number}" for number in range(50)
    ]


@pytest.mark.parametrize(
    ("allowed", "denied", "expected"),
    [(True, False, True), (False, False, False), (True, True, False), (False, True, False)],
)
async def test_a_denial_is_stronger_than_a_permission(reviews, monkeypatch, reviewer, allowed, denied, expected):
    """If the answer says both allowed and denied, the client is denied."""

    async def create(*_):
        return SubjectAccessReview(status=SubjectAccessReviewStatus(allowed, denied))

    monkeypatch.setattr(reviewer, "create", create)
    assert await reviews.allowed(SCRAPER, PageRight("get", "/metrics")) is expected


async def test_an_error_carries_nothing_of_what_was_sent(reviewer, reviews):
    """Neither the error nor its traceback contains the token."""
    reviewer.errors = [Forbidden(403, "Forbidden", "body was: hidden-token", attempted="POST hidden-token")]
    with pytest.raises(ReviewFailed) as failed:
        await reviews.identity("some-token")
    assert str(failed.value) == "403 Forbidden"
    assert "hidden-token" not in "".join(traceback.format_exception(failed.value))
