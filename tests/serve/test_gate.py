"""Which clients pass the gate, when it answers 401, 403, 429 and 500, and how long it remembers reviews."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
from itertools import cycle

import aiohttp
import pytest
from structlog.testing import capture_logs

from tests.serve.doubles import AUDIENCE, Guarded, serving
from wva.api.core import TokenReview, TokenReviewStatus, UserInfo
from wva.kube.errors import Forbidden, TooManyRequests, Unavailable, Unreachable
from wva.serve.gate import BURST, BURST_OF_ALL, MAX_TOKEN_BYTES, UNKNOWN, Throttled, bearer_token
from wva.serve.pages import metrics_handler
from wva.serve.reviews import PageRight

METRICS = PageRight("get", "/metrics")
SECRET = "very-secret-token"


@pytest.fixture
async def session():
    """Return an HTTP client."""
    async with aiohttp.ClientSession() as made:
        yield made


@pytest.fixture
def guarded():
    """Return a gate that knows a scraper and a stranger."""
    return Guarded()


@pytest.fixture
async def url(guarded):
    """Return the address of a guarded server."""
    pages = {"/debug/config": lambda: {"interval": 60}}
    handler = metrics_handler(guarded.instruments.registry, gate=guarded.gate, pages=pages)
    async with serving(handler, instruments=guarded.instruments) as server:
        yield f"http://127.0.0.1:{server.port}"


async def ask(session, url, token=None, *, method="GET", path="/metrics"):
    """Return status and text of the answer."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with session.request(method, url + path, headers=headers) as response:
        return response.status, await response.text()


def jwt(**claims):
    """Return a token in the form of a JWT, with these claims."""
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.sig"


# --- who gets in -----------------------------------------------------------------------------------------------------


async def test_a_known_scraper_reads(session, url, guarded):
    """The gate asks for one token review and one access review, with all fields of the user."""
    guarded.reviewer.users["good"] = UserInfo("scraper", "u1", ("a", "b"), {"k": ("v", "w")})
    status, text = await ask(session, url, "good")
    assert status == 200
    assert "wva_endpoint_secure" in text
    token, access = guarded.reviewer.bodies
    assert token == {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": "good"},
    }
    assert access == {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": "scraper",
            "uid": "u1",
            "groups": ("a", "b"),
            "extra": {"k": ("v", "w")},
            "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        },
    }


@pytest.mark.parametrize(
    ("audiences", "status", "asked"),
    [([AUDIENCE], 200, [AUDIENCE]), ([AUDIENCE, "more"], 200, [AUDIENCE]), (["wva.llmd.ai/elsewhere"], 401, None)],
)
async def test_a_token_for_this_controller_alone_is_enough(session, url, guarded, audiences, status, asked):
    """It is reviewed for that audience; a token for the controller of another namespace is refused."""
    token = jwt(aud=audiences, sub="scraper")
    guarded.reviewer.users[token] = guarded.reviewer.users["good"]
    guarded.reviewer.audiences[token] = audiences
    assert (await ask(session, url, token))[0] == status
    assert guarded.reviewer.bodies[0]["spec"].get("audiences") == asked


async def test_the_api_server_says_for_whom_a_token_is(session, url, guarded):
    """What the token says of its audience does not count: here the API server knows it for its own audience."""
    token = jwt(aud=AUDIENCE, sub="scraper")
    guarded.reviewer.users[token] = guarded.reviewer.users["good"]
    assert (await ask(session, url, token))[0] == 401


async def test_an_api_server_without_audiences_lets_no_such_token_in(session, url, guarded, monkeypatch):
    """An authenticator that ignores audiences would accept a token for anybody. It returns none of them."""

    async def create(*_):
        return TokenReview(status=TokenReviewStatus(authenticated=True, user=UserInfo("scraper")))

    monkeypatch.setattr(guarded.reviewer, "create", create)
    assert (await ask(session, url, jwt(aud=AUDIENCE)))[0] == 401


async def test_without_a_token_nobody_is_asked(session, url, guarded):
    """Without a token the answer is 401, for each page and method, and the API server is not asked."""
    for method, path in (("GET", "/metrics"), ("POST", "/metrics"), ("GET", "/nowhere"), ("HEAD", "/debug/config")):
        async with session.request(method, url + path) as response:
            assert response.status == 401
            assert response.headers["WWW-Authenticate"] == "Bearer"
    assert guarded.reviewer.asked == {}


async def test_a_token_of_nobody_is_refused(session, url, guarded):
    """An unknown token gets 401, and the gate asks for no access review."""
    assert (await ask(session, url, "bad"))[0] == 401
    assert guarded.reviewer.asked == {"TokenReview": 1}


async def test_authenticated_without_a_name_is_nobody(session, url, guarded):
    """A review that accepts a token but names no user counts as a refusal."""
    guarded.reviewer.users["odd"] = UserInfo("")
    assert (await ask(session, url, "odd"))[0] == 401


async def test_a_known_user_without_the_right_is_refused(session, url):
    """The answer is 403. The answer and the log name the user and the missing right."""
    with capture_logs() as lines:
        status, text = await ask(session, url, "stranger")
    assert status == 403
    assert "stranger" in text
    assert "get" in text
    (line,) = [line for line in lines if line["event"] == "client_forbidden"]
    assert (line["user"], line["path"], line["verb"]) == ("stranger", "/metrics", "get")


async def test_a_right_is_for_one_page_and_one_verb(session, url, guarded):
    """A client that may read the metrics may not read the configuration, and may not POST."""
    assert (await ask(session, url, "good"))[0] == 200
    assert (await ask(session, url, "good", path="/debug/config"))[0] == 403
    assert (await ask(session, url, "good", method="POST"))[0] == 405
    assert (await ask(session, url, "stranger", method="POST"))[0] == 403
    guarded.reviewer.allowed.add(("scraper", "get", "/debug/config"))
    guarded.clock.advance_to(31)
    assert await ask(session, url, "good", path="/debug/config") == (200, '{"interval":60}')


async def test_head_needs_no_more_than_get(session, url):
    """A client that may GET a page may also HEAD it."""
    async with session.head(f"{url}/metrics", headers={"Authorization": "Bearer good"}) as response:
        assert response.status == 200
        assert int(response.headers["Content-Length"]) > 0
        assert await response.read() == b""


async def test_what_does_not_exist_is_told_to_those_who_may_ask(session, url, guarded):
    """Only clients with a right to all paths get 404. The answer 405 lists the allowed methods."""
    assert (await ask(session, url, "good", path="/nowhere"))[0] == 403
    guarded.reviewer.allowed.add(("scraper", "get", UNKNOWN.path))  # a right to all paths includes this path
    guarded.clock.advance_to(31)
    assert (await ask(session, url, "good", path="/nowhere"))[0] == 404
    async with session.post(f"{url}/metrics", headers={"Authorization": "Bearer good"}) as response:
        assert response.status == 405
        assert response.headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    "path", ["/metrics/", "//metrics", "/metrics%00", "/metrics;x", "/x/../debug/config", "/METRICS"]
)
async def test_a_right_to_metrics_opens_nothing_that_looks_like_it(session, url, path):
    """The path must be exactly that of the page."""
    assert (await ask(session, url, "good", path=path))[0] == 403


# --- a client that asks too much -------------------------------------------------------------------------------------


async def test_paths_and_methods_at_will_cost_one_review_and_one_line(session, url, guarded):
    """All paths without a page share one access review, and the log has one line a minute with a count."""
    with capture_logs() as lines:
        for number, method in zip(range(300), cycle(("GET", "POST", "PUT", "DELETE", "HEAD"))):
            status, _ = await ask(session, url, "stranger", path=f"/{number}/" + "a\x1b" * 900, method=method)
            assert status == 403
        guarded.clock.advance_to(60)
        await ask(session, url, "stranger", path="/last")
    assert guarded.reviewer.asked["SubjectAccessReview"] == 2
    assert [(line["event"], line["requests"]) for line in lines] == [("client_forbidden", 1), ("client_forbidden", 300)]
    assert len(str(lines[0])) < 400
    assert str(lines[0]).isascii()
    assert "\x1b" not in lines[0]["path"]


async def test_pages_that_exist_and_others_are_refused_alike(session, url):
    """A refusal is the same for pages that exist and for others, in status, text and headers."""
    answers = set()
    for path in ("/metrics", "/debug/config", "/nowhere", UNKNOWN.path):
        async with session.get(url + path, headers={"Authorization": "Bearer stranger"}) as response:
            answers.add((response.status, await response.text(), tuple(sorted(response.headers.keys()))))
    assert len(answers) == 1


async def test_bad_tokens_are_throttled_and_the_scraper_is_not(session, url, guarded):
    """Bad tokens from the scraper's own address are throttled.

    A token that has opened a page has a limit of its own, even after its review has expired.
    """
    assert (await ask(session, url, "good"))[0] == 200
    with capture_logs() as lines:
        statuses = [(await ask(session, url, f"bad-{number}"))[0] for number in range(300)]
    assert statuses.count(401) == BURST - 1
    assert statuses.count(429) == 301 - BURST
    assert guarded.reviewer.asked["TokenReview"] == BURST
    assert [(line["event"], line["address"]) for line in lines] == [("client_throttled", "127.0.0.1")]
    assert guarded.metric("wva_endpoint_reviews_total", review="token", outcome="throttled") == 301 - BURST
    assert (await ask(session, url, "good"))[0] == 200
    guarded.clock.advance_to(301)
    for number in range(300):
        await ask(session, url, f"worse-{number}")
    assert (await ask(session, url, "good"))[0] == 200


async def test_a_throttled_client_is_told_when_to_come_back(session, url, guarded):
    """The answer has a Retry-After header, and after that time the client gets in."""
    for number in range(25):
        await ask(session, url, f"bad-{number}")
    async with session.get(f"{url}/metrics", headers={"Authorization": "Bearer good"}) as response:
        assert response.status == 429
        assert response.headers["Retry-After"] == "1"
    guarded.clock.advance_to(1)
    assert (await ask(session, url, "good"))[0] == 200


async def test_a_flood_from_many_addresses_does_not_keep_a_known_address_out(guarded):
    """A scraper with a new token gets in during the flood, because its address has opened a page before."""
    identify = guarded.gate.identify
    assert await identify("good", address="10.0.0.1") is not None
    guarded.gate.trust("good", address="10.0.0.1")
    throttled = 0
    for number in range(1000):
        try:
            await identify(f"bad-{number}", address=f"10.1.{number // 250}.{number % 250}")
        except Throttled:
            throttled += 1
    assert throttled == 1001 - BURST_OF_ALL
    guarded.reviewer.users["rotated"] = UserInfo("scraper")
    assert await identify("rotated", address="10.0.0.1") is not None


async def test_tokens_of_one_user_do_not_multiply_its_reviews(guarded):
    """Tokens of one user can differ in their credential id. The limit counts the user's name alone."""
    allows = guarded.gate.allows
    refused = 0
    for number in range(100):
        identity = UserInfo("system:serviceaccount:evil:default", extra={"credential-id": (str(number),)})
        try:
            assert not await allows(identity, METRICS)
        except Throttled:
            refused += 1
    assert guarded.reviewer.asked == {"SubjectAccessReview": BURST}
    assert refused == 100 - BURST
    assert await allows(UserInfo("scraper"), METRICS)


# --- tokens ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (["Bearer abc"], "abc"),
        (["bearer abc"], "abc"),
        (["BEARER  abc "], "abc"),
        ([f"Bearer {'x' * MAX_TOKEN_BYTES}"], "x" * MAX_TOKEN_BYTES),
        ([f"Bearer {'x' * (MAX_TOKEN_BYTES + 1)}"], None),
        ([], None),
        ([""], None),
        (["Bearer"], None),
        (["Bearer "], None),
        (["Basic abc"], None),
        (["abc"], None),
        (["Bearer a b"], None),
        (["Bearer a\tb"], None),
        (["Bearer é"], None),
        (["Bearer abc", "Bearer abc"], None),
    ],
)
def test_what_a_bearer_token_is(headers, expected):
    """A request needs one Authorization header with the scheme Bearer and a visible ASCII token of limited length."""
    assert bearer_token(headers) == expected


async def test_no_trace_of_a_token_is_left(session, guarded):
    """A token appears in no log line, answer, metric or memory, whether it is good, bad, or could not be reviewed."""
    guarded.reviewer.users[SECRET] = UserInfo("stranger")
    handler = metrics_handler(guarded.instruments.registry, gate=guarded.gate)
    async with serving(handler, instruments=guarded.instruments) as server:
        url = f"http://127.0.0.1:{server.port}"
        with capture_logs() as lines:
            guarded.reviewer.errors = [Forbidden(403, "Forbidden", f"you sent {SECRET}")]
            answers = [
                await ask(session, url, SECRET),
                await ask(session, url, SECRET),
                await ask(session, url, f"{SECRET}x"),
            ]
    assert [status for status, _ in answers] == [500, 403, 401]
    assert SECRET not in str(answers)
    assert SECRET not in str(lines)
    assert SECRET not in "".join(map(str, guarded.instruments.registry.collect()))
    gate = guarded.gate
    assert SECRET not in str(gate._identities._answers)
    assert gate._identities._pending == {}


# --- how long reviews count -------------------------------------------------------------------------------------------


async def test_what_was_allowed_counts_for_five_minutes(session, url, guarded):
    """The gate asks the API server again after five minutes, and not before."""
    for seconds, reviews in ((0, 1), (299, 1), (301, 2)):
        guarded.clock.advance_to(seconds)
        assert (await ask(session, url, "good"))[0] == 200
        assert guarded.reviewer.asked == {"TokenReview": reviews, "SubjectAccessReview": reviews}
    assert guarded.metric("wva_endpoint_reviews_total", review="token", outcome="cached") == 1


async def test_what_was_denied_counts_for_thirty_seconds(session, url, guarded):
    """After thirty seconds the gate asks again, and sees a new right."""
    assert (await ask(session, url, "stranger"))[0] == 403
    assert (await ask(session, url, "late"))[0] == 401
    guarded.reviewer.allowed.add(("stranger", "get", "/metrics"))
    guarded.reviewer.users["late"] = UserInfo("scraper")
    guarded.clock.advance_to(29)
    assert (await ask(session, url, "stranger"))[0] == 403
    assert (await ask(session, url, "late"))[0] == 401
    guarded.clock.advance_to(31)
    assert (await ask(session, url, "stranger"))[0] == 200
    assert (await ask(session, url, "late"))[0] == 200


async def test_a_token_does_not_count_beyond_its_own_end(session, url, guarded):
    """The gate forgets an accepted token when the token expires."""
    token = jwt(exp=guarded.clock.now() + 60)
    guarded.reviewer.users[token] = UserInfo("scraper")
    assert (await ask(session, url, token))[0] == 200
    del guarded.reviewer.users[token]
    guarded.clock.advance_to(59)
    assert (await ask(session, url, token))[0] == 200
    guarded.clock.advance_to(61)
    assert (await ask(session, url, token))[0] == 401


@pytest.mark.parametrize("token", ["a.b.c", "a.!!!.c", "a..c", jwt(exp="soon"), jwt(), jwt(exp=1e300), "one.two"])
async def test_what_only_looks_like_a_jwt_counts_as_any_token(session, url, guarded, token):
    """A claim that cannot be read does not shorten the time."""
    guarded.reviewer.users[token] = UserInfo("scraper")
    assert (await ask(session, url, token))[0] == 200
    guarded.clock.advance_to(299)
    assert (await ask(session, url, token))[0] == 200
    assert guarded.reviewer.asked["TokenReview"] == 1


async def test_many_with_one_token_make_one_review(session, url, guarded):
    """Clients that come while a review of the same token runs wait for its answer."""
    guarded.reviewer.turn = asyncio.Event()
    asking = [asyncio.create_task(ask(session, url, "good")) for _ in range(20)]
    await guarded.reviewer.called.wait()
    guarded.reviewer.turn.set()
    assert {status for status, _ in await asyncio.gather(*asking)} == {200}
    assert guarded.reviewer.asked == {"TokenReview": 1, "SubjectAccessReview": 1}


# --- the API server does not review ---------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [Unavailable(503, "", ""), TooManyRequests(429, "", ""), Unreachable(0, "", "")])
async def test_a_passing_failure_is_tried_again(session, url, guarded, error):
    """The scraper is answered with 200 after two failed reviews."""
    guarded.reviewer.errors = [error, error]
    assert (await ask(session, url, "good"))[0] == 200
    assert guarded.reviewer.asked == {"TokenReview": 3, "SubjectAccessReview": 1}


async def test_a_lasting_failure_is_500_and_not_remembered(session, url, guarded):
    """The log has one line a minute at most, with the status and without the API server's words."""
    guarded.reviewer.errors = [Unavailable(503, "Overloaded", "come back")] * 6
    with capture_logs() as lines:
        assert (await ask(session, url, "good"))[0] == 500
        assert (await ask(session, url, "good"))[0] == 500
        assert (await ask(session, url, "good"))[0] == 200
    (line,) = [line for line in lines if line["event"] == "review_failed"]
    assert line["reason"] == "503 Overloaded"
    assert guarded.metric("wva_endpoint_reviews_total", review="token", outcome="failed") == 2


async def test_a_missing_right_of_our_own_is_500_at_once(session, url, guarded):
    """WVA does not retry when it may not create reviews. The log names the status."""
    guarded.reviewer.errors = [Forbidden(403, "Forbidden", "tokenreviews is forbidden")]
    with capture_logs() as lines:
        assert (await ask(session, url, "good"))[0] == 500
    assert [line["reason"] for line in lines if line["event"] == "review_failed"] == ["403 Forbidden"]
    assert guarded.reviewer.asked == {"TokenReview": 1}


async def test_an_api_server_that_does_not_answer_is_500(session):
    """The gate waits for the time limit of one review."""
    guarded = Guarded(timeout_seconds=0.05)
    guarded.reviewer.turn = asyncio.Event()
    handler = metrics_handler(guarded.instruments.registry, gate=guarded.gate)
    async with serving(handler, instruments=guarded.instruments) as server:
        assert (await ask(session, f"http://127.0.0.1:{server.port}", "good"))[0] == 500
    assert guarded.metric("wva_endpoint_review_duration_seconds_count", review="token") == 1


async def test_who_was_allowed_goes_on_while_the_api_server_is_away(session, url, guarded):
    """An allowed client gets in for five minutes, as long as its review counts."""
    assert (await ask(session, url, "good"))[0] == 200
    guarded.reviewer.errors = [Forbidden(403, "", "")] * 10
    guarded.clock.advance_to(299)
    assert (await ask(session, url, "good"))[0] == 200
    guarded.clock.advance_to(301)
    assert (await ask(session, url, "good"))[0] == 500


async def test_everybody_is_counted_by_status(session, url, guarded):
    """The metric counts the requests by the status of their answer."""
    for token in ("good", "bad", "stranger", None):
        await ask(session, url, token)
    codes = {
        code: guarded.metric("wva_endpoint_requests_total", server="metrics", code=code)
        for code in ("200", "401", "403")
    }
    assert codes == {"200": 1, "401": 2, "403": 1}
    gc.collect()
