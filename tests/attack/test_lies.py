"""The tenant's servers report false metrics, and Prometheus answers contain false series about the tenant's pods."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest

from tests.app.stage import MODEL
from tests.attack.harness import Attack, ExpectedCondition, ExpectedNumber, Says, survive
from tests.attack.world import TENANT, VICTIM, lie, page
from tests.rows import by_day
from wva.decide.foresee import MOST_TIMES


def reports(make):
    """Let the tenant's pod serve a page: a text, or a function that gets the pod and returns a text."""
    return lambda world: world.pages.update({(TENANT, "bad"): make if callable(make) else lambda _: make})


def says(make):
    """Add the series that ``make(pod, query)`` returns to each answer about the tenant's namespace.

    In the answer to an essential query, a series without a signal lies about the value and about its time.
    """

    def before(world):
        def meddle(query, answer):
            if TENANT in query:
                for entry in make(world.pods()[0], query):
                    both = is_essential(query) and "signal" not in entry["metric"]
                    for told in ({"signal": "value"}, {"signal": "timestamp"}) if both else ({},):
                        answer["data"]["result"].append({**entry, "metric": {**entry["metric"], **told}})
            return answer

        world.meddle(meddle)

    return before


def dated(at):
    """Let every sample of the tenant's pod have one time, in the text that ``at()`` returns."""

    def before(world):
        def meddle(query, answer):
            pods = set(world.pods()) if TENANT in query else ()
            for each in answer["data"]["result"]:
                if each["metric"].get("pod") in pods and each["metric"].get("signal") in {"timestamp", "time"}:
                    each["value"][1] = at()
            return answer

        world.meddle(meddle)

    return before


def counters(count):
    """Return a page with every counter of an engine, each with what ``count()`` returns."""
    labels = f'{{model_name="{MODEL}"}}'
    names = (
        "vllm:prompt_tokens_total",
        "vllm:prompt_tokens_cached_total",
        "vllm:time_to_first_token_seconds_count",
        "vllm:time_to_first_token_seconds_sum",
        "vllm:request_prompt_tokens_sum",
        "vllm:request_prompt_tokens_count",
        "vllm:request_generation_tokens_sum",
        "vllm:request_generation_tokens_count",
        "vllm:inter_token_latency_seconds_sum",
        "vllm:inter_token_latency_seconds_count",
    )
    sizes = f'vllm:cache_config_info{{model_name="{MODEL}",num_gpu_blocks="1000",block_size="16"}} 1\n'
    return page(finished=count()) + sizes + "".join(f"{name}{labels} {count()}\n" for name in names)


def scraped_again(world):
    """Scrape the pods again and again while the attack lasts."""

    async def scrapes():
        for _ in range(10):
            await asyncio.sleep(0.1)
            await world.scrape()

    return scrapes()


def is_essential(query):
    """Tell whether a query asks for the values of a signal and for their times."""
    return '"signal", "value"' in query


INCOMPLETE = ExpectedCondition("OptimizationReady", "False", "MetricsIncomplete", "invalid")
counter = itertools.cycle([10**15, 0, 7, 10**9])
falling = itertools.count(10**9, -(10**5))
OWN = Says(
    "only its own number moves, and that in bounds", lambda world: 1 <= world.decision_of().desired <= MOST_TIMES
)
UNTIMED = ExpectedCondition("OptimizationReady", "False")
TIMES = {
    "the_time_zero": lambda: "0",
    "a_time_below_zero": lambda: "-1e9",
    "the_time_minus_zero": lambda: "-0",
    "a_time_of_1e308": lambda: "1e308",
    "a_time_that_is_no_number": lambda: "NaN",
    "an_endless_time": lambda: "+Inf",
    "the_time_in_an_hour": lambda: f"{time.time() + 3600:.3f}",
}
COUNTS = {
    "counters_that_fall": lambda _: counters(lambda: next(falling)),
    "counters_that_jump": lambda _: counters(lambda: next(counter)),
    "counters_nan": lambda _: counters(lambda: "NaN"),
    "counters_infinite": lambda _: counters(lambda: "+Inf"),
    "counters_below_zero": lambda _: counters(lambda: "-7"),
    "counters_of_minus_zero": lambda _: counters(lambda: "-0.0"),
    "counters_of_1e308": lambda _: counters(lambda: "1e308"),
    "the_same_pod_twice_with_other_labels": lambda _: page() + page(usage=0.6).replace("{", '{engine="1",'),
    "the_same_pod_twice_with_labels_of_nobody": lambda _: page() + page(usage=0.6).replace("{", '{copy="1",'),
    "a_histogram_whose_buckets_fall": lambda _: (
        page()
        + "".join(
            f'vllm:time_to_first_token_seconds_bucket{{model_name="{MODEL}",le="{le}"}} {count}\n'
            for le, count in (("0.1", 9), ("0.1", 1), ("-1", 7), ("NaN", 3), ("+Inf", 0))
        )
    ),
}

ATTACKS = [
    Attack("usage_nan", before=reports(page(usage="NaN")), shows=(INCOMPLETE, ExpectedNumber(1))),
    Attack("usage_infinite", before=reports(page(usage="+Inf")), shows=(INCOMPLETE, ExpectedNumber(1))),
    Attack("usage_below_zero", before=reports(page(usage="-5")), shows=(INCOMPLETE, ExpectedNumber(1))),
    Attack("usage_1e308", before=reports(page(usage="1e308")), shows=(INCOMPLETE, ExpectedNumber(1))),
    Attack("usage_of_minus_zero", before=reports(page(usage="-0.0")), shows=ExpectedNumber(1)),
    Attack("usage_of_the_smallest_number", before=reports(page(usage="5e-324")), shows=ExpectedNumber(1)),
    Attack(
        "waiting_and_running_1e308", before=reports(page(waiting="1.7e308", running="1.7e308")), shows=ExpectedNumber(1)
    ),
    Attack("waiting_a_fraction", before=reports(page(waiting="1e-300")), shows=ExpectedNumber(1)),
    Attack(
        "finished_requests_that_fall_back_at_each_scrape",
        before=reports(lambda _: page(finished=next(counter))),
        shows=ExpectedNumber(1),
    ),
    Attack(
        "samples_of_another_model",
        before=reports(page("org/other", usage=0.99)),
        shows=ExpectedCondition("OptimizationReady", "False", "MetricsMissing"),
    ),
    Attack(
        "samples_with_a_namespace_and_a_pod_of_the_victim",
        before=reports(page(usage=1).replace("{", f'{{namespace="{VICTIM}",pod="d-1-001",')),
        shows=ExpectedCondition("MetricsAvailable", "True"),
    ),
    Attack(
        "a_page_that_is_none",
        before=reports("<html>login</html>"),
        shows=ExpectedCondition("OptimizationReady", "False", "MetricsMissing"),
    ),
    Attack(
        "hundreds_of_models_on_one_pod",
        before=reports("".join(page(f"org/{number}") for number in range(200))),
        shows=ExpectedCondition("OptimizationReady", "False", "MetricsMissing"),
    ),
    Attack(
        "a_label_of_64_kib",
        before=reports(page().replace("{", "{" + 'note="' + "x" * 65536 + '",')),
        shows=ExpectedNumber(1),
    ),
    Attack(
        "the_same_series_again_with_another_value",
        before=says(lambda pod, query: [lie("0.99", pod=pod, signal="value")] if is_essential(query) else []),
        shows=ExpectedCondition("OptimizationReady", "False"),
    ),
    Attack(
        "series_of_a_thousand_pods_that_do_not_exist",
        before=says(lambda _, __: [lie("0.99", pod=f"p-{number}") for number in range(1_000)]),
        interval="200ms",
        shows=ExpectedNumber(1),
    ),
    Attack(
        "a_thousand_series_of_one_pod",
        before=says(lambda pod, _: [lie("0.99", pod=pod, model=f"m-{number}") for number in range(1_000)]),
        interval="200ms",
        shows=ExpectedNumber(1),
    ),
    Attack(
        "series_that_name_the_victims_pods",
        before=says(lambda _, __: [lie("1", pod=f"d-1-00{number}", namespace=VICTIM, model="x") for number in (1, 2)]),
        shows=ExpectedNumber(1),
    ),
    Attack(
        "a_sample_of_the_far_future",
        before=says(
            lambda pod, query: (
                [lie(f"{time.time() + 1e9:.3f}", pod=pod, signal="timestamp")] if is_essential(query) else []
            )
        ),
        shows=ExpectedCondition("OptimizationReady", "False"),
    ),
    *(Attack(name, before=dated(at), shows=(UNTIMED, ExpectedNumber(1))) for name, at in TIMES.items()),
    *(Attack(name, before=reports(make), during=scraped_again, shows=OWN) for name, make in COUNTS.items()),
    Attack(
        "a_time_of_nine_thousand_digits",
        before=says(lambda pod, query: [lie("9" * 9000, pod=pod, signal="timestamp")] if is_essential(query) else []),
        shows=ExpectedCondition("OptimizationReady", "False"),
    ),
    Attack(
        "a_histogram_with_reversed_buckets",
        before=says(
            lambda pod, _: [lie("1", pod=pod, le="x") | {"histogram": [1, {"buckets": [[3, "2", "1", "-5"]]}]}]
        ),
        shows=ExpectedNumber(1),
    ),
    Attack(
        "labels_that_are_no_words",
        before=says(lambda _, __: [lie("1", pod="\x00\u202e\U0001f4a3", model="\ufffe" + MODEL)]),
        shows=ExpectedNumber(1),
    ),
    Attack(
        "warnings_of_a_megabyte",
        before=lambda world: world.meddle(
            lambda _, answer: answer | {"warnings": ["w" * 1_000_000], "infos": ["\u202e"] * 10_000}
        ),
        shows=ExpectedNumber(1),
    ),
]


BY_DAY = (
    "a_page_that_is_none",
    "counters_that_fall",
    "usage_nan",
    "waiting_and_running_1e308",
    "a_time_of_nine_thousand_digits",
    "a_sample_of_the_far_future",
    "the_same_pod_twice_with_other_labels",
    "hundreds_of_models_on_one_pod",
    "samples_with_a_namespace_and_a_pod_of_the_victim",
    "a_histogram_with_reversed_buckets",
    "finished_requests_that_fall_back_at_each_scrape",
)
"""Each takes a way of its own through the code. The others, one more value on such a way, are played each night."""


@pytest.mark.parametrize("attack", by_day(ATTACKS, BY_DAY), ids=str)
async def test_the_victim_does_not_notice(world, attack):
    """False samples about the tenant's pods change nothing for the victim."""
    await survive(world, attack)
