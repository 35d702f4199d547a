"""A tenant's samples spoil Prometheus answers that it shares with the victim, and a history that is too short.

The meddler adds to the answers of all queries that name the tenant's namespace, or breaks them. Prometheus answers a
query about the victim alone as usual.
"""

from __future__ import annotations

import asyncio
import json
import re
import time

import pytest
from aiohttp import web

from tests.app.stage import VARIANTS
from tests.attack.harness import Attack, ExpectedCondition, ExpectedNumber, Says, survive
from tests.attack.world import TENANT, VICTIM, page
from tests.rows import by_day

MIB = 1024**2
TO_ZERO = "wva-model-scale-to-zero-config"
SATURATION = "wva-saturation-scaling-config"
QUICK_RETRIES = {"wva.prometheus.client._RETRY_PAUSES_SECONDS": (0.01,)}
HASTY = QUICK_RETRIES | {"wva.prometheus.client.QUERY_TIMEOUT_SECONDS": 0.7}
HELD = ExpectedCondition("MetricsAvailable", "False", "PrometheusError")


def about_tenant(query):
    """Tell whether a query names the tenant's namespace, alone or with others."""
    found = re.search(r'namespace=~"([^"]*)"', query)
    return found is not None and TENANT in found[1].split("|")


def answers(reply):
    """Return a step that lets Prometheus give this answer to every query about the tenant."""

    def meddler(query, answer):
        return reply(query, answer) if about_tenant(query) else answer

    return lambda world: world.meddle(meddler)


def adds(data):
    """Return a reply that puts these series (JSON, as bytes) before those of the right answer."""

    def reply(_, answer):
        head, result, tail = json.dumps(answer).encode().partition(b'"result": [')
        return head + result + data + (b"" if tail.startswith(b"]") else b",") + tail

    return reply


def tells(name):
    """Return a reply that adds two megabytes of warnings or infos to the right answer."""
    return lambda _, answer: answer | {name: ["the store of the tenant is away"] * 50_000}


def always(body, status=200):
    """Return a reply that is the same for every query."""
    return lambda _, __: web.Response(body=body, status=status, content_type="application/json")


def vector(series):
    """Return the body of an answer with these series, as JSON bytes."""
    return b'{"status":"success","data":{"resultType":"vector","result":[' + series + b"]}}"


def own(labels):
    """Return a series of the tenant with these labels, as JSON bytes."""
    return b'{"metric":{"namespace":"tenant",' + labels + b'},"value":[1,"0.5"]}'


def labels_of(count, size):
    """Return a series with ``count`` labels of this size."""
    return own(b",".join(b'"label%d":"%s"' % (number, b"x" * size) for number in range(count)))


def many(count, labels):
    """Return ``count`` series."""
    return b",".join(own(labels(number)) for number in range(count))


def error(kind, text):
    """Return the body of an error in the format of Prometheus."""
    return json.dumps({"status": "error", "errorType": kind, "error": text}).encode()


async def hang(*_):
    """Do not answer for a minute."""
    await asyncio.sleep(60)


def hang_up(*_):
    """Announce more bytes than the answer has, and close the connection."""
    return web.Response(body=b'{"status":', headers={"Content-Length": "1000"})


class Flap:
    """A reply that is broken every other time."""

    def __init__(self):
        """Begin with a right answer."""
        self.count = 0

    def __call__(self, _, answer):
        """Give the right answer every other time."""
        self.count += 1
        return b"?" if self.count % 2 else answer


def spoiled(name, reply, *, shows=HELD, setting=QUICK_RETRIES, growth_mib=200):
    """Return an attack that spoils every answer about the tenant."""
    return Attack(name, during=answers(reply), shows=shows, setting=setting, growth_mib=growth_mib)


SPOILED = [
    spoiled("labels_of_66_times_one_mib", always(vector(labels_of(66, MIB))), growth_mib=400),
    spoiled("labels_within_the_limit", adds(labels_of(5, MIB)), shows=ExpectedNumber(1), growth_mib=400),
    spoiled("one_label_of_16_mib", adds(own(b'"pod":"%s"' % (b"x" * 16 * MIB))), growth_mib=400),
    spoiled("series_by_the_130_thousand", adds(many(130_000, lambda number: b'"pod":"x-%d"' % number)), growth_mib=400),
    spoiled(
        "series_within_the_limit",
        adds(many(30_000, lambda number: b'"pod":"x-%d"' % number)),
        shows=ExpectedNumber(1),
        growth_mib=400,
    ),
    spoiled("samples_too_many_to_evaluate", always(error("execution", "query processing would load too many"), 422)),
    spoiled("a_query_that_the_server_times_out", always(error("timeout", "query timed out"), 503)),
    spoiled("a_query_that_the_server_fails_on", always(b"oops", 500)),
    spoiled("a_query_that_is_too_large_for_the_proxy", always(b"<html>413</html>", 413)),
    spoiled("a_query_that_is_never_answered", hang, setting=HASTY),
    spoiled("an_answer_that_is_cut_off", hang_up, setting=HASTY),
    spoiled("an_answer_that_is_no_json", always(b"<html><body>login</body></html>")),
    spoiled("an_answer_of_half_a_json", always(vector(b'{"metric":{'))),
    spoiled("an_answer_nested_a_million_times", adds(b"[" * 1_000_000)),
    spoiled("an_answer_that_is_a_scalar", always(vector(b'1,"1"').replace(b"vector", b"scalar"))),
    spoiled("label_values_that_are_not_utf_8", adds(own(b'"pod":"\xff\xfe"'))),
    spoiled("label_values_that_are_numbers", adds(own(b'"pod":7'))),
    spoiled("times_that_are_no_numbers", adds(b'{"metric":{"namespace":"tenant"},"value":["NaN","1"]}')),
    spoiled("values_of_three_parts", adds(b'{"metric":{"namespace":"tenant"},"value":[1,"1","2"]}')),
    spoiled("series_without_labels", adds(b'{"value":[1,"1"]}')),
    spoiled("warnings_by_the_megabyte", tells("warnings"), shows=ExpectedNumber(1)),
    spoiled("infos_by_the_megabyte", tells("infos"), shows=ExpectedNumber(1)),
    spoiled("answers_that_fail_every_other_time", Flap(), shows=()),
]


BY_DAY = (
    "series_without_labels",
    "an_answer_that_is_cut_off",
    "times_that_are_no_numbers",
    "warnings_by_the_megabyte",
    "answers_that_fail_every_other_time",
    "a_query_that_is_never_answered",
    "a_query_that_the_server_fails_on",
    "series_by_the_130_thousand",
    "an_answer_nested_a_million_times",
    "label_values_that_are_not_utf_8",
)
"""Each takes a way of its own through the code. The others, one more value on such a way, are played each night."""


@pytest.mark.parametrize("attack", by_day(SPOILED, BY_DAY), ids=str)
async def test_only_the_namespace_that_spoils_an_answer_is_held(world, attack):
    """The controller holds the tenant's model but not the victim's, although both share every query."""
    await survive(world, attack)


# --- scale to zero --------------------------------------------------------------------------------------------------


async def scraped_twice(world):
    """Let a Prometheus without any history scrape the victim twice; the victim is an hour old and idle."""
    hour_ago = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 3600))
    for pod in world.pods("d", namespace=VICTIM):
        world.force("pods", pod, lambda found: found["metadata"].update(creationTimestamp=hour_ago), namespace=VICTIM)
    world.pages[VICTIM, "d"] = lambda _: page(usage=world._usage, running=0, finished=0)
    await world.scrape()


def may_go_to_zero(world):
    """Allow every model to go to zero after ten minutes without a request."""
    world.config_map(TO_ZERO, {"default": "enable_scale_to_zero: true"})


def two_hundred_periods(world):
    """Give two hundred models of the tenant a retention period each, and slow down the queries that count requests."""
    world.many_variants(200)
    models = world.api.store.list(VARIANTS)
    for number, value in enumerate(each for each in models if each["metadata"]["name"].startswith("x-")):
        world.twist(
            VARIANTS,
            value["metadata"]["name"],
            lambda found, number=number: found["spec"].update(modelID=f"org/model-{number}"),
        )
    entry = "model_id: org/model-{0}\nenable_scale_to_zero: true\nretention_period: {1}s"
    world.tenant_map(TO_ZERO, {f"model-{number}": entry.format(number, 2 * number + 1) for number in range(200)})

    async def slow(query, answer):
        if "increase(" in query:
            await asyncio.sleep(0.3)
        return answer

    world.meddle(slow)


COUNTED = [
    Attack(
        "a_history_of_requests_that_is_too_short",
        before=scraped_twice,
        during=may_go_to_zero,
        shows=Says(
            "the history is too short",
            lambda world: "the history of requests covers 0 of 600 s" in world.decision_of("va", VICTIM).message,
        ),
    ),
    Attack("two_hundred_retention_periods", before=two_hundred_periods, interval="300ms", shows=ExpectedNumber(1)),
]


@pytest.mark.parametrize("attack", COUNTED, ids=str)
async def test_the_victim_does_not_notice(world, attack):
    """Without history, or without an answer, the controller does not scale the victim to zero."""
    await survive(world, attack)
