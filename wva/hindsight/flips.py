"""The nearest flips of a decision: by how much one input would have had to differ for another number.

Each input is tried in fixed steps, in both directions, from the smallest step on: the cycle is decided again with this
one input changed and all others as they were. The first step that gives the variant another number is the flip. So no
smaller step of that input changes the number, and nothing is inferred: a rule of the engine may be crossed in one
direction and crossed back further on.

``ladders`` names the inputs of a variant with their steps, ``changed`` applies one step. Inputs are the load of the
model, its Ready replicas, GPUs and quotas where WVA counts GPUs, thresholds and objectives, bounds, costs and time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from wva.decide.prices import priced, stated
from wva.hindsight.cycle import Recording
from wva.model.inventory import NVIDIA_GPU, GpuQuota, Inventory
from wva.model.memory import DemandMemory
from wva.model.metrics import EngineCounters, EngineSignals, ReplicaMetrics, Sample, SampleState
from wva.model.optimizers import Analyzer
from wva.model.policy import (
    MAX_KEEP_WARM_SECONDS,
    MAX_SURGE_FACTOR,
    NamespacePolicy,
    Policy,
    QueueingOverride,
    QueueingPolicy,
    SaturationOverride,
)
from wva.model.records import replace
from wva.model.variant import ModelKey, Variant, VariantKey

INTERVAL_SECONDS: Final = 15.0
"""The time between two cycles where the caller does not know it."""

_MANY_VARIANTS: Final = 100
"""Where WVA counts GPUs, a try decides on all variants. From so many on there are fewer steps."""

_UP: Final = (
    *(percent / 100 for percent in range(1, 20)),
    *(percent / 100 for percent in range(20, 50, 2)),
    *(percent / 100 for percent in range(50, 100, 5)),
    *(percent / 100 for percent in range(100, 301, 10)),
)
_DOWN: Final = tuple(-share for share in _UP if share <= 1.0)
_COARSE_UP: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
_COARSE_DOWN: Final = tuple(-share for share in _COARSE_UP if share <= 1.0)
_FEW_UP: Final = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.0, 3.0)
_FEW_DOWN: Final = tuple(-share for share in _FEW_UP if share < 1.0)
"""Steps of settings and costs, which people choose in round numbers."""
_MOST_REPLICAS: Final = 16
_MOST_GPUS: Final = 32
_MOST_CYCLES: Final = 60
_COARSE_CYCLES: Final = (1, 2, 4, 8, 20, 40)

_SETTINGS: Final = {
    Analyzer.PERCENTAGE: (
        "kv_cache_threshold",
        "queue_length_threshold",
        "kv_spare_trigger",
        "queue_spare_trigger",
    ),
    Analyzer.TOKENS: ("kv_cache_threshold", "queue_length_threshold", "scale_up_threshold", "scale_down_boundary"),
    Analyzer.QUEUEING: ("slo_multiplier", "target_ttft_milliseconds", "target_itl_milliseconds"),
    Analyzer.DEMAND: ("keep_warm", "surge_factor"),
}
"""The numbers of the entries that each analyzer reads, as ``SaturationPolicy`` and ``QueueingPolicy`` name them."""
_LARGEST: Final = {
    "kv_cache_threshold": 1.0,
    "kv_spare_trigger": 1.0,
    "scale_up_threshold": 1.0,
    "scale_down_boundary": 1.0,
    "keep_warm": MAX_KEEP_WARM_SECONDS,
    "surge_factor": MAX_SURGE_FACTOR,
}
"""The largest values that ConfigMaps allow, where people choose values near them."""
_SMALLEST: Final = {"surge_factor": 1.0}
"""And the smallest ones, where that is not 0."""
KEYS: Final = {
    "kv_cache_threshold": ("kvCacheThreshold", ""),
    "queue_length_threshold": ("queueLengthThreshold", ""),
    "kv_spare_trigger": ("kvSpareTrigger", ""),
    "queue_spare_trigger": ("queueSpareTrigger", ""),
    "scale_up_threshold": ("scaleUpThreshold", ""),
    "scale_down_boundary": ("scaleDownBoundary", ""),
    "slo_multiplier": ("sloMultiplier", ""),
    "target_ttft_milliseconds": ("targetTTFT", ""),
    "target_itl_milliseconds": ("targetITL", ""),
    "keep_warm": ("keepWarm", "s"),
    "surge_factor": ("surgeFactor", ""),
}
"""How people write these numbers in a ConfigMap: the key, and the unit of the value."""


OF_LOAD: Final = {"kv_usage": 1.0, "waiting": None, "running": None, "success_rate": None}
"""The signals of engines that grow with the load, each with its largest value, None without one."""
OF_A_REQUEST: Final = frozenset(
    {
        "kv_capacity_tokens",
        "input_tokens",
        "output_tokens",
        "prefix_hit_rate",
        "time_to_first_token",
        "inter_token_latency",
    }
)
"""The signals of engines that more requests of the same kind leave as they are."""


class Input(StrEnum):
    """An input of a decision that is tried."""

    LOAD = "load"
    READY = "ready replicas"
    GPUS = "GPUs"
    QUOTA = "quota"
    SETTING = "setting"
    MINIMUM = "minimum"
    MAXIMUM = "maximum"
    COST = "cost"
    TIME = "time"


class Change(Struct, frozen=True):
    """One step of an input.

    ``of`` is what has the input: a model, a variant, an accelerator, a ResourceQuota, a field of an entry. ``amount``
    is a share of the present value for load, settings and costs, a number of replicas or GPUs, or seconds. ``words``
    says the same for people.
    """

    input: Input
    of: str
    amount: float
    words: str


class Flip(Struct, frozen=True):
    """A change after which a variant gets another number, and the decision that it gets then."""

    change: Change
    number: int
    reason: str
    message: str


class Search(Struct, frozen=True):
    """What the search for flips found.

    ``in_vain`` has the largest step of each input and direction in which no step gives another number.
    """

    flips: tuple[Flip, ...] = ()
    in_vain: tuple[Change, ...] = ()


def search(recording: Recording, key: VariantKey, *, interval_seconds: float = INTERVAL_SECONDS) -> Search:
    """Find the smallest step of each input and direction that gives a variant another number.

    Nothing is found for a variant that the cycle did not see. ``interval_seconds`` is the time from one cycle to the
    next.
    """
    decision = recording.again().decision(key)
    if decision is None:
        return Search()
    # Where models do not share GPUs, this model is tried alone, unless the engine then decides otherwise.
    alone = recording if recording.policy.counts_gpus else recording.grouped({decision.model: 0}, 1)[0]
    if alone is not recording and alone.again().decision(key) != decision:
        alone = recording
    flips, in_vain = [], []
    for ladder in ladders(recording, key, interval_seconds=interval_seconds):
        later, passed = alone, 0.0
        for change in ladder:
            if change.input is Input.TIME:
                # Times follow from each other, so that no cycle is decided on twice.
                step = replace(change, amount=change.amount - passed)
                tried = later = changed(later, key, step, interval_seconds=interval_seconds)
                passed = change.amount
            else:
                tried = changed(alone, key, change)
            tried_decision = tried.again().decision(key)
            if tried_decision is not None and tried_decision.desired != decision.desired:
                flips.append(Flip(change, tried_decision.desired, tried_decision.reason.value, tried_decision.message))
                break
        else:
            in_vain.append(ladder[-1])
    return Search(tuple(flips), tuple(in_vain))


def ladders(
    recording: Recording, key: VariantKey, *, interval_seconds: float = INTERVAL_SECONDS
) -> list[tuple[Change, ...]]:
    """Return the changes to try for a variant: for each input and direction its steps, the smallest first."""
    own = recording.variant(key)
    if own is None:
        return []
    snapshot, policy = recording.snapshot, recording.policy
    coarse = policy.counts_gpus and len(snapshot.variants) >= _MANY_VARIANTS
    up, down = (_COARSE_UP, _COARSE_DOWN) if coarse else (_UP, _DOWN)
    model = own.model
    variants = [variant for variant in priced(snapshot.variants, policy) if variant.model == model]
    steps = [_relative(Input.LOAD, model.model_id, shares) for shares in (up, down)]
    for variant in variants:
        name = variant.key.name
        ready = sum(replica.variant == variant.key for replica in snapshot.replicas)
        steps.append((Change(Input.READY, name, 1, f"1 more Ready replica of {name}"),))
        if ready:
            steps.append((Change(Input.READY, name, -1, f"1 fewer Ready replica of {name}"),))
    if policy.counts_gpus and snapshot.inventory is not None:
        accelerators = {variant.accelerator or variant.status_accelerator for variant in variants}
        pools = {pool.accelerator: pool for name in accelerators if (pool := snapshot.inventory.pool_of(name))}
        for name, pool in sorted(pools.items()):
            steps.append(_counted(Input.GPUS, name, range(1, _MOST_GPUS + 1), f"{name} GPU"))
            steps.append(_counted(Input.GPUS, name, range(-1, -min(pool.capacity, _MOST_GPUS) - 1, -1), f"{name} GPU"))
        for resource in sorted({pool.resource for pool in pools.values()}):
            for quota in snapshot.inventory.quotas_for(model.namespace, resource):
                name, fewest = _name_of(quota), -min(quota.hard, _MOST_GPUS) - 1
                counts = (range(1, _MOST_GPUS + 1), range(-1, fewest, -1))
                steps += [_counted(Input.QUOTA, name, numbers, f"GPU in the quota {name}") for numbers in counts]
    for field in _SETTINGS[policy.analyzer_for(model)]:
        value = _setting(policy, model, field)
        if value > 0.0:
            allowed = _SMALLEST.get(field, 0.0), _LARGEST.get(field, math.inf)
            steps += [_relative(Input.SETTING, field, shares, value, *allowed) for shares in (_FEW_UP, _FEW_DOWN)]
    for limit, bound in ((Input.MINIMUM, own.bounds.minimum), (Input.MAXIMUM, own.bounds.maximum)):
        if bound is not None:
            for numbers in (range(bound + 1, bound + _MOST_REPLICAS + 1), range(bound - 1, -1, -1)[:_MOST_REPLICAS]):
                changes = [
                    Change(limit, key.name, number - bound, f"{limit} {bound} -> {number}") for number in numbers
                ]
                steps.append(tuple(changes))
    if len(variants) > 1:
        for variant in variants:
            if variant.cost > 0.0:
                name, cost = variant.key.name, variant.cost
                steps += [_relative(Input.COST, name, shares, cost) for shares in (_FEW_UP, _FEW_DOWN)]
    cycles: Sequence[int] = _COARSE_CYCLES if coarse else range(1, _MOST_CYCLES + 1)
    times = [number * interval_seconds for number in cycles]
    steps.append(
        tuple([Change(Input.TIME, "", seconds, f"{seconds:g} s later, if all stays as it is") for seconds in times])
    )
    return [ladder for ladder in steps if ladder]


def changed(
    recording: Recording, key: VariantKey, change: Change, *, interval_seconds: float = INTERVAL_SECONDS
) -> Recording:
    """Return the inputs of a cycle with a change, as it concerns the variant ``key``."""
    own = recording.variant(key)
    if own is None:
        return recording
    if change.input is Input.TIME:
        for _ in range(round(change.amount / interval_seconds)):
            recording = _a_cycle_later(recording, interval_seconds)
        return recording
    return _CHANGES[change.input](recording, own, change)


def _relative(
    input_: Input,
    of: str,
    shares: Sequence[float],
    value: float | None = None,
    least: float = 0.0,
    most: float = math.inf,
) -> tuple[Change, ...]:
    """Return steps that are shares of the present value, from ``least`` to ``most``."""
    if value is None:
        return tuple([Change(input_, of, share, f"{input_} {share:+.0%}") for share in shares])
    name, unit = (f"cost of {of}", "") if input_ is Input.COST else KEYS[of]
    return tuple(
        [
            Change(input_, of, share, f"{name} {value:g}{unit} -> {value * (1.0 + share):g}{unit}")
            for share in shares
            if least <= value * (1.0 + share) <= most
        ]
    )


def _counted(input_: Input, of: str, numbers: Sequence[int], noun: str) -> tuple[Change, ...]:
    steps = []
    for number in numbers:
        nouns = noun if abs(number) == 1 else noun.replace("GPU", "GPUs")
        steps.append(Change(input_, of, number, f"{abs(number)} {'more' if number > 0 else 'fewer'} {nouns}"))
    return tuple(steps)


def _with_load(recording: Recording, own: Variant, change: Change) -> Recording:
    """Return the recording with more requests of the model in progress, and more that came since the last cycle.

    Means per request stay as they are: lengths and latencies.
    """
    factor, snapshot = 1.0 + change.amount, recording.snapshot
    keys = {variant.key for variant in snapshot.variants if variant.model == own.model}
    counted = _last_counters(entry for entry in recording.memory.demand if entry.key.whole == own.model)
    replicas = []
    for replica in snapshot.replicas:
        changed_replica = replica
        if replica.variant in keys:
            engine = replica.engine
            if engine is not None:
                signals = {name: _times(getattr(engine, name), factor, most) for name, most in OF_LOAD.items()}
                engine = replace(engine, **signals)
            changed_replica = replace(
                replica,
                kv_usage=_times(replica.kv_usage, factor, most=1.0),
                queue_length=_times(replica.queue_length, factor),
                engine=engine,
                counters=_advanced(replica.counters, counted.get(replica.pod), factor),
            )
        replicas.append(changed_replica)
    queues = [
        replace(queue, size=_times(queue.size, factor), size_bytes=_times(queue.size_bytes, factor))
        if queue.model == own.model
        else queue
        for queue in snapshot.queues
    ]
    counts = [
        replace(
            counts,
            finished=None if counts.finished is None else counts.finished * factor,
            in_progress=None if counts.in_progress is None else counts.in_progress * factor,
        )
        if counts.model == own.model
        else counts
        for counts in snapshot.request_counts
    ]
    return replace(
        recording,
        snapshot=replace(snapshot, replicas=tuple(replicas), queues=tuple(queues), request_counts=tuple(counts)),
    )


def _times(sample: Sample, factor: float, most: float | None = None) -> Sample:
    if sample.value is None:
        return sample
    value = sample.value * factor
    # A value beyond the border is a fault, which more load does not mend.
    return replace(sample, value=value if most is None or sample.value > most else min(most, value))


def _last_counters(entries: Iterable[DemandMemory]) -> Mapping[str, EngineCounters]:
    """Return the counters that the last cycle remembered of the pods of some models, by pod."""
    return {pod.name: pod.counters for entry in entries for variant in entry.variants for pod in variant.pods}


def _advanced(counters: EngineCounters | None, before: EngineCounters | None, factor: float) -> EngineCounters | None:
    """Return counters that have grown ``factor`` times as much since ``before``; None: since the engine started."""
    if counters is None:
        return None
    grown = {}
    for name in EngineCounters.__struct_fields__:
        if name != "at":
            base = 0.0 if before is None else getattr(before, name)
            now = getattr(counters, name)
            # A counter that went back began anew, which load does not change.
            grown[name] = base + (now - base) * factor if now >= base else now
    return replace(counters, **grown)


def _with_ready(recording: Recording, own: Variant, change: Change) -> Recording:
    """Return the recording with one Ready replica of a variant more or fewer.

    The replica more is one of those that are starting, or else a new one. It has no request yet. The replica fewer is
    the last by name, which still exists but is not Ready.
    """
    key = VariantKey(own.key.namespace, change.of)
    snapshot, now = recording.snapshot, recording.now
    pods = [replica for replica in snapshot.replicas if replica.variant == key]
    if change.amount < 0:
        removed = pods[-1]
        replicas = [replica for replica in snapshot.replicas if replica is not removed]
    else:
        zero = Sample(SampleState.FRESH, 0.0, now)
        engine, counters = None, None
        peer = next((pod.engine for pod in pods if pod.engine is not None), None)
        if peer is not None:
            engine = EngineSignals(peer.kv_capacity_tokens, kv_usage=zero, waiting=zero, running=zero)
        if any(pod.counters is not None for pod in pods):
            counters = EngineCounters(now, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        added = ReplicaMetrics(
            f"{key.name}-one-more", key, zero, zero, engine, ready_since=now, counters=counters, created=now
        )
        replicas = sorted([*snapshot.replicas, added], key=lambda replica: (replica.variant, replica.pod))
    variants = []
    for variant in snapshot.variants:
        changed_variant = variant
        if variant.key == key:
            ready = max(0, variant.ready_replicas + round(change.amount))
            current = max(variant.current_replicas, ready)
            unready_since = variant.oldest_unready_since
            if current <= ready:
                unready_since = None
            elif change.amount < 0 and unready_since is None:
                unready_since = now
            changed_variant = replace(
                variant,
                ready_replicas=ready,
                current_replicas=current,
                spec_replicas=max(variant.spec_replicas, current),
                oldest_unready_since=unready_since,
            )
        variants.append(changed_variant)
    return replace(recording, snapshot=replace(snapshot, variants=tuple(variants), replicas=tuple(replicas)))


def _with_gpus(recording: Recording, _own: Variant, change: Change) -> Recording:
    """Return the recording with more or fewer GPUs in a pool."""
    number = round(change.amount)
    pools = [
        replace(pool, capacity=pool.capacity + number) if pool.accelerator == change.of else pool
        for pool in _inventory(recording).pools
    ]
    return _with_inventory(recording, pools=tuple(pools))


def _with_quota(recording: Recording, own: Variant, change: Change) -> Recording:
    """Return the recording with more or fewer GPUs in a quota of the variant's namespace."""
    number, quota_key = round(change.amount), (own.key.namespace, change.of)
    quotas = [
        replace(quota, hard=quota.hard + number) if (quota.namespace, _name_of(quota)) == quota_key else quota
        for quota in _inventory(recording).quotas
    ]
    return _with_inventory(recording, quotas=tuple(quotas))


def _name_of(quota: GpuQuota) -> str:
    """Return the name of a quota, with the resource unless it is NVIDIA's: a ResourceQuota may limit several."""
    return quota.name if quota.resource == NVIDIA_GPU else f"{quota.name} {quota.resource}"


def _inventory(recording: Recording) -> Inventory:
    return recording.snapshot.inventory or Inventory()


def _with_inventory(recording: Recording, **changes: Any) -> Recording:
    inventory = replace(_inventory(recording), **changes)
    return replace(recording, snapshot=replace(recording.snapshot, inventory=inventory))


def _setting(policy: Policy, model: ModelKey, field: str) -> float:
    """Return a number of the entries that hold for a model."""
    if field in QueueingPolicy.__dataclass_fields__:
        return float(getattr(policy.queueing_for(model) or QueueingPolicy(), field))
    return float(getattr(policy.saturation_for(model), field))


def _with_setting(recording: Recording, own: Variant, change: Change) -> Recording:
    """Return the recording with another number in the entries of this model alone.

    A change that contradicts another field of the entry changes nothing: no ConfigMap with it would be accepted.
    """
    policy, model, field = recording.policy, own.model, change.of
    value = _setting(policy, model, field) * (1.0 + change.amount)
    local = next(
        (namespace_policy for namespace_policy in policy.namespaces if namespace_policy.namespace == model.namespace),
        None,
    )
    local = local or NamespacePolicy(model.namespace)
    kind: str
    rules: Any
    entry: Any
    new: Any
    if field in QueueingPolicy.__dataclass_fields__:
        kind, rules = "queueing", local.queueing
        new = replace(policy.queueing_for(model) or QueueingPolicy(), **{field: value})
        entry = QueueingOverride("", model.model_id, model.namespace, new)
    else:
        kind, rules = "saturation", local.saturation
        new = replace(policy.saturation_for(model), **{field: value})
        # The queueing analyzer may be chosen by an entry for it, not by this one.
        names_analyzer = policy.analyzer_for(model) is new.analyzer_name
        entry = SaturationOverride("", model.model_id, model.namespace, new, names_analyzer=names_analyzer)
    if new.contradiction():
        return recording
    local = replace(local, **{kind: replace(rules, overrides=(entry, *rules.overrides))})
    other_policies = [
        namespace_policy for namespace_policy in policy.namespaces if namespace_policy.namespace != model.namespace
    ]
    namespaces = tuple(sorted([*other_policies, local], key=lambda namespace_policy: namespace_policy.namespace))
    return replace(recording, policy=replace(policy, namespaces=namespaces))


def _with_bound(recording: Recording, own: Variant, change: Change) -> Recording:
    """Return the recording with another minimum or maximum of the variant."""
    field = change.input.value
    bounds = replace(own.bounds, **{field: getattr(own.bounds, field) + round(change.amount)})
    return _with_variant(recording, own.key, bounds=bounds)


def _with_cost(recording: Recording, own: Variant, change: Change) -> Recording:
    """Return the recording with another cost of a variant of the same model."""
    key = VariantKey(own.key.namespace, change.of)
    snapshot, policy = stated(recording.snapshot, recording.policy)  # the other costs stay those that count
    recording = replace(recording, snapshot=snapshot, policy=policy)
    cost = next(variant.cost for variant in snapshot.variants if variant.key == key)
    return _with_variant(recording, key, cost=cost * (1.0 + change.amount))


def _with_variant(recording: Recording, key: VariantKey, **changes: Any) -> Recording:
    variants = [
        replace(variant, **changes) if variant.key == key else variant for variant in recording.snapshot.variants
    ]
    return replace(recording, snapshot=replace(recording.snapshot, variants=tuple(variants)))


def _a_cycle_later(recording: Recording, seconds: float) -> Recording:
    """Return the next cycle if nothing changes but the time: the same pods, the same load, samples as old as now.

    It begins in time, also if the fast lane has woken this one. The requests of the retention period stay as they are,
    because a recording does not say when each of them came.
    """
    snapshot, memory = recording.snapshot, recording.again().outcome.memory
    counted = _last_counters(recording.memory.demand)
    replicas = []
    for replica in snapshot.replicas:
        engine, counters = replica.engine, replica.counters
        if engine is not None:
            engine = EngineSignals(*[_later(getattr(engine, name), seconds) for name in engine.__struct_fields__])
        if counters is not None:
            earlier = counted.get(replica.pod)
            since = earlier.at if earlier is not None else replica.ready_since
            passed = 0.0 if since is None else counters.at - since
            factor = 1.0 + (seconds / passed if passed > 0.0 else 0.0)
            counters = replace(_advanced(counters, earlier, factor), at=counters.at + seconds)
        replicas.append(
            replace(
                replica,
                kv_usage=_later(replica.kv_usage, seconds),
                queue_length=_later(replica.queue_length, seconds),
                engine=engine,
                counters=counters,
            )
        )
    queues = [
        replace(queue, size=_later(queue.size, seconds), size_bytes=_later(queue.size_bytes, seconds))
        for queue in snapshot.queues
    ]
    counts = [
        replace(requests, covered_seconds=min(requests.retention_seconds, requests.covered_seconds + seconds))
        for requests in snapshot.request_counts
    ]
    return replace(
        recording,
        snapshot=replace(
            snapshot,
            replicas=tuple(replicas),
            queues=tuple(queues),
            request_counts=tuple(counts),
            woken=False,
            urgent=(),
        ),
        memory=memory,
        now=recording.now + seconds,
    )


def _later(sample: Sample, seconds: float) -> Sample:
    return sample if sample.timestamp is None else replace(sample, timestamp=sample.timestamp + seconds)


_CHANGES: Final[Mapping[Input, Callable[[Recording, Variant, Change], Recording]]] = {
    Input.LOAD: _with_load,
    Input.READY: _with_ready,
    Input.GPUS: _with_gpus,
    Input.QUOTA: _with_quota,
    Input.SETTING: _with_setting,
    Input.MINIMUM: _with_bound,
    Input.MAXIMUM: _with_bound,
    Input.COST: _with_cost,
}
