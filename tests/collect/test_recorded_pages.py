"""What WVA reads of a real vLLM 0.32.0, from recorded pages, through the queries and the code of a cycle."""

from __future__ import annotations

import math
import re

import pytest

from tests.collect.doubles import NOW
from tests.docs.rendering import DOCS
from tests.golden.pages import vllm_page, vllm_pages
from tests.publish.decisions import decision
from wva.collect.days import earlier_days
from wva.collect.in_time import TTFT_BOUNDS, ServedUsers, in_time_query, served
from wva.collect.queries import (
    ENGINE_COUNTERS,
    ENGINE_SIGNALS,
    ESSENTIAL_QUERIES,
    engine_counters,
    engine_prefills,
    engine_signals,
)
from wva.collect.queries import in_progress as in_progress_query
from wva.collect.request_counts import request_query
from wva.collect.retention import window_of
from wva.collect.snapshot import Collector
from wva.decide.measure.demand import observed
from wva.decide.trust import believe
from wva.model.decision import Aim
from wva.model.memory import DemandMemory, Memory
from wva.model.metrics import EngineCounters, SampleState
from wva.model.objectives import DEFAULT_OBJECTIVES, Objectives
from wva.model.policy import Policy
from wva.model.records import replace
from wva.model.variant import ModelKey
from wva.prometheus.answers import InstantSeries, Labels
from wva.prometheus.client import PrometheusClient
from wva.prometheus.settings import PrometheusSettings
from wva.sim.prometheus import InProcess, ScrapeTarget
from wva.sim.prometheus.server import EmbeddedPrometheus

MODEL = "tiny/llama"
RETENTION = 600
TEXTS = [
    *(make(["ns"]).text for make in ESSENTIAL_QUERIES.values()),
    engine_signals(["ns"]).text,
    engine_counters(["ns"]).text,
    engine_prefills(["ns"]).text,
    in_progress_query(["ns"]).text,
    request_query(["ns"], window_of(RETENTION)).text,
    in_time_query(["ns"], [DEFAULT_OBJECTIVES]).text,
    earlier_days(["ns"]).text,
]
FORMER = {
    "vllm:prefix_cache_hits",
    "vllm:prefix_cache_queries",
    "vllm:time_per_output_token_seconds_sum",
    "vllm:time_per_output_token_seconds_count",
}
"""Names that older versions of vLLM have, or have beside the present ones."""
AT = NOW - 5
COUNTED = {
    "idle": EngineCounters(AT, 0, 0, 0, 0, 0, 0, 0, 0),
    "under-load": EngineCounters(AT, 25, 0, 5992, 34, 485, 25, 92.29454171499992, 466),
    "after-24-requests": EngineCounters(AT, 25, 0, 1447, 25, 485, 25, 87.963734295, 460),
    "after-3-preemptions": EngineCounters(AT, 49, 0, 13_567, 49, 1445, 49, 128.3967659720015, 1396),
    "after-10-aborts": EngineCounters(AT, 49, 0, 14_167, 59, 1445, 49, 137.1778452919998, 1457),
    "pod1-at-15rps": EngineCounters(AT, 637, 0, 65_595, 657, 24_340, 637, 947.3708267560082, 24_013),
    "pod2-at-15rps": EngineCounters(AT, 725, 0, 44_040, 734, 29_000, 725, 344.11633598100025, 28_443),
    "after-restart-idle": EngineCounters(AT, 0, 0, 0, 0, 0, 0, 0, 0),
    "after-admission-rejections": EngineCounters(AT, 828, 0, 49_680, 828, 33_120, 828, 133.80285061499308, 32_292, 812),
}
"""The counters of each page, read from it by eye."""
PREFILL_SECONDS = 90.53033539899297
FIRST_SECONDS = 306.7607560157776
GAUGES = {
    "under-load": (37 / 63, 10, 14),  # blocks in use of those that can be, requests that run and that wait
    "pod1-at-15rps": (10 / 63, 10, 0),
    "pod2-at-15rps": (9 / 63, 9, 0),
}
QUIET = (0.0, 0.0, 0.0)


@pytest.fixture
async def world(cluster, clock, instruments):
    """Return (embedded Prometheus, function that collects what an analyzer asks for)."""
    async with EmbeddedPrometheus(now=lambda: NOW) as prometheus:
        settings = PrometheusSettings(prometheus.url, allow_http=True)
        async with PrometheusClient(settings, clock=clock, instruments=instruments) as client:

            async def collect(query=ENGINE_COUNTERS, at=NOW):
                collector = Collector(
                    cluster.stores,
                    prometheus=client,
                    instruments=instruments,
                    counters_of=lambda _: query == ENGINE_COUNTERS,
                    engines_of=lambda _: query == ENGINE_SIGNALS,
                    retention_of=lambda _: RETENTION,
                )
                snapshot = await collector.collect(at)
                assert snapshot.failures == ()
                return snapshot

            yield prometheus, collect


async def scrape(prometheus, pages, *, at=AT):
    """Scrape a page of each pod at a time."""
    for pod, page in pages.items():
        target = ScrapeTarget(InProcess(lambda page=page: vllm_page(page)), {"namespace": "ns", "pod": pod})
        prometheus.scraper.add(target)
    await prometheus.scraper.scrape(at)


def names(text):
    """Return the metrics that a query names, those of its regular expressions included."""
    return {
        name + end
        for name, ends in re.findall(r"(vllm:\w+)(?:\(\?:([\w|]+)\))?", text)
        for end in (ends.split("|") if ends else [""])
    }


def test_every_metric_that_a_query_names_is_on_the_pages():
    """Each page has every family that WVA reads, apart from the names that vLLM had before."""
    named = set().union(*map(names, TEXTS))
    for page in map(vllm_page, vllm_pages()):
        assert named - set(re.findall(r"^(vllm:\w+)", page, re.MULTILINE)) == FORMER


def test_every_label_by_which_a_query_groups_is_on_the_pages():
    """Each page has every label of an engine that WVA reads; Prometheus adds those of the pod."""
    lists = re.findall(r"by \(([^)]*)\)", engine_signals(["ns"]).text + engine_counters(["ns"]).text)
    grouped = {label for each in lists for label in each.split(", ")} - {"namespace", "pod"}
    for page in map(vllm_page, vllm_pages()):
        assert grouped <= set(re.findall(r'(\w+)="', page))


def test_every_page_is_read():
    """No recorded page is left out of these tests."""
    assert sorted(COUNTED) == vllm_pages()


async def test_the_times_of_prompts_and_first_tokens_are_those_of_the_page(cluster, world):
    """Where a variant computes prompts only."""
    prometheus, collect = world
    cluster.variant(model_id=MODEL, labels={"llm-d.ai/role": "prefill"})
    await scrape(prometheus, {"va-0": "pod1-at-15rps"})
    (replica,) = (await collect()).replicas
    known = replace(COUNTED["pod1-at-15rps"], prefill_seconds=PREFILL_SECONDS, first_seconds=FIRST_SECONDS)
    assert replica.counters == known


@pytest.mark.parametrize("page", sorted(COUNTED))
async def test_the_counters_are_those_of_the_page(cluster, world, page):
    """Counters, gauges and the size of the KV cache are what the page says, with the time of its scrape."""
    prometheus, collect = world
    cluster.variant(model_id=MODEL)
    await scrape(prometheus, {"va-0": page})
    (replica,) = (await collect()).replicas
    assert (replica.counters, replica.counters_detail) == (COUNTED[page], "")
    usage, running, waiting = GAUGES.get(page, QUIET)
    engine = replica.engine
    found = [engine.kv_usage, engine.running, engine.waiting, replica.kv_usage, replica.queue_length]
    assert [sample.fresh_value for sample in found] == pytest.approx([usage, running, waiting, usage, waiting])
    assert {sample.timestamp for sample in found} == {AT}
    assert engine.kv_capacity_tokens.fresh_value == 8192


async def test_two_pods_are_read_side_by_side(cluster, world):
    """Each pod has its own counters, and the model the sum of what is in progress."""
    prometheus, collect = world
    cluster.variant(model_id=MODEL, pods=2)
    await scrape(prometheus, {"va-0": "pod1-at-15rps", "va-1": "pod2-at-15rps"})
    snapshot = await collect()
    assert [replica.counters for replica in snapshot.replicas] == [COUNTED["pod1-at-15rps"], COUNTED["pod2-at-15rps"]]
    (counts,) = snapshot.request_counts
    assert (counts.finished, counts.in_progress, counts.detail) == (637 + 725, 10 + 9, "")


async def test_requests_that_wait_are_in_progress(cluster, world):
    """The reasons for which requests wait are series of their own, and do not count a second time."""
    prometheus, collect = world
    cluster.variant(model_id=MODEL)
    await scrape(prometheus, {"va-0": "under-load"})
    (counts,) = (await collect()).request_counts
    assert counts.in_progress == 10 + 14


async def test_means_are_those_of_the_requests_between_two_pages(cluster, world):
    """Between the idle page and the one after 25 requests, every mean is that of these requests."""
    prometheus, collect = world
    cluster.variant(model_id=MODEL)
    for age in (65, 50, 35, 20):
        await scrape(prometheus, {"va-0": "idle"}, at=NOW - age)
    await scrape(prometheus, {"va-0": "after-24-requests"})
    (replica,) = (await collect(ENGINE_SIGNALS)).replicas
    expected = {
        "input_tokens": 1447 / 25,
        "output_tokens": 485 / 25,
        "prefix_hit_rate": 0.0,
        "time_to_first_token": 14.454739093780518 / 25,
        "inter_token_latency": 87.963734295 / 460,
        "success_rate": 25 / 60,
    }
    samples = {name: getattr(replica.engine, name) for name in expected}
    assert {sample.state for sample in samples.values()} == {SampleState.FRESH}
    # The rate goes on for half an interval after the last scrape.
    assert {name: sample.value for name, sample in samples.items()} == pytest.approx(expected, rel=0.15)
    del expected["success_rate"], samples["success_rate"]
    assert {name: sample.value for name, sample in samples.items()} == pytest.approx(expected)


async def test_refused_requests_have_arrived(cluster, world):
    """Of the requests sent at 39.8 per second half were refused: the demand is what was sent, within 10 %."""
    prometheus, collect = world
    cluster.variant(model_id=MODEL)
    memory, need = DemandMemory(ModelKey("ns", MODEL)), None
    sent_for = (48 + 1592) / 39.8
    for page, after in (("after-restart-idle", 0.0), ("after-admission-rejections", sent_for)):
        await scrape(prometheus, {"va-0": page}, at=NOW - sent_for - 5 + after)
        snapshot = await collect(at=NOW - sent_for + after)
        (model,), _ = believe(snapshot, Memory(), Policy(), NOW - sent_for + after)
        seen = observed(model, memory, NOW - sent_for + after)
        memory, need = seen.after, seen.need
    assert need.demand == pytest.approx(39.8, rel=0.1)
    assert need.rate.refused == pytest.approx(812 / sent_for)


def relabelled(page, *, dropped="", changed=()):
    """Return a page without the lines that match, and with other text."""
    lines = [line for line in vllm_page(page).splitlines() if not (dropped and re.match(dropped, line))]
    text = "\n".join(lines) + "\n"
    for before, after in changed:
        assert before in text
        text = text.replace(before, after)
    return text


async def one_replica(cluster, world, text, **labels):
    """Scrape a text as the page of the one pod, and return its replica."""
    prometheus, collect = world
    cluster.variant(model_id=MODEL)
    found = {"namespace": "ns", "pod": "va-0"} | labels
    prometheus.scraper.add(ScrapeTarget(InProcess(lambda: text), {key: value for key, value in found.items() if value}))
    await prometheus.scraper.scrape(AT)
    return (await collect()).replicas[0]


@pytest.mark.parametrize("state", ["weights_offloaded", "discard_all"])
async def test_an_engine_that_sleeps_makes_its_pod_dormant(cluster, world, state):
    """Whatever it has released; an engine that is awake, or too old to tell, is none."""
    text = relabelled("pod1-at-15rps", changed=[('sleep_state="awake"} 1.0', 'sleep_state="awake"} 0.0')])
    text = text.replace(f'sleep_state="{state}"}} 0.0', f'sleep_state="{state}"}} 1.0')
    assert (await one_replica(cluster, world, text)).dormant


@pytest.mark.parametrize("dropped", ["", "vllm:engine_sleep_state"])
async def test_an_engine_that_does_not_sleep_is_not_dormant(cluster, world, dropped):
    """An old vLLM does not tell; two engines of which one is awake serve."""
    text = relabelled("pod1-at-15rps", dropped=dropped)
    if not dropped:
        second = 'vllm:engine_sleep_state{engine="1",model_name="tiny/llama",sleep_state="awake"} 0.0\n'
        text += second
    assert not (await one_replica(cluster, world, text)).dormant


HISTOGRAMS = (
    "vllm:time_to_first_token_seconds_count",
    "vllm:request_generation_tokens_sum",
    "vllm:request_generation_tokens_count",
    "vllm:inter_token_latency_seconds_sum",
    "vllm:inter_token_latency_seconds_count",
)


@pytest.mark.parametrize(
    ("dropped", "missing"),
    [
        (r".*(_bucket|_sum|_count)\{", HISTOGRAMS),
        ("vllm:request_success", ["vllm:request_success_total"]),
        ("vllm:num_requests_running", ["vllm:num_requests_running"]),
    ],
    ids=["histograms", "successes", "a gauge"],
)
async def test_the_series_that_are_dropped_are_named(cluster, world, dropped, missing):
    """An allow list or native histograms leave no classic series; the detail names all that are missing."""
    replica = await one_replica(cluster, world, relabelled("pod1-at-15rps", dropped=dropped))
    assert (replica.counters, replica.counters_detail) == (None, f"no series {', '.join(missing)}")


async def test_the_tokens_of_the_cache_are_preferred_over_its_blocks(cluster, world):
    """The blocks of a hybrid model are not all of one size, and may not be known."""
    changed = [
        ('kv_cache_size_tokens="8192"', 'kv_cache_size_tokens="9000"'),
        ('num_gpu_blocks="64"', 'num_gpu_blocks="None"'),
    ]
    replica = await one_replica(cluster, world, relabelled("idle", changed=changed))
    assert replica.engine.kv_capacity_tokens.fresh_value == 9000


async def test_without_the_tokens_of_the_cache_its_blocks_count(cluster, world):
    """Older versions of vLLM have no kv_cache_size_tokens, and one that cannot tell says None."""
    changed = [
        ('kv_cache_size_tokens="8192"', 'kv_cache_size_tokens="None"'),
        ('num_gpu_blocks="64"', 'num_gpu_blocks="32"'),
    ]
    replica = await one_replica(cluster, world, relabelled("idle", changed=changed))
    assert replica.engine.kv_capacity_tokens.fresh_value == 32 * 128


async def test_series_under_another_label_than_pod_are_told(cluster, world):
    """A scrape configuration of one's own may name the pod otherwise."""
    replica = await one_replica(cluster, world, vllm_page("idle"), pod="", kubernetes_pod_name="va-0")
    assert replica.kv_usage.detail == replica.queue_length.detail == "series of its model have no label pod"


async def test_series_without_a_model_are_told(cluster, world):
    """A relabelling may drop the name of the model."""
    text = relabelled("idle", changed=[(',model_name="tiny/llama"', "")])
    replica = await one_replica(cluster, world, text)
    assert replica.kv_usage.detail == "its series have no label model_name"


SERVED = {
    ("under-load", 1.0, 0.1): 4 / 25,
    ("under-load", 0.5, 0.2): 12 / 25,
    ("under-load", 0.3, 0.3): 6 / 34,  # judged at 0.25 s
    ("after-24-requests", 3.0, 0.3): 25 / 25,  # judged at 2.5 s
    ("after-10-aborts", 2.5, 0.3): 48 / 59,  # nothing says that the last ten users went away
    ("after-admission-rejections", 1.0, 0.1): 828 / (828 + 812),
    ("after-admission-rejections", 0.02, 0.1): 755 / (828 + 812),
    ("idle", 1.0, 0.1): None,
}
"""The share in time of each page at objectives for the first token and between tokens, read from it by eye."""


@pytest.mark.parametrize(("page", "first", "between"), list(SERVED))
async def test_the_share_in_time_is_that_of_the_page(clock, instruments, page, first, between):
    """From the start of the server to the page, through the query and the code that publishes the share."""
    async with EmbeddedPrometheus(now=lambda: NOW) as prometheus:
        texts = [vllm_page("after-restart-idle")]
        target = ScrapeTarget(InProcess(lambda: texts[-1]), {"namespace": "ns", "pod": "va-0"})
        prometheus.scraper.add(target)
        await prometheus.scraper.scrape(NOW - 120)
        texts.append(vllm_page(page))
        await prometheus.scraper.scrape(AT)
        settings = PrometheusSettings(prometheus.url, allow_http=True)
        async with PrometheusClient(settings, clock=clock, instruments=instruments) as client:
            model, aim = ModelKey("ns", MODEL), Aim(Objectives(first, between))
            users = ServedUsers(prometheus=client, decisions=lambda: [decision(model=model, aim=aim)], clock=clock)
            await users.look()
        found, share = users.of(model), SERVED[page, first, between]
        if share is None:
            assert (found.five_minutes, found.hour) == (None, None)
        else:
            assert found.five_minutes.share == pytest.approx(share)
            assert found.hour.share == pytest.approx(share)


FIRST_TOKENS = (0.3, 1.0, 3.0, 10.0)


def first_tokens(page, seconds):
    """Return the shares of first tokens within an objective: as judged, and the most that the page leaves possible."""
    buckets = re.compile(r'^vllm:time_to_first_token_seconds_bucket\{.*le="([^"]+)".*\} (\S+)$', re.MULTILINE)
    found = buckets.findall(vllm_page(page))
    counts = {float(bound): float(count) for bound, count in found}
    assert sorted(counts) == [*TTFT_BOUNDS, math.inf]
    above = next(bound for bound in sorted(counts) if bound >= seconds)
    shares = []
    for bound in (seconds, above):
        series = [
            InstantSeries(Labels(signal=f"{signal}_1h", le=f"{le:g}".replace("inf", "+Inf")), (AT, str(count)))
            for signal in ("first", "between")
            for le, count in counts.items()
        ]
        shares.append(served(series, Objectives(bound, math.inf))["1h"].first)
    return shares


def span(page, seconds):
    """Return both shares as a cell of the table, or one where they are the same."""
    lowest, highest = (f"{100 * share:.1f}" for share in first_tokens(page, seconds))
    return f"{lowest} %" if lowest == highest else f"{lowest} to {highest} %"


@pytest.mark.parametrize("page", ["pod1-at-15rps", "pod2-at-15rps", "under-load"])
def test_the_table_has_what_real_pages_leave_open(page):
    """At a bound nothing is left open; between two bounds the share is never too high."""
    lines = (DOCS / "objectives.md").read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in lines if line.startswith(f"| `{page}` |")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[2:] == [span(page, seconds) for seconds in FIRST_TOKENS]
    for seconds in TTFT_BOUNDS:
        judged, highest = first_tokens(page, seconds)
        assert judged == highest
