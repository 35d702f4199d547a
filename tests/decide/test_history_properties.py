"""What holds for every decision when the age of replicas and earlier cycles are known."""

from __future__ import annotations

from hypothesis import assume, event, given
from hypothesis import strategies as st

from tests import builders
from tests.builders import NOW
from tests.decide.strategies import MAX_REPLICAS, cycles, fuller, kv_usages, queue_lengths
from wva.decide.pipeline import decide
from wva.hindsight.cycle import Recording
from wva.model.decision import Decision, Reason
from wva.model.memory import Memory, ModelMemory, PodPeak, Shrink
from wva.model.metrics import ReplicaMetrics
from wva.model.policy import Policy
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.variant import ModelKey

CYCLE = 15.0
ages = st.none() | st.sampled_from([0.0, 5.0, 19.0, 20.0, 25.0, 59.0, 60.0, 900.0])
scrapes = st.none() | st.sampled_from([NOW - 20, NOW - 5])
earlier_scrapes = st.none() | st.sampled_from([NOW - 40, NOW - 20])
shuffles = st.randoms(use_true_random=False)


def peak(draw, pod: str, at: st.SearchStrategy[float | None]) -> PodPeak:
    """Draw what a replica has reported at a scrape."""
    return PodPeak(pod, draw(st.none() | kv_usages), draw(st.none() | queue_lengths), draw(at))


@st.composite
def lived(draw) -> Recording:
    """Draw a cycle with a past: ages of replicas, peaks of some of them, shrinks and regrets."""
    recording = draw(cycles())
    replicas = tuple(_aged(replica, draw(ages)) for replica in recording.snapshot.replicas)
    models = sorted({variant.model for variant in recording.snapshot.variants})
    entries = []
    for model in models:
        pods = draw(st.lists(st.sampled_from(sorted({replica.pod for replica in replicas} | {"gone"})), unique=True))
        peaks, earlier = ([peak(draw, pod, at) for pod in sorted(pods)] for at in (scrapes, earlier_scrapes))
        shrink = st.none() | st.builds(
            Shrink, st.integers(1, MAX_REPLICAS), st.floats(0, MAX_REPLICAS), st.sampled_from([NOW - 30, NOW - 4000])
        )
        entries.append(ModelMemory(model, tuple(peaks), draw(shrink), draw(shrink), earlier=tuple(earlier)))
    return replace(
        recording,
        snapshot=replace(recording.snapshot, replicas=replicas),
        memory=replace(recording.memory, models=tuple(entries)),
    )


@st.composite
def scraped(draw) -> tuple[bool, list[list[ReplicaMetrics]]]:
    """Draw what the pods of a model told in some cycles, and whether WVA remembers what it has asked for.

    In each cycle some of the pods have been scraped again. The youngest may be there only in the last ones.
    """
    reports = st.tuples(st.sampled_from([0.2, 0.75, 0.95]), st.sampled_from([0.0, 9.0, 20.0, 30.0]))
    count = draw(st.integers(2, 3))
    last = NOW + CYCLE * (count - 1)
    since = [last - age for age in draw(st.lists(st.sampled_from([5.0, 25.0, 45.0, 900.0]), max_size=2))] + [0.0] * 2
    kept: dict[str, ReplicaMetrics] = {}
    cycles_told = []
    for now in [NOW + CYCLE * number for number in range(count)]:
        for number, ready_since in enumerate(since):
            name = f"a-{number}"
            if ready_since <= now and (name not in kept or draw(st.booleans())):
                kv, queue = draw(reports)
                kept[name] = replace(builders.replica(name, kv=kv, queue=queue, at=now - 5), ready_since=ready_since)
        cycles_told.append(list(kept.values()))
    return draw(st.booleans()), cycles_told


def _aged(replica: ReplicaMetrics, age: float | None) -> ReplicaMetrics:
    return replace(replica, ready_since=None if age is None else NOW - age)


def decided(recording: Recording) -> tuple[tuple[Decision, ...], Memory]:
    """Decide on a drawn cycle."""
    return decide(recording.snapshot, recording.memory, recording.policy, recording.now)


def total(recording: Recording, model: ModelKey) -> int:
    """Return the replicas that a model gets."""
    return sum(decision.desired for decision in decided(recording)[0] if decision.model == model)


def more_load_never_lowers_the_number_of_replicas(recording, data):
    """Check that with the same memory, fuller replicas and longer queues ask for as many replicas or more."""
    loaded = fuller(recording, data)
    for model in {variant.model for variant in recording.snapshot.variants}:
        assert total(loaded, model) >= total(recording, model)


def what_is_remembered_never_takes_a_replica_away(recording):
    """Check that memory may keep WVA from beginning a shrink. Only what WVA measures now can begin one."""
    forgotten = replace(recording, memory=replace(recording.memory, models=()))
    for remembering, fresh in zip(decided(recording)[0], decided(forgotten)[0], strict=True):
        if remembering.reason is Reason.SCALE_DOWN:
            event("shrinks")
            assert fresh.reason in {Reason.SCALE_DOWN, Reason.SIBLING_SHRINKS}


def numbers_are_within_bounds_and_at_most_doubled(recording):
    """Check that memory may make WVA ask for more at once, but never for more than twice what exists."""
    decisions, _ = decided(recording)
    for variant, decision in zip(recording.snapshot.variants, decisions, strict=True):
        if not variant.active:
            continue
        assert variant.bounds.clamp(decision.desired) == decision.desired
    remembered = recording.memory.by_key()
    for model in {variant.model for variant in recording.snapshot.variants if variant.active}:
        before = grown = 0
        for variant, decision in zip(recording.snapshot.variants, decisions, strict=True):
            if variant.model == model and variant.active:
                number = (remembered[variant.key].desired if variant.key in remembered else 0) or (
                    variant.status_desired or 0
                )
                level = max(variant.bounds.clamp(number or variant.current_replicas), variant.current_replicas)
                before += level
                grown += max(0, decision.desired - variant.bounds.clamp(level))
        assert grown <= max(before, 1)


def what_has_been_asked_for_is_not_asked_for_again_at_once(recording):
    """Check that WVA decides the same cycle again with the memory of the first decision, and no number grows twice."""
    if recording.snapshot.failures:
        return
    first, memory = decided(recording)
    second, _ = decide(recording.snapshot, memory, recording.policy, recording.now)
    for before, after in zip(first, second, strict=True):
        if before.reason is Reason.SCALE_UP:
            event("grows")
            assert after.desired == before.desired


@given(scraped(), st.sampled_from([1.0, 4.0, 9.0]))
def test_the_same_samples_some_seconds_later_give_the_same_number(story, seconds):
    """An extra cycle, without a new scrape, changes nothing: no time limit passes meanwhile.

    Only what was withdrawn goes in two steps: what the samples ask for beyond that comes with the next cycle.
    """
    remembers, pasts = story
    memory, first = Memory(), []
    for number, pods in enumerate(pasts):
        seen = Snapshot.of([builders.variant(replicas=len(pods))], pods)
        memory = memory if remembers else replace(memory, variants=())
        first, memory = decide(seen, memory, Policy(), NOW + CYCLE * number)
    memory = memory if remembers else replace(memory, variants=())
    second, _ = decide(seen, memory, Policy(), NOW + CYCLE * (len(pasts) - 1) + seconds)
    assume(first[0].reason not in {Reason.GROWTH_WITHDRAWN, Reason.SHRINK_WITHDRAWN})
    event(first[0].reason)
    assert second[0].desired == first[0].desired
    assert remembers or second[0].reason == first[0].reason


def listing_order_never_matters(recording, shuffle):
    """Check that the order of replicas does not matter, nor does the order of the models in the memory."""
    replicas, models = list(recording.snapshot.replicas), list(recording.memory.models)
    shuffle.shuffle(replicas)
    shuffle.shuffle(models)
    shuffled = replace(
        recording,
        snapshot=replace(recording.snapshot, replicas=tuple(replicas)),
        memory=replace(recording.memory, models=tuple(models)),
    )
    assert decided(shuffled) == decided(recording)


def at_most_one_memory_per_model_that_runs(recording):
    """Check that memory is sorted by key and has no entry for models that are gone or for pods that do not report."""
    _, memory = decided(recording)
    running = sorted({variant.model for variant in recording.snapshot.variants if variant.active})
    kept = [entry.key for entry in memory.models]
    assert kept == sorted(set(kept) & set(running))
    for entry in memory.models:
        assert sorted(peak.pod for peak in entry.peaks) == [peak.pod for peak in entry.peaks]


@given(lived(), st.data(), shuffles)
def test_what_holds_after_some_cycles(recording, data, shuffle):
    """Each of these is one of every drawn cycle: drawing one takes longer than deciding on it."""
    more_load_never_lowers_the_number_of_replicas(recording, data)
    what_is_remembered_never_takes_a_replica_away(recording)
    numbers_are_within_bounds_and_at_most_doubled(recording)
    what_has_been_asked_for_is_not_asked_for_again_at_once(recording)
    listing_order_never_matters(recording, shuffle)
    at_most_one_memory_per_model_that_runs(recording)
