"""The nearest flips: deciding again confirms each, and no smaller step of its input gives another number.

A thousand examples of each property:
``FLIPS=1000 pytest --timeout=7200 -o faulthandler_timeout=0 tests/hindsight/test_flips.py``.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import NOW, policy, replica, sample, variant
from tests.decide.pipelines import KINDS, cycles_of
from tests.decide.strategies import cycles
from tests.hindsight import samples
from tests.rows import by_day
from wva.config.declare import declarations
from wva.config.keys import QueueingFields, SaturationFields
from wva.decide.pipeline import conclude
from wva.hindsight.cycle import Recording
from wva.hindsight.flips import KEYS, Change, Input, changed, ladders, search
from wva.model.inventory import NVIDIA_GPU, AcceleratorPool, GpuQuota, Inventory
from wva.model.memory import DemandMemory, Memory, PodMemory, VariantDemand
from wva.model.metrics import EngineCounters, EngineSignals
from wva.model.optimizers import Analyzer
from wva.model.policy import Compatibility, Policy, QueueingPolicy, QueueingRules, SaturationPolicy
from wva.model.records import replace
from wva.model.service import AcceleratorCost
from wva.model.snapshot import RequestCounts, SchedulerQueue, Snapshot
from wva.model.variant import ModelKey, VariantKey

A = VariantKey("ns", "a")
"""The variant that is asked about."""


def inputs(variants=(), replicas=(), rules=None, **snapshot):
    """Return the inputs of a cycle, of the percentage analyzer if no rules are given."""
    taken = Snapshot.of(list(variants or [variant()]), list(replicas or [replica()]))
    return Recording(NOW, rules or policy(), Memory(), replace(taken, **snapshot))


def decided(recording, key):
    """Return what this engine decides on a variant."""
    return recording.again().decision(key)


def flip(found, input_, amount_sign=1):
    """Return the flip of an input in one direction."""
    flips = [each for each in found.flips if each.change.input is input_ and each.change.amount * amount_sign > 0]
    return flips[0] if flips else None


# --- what holds for every recording ----------------------------------------------------------------------------------

ALL = "FLIPS" in os.environ
few = settings(max_examples=int(os.environ.get("FLIPS", max(6, settings().max_examples // 16))))
"""An example decides some hundred times."""
MOST_STEPS = 6
"""So many of the smaller steps of an input are decided again, unless all are: the first, the last, and some between."""

recordings = st.sampled_from(KINDS).flatmap(cycles_of) | cycles() | cycles(compatibility=Compatibility.V0_5)


def check(recording, key):
    """Fail unless deciding again gives the number of each flip, and the old number for each smaller step."""
    asked = recording
    before, found, steps = decided(asked, key).desired, search(asked, key), ladders(asked, key)
    tried = [each.change for each in found.flips] + list(found.in_vain)
    assert len(tried) == len(steps)
    for ladder, last in zip(steps, sorted(tried, key=_place(steps)), strict=True):
        later, passed = asked, 0.0
        smaller = ladder[: ladder.index(last)]
        for change in smaller if last.input is Input.TIME else some(smaller):
            if change.input is Input.TIME:  # one cycle after the other: from the beginning would take too long
                later, passed = changed(later, key, replace(change, amount=change.amount - passed)), change.amount
            else:
                later = changed(asked, key, change)
            assert decided(later, key).desired == before, change
        confirmed = next((each for each in found.flips if each.change == last), None)
        again = decided(changed(asked, key, last), key)
        if confirmed is None:
            assert again.desired == before, last
        else:
            assert (again.desired, again.message) == (confirmed.number, confirmed.message)
            assert again.desired != before


def some(steps):
    """Return the steps of an input that are decided again."""
    if ALL or len(steps) <= MOST_STEPS:
        return steps
    return [steps[place * (len(steps) - 1) // (MOST_STEPS - 1)] for place in range(MOST_STEPS)]


@few
@given(recordings, st.data())
def test_a_flip_is_confirmed_and_the_smallest_of_its_input(recording, data):
    """This holds for every cycle that can be drawn, of each analyzer and optimizer."""
    keys = [each.key for each in recording.snapshot.variants]
    if keys:
        check(recording, data.draw(st.sampled_from(keys)))


BY_DAY = ("percentage-low-traffic", "tokens-two-variants")


@pytest.mark.parametrize("name", by_day(samples.NAMES, BY_DAY))
def test_a_flip_of_a_recorded_decision_is_confirmed_and_the_smallest_of_its_input(name):
    """This holds for the recorded cycles of real runs, too: all of them with FLIPS, else a few of each run.

    Of those few one variant each, in turn.
    """
    recorded = samples.recordings(name)
    for turn, recording in enumerate(recorded[:: 1 if ALL else max(1, len(recorded) // 2)]):
        variants = recording.snapshot.variants
        for each in variants if ALL else [variants[turn % len(variants)]]:
            check(recording, each.key)


def _place(all_ladders):
    places = {change: place for place, ladder in enumerate(all_ladders) for change in ladder}
    return lambda change: places[change]


@few
@given(recordings)
def test_no_change_changes_nothing(recording):
    """A step of zero leaves every decision as it is, so that each step differs in its input alone."""
    asked = recording
    for each in recording.snapshot.variants:
        settings = {
            change.of for ladder in ladders(asked, each.key) for change in ladder if change.input is Input.SETTING
        }
        for change in [Change(Input.LOAD, "", 0.0, ""), *(Change(Input.SETTING, name, 0.0, "") for name in settings)]:
            assert decided(changed(asked, each.key, change), each.key) == decided(asked, each.key)


def test_an_unknown_variant_has_no_flips():
    """Nothing is tried for a variant that the cycle did not see."""
    other = VariantKey("ns", "nowhere")
    assert search(inputs(), other).flips == ()
    assert ladders(inputs(), other) == []
    assert changed(inputs(), other, Change(Input.LOAD, "m", 1.0, "")) == inputs()


# --- single inputs ---------------------------------------------------------------------------------------------------


def test_more_load_flips_at_the_threshold():
    """One replica at 0.6 of its KV cache: its spare falls below the trigger at 0.7, which is 17 % more load."""
    found = flip(search(inputs(replicas=[replica(kv=0.6)]), A), Input.LOAD)
    assert found.change.words == "load +17%"
    assert found.number == 2


def test_a_threshold_flips_in_the_unit_of_the_entry():
    """The words name the key of the ConfigMap, the value that is in force, and the one that would have been needed."""
    found = flip(search(inputs(replicas=[replica(kv=0.68)]), A), Input.SETTING, -1)
    assert found.change.of == "kv_cache_threshold"
    assert found.change.words.startswith("kvCacheThreshold 0.8 -> ")


def test_a_minimum_and_a_maximum_flip():
    """A number at its bound moves with the bound."""
    found = search(inputs([variant(minimum=1, maximum=4)]), A)
    assert flip(found, Input.MINIMUM).change.words == "minimum 1 -> 2"
    assert flip(found, Input.MAXIMUM) is None
    full = search(inputs([variant(maximum=1)], [replica(kv=0.79)]), A)
    assert flip(full, Input.MAXIMUM).change.words == "maximum 1 -> 2"


def test_a_free_gpu_lets_a_limited_variant_grow():
    """Without a free GPU the variant waits; with one more it grows."""
    limited = replace(policy(), enable_limiter=True)
    inventory = Inventory((AcceleratorPool("A100", 1, 1),), (GpuQuota("ns", NVIDIA_GPU, 4, 1, "all"),))
    found = search(inputs(replicas=[replica(kv=0.79)], rules=limited, inventory=inventory), A)
    assert flip(found, Input.GPUS).change.words == "1 more A100 GPU"
    assert flip(found, Input.GPUS).number == 2


def test_a_quota_limits_as_gpus_do():
    """The quota of the namespace is full, and the pool is not."""
    limited = replace(policy(), enable_limiter=True)
    inventory = Inventory((AcceleratorPool("A100", 8, 1),), (GpuQuota("ns", NVIDIA_GPU, 1, 1, "all"),))
    found = search(inputs(replicas=[replica(kv=0.79)], rules=limited, inventory=inventory), A)
    assert flip(found, Input.QUOTA).change.words == "1 more GPU in the quota all"
    assert flip(found, Input.QUOTA).number == 2


@pytest.mark.parametrize("free", ["nvidia.com/gpu", "amd.com/gpu"])
def test_only_the_quota_of_the_accelerators_resource_is_tried(free):
    """One ResourceQuota limits GPUs of two makers, and only that of the variant's own makes a difference."""
    limited = replace(policy(), enable_limiter=True)
    quotas = [GpuQuota("ns", each, 1, 1, "all") for each in ("amd.com/gpu", "nvidia.com/gpu")]
    inventory = Inventory((AcceleratorPool("A100", 8, 1, resource=free),), tuple(quotas))
    found = search(inputs(replicas=[replica(kv=0.79)], rules=limited, inventory=inventory), A)
    name = "all" if free == NVIDIA_GPU else "all amd.com/gpu"
    assert flip(found, Input.QUOTA).change.words == f"1 more GPU in the quota {name}"
    assert {each.change.of for each in found.flips if each.change.input is Input.QUOTA} == {name}


def test_gpus_that_nobody_counts_are_not_tried():
    """Without a limit no number depends on GPUs."""
    tried = {ladder[0].input for ladder in ladders(inputs(), A)}
    assert not tried & {Input.GPUS, Input.QUOTA}


def test_one_more_ready_replica_takes_the_place_of_one_that_starts():
    """The replica is Ready and empty, and the number of replicas that exist stays."""
    starting = variant(replicas=2, ready_replicas=1, oldest_unready_since=NOW - 60)
    later = changed(inputs([starting]), A, Change(Input.READY, "a", 1, ""))
    own = later.variant(A)
    assert (own.current_replicas, own.ready_replicas, own.oldest_unready_since) == (2, 2, None)
    assert later.snapshot.replicas[-1].kv_usage.value == 0.0


def test_one_fewer_ready_replica_is_not_ready_since_now():
    """The last pod by name has stopped being Ready."""
    pods = [replica("a-0"), replica("a-1")]
    later = changed(inputs([variant(replicas=2)], pods), A, Change(Input.READY, "a", -1, ""))
    assert [pod.pod for pod in later.snapshot.replicas] == ["a-0"]
    assert later.variant(A).oldest_unready_since == NOW


def test_time_passes_with_the_same_load():
    """Counters go on at the pace of the last cycle, and samples stay as old as they are."""
    counters = EngineCounters(NOW - 5, 100.0, 0.0, 1000.0, 100.0, 100.0, 100.0, 10.0, 100.0)
    before = replace(counters, at=NOW - 20, finished=40.0)
    pod = replace(replica(), counters=counters, engine=EngineSignals(running=sample(3)), ready_since=NOW - 1000)
    memory = Memory(
        demand=(
            DemandMemory(ModelKey("ns", "m"), variants=(VariantDemand(A, pods=(PodMemory("a-0", before, 3, 0),)),)),
        )
    )
    asked = replace(
        inputs(
            replicas=[pod],
            queues=(SchedulerQueue(ModelKey("ns", "m"), sample(2)),),
            request_counts=(RequestCounts(ModelKey("ns", "m"), 600.0, 1.0, 0.0, covered_seconds=590.0),),
        ),
        memory=memory,
    )
    later = changed(asked, A, Change(Input.TIME, "", 15.0, ""))
    assert later.now == NOW + 15
    assert later.snapshot.replicas[0].counters.finished == 160.0
    assert later.snapshot.replicas[0].counters.at == NOW + 10
    assert later.snapshot.replicas[0].kv_usage.timestamp == NOW + 10
    assert later.snapshot.request_counts[0].covered_seconds == 600.0


def test_the_next_cycle_begins_in_time():
    """Nothing tells that the load will rise again, so the fast lane begins the present cycle only."""
    asked = inputs(woken=True, urgent=(ModelKey("ns", "m"),))
    later = changed(asked, A, Change(Input.TIME, "", 15.0, ""))
    assert (asked.snapshot.woken, later.snapshot.woken, later.snapshot.urgent) == (True, False, ())


@pytest.mark.parametrize(("size", "known"), [(99, False), (100, True)])
def test_a_fleet_that_shares_gpus_is_tried_in_fewer_steps(size, known):
    """Each try decides on the whole fleet, so the steps are fewer from a hundred variants on."""
    limited = replace(policy(), enable_limiter=True)
    variants = [variant(f"v{number:03}", model=f"m{number}") for number in range(size)]
    asked = inputs(variants, [replica(variant="v000")], rules=limited)
    load = ladders(asked, VariantKey("ns", "v000"))[0]
    assert (len(load) < 10) is known


def test_objectives_of_the_queueing_analyzer_are_tried():
    """The fields of the queueing entry are tried in the model's own entry, and the analyzer stays."""
    rules = Policy(
        saturation=SaturationPolicy(),
        queueing=QueueingRules(QueueingPolicy(target_ttft_milliseconds=500.0, target_itl_milliseconds=20.0)),
    )
    asked = inputs(rules=rules)
    fields = {change.of for ladder in ladders(asked, A) for change in ladder if change.input is Input.SETTING}
    assert fields == {"slo_multiplier", "target_ttft_milliseconds", "target_itl_milliseconds"}
    later = changed(asked, A, Change(Input.SETTING, "target_ttft_milliseconds", 1.0, ""))
    assert later.policy.queueing_for(ModelKey("ns", "m")).target_ttft_milliseconds == 1000.0
    assert later.policy.analyzer_for(ModelKey("ns", "m")) is Analyzer.QUEUEING


def test_a_value_that_contradicts_another_changes_nothing():
    """No ConfigMap with such a value would be accepted, so it cannot be what would have helped."""
    asked = inputs(rules=policy(kv_cache_threshold=0.2, kv_spare_trigger=0.15))
    assert changed(asked, A, Change(Input.SETTING, "kv_cache_threshold", -0.5, "")) == asked


def test_only_what_exists_can_go_or_shrink():
    """No Ready replica can be fewer, and a setting or a cost of zero has no share of itself."""
    idle = replace(variant("b", replicas=0), cost=0.0)
    asked = inputs([variant(), idle], rules=policy(kv_spare_trigger=0.0))
    tried = {(ladder[0].input, ladder[0].of, ladder[0].amount > 0) for ladder in ladders(asked, A)}
    assert (Input.READY, "b", True) in tried
    assert (Input.READY, "b", False) not in tried
    assert (Input.COST, "a", True) in tried
    assert not any(of == "kv_spare_trigger" or (input_, of) == (Input.COST, "b") for input_, of, _ in tried)


def test_a_step_of_a_cost_starts_from_the_unit_costs_that_count():
    """The other variants of the model keep their unit costs, although one now states a cost."""
    costs = replace(policy(), accelerator_costs=(AcceleratorCost("A100", 40.0), AcceleratorCost("H100", 65.0)))
    asked = inputs([variant(), variant("b", accelerator="H100")], rules=costs)
    steps = [ladder for ladder in ladders(asked, A) if ladder[0].input is Input.COST]
    assert "40" in steps[0][0].words
    later = changed(asked, A, Change(Input.COST, "a", 0.5, "")).again().outcome.decisions
    assert {each.key.name: each.cost for each in later} == {"a": 60.0, "b": 65.0}


def test_the_load_of_another_model_stays():
    """More load of a model leaves the replicas of others as they are."""
    pods = [replica(kv=0.4), replica("b-0", variant="b", kv=0.4)]
    later = changed(inputs([variant(), variant("b", model="n")], pods), A, Change(Input.LOAD, "m", 0.5, ""))
    assert [round(pod.kv_usage.value, 3) for pod in later.snapshot.replicas] == [0.6, 0.4]


def test_one_more_replica_has_counted_nothing_yet():
    """It counts from zero where the others count."""
    counters = EngineCounters(NOW - 5, 100.0, 0.0, 1000.0, 100.0, 100.0, 100.0, 10.0, 100.0)
    asked = inputs(replicas=[replace(replica(), counters=counters)])
    new = changed(asked, A, Change(Input.READY, "a", 1, "")).snapshot.replicas[-1]
    assert (new.counters.at, new.counters.finished, new.engine) == (NOW, 0.0, None)


def test_where_other_models_matter_the_whole_cycle_is_decided_on(monkeypatch):
    """An engine that decides otherwise on a model alone is asked about all models."""
    sizes = []

    def conclude_together(snapshot, memory, rules, now):
        outcome = conclude(snapshot, memory, rules, now)
        sizes.append(len(snapshot.variants))
        if len(snapshot.variants) > 1:
            return outcome
        return replace(outcome, decisions=tuple([replace(each, desired=9) for each in outcome.decisions]))

    monkeypatch.setattr("wva.hindsight.cycle.conclude", conclude_together)
    asked = inputs([variant(), variant("b", model="n")], [replica(kv=0.6), replica("b-0", variant="b")])
    assert flip(search(asked, A), Input.LOAD).number == 2
    assert sizes.count(1) == 1


def test_settings_are_named_as_in_the_configmap():
    """A reader can type the words of a change into a ConfigMap: its keys are those that are declared."""
    declared = {
        attribute: each.key
        for fields in (SaturationFields, QueueingFields)
        for attribute, each in declarations(fields).items()
    }
    assert {field: name for field, (name, _) in KEYS.items()} == {field: declared[field] for field in KEYS}


def test_no_setting_is_tried_beyond_what_a_configmap_allows():
    """Replicas are kept warm for 24 hours at most, so nothing longer is tried, and no surge factor below 1."""
    asked = inputs(rules=policy(analyzer_name=Analyzer.DEMAND, surge_factor=1.25))
    factors = [change.words for ladder in ladders(asked, A) for change in ladder if change.of == "surge_factor"]
    assert factors[-1] == "surgeFactor 1.25 -> 1"
    steps = [change for ladder in ladders(asked, A) for change in ladder if change.of == "keep_warm"]
    assert {change.words for change in steps} >= {"keepWarm 86400s -> 43200s", "keepWarm 86400s -> 21600s"}
    assert all(change.amount < 0 for change in steps)
