"""The fleet as the embedded world uses it."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from wva.model.records import replace
from wva.sim.fleet.fleet import Fleet, FleetSettings, PodFault, ReadyPod
from wva.sim.fleet.load import LoadSpec
from wva.sim.fleet.parameters import PRESETS
from wva.sim.fleet.replica import PodKey, PoolKey, PoolVariant
from wva.sim.fleet.users import GatewaySettings, Routing
from wva.sim.traffic.rates import RateProfile

MODEL = PoolKey("ns", "m")
H100 = PoolVariant("ns", "h100", "m", "H100", PRESETS["H100"])
A100 = PoolVariant("ns", "a100", "m", "A100", PRESETS["A100"])
POD = PodKey("ns", "h-1")


def fleet(rate=10.0, *, seed=1, variants=(H100, A100), **settings):
    """Return a fleet of one model with a steady load and no pods."""
    return Fleet(
        variants,
        loads={MODEL: LoadSpec(RateProfile.constant(rate))},
        seed=seed,
        settings=FleetSettings(**settings),
    )


def ready(target, *names, deployment="h100"):
    """Make these pods the ready ones."""
    target.set_ready_pods("ns", deployment=deployment, pods=[ReadyPod(name) for name in names])


def values(text, name):
    """Return the values of one series by pod and engine."""
    return {
        (sample.labels.get("pod"), sample.labels.get("engine")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


def play(target, *, step):
    """Play twenty minutes with changes of pods and load, and read the pages every ``step`` seconds."""
    for minute in range(20):
        if minute == 2:
            ready(target, "h-1")
        if minute == 5:
            target.set_ready_pods("ns", deployment="a100", pods=[ReadyPod("a-1"), ReadyPod("a-2", 400.0)])
        if minute == 8:
            target.set_load(MODEL, profile=RateProfile.constant(45.0))
        if minute == 12:
            ready(target, "h-2")
        end = 60.0 * (minute + 1)
        while target.now_seconds < end:
            target.advance(min(end, target.now_seconds + step))
            target.exposition_all()
    return target


def test_same_seed_gives_the_same_pages_however_time_is_divided():
    """Pages and summary are equal for any division of time, and another seed gives other ones."""
    coarse, fine = play(fleet(), step=60.0), play(fleet(), step=7.3)
    assert coarse.exposition_all() == fine.exposition_all()
    assert coarse.summary() == fine.summary()
    assert play(fleet(seed=2), step=60.0).exposition_all() != coarse.exposition_all()


def test_page_of_a_pod_and_of_all():
    """A pod's own page has no pod label. The fleet's page has it for every Ready pod."""
    target = fleet()
    ready(target, "h-2", "h-1")
    target.advance(60.0)
    own = values(target.exposition(POD), "vllm:num_requests_running")
    everything = target.exposition_all()
    assert set(own) == {(None, "0")}
    assert list(values(everything, "vllm:num_requests_running")) == [("h-1", "0"), ("h-2", "0")]
    assert values(everything, "vllm:num_requests_running")["h-1", "0"] == own[None, "0"]
    assert "inference_extension_flow_control_queue_size{" in everything


def test_pods_that_are_not_ready_show_nothing():
    """Unknown and starting pods cannot be scraped. A terminating pod can, but is not on the common page."""
    target = fleet()
    assert target.exposition(POD) is None
    target.set_ready_pods("ns", deployment="h100", pods=[ReadyPod("h-1", 50.0)])
    target.advance(10.0)
    assert target.exposition(POD) is None
    assert values(target.exposition_all(), "vllm:num_requests_running") == {}
    target.advance(60.0)
    assert target.exposition(POD) is not None
    ready(target)
    target.advance(61.0)
    assert target.exposition(POD) is not None
    assert values(target.exposition_all(), "vllm:num_requests_running") == {}


def test_gateway_queue_shows_demand_at_zero_replicas():
    """Without pods the model's queue grows, on the picker's page and in the summary. A pod empties it."""
    target = fleet(2.0)
    target.advance(30.0)
    page = target.exposition_gateway("ns")
    (size,) = values(page, "inference_extension_flow_control_queue_size").values()
    assert size == target.summary()[0].queued > 30
    assert "namespace=" not in page
    assert 'namespace="ns"' in target.exposition_gateway()
    assert "{" not in target.exposition_gateway("other")
    ready(target, "h-1")
    assert target.summary()[0].queued == 0


def test_data_parallel_pods_show_a_series_per_engine():
    """The two engines of a data-parallel pod share its load, and each has its own series."""
    variant = PoolVariant("ns", "dp", "m", "H100", PRESETS["H100"], data_parallel_size=2)
    target = fleet(20.0, variants=(variant,))
    ready(target, "d-1", deployment="dp")
    target.advance(60.0)
    running = values(target.exposition(PodKey("ns", "d-1")), "vllm:num_requests_running")
    assert set(running) == {(None, "0"), (None, "1")}
    assert min(running.values()) > 0


def broken(mode):
    """Return a fleet one minute after a fault, and the page from just before it."""
    target = fleet(epoch_seconds=1_000_000.0)
    ready(target, "h-1", "h-2")
    target.advance(60.0)
    before = target.exposition(POD)
    target.break_pod(POD, mode=mode)
    target.advance(120.0)
    return target, before


def test_fault_no_metrics():
    """The scrape fails and the common page leaves out the pod, until it is repaired."""
    target, _ = broken(PodFault.NO_METRICS)
    assert target.exposition(POD) is None
    assert list(values(target.exposition_all(), "vllm:kv_cache_usage_perc")) == [("h-2", "0")]
    target.repair_pod(POD)
    assert target.exposition(POD) is not None


def test_fault_nan():
    """The gauges of the broken pod are NaN, and those of the other pod are not."""
    target, _ = broken(PodFault.NAN)
    usage = values(target.exposition_all(), "vllm:kv_cache_usage_perc")
    assert usage["h-1", "0"] != usage["h-1", "0"]
    assert usage["h-2", "0"] > 0


def test_fault_frozen():
    """The page does not change, histograms included, although the pod goes on serving."""
    target, before = broken(PodFault.FROZEN)
    assert target.exposition(POD) == before
    target.repair_pod(POD)
    assert target.exposition(POD) != before


def test_fault_stale():
    """Frozen samples carry the time of the fault."""
    target, before = broken(PodFault.STALE)
    lines = [line for line in target.exposition(POD).splitlines() if not line.startswith("#")]
    assert all(line.endswith(" 1000060000") for line in lines)
    assert [line.removesuffix(" 1000060000") for line in lines] == [
        line for line in before.splitlines() if not line.startswith("#")
    ]


def test_unknown_objects_are_named():
    """An unknown pod or variant raises KeyError."""
    target = fleet()
    with pytest.raises(KeyError):
        target.break_pod(POD, mode=PodFault.NAN)
    with pytest.raises(KeyError):
        target.set_ready_pods("ns", deployment="nope", pods=[])


def test_time_does_not_go_back():
    """An advance to the past is an error."""
    target = fleet()
    target.advance(10.0)
    with pytest.raises(ValueError, match="cannot go back"):
        target.advance(9.0)


def test_models_do_not_influence_each_other():
    """The load of a second model does not change the first one's requests and results."""
    other = PoolVariant("ns", "b", "other", "H100", PRESETS["H100"])
    alone = fleet(15.0)
    both = fleet(15.0, variants=(H100, A100, other))
    both.set_load(PoolKey("ns", "other"), profile=RateProfile.constant(30.0))
    for target in (alone, both):
        ready(target, "h-1")
        target.advance(300.0)
    assert alone.summary()[0] == both.summary()[0]
    assert both.summary()[1].arrived > 8_000


def test_summary_accounts_for_every_request():
    """Arrived = served + failed + queued + waiting + running + retrying, and usage is given per variant."""
    target = play(fleet(), step=60.0)
    (model,) = target.summary()
    failed = model.dropped + model.timed_out + model.broken
    inside = model.queued + model.waiting + model.running + model.retrying
    assert model.arrived == model.served_total + failed + inside
    assert model.offered_per_second == pytest.approx(45.0, abs=3.0)
    a100, h100 = model.variants
    assert (a100.deployment, a100.ready, h100.ready, h100.draining) == ("a100", 2, 1, 0)
    assert a100.running + a100.waiting + h100.running + h100.waiting <= model.running + model.waiting
    assert 0 < a100.kv_cache_usage_mean <= a100.kv_cache_usage_max <= 1


def test_token_histograms_end_with_the_model_of_each_engine():
    """The histograms of each engine end at its own max_model_len, although the engines of a pool share counters."""
    short = replace(PRESETS["A100"], max_model_len=1500)
    target = fleet(10.0, variants=(H100, PoolVariant("ns", "a100", "m", "A100", short)))
    ready(target, "h-1")
    ready(target, "a-1", deployment="a100")
    target.advance(120.0)
    name = "vllm:request_prompt_tokens_bucket"
    found = {}
    for family in text_string_to_metric_families(target.exposition_all()):
        for sample in family.samples:
            if sample.name == name:
                found.setdefault(sample.labels["pod"], []).append((sample.labels["le"], sample.value))
    assert [pairs[-2][0] for _, pairs in sorted(found.items())] == ["1000.0", "5000.0"]
    assert all(pairs[-1][0] == "+Inf" and pairs[-1][1] > 100 for pairs in found.values())
    counts = values(target.exposition_all(), "vllm:request_prompt_tokens_count")
    assert {pod: count for (pod, _), count in counts.items()} == {pod: pairs[-1][1] for pod, pairs in found.items()}


def test_patience_and_routing_of_a_fleet():
    """Users of a fleet give up where its settings say so. The summary counts them, the pages do not, as in vLLM."""
    impatient = GatewaySettings(patience_seconds=1.0, attempts=2, routing=Routing.RANDOM)
    target = fleet(60.0, gateway=impatient)
    ready(target, "h-1", "h-2")
    target.advance(120.0)
    (model,) = target.summary()
    assert min(model.timed_out, model.retried, model.retrying) > 10
    failed, inside = model.timed_out, model.queued + model.waiting + model.running + model.retrying
    assert model.arrived == model.served_total + failed + inside
    lines = [line for line in target.exposition_all().splitlines() if line.startswith("vllm:request_success_total")]
    aborted = [line for line in lines if 'finished_reason="abort"' in line]
    assert len(aborted) == 2
    assert all(line.rsplit(" ", 1)[1].startswith("0") for line in aborted)
    assert sum(float(line.rsplit(" ", 1)[1]) for line in lines) == model.served_total


def test_summary_without_replicas_has_no_usage():
    """The usage of a variant without Ready pods is unknown, not zero."""
    usage = fleet().summary()[0].variants[0]
    assert (usage.ready, usage.kv_cache_usage_mean, usage.kv_cache_usage_max) == (0, None, None)


def test_usage_of_a_variant_leaves_out_what_drains():
    """The cache of a terminating replica does not count for the variant, because it gets no load."""
    target = fleet(20.0)
    ready(target, "h-1")
    target.advance(60.0)
    ready(target, "h-2")
    (usage,) = [usage for usage in target.summary()[0].variants if usage.deployment == "h100"]
    assert (usage.ready, usage.draining, usage.running, usage.kv_cache_usage_max) == (1, 1, 0, 0.0)


def test_attainment_shows_overload():
    """A replica at half its rate meets the objectives. At twice its rate the first token comes too late."""
    calm, busy = fleet(10.0), fleet(45.0)
    for target in (calm, busy):
        ready(target, "h-1")
        target.advance(600.0)
    assert calm.summary(since_seconds=300.0)[0].served.attainment > 0.99
    assert busy.summary(since_seconds=300.0)[0].served.attainment < 0.01
