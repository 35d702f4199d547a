"""Cycles for every analyzer and optimizer: the tests draw everything that any of them reads.

The engines of a pod report one of a few states: a state is one draw, where ten signals would be ten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from hypothesis import strategies as st

from tests.builders import NOW, sample, stale
from tests.decide.strategies import counted, cycles, namespaces
from wva.decide.amounts import LARGEST
from wva.hindsight.cycle import Recording
from wva.model.inventory import AcceleratorPool, GpuQuota, Inventory, UnknownInventory
from wva.model.memory import (
    CapacityMemory,
    DemandMemory,
    Foresight,
    LearnedCapacity,
    Memory,
    PodMemory,
    Slot,
    VariantDemand,
    VariantMemory,
)
from wva.model.metrics import EngineCounters, EngineSignals, ReplicaMetrics, Sample, SampleState
from wva.model.optimizers import Analyzer, BestEffort, Optimizer, SolverPolicy
from wva.model.policy import (
    Compatibility,
    Policy,
    QueueingPolicy,
    QueueingRules,
    SaturationPolicy,
    ScaleToZeroEntry,
    ScaleToZeroRules,
)
from wva.model.records import replace
from wva.model.service import PerformanceProfile, ServiceTarget
from wva.model.snapshot import RequestCounts, SchedulerQueue, Snapshot
from wva.model.variant import Bounds, ModelKey, Variant, VariantKey
from wva.model.vllm_parameters import VllmParameters
from wva.numbers import MAX_REPLICAS

CACHE_TOKENS = 16_000
LOADS = (0.0, 0.05, 0.3, 0.6, 0.9, 1.5)
"""Shares of what a replica carries."""

PROFILES = tuple(
    PerformanceProfile(20.58, 0.41, 5.2, 0.1, 4, model_id=model, accelerator="A100") for model in ("m", "n")
)
TARGETS = (ServiceTarget("Premium", 1, ttft_milliseconds=500, itl_milliseconds=24, model_id="m"),)


@dataclass(frozen=True)
class PipelineKind:
    """An analyzer with its optimizer; ``hybrid`` asks the model-based optimizer beside it."""

    name: str
    analyzer: Analyzer
    optimizer: Optimizer
    hybrid: bool = False

    def __str__(self) -> str:
        """Return its name, for the id of a test."""
        return self.name

    @property
    def asks_engines(self) -> bool:
        """Whether the analyzer reads more than the two signals of a pod."""
        return self.hybrid or self.analyzer is not Analyzer.PERCENTAGE

    def evidence(self, replicas: Sequence[ReplicaMetrics], recording: Recording) -> bool:
        """Tell whether replicas report everything that a shrink by this kind needs."""
        if self.analyzer is not Analyzer.DEMAND:
            return all(map(self._reports, replicas))
        # Each has told of itself within two minutes; or demand is not known, and the percentage analyzer decides.
        lately = {
            (variant.key, pod.name)
            for model in recording.memory.demand
            for variant in model.variants
            for pod in variant.pods
            if pod.counters.at > recording.now - 120
        }
        told = [
            (replica.variant, replica.pod) in lately
            or (replica.engine is not None and replica.engine.running.value is not None)
            for replica in replicas
        ]
        return all(told) or all(replica.complete for replica in replicas)

    def _reports(self, replica: ReplicaMetrics) -> bool:
        engine = replica.engine or EngineSignals()
        needed = {
            Analyzer.PERCENTAGE: (replica.kv_usage, replica.queue_length),
            Analyzer.TOKENS: (replica.kv_usage, replica.queue_length, engine.kv_capacity_tokens),
            Analyzer.QUEUEING: (engine.success_rate, engine.running, engine.waiting),
        }
        return all(
            signal.state is SampleState.FRESH and 0 <= signal.value <= LARGEST for signal in needed[self.analyzer]
        )


SIZED = PipelineKind("sized", Analyzer.PERCENTAGE, Optimizer.SIZED)
ONE_STEP = PipelineKind("one-step", Analyzer.PERCENTAGE, Optimizer.ONE_STEP)
COST_AWARE = PipelineKind("cost-aware", Analyzer.TOKENS, Optimizer.COST_AWARE)
GREEDY = PipelineKind("greedy", Analyzer.TOKENS, Optimizer.GREEDY_BY_SCORE)
QUEUEING = PipelineKind("queueing", Analyzer.QUEUEING, Optimizer.MODEL_BASED)
QUEUEING_GREEDY = PipelineKind("queueing-greedy", Analyzer.QUEUEING, Optimizer.GREEDY_BY_SCORE)
HYBRID = PipelineKind("hybrid", Analyzer.PERCENTAGE, Optimizer.BY_ANALYZER, hybrid=True)
HYBRID_TOKENS = PipelineKind("hybrid-tokens", Analyzer.TOKENS, Optimizer.BY_ANALYZER, hybrid=True)
DEMAND = PipelineKind("demand", Analyzer.DEMAND, Optimizer.BY_ANALYZER)
HYBRID_DEMAND = PipelineKind("hybrid-demand", Analyzer.DEMAND, Optimizer.BY_ANALYZER, hybrid=True)
KINDS = (
    *(SIZED, ONE_STEP, COST_AWARE, GREEDY, QUEUEING, QUEUEING_GREEDY, HYBRID, HYBRID_TOKENS),
    *(DEMAND, HYBRID_DEMAND),
)


def engine(load: float) -> EngineSignals:
    """Return what a pod reports under a share of what it carries; above the whole of it requests wait."""
    served = min(load, 1.0)
    return EngineSignals(
        kv_capacity_tokens=sample(CACHE_TOKENS),
        kv_usage=sample(served),
        input_tokens=sample(100),
        output_tokens=sample(178),
        prefix_hit_rate=sample(0),
        waiting=sample(20 * max(0.0, load - 1)),
        running=sample(round(4 * served)),
        success_rate=sample(0.5 * served),
        time_to_first_token=sample(0.02 + 0.1 * load),
        inter_token_latency=sample(0.0205 + 0.002 * served),
    )


_REPORTS = tuple(engine(load) for load in LOADS)
_GAPS = (
    replace(_REPORTS[2], kv_capacity_tokens=sample(None), success_rate=sample(None)),
    replace(_REPORTS[1], kv_capacity_tokens=stale(CACHE_TOKENS), running=stale(1)),
    replace(_REPORTS[0], waiting=Sample(SampleState.INVALID, detail="2 series for one pod")),
    replace(_REPORTS[3], input_tokens=sample(None), output_tokens=sample(None)),
    EngineSignals(),
)
engines = st.sampled_from([*_REPORTS * 3, *_GAPS])
calm_engines = st.sampled_from(_REPORTS[:3])


def asking(kind: PipelineKind, saturation: SaturationPolicy) -> SaturationPolicy:
    """Return the thresholds with the analyzer and the optimizer of a kind."""
    return replace(saturation, analyzer_name=kind.analyzer, optimizer_name=kind.optimizer)


def policy_of(kind: PipelineKind, policy: Policy) -> Policy:
    """Return a policy that asks for a kind, for every model."""
    overrides = tuple(replace(each, policy=asking(kind, each.policy)) for each in policy.overrides)
    policy = replace(policy, saturation=asking(kind, policy.saturation), overrides=overrides)
    return replace(policy, proactive_model=kind.hybrid)


@st.composite
def policies(draw: st.DrawFn, kind: PipelineKind, policy: Policy, *, limited: bool) -> Policy:
    """Draw what else a policy may say: the limiter, scaling to zero, targets and parameters of models, the solver."""
    policy = policy_of(kind, policy)
    entry = ScaleToZeroEntry("default", "", None, draw(st.booleans()), 600.0)
    policy = replace(
        policy,
        enable_limiter=limited or kind.optimizer is Optimizer.GREEDY_BY_SCORE or draw(st.booleans()),
        unknown_inventory=draw(st.sampled_from(UnknownInventory)),
        scale_to_zero=ScaleToZeroRules(entry),
    )
    if kind.analyzer is Analyzer.QUEUEING or kind.hybrid:
        multiplier, tuned = draw(st.sampled_from([3.0, 1.5])), draw(st.booleans())
        own, best_effort = QueueingPolicy(multiplier, tuned), draw(st.sampled_from(BestEffort))
        policy = replace(
            policy,
            queueing=QueueingRules(own) if kind.analyzer is Analyzer.QUEUEING else QueueingRules(),
            profiles=draw(st.sampled_from([PROFILES, PROFILES, PROFILES[:1], ()])),
            service_targets=draw(st.sampled_from([TARGETS, ()])),
            solver=SolverPolicy(draw(st.none() | st.booleans()), draw(st.booleans()), best_effort),
        )
    return policy


def known_for_long(models: list[ModelKey]) -> CapacityMemory:
    """Return the memory of a process that has looked at models for an hour."""
    return CapacityMemory(tuple(LearnedCapacity(model, NOW - 3600) for model in models))


def looked_at(
    models: Sequence[ModelKey], pods: Sequence[ReplicaMetrics], variants: Sequence[Variant]
) -> tuple[DemandMemory, ...]:
    """Return what the queueing analyzer remembers after a look at idle pods a minute ago."""
    idle = EngineCounters(NOW - 65, *[0.0] * 8)
    return tuple(
        DemandMemory(
            model,
            at=NOW - 60,
            variants=tuple(
                VariantDemand(
                    each.key,
                    pods=tuple(
                        PodMemory(pod.pod, idle, 0.0, 0.0, derived=True) for pod in pods if pod.variant == each.key
                    ),
                )
                for each in variants
                if each.model == model
            ),
        )
        for model in sorted(models)
    )


def foreseen_for_long(models: Sequence[ModelKey], demand: float) -> tuple[Foresight, ...]:
    """Return what step 3 remembers of models that have had this demand per second for an hour."""
    slots = tuple(Slot(NOW - 60 * ago, 60.0, 60 * demand) for ago in range(15, 0, -1))
    return tuple(Foresight(model, NOW - 3600, NOW - 60, slots) for model in sorted(models))


def counters(load: float, *, at: float = NOW - 5, finished: float | None = None) -> EngineCounters:
    """Return the counters of a pod that has had a share of what it carries for ten minutes."""
    number = 300.0 * load if finished is None else finished
    gaps = 300.0 * load * 178
    return EngineCounters(at, number, 0.0, 30_000 * load, 300 * load, gaps, 300 * load, gaps * 0.021, gaps)


@st.composite
def memories(draw: st.DrawFn, memory: Memory, models: list[ModelKey], snapshot: Snapshot) -> Memory:
    """Draw other parts of the memory of the last cycle: capacities that WVA learned, pods that it looked at."""
    looked = looked_at(models, snapshot.replicas, snapshot.variants)
    seen = draw(st.sampled_from([(), looked]))
    learned = draw(st.sampled_from([CapacityMemory(), known_for_long(models)]))
    foreseen = foreseen_for_long(models, 0.5) if seen and draw(st.booleans()) else ()
    return replace(memory, capacity=learned, demand=seen, foreseen=foreseen)


@st.composite
def inventories(draw: st.DrawFn) -> Inventory:
    """Draw GPUs and quotas."""
    pools = []
    for name in draw(st.sampled_from([("A100",), ("A100", "H100"), ()])):
        capacity = draw(st.integers(0, 30))
        pools.append(AcceleratorPool(name, capacity, draw(st.integers(0, capacity))))
    quota = st.builds(
        GpuQuota,
        namespaces,
        st.just("nvidia.com/gpu"),
        st.integers(0, 20),
        st.integers(0, 10),
        st.sampled_from(["team", "stage"]),
    )
    # Names are unique in a namespace.
    return Inventory.of(pools, draw(st.lists(quota, max_size=2, unique_by=lambda each: (each.namespace, each.name))))


counts_of_pods = st.sampled_from(
    [None, None, *map(counters, LOADS), counters(0.9, finished=1e15), counters(0.3, at=NOW + 1e9)]
)
queue_sizes = st.sampled_from([sample(None), sample(0), sample(0), sample(7), stale(3)])
counts = st.sampled_from([None, 0.0, 0.0, 0.0, 3.0])
covered = st.sampled_from([600.0, 600.0, 540.0])


@st.composite
def cycles_of(draw: st.DrawFn, kind: PipelineKind, *, limited: bool = False) -> Recording:
    """Draw all inputs of a cycle that a kind decides on; ``limited``: always with a GPU budget."""
    recording = draw(cycles())
    snapshot = recording.snapshot
    models = sorted({variant.model for variant in snapshot.variants})
    variants = tuple(
        replace(variant, gpus_per_replica=draw(st.sampled_from([1, 1, 2, 4])), unschedulable_pods=stuck)
        for variant in snapshot.variants
        for stuck in [draw(st.sampled_from([0, 0, 0, 1]))]
    )
    replicas, queues = snapshot.replicas, ()
    if kind.asks_engines:
        states = draw(st.sampled_from([engines, calm_engines]))
        replicas = tuple(replace(replica, engine=draw(states)) for replica in replicas)
        if kind.analyzer is Analyzer.DEMAND:
            replicas = tuple(replace(replica, counters=draw(counts_of_pods)) for replica in replicas)
        queues = tuple(SchedulerQueue(model, draw(queue_sizes), sample(None)) for model in models)
    policy = draw(policies(kind, recording.policy, limited=limited))
    asked = tuple(
        RequestCounts(model, 600.0, draw(counts), draw(counts), covered_seconds=draw(covered)) for model in models
    )
    snapshot = replace(
        snapshot,
        variants=variants,
        replicas=replicas,
        queues=queues,
        request_counts=asked if draw(st.booleans()) else (),
        inventory=draw(inventories() if limited else st.none() | inventories()) if policy.counts_gpus else None,
    )
    return replace(
        recording, snapshot=snapshot, policy=policy, memory=draw(memories(recording.memory, models, snapshot))
    )


def under(recording: Recording, load: float) -> Recording:
    """Return a cycle in which every replica has a share of the load that it carries."""
    signals = engine(load)
    queue = sample(min(signals.waiting.value or 0.0, 4.0))
    replicas = tuple(
        replace(each, kv_usage=signals.kv_usage, queue_length=queue, engine=signals)
        for each in recording.snapshot.replicas
    )
    return replace(recording, snapshot=replace(recording.snapshot, replicas=replicas))


@st.composite
def equals(draw: st.DrawFn, kind: PipelineKind, *, costs: Sequence[float] = (10.0,)) -> Recording:
    """Draw variants of one model that differ in name, number and cost at most, under equal load.

    Their numbers are one apart at most, and what was published last is what exists. Everything is known that a kind may
    want to know; whose optimizer shares GPUs has more of them than it needs.
    """
    model = ModelKey("ns", "m")
    least, load = draw(st.integers(1, 4)), draw(st.sampled_from(LOADS))
    bounds = Bounds(draw(st.none() | st.just(1)), draw(st.none() | st.integers(5, 9)))
    variants, replicas, entries = [], [], []
    for name in sorted(draw(st.sets(st.sampled_from("abcdef"), min_size=2, max_size=4))):
        key, count = VariantKey("ns", name), least + draw(st.integers(0, 1))
        found = Variant(key, model, name, "A100", draw(st.sampled_from(costs)), count, bounds=bounds)
        variants.append(replace(found, current_replicas=count, ready_replicas=count))
        entries.append(VariantMemory(key, count, None, count))
        replicas += [ReplicaMetrics(f"{name}-{number}", key) for number in range(count)]
    queueing = QueueingRules(QueueingPolicy(tuning_enabled=False) if kind.analyzer is Analyzer.QUEUEING else None)
    policy = replace(policy_of(kind, Policy()), queueing=queueing, profiles=PROFILES)
    observed = looked_at([model], replicas, variants)
    memory = Memory(tuple(entries), known_for_long([model]), demand=observed)
    if kind.analyzer is Analyzer.DEMAND:
        seen = foreseen_for_long([model], 0.5 * load * len(replicas))
        memory = replace(memory, foreseen=seen)
    waiting = SchedulerQueue(model, sample(draw(st.sampled_from([0, 5]))), sample(None))
    snapshot = replace(Snapshot.of(variants, replicas), queues=(waiting,))
    if kind.optimizer is Optimizer.GREEDY_BY_SCORE:
        policy = replace(policy, enable_limiter=True)
        snapshot = replace(snapshot, inventory=Inventory.of([AcceleratorPool("A100", 1000, 0)]))
    return counted(under(Recording(now=NOW, policy=policy, memory=memory, snapshot=snapshot), load))


@st.composite
def more_and_more(draw: st.DrawFn, kind: PipelineKind) -> tuple[Recording, Recording]:
    """Draw a cycle of variants at different costs, and the same one under at least as much load; without a budget."""
    recording = draw(equals(kind, costs=(10.0, 10.0, 4.0)))
    loads = sorted(draw(st.sampled_from(LOADS)) for _ in range(2))
    first, second = (under(recording, load) for load in loads)
    return first, second


extreme_reals = st.sampled_from([0.0, 1e-300, 5e-324, 0.5, 1.0, 2.0, 1e9, 1e15, 1.7e308, -1.0, -1.7e308])
reals = extreme_reals | st.floats(0, 10) | st.floats(allow_nan=False, allow_infinity=False)
wholes = st.sampled_from([0, 1, 1, 2, 3, 1000, MAX_REPLICAS - 1, MAX_REPLICAS, MAX_REPLICAS + 1, 10**30, -1])
_MOST_PODS = 3
"""Of a variant, however many replicas it claims to have: a cycle stays cheap."""


@st.composite
def any_policies(draw: st.DrawFn, kind: PipelineKind) -> Policy:
    """Draw a policy of any finite numbers that asks for a kind."""
    number = draw(st.lists(reals, min_size=16, max_size=16)).pop
    saturation = SaturationPolicy(number(), number(), number(), number(), number())
    saturation = replace(saturation, scale_up_threshold=number(), scale_down_boundary=number())
    own = QueueingPolicy(number(), draw(st.booleans()), number(), number())
    profile = replace(PROFILES[0], alpha=number(), beta=number(), gamma=number(), delta=number())
    policy = policy_of(kind, Policy(saturation, profiles=draw(st.sampled_from([PROFILES, (profile,), ()]))))
    entry = ScaleToZeroEntry("default", "", None, draw(st.booleans()), draw(st.sampled_from([600.0, 0.0, 1.7e308])))
    plain = kind is SIZED and draw(st.booleans())
    return replace(
        policy,
        compatibility=Compatibility.V0_5 if plain else None,
        enable_limiter=draw(st.booleans()),
        unknown_inventory=draw(st.sampled_from(UnknownInventory)),
        scale_to_zero=ScaleToZeroRules(entry),
        queueing=QueueingRules(own) if kind.analyzer is Analyzer.QUEUEING else QueueingRules(),
        service_targets=draw(
            st.sampled_from([(ServiceTarget("Any", 1, number(), abs(number()), 0.0, "m"),), TARGETS, ()])
        ),
        solver=SolverPolicy(draw(st.none() | st.booleans()), draw(st.booleans()), draw(st.sampled_from(BestEffort))),
    )


@dataclass(frozen=True)
class PipelineWorld:
    """What the cycles of one history choose from: policies, inventories, what pods report, and numbers of replicas."""

    policies: tuple[Policy, ...]
    inventories: tuple[Inventory | None, ...]
    samples: tuple[Sample, ...]
    shares: tuple[Sample, ...]
    engines: tuple[EngineSignals, ...]
    counters: tuple[EngineCounters, ...]
    replicas: tuple[int, ...]
    variants: tuple[Variant, ...]


@st.composite
def worlds(draw: st.DrawFn, kind: PipelineKind) -> PipelineWorld:
    """Draw variants of two models, and everything that a cycle may say of them."""
    numbers = tuple(draw(st.lists(wholes, min_size=4, max_size=6)))
    lies = draw(st.lists(reals, min_size=4, max_size=8))
    samples = (sample(None), sample(0), sample(1), stale(1), *(sample(lie) for lie in lies))
    shares = (sample(0.02), sample(0.4), sample(0.7), sample(0.9), *samples)
    names = list(EngineSignals.__struct_fields__)
    wild = [
        EngineSignals(**dict(zip(names, draw(st.permutations([*samples] * 3)), strict=False)))
        for _ in range(2 if kind.asks_engines else 0)
    ]
    bound = st.none() | st.sampled_from(numbers)
    variants = tuple(
        Variant(
            VariantKey("ns", name),
            ModelKey("ns", "m" if name < "c" else "n"),
            name,
            draw(st.sampled_from(["A100", "H100", ""])),
            draw(st.sampled_from([10.0, 10.0, 4.0]) | reals),
            bounds=Bounds(draw(bound), draw(bound)),
            gpus_per_replica=draw(st.sampled_from([1, 1, 2, 0, -1, 10**30])),
            parameters=draw(st.sampled_from([None, VllmParameters(), VllmParameters(max_num_seqs=-1, block_size=0)])),
        )
        for name in "abc"
    )
    huge = Inventory.of([AcceleratorPool("A100", 10**9, -1), AcceleratorPool("H100", 10**30, 0)])
    return PipelineWorld(
        tuple(draw(any_policies(kind)) for _ in range(2)),
        (None, huge, draw(inventories())),
        samples,
        shares,
        (*_REPORTS, *_GAPS, *wild),
        tuple(EngineCounters(*draw(st.lists(reals, min_size=9, max_size=9))) for _ in wild),
        numbers,
        variants,
    )


def history(world: PipelineWorld, chance: Random, numbers: dict[VariantKey, int]) -> Recording:
    """Return one more cycle: replicas that follow the numbers of the last one or do not, and pods that report.

    ``numbers`` are those that were decided last. The memory is to be filled in.
    """
    variants, replicas = [], []
    obedient = chance.random() < 0.7
    for static in world.variants:
        wanted = numbers.get(static.key, 1)
        current = wanted if obedient else chance.choice([wanted, wanted // 2, chance.choice(world.replicas)])
        pods = max(0, min(current, _MOST_PODS) - (chance.random() < 0.1))
        variants.append(
            replace(
                static,
                spec_replicas=current if chance.random() < 0.9 else chance.choice(world.replicas),
                current_replicas=current,
                ready_replicas=pods if chance.random() < 0.8 else chance.choice(world.replicas),
                status_desired=wanted if chance.random() < 0.9 else chance.choice(world.replicas),
                unschedulable_pods=chance.choice([0, 0, 0, 0, 1, MAX_REPLICAS]),
                activated_at=chance.choice([None, NOW - 3600]),
            )
        )
        engine = chance.choice(world.engines)
        for number in range(pods):
            one = engine if chance.random() < 0.8 else chance.choice(world.engines)
            kv = chance.choice(world.shares)
            counted_by_pod = chance.choice([None, counters(0.6), counters(chance.choice(LOADS)), *world.counters])
            replicas.append(
                ReplicaMetrics(
                    f"{static.key.name}-{number}",
                    static.key,
                    kv,
                    chance.choice(world.samples),
                    one,
                    counters=counted_by_pod,
                )
            )
    models = sorted({variant.model for variant in variants})
    policy = world.policies[chance.random() < 0.2]
    snapshot = replace(
        Snapshot.of(variants, replicas),
        queues=tuple(SchedulerQueue(model, chance.choice(world.samples), sample(None)) for model in models),
        request_counts=tuple(
            RequestCounts(model, 600.0, chance.choice([None, 0.0, 0.0, 3.0]), 0.0) for model in models
        ),
        inventory=chance.choice(world.inventories) if policy.counts_gpus else None,
    )
    return Recording(now=NOW, policy=policy, memory=Memory(), snapshot=snapshot)
