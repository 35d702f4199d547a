"""What is true of every cycle, whatever its analyzer and optimizer.

Each property is tested for each kind of pipeline over the whole of ``decide``; those that are true of the same cycles
look at the same ones. The default profile draws fifteen cycles for each kind and test, 450 together; the nightly one
two hundred times as many. Beside them there are histories of cycles with any finite numbers: 1,250 cycles by default,
a million each night.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from tests.builders import NOW
from tests.decide.pipelines import KINDS, PipelineKind, cycles_of, equals, history, more_and_more, worlds
from tests.decide.strategies import GENERATED, counted
from wva.decide.pipeline import conclude, decide
from wva.hindsight.cycle import Recording
from wva.model.decision import Decision
from wva.model.inventory import Inventory
from wva.model.memory import Memory
from wva.model.optimizers import Analyzer
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.variant import Variant
from wva.numbers import MAX_REPLICAS

CI_CYCLES, NIGHTLY_CYCLES = 450, 90_000
CI_HISTORY_CYCLES, NIGHTLY_HISTORY_CYCLES = 1_250, 1_000_000
HISTORY = 25
"""Cycles of one history: what a cycle leaves, the next one takes over."""

SHARE = 0.3
"""Examples of a property for one kind, as a share of those that a profile asks for."""

PROPERTIES: list[str] = []
shuffles = st.randoms(use_true_random=False)


def for_every_kind(test: Callable[..., None]) -> Any:
    """Test a property for every kind of pipeline."""
    PROPERTIES.append(test.__name__)
    return _for_kinds(KINDS, test)


def where_capacity_is_known(test: Callable[..., None]) -> Any:
    """Test a property for the kinds that know the capacity of a replica without having learned it from load."""
    return _for_kinds([kind for kind in KINDS if kind.analyzer is not Analyzer.DEMAND], test)


def _for_kinds(kinds: Sequence[PipelineKind], test: Callable[..., None]) -> Any:
    limited = settings(max_examples=round(settings().max_examples * SHARE))
    return pytest.mark.parametrize("kind", kinds, ids=str)(limited(test))


def decided(recording: Recording) -> tuple[Decision, ...]:
    """Decide on a drawn cycle."""
    return decide(recording.snapshot, recording.memory, recording.policy, recording.now)[0]


def before(recording: Recording, variant: Variant) -> int:
    """Return the number that a variant had before, as far as its bounds allow."""
    entry = recording.memory.by_key().get(variant.key)
    number = (entry.desired if entry else 0) or variant.status_desired or max(1, variant.current_replicas)
    return reachable(variant, number)


def taken(variant: Variant, desired: int) -> int:
    """Return the GPUs of the replicas that WVA adds, beyond those that exist or that the scaler adds by itself."""
    more = desired - max(variant.current_replicas, variant.bounds.minimum or 0)
    return max(0, more) * max(1, variant.gpus_per_replica)


def active_siblings(recording: Recording, variant: Variant) -> list[Variant]:
    """Return the variants of the same model that have replicas."""
    return [each for each in recording.snapshot.variants if each.active and each.model == variant.model]


def test_the_profiles_draw_as_many_cycles_as_promised():
    """Each change runs hundreds of cycles, each night tens of thousands."""
    drawn = len(PROPERTIES) * len(KINDS) * SHARE
    assert drawn * settings.get_profile("default").max_examples >= CI_CYCLES
    assert drawn * settings.get_profile("nightly").max_examples >= NIGHTLY_CYCLES


@for_every_kind
@given(data=st.data(), shuffle=shuffles)
def test_what_holds_in_every_cycle(kind, data, shuffle):
    """Each of these properties is one of every drawn cycle: drawing one takes longer than deciding on it.

    Bounds; evidence for each number that falls; zero only where it is allowed; and the same decisions again, from a
    recording, and in whatever order the inputs are listed.
    """
    recording = data.draw(cycles_of(kind))
    first = decide(recording.snapshot, recording.memory, recording.policy, recording.now)
    assert_bounds_are_kept(recording, first[0])
    assert_every_shrink_has_evidence(kind, recording, first[0])
    assert_zero_is_allowed(recording, first[0])
    assert decide(recording.snapshot, recording.memory, recording.policy, recording.now) == first
    again = msgspec.json.decode(msgspec.json.encode(recording), type=Recording)
    assert decide(again.snapshot, again.memory, again.policy, again.now) == first
    other = listed_otherwise(recording, shuffle)
    assert decide(other.snapshot, other.memory, other.policy, other.now) == first


def assert_bounds_are_kept(recording: Recording, decisions: Sequence[Decision]) -> None:
    """Check that a running variant keeps its bounds, unless it may go to zero; and one that starts again, too."""
    for variant, decision in zip(recording.snapshot.variants, decisions, strict=True):
        assert variant.bounds.maximum is None or decision.desired <= variant.bounds.maximum
        assert decision.desired in {0, variant.bounds.clamp(decision.desired)}


@for_every_kind
@given(data=st.data())
def test_the_gpu_budget_is_never_exceeded(kind, data):
    """All decisions together take no more of a pool or a quota than is free."""
    recording = data.draw(cycles_of(kind, limited=True))
    inventory = recording.snapshot.inventory
    pools: Counter = Counter()
    quotas: Counter = Counter()
    for variant, decision in zip(recording.snapshot.variants, decided(recording), strict=True):
        gpus = taken(variant, decision.desired)
        pool = inventory.pool_of(variant.accelerator or variant.status_accelerator)
        assert pool is not None or gpus == 0
        if gpus:
            event("grows")
            pools[pool] += gpus
            for quota in set(inventory.quotas_for(variant.key.namespace, pool.resource)):
                quotas[quota] += gpus
    assert all(count <= pool.free for pool, count in pools.items())
    assert all(count <= quota.free for quota, count in quotas.items())


def history_cycles() -> int:
    """Return how many cycles of histories are to be decided, over all kinds."""
    nightly = settings().max_examples >= settings.get_profile("nightly").max_examples
    return NIGHTLY_HISTORY_CYCLES if nightly else CI_HISTORY_CYCLES


@pytest.fixture
def every_cycle_counts() -> Iterator[None]:
    """Check that a test decides its share of the promised cycles, and count them for the summary of the run."""
    before = GENERATED["cycles"]
    yield
    assert (GENERATED["cycles"] - before) * len(KINDS) >= history_cycles()


def reachable(variant: Variant, number: int) -> int:
    """Return the nearest number of replicas that a variant can have with its bounds."""
    number = max(number, variant.bounds.minimum or 0)
    number = number if variant.bounds.maximum is None else min(number, variant.bounds.maximum)
    return max(0, min(number, MAX_REPLICAS))


@settings(
    max_examples=math.ceil(history_cycles() / len(KINDS) / HISTORY),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.usefixtures("every_cycle_counts")
def test_no_policy_no_sample_and_no_bound_breaks_a_history_of_cycles(kind, data):
    """Of any finite numbers: nothing raises, every number is one of replicas and within its bounds.

    Nothing shrinks without complete fresh evidence. A sample that no engine can have reported is none.
    """
    world, chance = data.draw(worlds(kind)), Random(data.draw(st.integers(0, 2**32)))
    memory, numbers, now = Memory(), {}, NOW
    for _ in range(HISTORY):
        recording = counted(replace(history(world, chance, numbers), memory=memory, now=now))
        outcome = conclude(recording.snapshot, memory, recording.policy, now)
        assert outcome.failures == ()
        assert outcome.refused == ()
        for variant, decision in zip(recording.snapshot.variants, outcome.decisions, strict=True):
            assert type(decision.desired) is int
            assert 0 <= decision.desired <= reachable(variant, MAX_REPLICAS)
            # The limiter of v0.5.1 knows no minimum, and its analyzer takes what is missing for 0.
            if recording.policy.compatibility is None:
                assert decision.desired in {0, reachable(variant, decision.desired)}
        if recording.policy.compatibility is None:
            assert_every_shrink_has_evidence(kind, recording, outcome.decisions)
        memory, now = outcome.memory, now + chance.choice([15, 60, 60, 60, 700])
        numbers = {decision.key: decision.desired for decision in outcome.decisions}


def assert_every_shrink_has_evidence(kind: PipelineKind, recording: Recording, decisions: Sequence[Decision]) -> None:
    """Check that a number falls below the present one only if every replica of its model reports.

    All that the analyzer looks at; or, for a model that may go to zero, without requests, that it holds nothing. The
    analyzer alone takes no model to zero.
    """
    requests = {
        counts.model: (counts.finished, counts.in_progress, counts.covered)
        for counts in recording.snapshot.request_counts
    }
    served = {decision.model for decision in decisions if decision.desired}
    for variant, decision in zip(recording.snapshot.variants, decisions, strict=True):
        lowest = min(before(recording, variant), reachable(variant, variant.current_replicas))
        if not variant.active or decision.desired >= lowest:
            continue
        event("shrinks")
        siblings = {each.key for each in active_siblings(recording, variant)}
        pods = [replica for replica in recording.snapshot.replicas if replica.variant in siblings]
        assert pods
        rests = recording.policy.scale_to_zero_for(variant.model).enabled and requests.get(variant.model) == (
            0,
            0,
            True,
        )
        holds_nothing = rests and all(replica.complete for replica in pods)
        assert holds_nothing or (variant.model in served and kind.evidence(pods, recording))
        assert all(variant.key.namespace not in failure.namespaces for failure in recording.snapshot.failures)


def assert_zero_is_allowed(recording: Recording, decisions: Sequence[Decision]) -> None:
    """Check that only an idle model goes to zero, if that is allowed, except for variants with a minimum.

    A variant of a model that is not idle goes there only if its scaler has a minimum of zero.
    """
    requests = {counts.model: counts for counts in recording.snapshot.request_counts}
    numbers = {decision.key: decision.desired for decision in decisions}
    for variant in recording.snapshot.variants:
        if not variant.active or numbers[variant.key]:
            continue
        siblings = active_siblings(recording, variant)
        if any(numbers[each.key] for each in siblings):
            event("a sibling carries on")
            if variant.bounds.minimum == 0:
                continue
        event("to zero")
        keys = {each.key for each in siblings}
        pods = [replica for replica in recording.snapshot.replicas if replica.variant in keys]
        assert recording.policy.scale_to_zero_for(variant.model).enabled
        assert (requests[variant.model].finished, requests[variant.model].in_progress) == (0, 0)
        assert requests[variant.model].covered
        assert all(replica.complete and not replica.queue_length.value for replica in pods)


def listed_otherwise(recording: Recording, shuffle: Random) -> Recording:
    """Return a cycle with variants, pods, failures, requests, queues, pools, quotas and memory in another order."""

    def shuffled(items):
        found = list(items)
        shuffle.shuffle(found)
        return tuple(found)

    seen = recording.snapshot
    inventory = seen.inventory
    snapshot = Snapshot(
        variants=shuffled(seen.variants),
        replicas=shuffled(seen.replicas),
        failures=shuffled(seen.failures),
        inventory=None if inventory is None else Inventory(shuffled(inventory.pools), shuffled(inventory.quotas)),
        inventory_detail=seen.inventory_detail,
        request_counts=shuffled(seen.request_counts),
        queues=shuffled(seen.queues),
    )
    memory = replace(recording.memory, variants=shuffled(recording.memory.variants))
    return replace(recording, snapshot=snapshot, memory=memory)


@where_capacity_is_known
@given(data=st.data())
def test_more_load_never_lowers_the_supplied_capacity(kind, data):
    """With the same memory and no GPU budget, more load never lowers the supply.

    All replicas carry alike here, so that their number is what they supply.
    """
    decisions = [decided(recording) for recording in data.draw(more_and_more(kind))]
    assume(not any(decision.held for decision in decisions[0]))
    less, more = (sum(decision.desired for decision in found) for found in decisions)
    event(f"{more - less:+d}")
    assert less <= more


@for_every_kind
@given(data=st.data(), shuffle=shuffles)
def test_equal_variants_differ_by_one_replica_at_most_whatever_their_names(kind, data, shuffle):
    """This holds whether the model grows or shrinks.

    The demand analyzer measures what each variant carries, which is the same where it saw as many replicas of each.
    Names decide which variant gets a replica, but not how many replicas there are.
    """
    recording = data.draw(equals(kind))
    counts = {variant.current_replicas for variant in recording.snapshot.variants}
    numbers = [decision.desired for decision in decided(recording)]
    event(f"{sum(numbers) - len(recording.snapshot.replicas):+d}")
    if kind.analyzer is not Analyzer.DEMAND or len(counts) == 1:
        assert max(numbers) - min(numbers) <= 1
    again = renamed_by(recording, shuffle)
    assert sorted(each.desired for each in decided(again)) == sorted(numbers)


def renamed_by(recording: Recording, shuffle: Random) -> Recording:
    """Return a cycle whose variants have each other's names."""
    seen = recording.snapshot
    keys = [variant.key for variant in seen.variants]
    others = list(keys)
    shuffle.shuffle(others)
    renamed = dict(zip(keys, others, strict=True))
    snapshot = Snapshot.of(
        [replace(variant, key=renamed[variant.key]) for variant in seen.variants],
        [replace(replica, variant=renamed[replica.variant]) for replica in seen.replicas],
    )
    entries = [replace(entry, key=renamed[entry.key]) for entry in recording.memory.variants]
    looked = tuple(
        replace(model, variants=tuple(replace(entry, key=renamed[entry.key]) for entry in model.variants))
        for model in recording.memory.demand
    )
    memory = replace(
        recording.memory,
        variants=tuple(sorted(entries, key=lambda entry: entry.key)),
        demand=looked,
    )
    everything = replace(seen, variants=snapshot.variants, replicas=snapshot.replicas)
    return replace(recording, snapshot=everything, memory=memory)
