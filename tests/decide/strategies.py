"""Any input of a cycle: models, variants, replicas with samples in all states, memories, policies.

Values sit on a coarse grid half of the time, so that thresholds are met exactly and ties occur.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import strategies as st

from tests.builders import NOW
from wva.hindsight.cycle import Recording
from wva.model.memory import Memory, VariantMemory
from wva.model.metrics import ReplicaMetrics, Sample, SampleState
from wva.model.policy import Compatibility, Policy, SaturationOverride, SaturationPolicy
from wva.model.records import replace
from wva.model.snapshot import CollectionFailure, Snapshot
from wva.model.variant import Bounds, ModelKey, Variant, VariantKey

MAX_REPLICAS = 5
GENERATED: Counter[str] = Counter()
"""How many cycles were drawn; the summary of a run says it."""


def counted(recording: Recording) -> Recording:
    """Count a drawn cycle."""
    GENERATED["cycles"] += 1
    return recording


names = st.sampled_from("abcde")
namespaces = st.sampled_from(["ns", "other"])
kv_usages = st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.7, 0.75, 0.8, 1.0]) | st.floats(0, 1)
queue_lengths = st.integers(0, 8).map(float)
times = st.floats(NOW - 1200, NOW, allow_nan=False) | st.just(NOW - 600)


def samples(values: st.SearchStrategy[float]) -> st.SearchStrategy[Sample]:
    """Return samples in every state; two in three are fresh, otherwise WVA would hardly ever change a number."""
    fresh = values.map(lambda value: Sample(SampleState.FRESH, value, NOW - 5))
    others = st.one_of(
        values.map(lambda value: Sample(SampleState.STALE, value, NOW - 120, "120 s old")),
        st.just(Sample(SampleState.MISSING)),
        st.just(Sample(SampleState.INVALID, detail="2 series for one pod")),
    )
    return st.one_of(fresh, fresh, others)


any_report = st.tuples(samples(kv_usages), samples(queue_lengths))
fresh_report = st.tuples(
    kv_usages.map(lambda value: Sample(SampleState.FRESH, value, NOW - 5)),
    queue_lengths.map(lambda value: Sample(SampleState.FRESH, value, NOW - 5)),
)
idle_report = st.tuples(
    st.sampled_from([0.0, 0.05, 0.2]).map(lambda value: Sample(SampleState.FRESH, value, NOW - 5)),
    st.just(Sample(SampleState.FRESH, 0.0, NOW - 5)),
)
moods = st.sampled_from(
    [any_report, fresh_report, idle_report, st.one_of(*[idle_report] * 15, any_report)],
)
"""What the replicas of a snapshot report: anything, all fresh, all idle, or idle with a rare gap."""


@st.composite
def bounds(draw: st.DrawFn) -> Bounds:
    """Draw the limits of a scaler; each may be missing."""
    minimum = draw(st.none() | st.integers(0, MAX_REPLICAS))
    lowest = max(1, minimum or 1)
    return Bounds(minimum, draw(st.none() | st.integers(lowest, MAX_REPLICAS + 2)))


@st.composite
def variants(draw: st.DrawFn, key: VariantKey, *, calm: bool) -> Variant:
    """Draw a variant of one of two models; in a calm snapshot all are settled."""
    current = draw(st.integers(0, MAX_REPLICAS))
    settled = calm or draw(st.booleans())
    return Variant(
        key=key,
        model=ModelKey(key.namespace, draw(st.sampled_from(["m", "m", "n"]))),
        target=key.name,
        accelerator=draw(st.sampled_from(["A100", ""])),
        cost=draw(st.sampled_from([1.0, 10.0, 10.0, 40.0])),
        spec_replicas=current,
        current_replicas=current,
        ready_replicas=current if settled else draw(st.integers(0, current)),
        status_desired=current if settled else draw(st.none() | st.integers(0, MAX_REPLICAS + 2)),
        status_accelerator=draw(st.sampled_from(["", "H100"])),
        settling_since=None if settled else draw(st.none() | times),
        oldest_unready_since=None if settled else draw(st.none() | times),
        bounds=draw(bounds()),
    )


failure = st.builds(CollectionFailure, st.tuples(namespaces), st.sampled_from(["refused", "timed out"]))


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Draw a snapshot; replicas are the ready ones, now and then one more or less."""
    keys = draw(st.lists(st.builds(VariantKey, namespaces, names), max_size=4, unique=True))
    calm = draw(st.booleans())
    found = [draw(variants(key, calm=calm)) for key in keys]
    report = draw(moods)
    replicas = []
    for variant in found:
        count = max(0, variant.ready_replicas + draw(st.sampled_from([0] if calm else [0, 0, 0, 0, -1, 1])))
        for number in range(count):
            kv, queue = draw(report)
            replicas.append(ReplicaMetrics(f"{variant.key.name}-{number}", variant.key, kv, queue))
    failures = draw(st.lists(failure, max_size=3)) if draw(st.integers(0, 5)) == 0 else []
    return Snapshot.of(found, replicas, failures)


@st.composite
def memories(draw: st.DrawFn, snapshot: Snapshot) -> Memory:
    """Draw what an earlier cycle may have left of some of the variants, and of one that is gone."""
    keys = sorted({variant.key for variant in snapshot.variants} | {VariantKey("ns", "gone")})
    entries = []
    for variant in draw(st.lists(st.sampled_from(keys), unique=True)):
        since = draw(st.none() | times)
        entries.append(
            VariantMemory(variant, draw(st.integers(0, MAX_REPLICAS + 2)), since, draw(st.integers(0, MAX_REPLICAS)))
        )
    return Memory(tuple(sorted(entries, key=lambda entry: entry.key)))


saturation_policies = st.builds(
    SaturationPolicy,
    kv_cache_threshold=st.sampled_from([0.8, 0.8, 0.8, 0.5, 1.0]),
    queue_length_threshold=st.sampled_from([5.0, 5.0, 2.5]),
    kv_spare_trigger=st.sampled_from([0.1, 0.1, 0.1, 0.0, 0.3]),
    queue_spare_trigger=st.sampled_from([3.0, 1.0, 0.0]),
    transition_deadline_seconds=st.sampled_from([600.0, 600.0, 60.0]),
)


@st.composite
def policies(draw: st.DrawFn, *, compatibility: Compatibility | None = None) -> Policy:
    """Draw a policy, with or without an override for one model."""
    override = SaturationOverride("m", "m", draw(st.none() | namespaces), draw(saturation_policies))
    return Policy(draw(saturation_policies), (override,) if draw(st.booleans()) else (), compatibility)


@st.composite
def cycles(draw: st.DrawFn, *, compatibility: Compatibility | None = None) -> Recording:
    """Draw all inputs of a cycle."""
    snapshot = draw(snapshots())
    policy = draw(policies(compatibility=compatibility))
    return counted(Recording(now=NOW, policy=policy, memory=draw(memories(snapshot)), snapshot=snapshot))


def fuller(recording: Recording, data: st.DataObject) -> Recording:
    """Return the cycle with replicas that report at least as much load; signals that are missing stay missing."""
    replicas = tuple(_fuller(replica, data) for replica in recording.snapshot.replicas)
    return replace(recording, snapshot=replace(recording.snapshot, replicas=replicas))


def _fuller(replica: ReplicaMetrics, data: st.DataObject) -> ReplicaMetrics:
    more = data.draw(st.sampled_from([0.0, 0.1, 0.5]))
    return replace(
        replica, kv_usage=_raised(replica.kv_usage, more), queue_length=_raised(replica.queue_length, 10 * more)
    )


def _raised(sample: Sample, by: float) -> Sample:
    return replace(sample, value=sample.value + by) if sample.state is SampleState.FRESH else sample
