"""What is true of every decision with GPUs counted, scaling to zero allowed, and rising load.

What is true of the same cycles is tested on the same ones, because drawing one takes longer than deciding on it. The
default profile draws fifty cycles for each test, the nightly one two hundred times as many.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import event, given
from hypothesis import strategies as st

from tests.builders import NOW
from tests.decide.strategies import cycles, fuller, namespaces
from wva.decide.pipeline import decide
from wva.hindsight.cycle import Recording
from wva.model.inventory import AcceleratorPool, GpuQuota, Inventory
from wva.model.memory import Memory, VariantMemory
from wva.model.metrics import ReplicaMetrics, Sample, SampleState
from wva.model.policy import ScaleToZeroEntry, ScaleToZeroRules
from wva.model.records import replace
from wva.model.snapshot import RequestCounts, Snapshot
from wva.model.variant import Bounds, ModelKey, Variant, VariantKey

shuffles = st.randoms(use_true_random=False)
counts = st.none() | st.sampled_from([0.0, 0.0, 0.0, 3.0])
covered = st.sampled_from([600.0, 600.0, 540.0])


def decided(recording):
    """Decide on a drawn cycle."""
    return decide(recording.snapshot, recording.memory, recording.policy, recording.now)[0]


@st.composite
def budgeted(draw) -> Recording:
    """Draw a cycle with GPUs, quotas, pods without a node, and the limiter on."""
    recording = draw(cycles())
    pools = [
        AcceleratorPool(name, capacity, draw(st.integers(0, capacity)))
        for name in draw(st.lists(st.sampled_from(["A100", "H100"]), unique=True))
        for capacity in [draw(st.integers(0, 30))]
    ]
    quota = st.builds(GpuQuota, namespaces, st.just("nvidia.com/gpu"), st.integers(0, 20), st.integers(0, 10))
    quotas = draw(st.lists(quota, max_size=2))
    variants = tuple(
        replace(variant, gpus_per_replica=draw(st.integers(0, 4)), unschedulable_pods=draw(st.sampled_from([0, 0, 1])))
        for variant in recording.snapshot.variants
    )
    inventory = draw(st.none() | st.just(Inventory.of(pools, quotas)))
    snapshot = replace(recording.snapshot, variants=variants, inventory=inventory)
    return replace(recording, snapshot=snapshot, policy=replace(recording.policy, enable_limiter=True))


@st.composite
def resting(draw) -> Recording:
    """Draw a cycle in which models may go to zero, and some do."""
    recording = draw(cycles())
    entry = ScaleToZeroEntry("default", "", None, draw(st.booleans()), 600.0)
    models = sorted({variant.model for variant in recording.snapshot.variants})
    requests = tuple(
        RequestCounts(model, 600.0, draw(counts), draw(counts), covered_seconds=draw(covered)) for model in models
    )
    snapshot = replace(recording.snapshot, request_counts=requests)
    return replace(
        recording, snapshot=snapshot, policy=replace(recording.policy, scale_to_zero=ScaleToZeroRules(entry))
    )


def taken(variant: Variant, desired: int) -> int:
    """Return the GPUs of the replicas that WVA adds, beyond those that exist or that the scaler adds by itself."""
    return max(0, desired - max(variant.current_replicas, variant.bounds.minimum or 0)) * max(
        1, variant.gpus_per_replica
    )


@given(budgeted(), shuffles)
def test_what_holds_with_a_budget(recording, shuffle):
    """The budget is kept, the limiter only lowers, nothing grows without an inventory; and always the same bits."""
    assert_the_gpu_budget_is_kept(recording)
    assert_the_limiter_only_lowers(recording)
    assert_without_an_inventory_nothing_grows(recording)
    assert_it_depends_on_its_inputs_alone(recording, shuffle)


@given(resting(), shuffles)
def test_what_holds_where_models_may_rest(recording, shuffle):
    """Only an idle model goes to zero; always the same, bit by bit."""
    assert_zero_is_allowed_and_the_model_idle(recording)
    assert_it_depends_on_its_inputs_alone(recording, shuffle)


def assert_the_gpu_budget_is_kept(recording):
    """Check that all decisions together take no more of a pool or a quota than is free."""
    inventory = recording.snapshot.inventory
    if inventory is None:
        return
    pools: Counter = Counter()
    quotas: Counter = Counter()
    for variant, decision in zip(recording.snapshot.variants, decided(recording), strict=True):
        gpus = taken(variant, decision.desired)
        pool = inventory.pool_of(variant.accelerator or variant.status_accelerator)
        assert pool is not None or gpus == 0
        if gpus:
            event("grows")
            pools[pool] += gpus
            for quota in set(inventory.quotas_for(variant.key.namespace, pool.resource)):  # drawn twice: one quota
                quotas[quota] += gpus
    assert all(count <= pool.free for pool, count in pools.items())
    assert all(count <= quota.free for quota, count in quotas.items())


def assert_the_limiter_only_lowers(recording):
    """Compare with the cycle without a limiter: only a variant that takes over gets more, and bounds hold."""
    free = replace(recording, policy=replace(recording.policy, enable_limiter=False))
    for variant, limited, unlimited in zip(recording.snapshot.variants, decided(recording), decided(free), strict=True):
        assert min(unlimited.desired, variant.current_replicas) <= limited.desired
        assert not variant.active or variant.bounds.clamp(limited.desired) == limited.desired
        if limited.desired > unlimited.desired:
            event("takes over")
        assert limited.limits or limited.desired >= unlimited.desired


def assert_without_an_inventory_nothing_grows(recording):
    """Check that no number is above the published one, the replicas that exist and the minimum."""
    blind = replace(recording, snapshot=replace(recording.snapshot, inventory=None))
    for variant, decision in zip(blind.snapshot.variants, decided(blind), strict=True):
        before = decision.previous or 0
        assert decision.desired <= max(variant.current_replicas, before, variant.bounds.minimum or 0)


def assert_it_depends_on_its_inputs_alone(recording, shuffle):
    """Check that decisions are the same again, whatever the order of the inputs, and that no step is left out."""
    first = decide(recording.snapshot, recording.memory, recording.policy, recording.now)
    assert decide(recording.snapshot, recording.memory, recording.policy, recording.now) == first
    for decision in first[0]:
        assert decision.steps[-1].after == decision.desired
        for earlier, later in zip(decision.steps, decision.steps[1:], strict=False):
            assert earlier.after == later.before
    snapshot = recording.snapshot
    parts = [list(part) for part in (snapshot.variants, snapshot.replicas, snapshot.request_counts)]
    for part in parts:
        shuffle.shuffle(part)
    inventory = snapshot.inventory
    if inventory is not None:
        pools, quotas = list(inventory.pools), list(inventory.quotas)
        shuffle.shuffle(pools)
        shuffle.shuffle(quotas)
        inventory = Inventory(tuple(pools), tuple(quotas))
    shuffled = replace(
        snapshot,
        variants=tuple(parts[0]),
        replicas=tuple(parts[1]),
        request_counts=tuple(parts[2]),
        inventory=inventory,
    )
    assert decided(replace(recording, snapshot=shuffled)) == first[0]


def assert_zero_is_allowed_and_the_model_idle(recording):
    """Check that zero has the setting, a count of the whole period, no request, and fresh samples of every replica."""
    requests = {counted.model: counted for counted in recording.snapshot.request_counts}
    for variant, decision in zip(recording.snapshot.variants, decided(recording), strict=True):
        if not variant.active or decision.desired:
            continue
        event("to zero")
        assert recording.policy.scale_to_zero_for(variant.model).enabled
        assert (requests[variant.model].finished, requests[variant.model].in_progress) == (0, 0)
        assert requests[variant.model].covered
        siblings = [other for other in recording.snapshot.variants if other.model == variant.model and other.active]
        keys = {other.key for other in siblings}
        pods = [replica for replica in recording.snapshot.replicas if replica.variant in keys]
        assert all(replica.complete and not replica.queue_length.value for replica in pods)
        assert len(pods) == sum(other.current_replicas for other in siblings)


@given(cycles(), st.data())
def test_more_load_never_lowers_the_number_of_replicas(recording, data):
    """With the same memory and no GPU budget, fuller replicas and longer queues ask for as many replicas or more."""
    loaded = fuller(recording, data)
    for model in {variant.model for variant in recording.snapshot.variants}:
        assert _total(loaded, model) >= _total(recording, model)


def _total(recording: Recording, model: ModelKey) -> int:
    return sum(decision.desired for decision in decided(recording) if decision.model == model)


@st.composite
def twins(draw) -> Recording:
    """Draw equal variants under equal load; their numbers of the last cycle differ by one at most."""
    recording = draw(cycles())
    names = draw(st.lists(st.sampled_from("abcdef"), min_size=2, max_size=4, unique=True))
    current, kv = draw(st.integers(1, 4)), draw(st.sampled_from([0.05, 0.3, 0.7, 0.75, 0.95]))
    queue = draw(st.sampled_from([0.0, 2.0, 9.0]))
    bounds = Bounds(draw(st.none() | st.just(1)), draw(st.none() | st.integers(5, 9)))
    variants, replicas, entries = [], [], []
    for name in names:
        key = VariantKey("ns", name)
        count = current + draw(st.integers(0, 1))
        variants.append(
            Variant(
                key,
                ModelKey("ns", "m"),
                name,
                "A100",
                spec_replicas=count,
                current_replicas=count,
                ready_replicas=count,
                bounds=bounds,
            )
        )
        entries.append(VariantMemory(key, count, None, count))
        samples = (Sample(SampleState.FRESH, kv, NOW), Sample(SampleState.FRESH, queue, NOW))
        replicas += [ReplicaMetrics(f"{name}-{number}", key, *samples) for number in range(count)]
    return replace(
        recording, snapshot=Snapshot.of(variants, replicas), memory=Memory(tuple(sorted(entries, key=lambda e: e.key)))
    )


@given(twins(), shuffles)
def test_equal_variants_differ_by_one_replica_at_most_whatever_their_names(recording, shuffle):
    """This holds whether the model grows or shrinks. Names decide which variant gets a replica, but not how many."""
    numbers = [decision.desired for decision in decided(recording)]
    event(f"{sum(numbers) - len(recording.snapshot.replicas):+d}")
    assert max(numbers) - min(numbers) <= 1
    keys = [variant.key for variant in recording.snapshot.variants]
    others = list(keys)
    shuffle.shuffle(others)
    renamed = dict(zip(keys, others, strict=True))
    snapshot = Snapshot.of(
        [replace(variant, key=renamed[variant.key]) for variant in recording.snapshot.variants],
        [replace(replica, variant=renamed[replica.variant]) for replica in recording.snapshot.replicas],
    )
    entries = [replace(entry, key=renamed[entry.key]) for entry in recording.memory.variants]
    memory = Memory(tuple(sorted(entries, key=lambda entry: entry.key)))
    again = decided(replace(recording, snapshot=snapshot, memory=memory))
    assert sorted(decision.desired for decision in again) == sorted(numbers)
