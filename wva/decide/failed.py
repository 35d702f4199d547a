"""A model on which deciding raises an exception keeps its last numbers; WVA decides on all others without it.

``isolated`` runs an engine over all models that it can decide on. The other models keep the GPUs of their pods, and of
their replicas that are under way. If the namespace of a failing model has ConfigMaps of its own, WVA tries the models
of this namespace without them. If that works, these decisions count, and the outcome names the namespace.

``separate`` finds the models to set aside: it halves a group that raises until each key that raises is alone. If two
keys work alone and raise together, both are set aside. The result always comes from one try over all keys that are
left, so these share GPUs. The keys that failed in the last cycle are ``suspects`` and are tried apart from the others.
So a lasting fault costs about one more try, and WVA notices its end at once.

This is about deciding. ``wva/collect/faults.py`` names what keeps a fault to its model in every other step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from wva.decide.amounts import bounded_snapshot
from wva.decide.measure.queues import QueueModel
from wva.decide.rules import Rule
from wva.model.decision import Decision, MetricsVerdict, Reason, Source, Step
from wva.model.inventory import AcceleratorPool, GpuQuota, Inventory
from wva.model.memory import Memory, VariantMemory, previous_of
from wva.model.metrics import Coverage
from wva.model.policy import Policy
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.trouble import Trouble, cause_of
from wva.model.variant import ModelKey, Variant, VariantKey

K = TypeVar("K")
T = TypeVar("T")

_MOST_REJOINING: Final = 8
"""At most so many suspects are tried one by one with all other keys, because each try costs a whole decision."""


@dataclass(frozen=True, slots=True)
class FailedModel:
    """A model on which deciding failed, the cause in words, and the exception for the log."""

    model: ModelKey
    cause: str
    error: Exception = field(compare=False)


@dataclass(frozen=True, slots=True)
class Load:
    """The demand for a model, and what its replicas carry within the targets, all in requests per second.

    ``serving`` is what the replicas carry that serve now, ``desired`` what the decided numbers would. ``error`` is one
    standard error of the demand.
    """

    demand: float
    error: float
    serving: float
    desired: float

    def beside(self, other: Load | None) -> Load:
        """Return this load or that of another role of the model, whichever lacks more."""
        return self if other is None or self.demand - self.serving >= other.demand - other.serving else other


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a cycle of either engine; every tuple is sorted."""

    decisions: tuple[Decision, ...]
    memory: Memory
    failures: tuple[FailedModel, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()  # namespaces whose own configuration was left out, and why it failed
    rules: Mapping[VariantKey, Rule] = field(default_factory=dict)  # the rule of step 5 that decided on a variant
    ceilings: Mapping[ModelKey, float] = field(default_factory=dict)  # requests in progress that replicas carry
    # After how many seconds without a request a model that may go to zero does so; requests are counted over this time
    retentions: Mapping[ModelKey, float] = field(default_factory=dict)
    loads: Mapping[ModelKey, Load] = field(default_factory=dict)  # of models whose demand is a rate
    late: Mapping[VariantKey, Trouble] = field(default_factory=dict)  # why replicas of a variant are not there in time
    solved: Mapping[ModelKey, QueueModel] = field(default_factory=dict)  # what the queueing formulas found

    @property
    def grew(self) -> bool:
        """Whether this cycle asks for more replicas of a variant than the one before."""
        return any(
            decision.previous is not None and decision.desired > decision.previous for decision in self.decisions
        )


def isolated(
    engine: Callable[[Snapshot, Memory, Policy, float], Outcome],
    snapshot: Snapshot,
    memory: Memory,
    policy: Policy,
    now: float,
    *,
    counts_pods: bool = False,
) -> Outcome:
    """Return the decisions of the engine on all models that it can decide on; the others keep their numbers.

    ``counts_pods``: see ``apart``. If the engine raises even without any model, so does this function.
    """
    snapshot = bounded_snapshot(snapshot)
    unread = {entry.model: entry.message for entry in snapshot.unread}
    remembered = memory.by_key()

    def attempt(models: Collection[ModelKey], without: Collection[str] = ()) -> Outcome:
        """Decide on these models; ``without``: namespaces whose own configuration does not count."""
        local = tuple([entry for entry in policy.namespaces if entry.namespace not in without])
        part = apart(snapshot, models, remembered, counts_pods=counts_pods)
        return engine(part, memory, replace(policy, namespaces=local) if without else policy, now)

    models = sorted({variant.model for variant in snapshot.variants}.difference(unread))
    outcome, errors = separate(models, attempt, suspects=memory.failing)
    refused: dict[str, str] = {}
    for model, error in sorted(errors.items(), key=lambda pair: pair[0]):
        namespace = model.namespace
        if namespace in refused or all(local.namespace != namespace for local in policy.namespaces):
            continue
        try:
            attempt([candidate for candidate in models if candidate.namespace == namespace], {namespace})
        except Exception:  # noqa: BLE001, S112 - the configuration is not the cause
            continue
        refused[namespace] = cause_of(error)
    if refused:
        outcome, errors = separate(models, lambda keys: attempt(keys, refused), suspects=errors.keys())
    outcome = replace(outcome, refused=tuple(sorted(refused.items())))
    causes = unread | {model: f"deciding failed: {cause_of(error)}" for model, error in errors.items()}
    if not causes:
        return outcome
    decisions, entries = [*outcome.decisions], [*outcome.memory.variants]
    for variant in snapshot.variants:
        if variant.model in causes:
            decision, entry = _held(variant, remembered.get(variant.key), causes[variant.model])
            decisions.append(decision)
            entries += [] if entry is None else [entry]
    histories = [*outcome.memory.models, *(entry for entry in memory.models if entry.key.whole in causes)]
    failures = [FailedModel(model, causes[model], error) for model, error in errors.items()]
    return replace(
        outcome,
        decisions=tuple(sorted(decisions, key=lambda decision: decision.key)),
        memory=replace(
            outcome.memory,
            variants=tuple(sorted(entries, key=lambda entry: entry.key)),
            models=tuple(sorted(histories, key=lambda entry: entry.key)),
            failing=tuple(sorted(causes)),
        ),
        failures=tuple(sorted(failures, key=lambda failure: failure.model)),
    )


def apart(
    snapshot: Snapshot, kept: Collection[ModelKey], remembered: Mapping[VariantKey, VariantMemory], *, counts_pods: bool
) -> Snapshot:
    """Return the snapshot with the ``kept`` models alone; the others keep their GPUs.

    ``counts_pods``: set by the compatibility mode, whose limiter counts replicas and not the GPUs that pods take. Then
    the GPUs of all replicas of the other models are subtracted from the inventory.
    """
    models = set(kept)
    others = [variant for variant in snapshot.variants if variant.model not in models]
    if not others:
        return snapshot
    keys = {variant.key for variant in others}
    inventory = snapshot.inventory
    if inventory is not None:
        pools: dict[AcceleratorPool, int] = {}
        quotas: dict[GpuQuota, int] = {}
        for variant in others:
            pool = inventory.pool_of(variant.accelerator or variant.status_accelerator)
            if pool is None:
                continue
            gpus = max(1, variant.gpus_per_replica)
            coming = max(0, _number(variant, remembered.get(variant.key)) - variant.current_replicas)
            unplaced = max(variant.unplaced_pods, variant.unschedulable_pods)
            waiting = variant.current_replicas if counts_pods else unplaced
            pools[pool] = pools.get(pool, 0) + (waiting + coming) * gpus
            for quota in inventory.quotas_for(variant.key.namespace, pool.resource):
                quotas[quota] = quotas.get(quota, 0) + coming * gpus
        inventory = Inventory.of(
            [replace(pool, capacity=pool.capacity - pools.get(pool, 0)) for pool in inventory.pools],
            [replace(quota, used=quota.used + quotas.get(quota, 0)) for quota in inventory.quotas],
        )
    return replace(
        snapshot,
        variants=tuple(variant for variant in snapshot.variants if variant.model in models),
        replicas=tuple(replica for replica in snapshot.replicas if replica.variant not in keys),
        request_counts=tuple(counts for counts in snapshot.request_counts if counts.model in models),
        queues=tuple(queue for queue in snapshot.queues if queue.model in models),
        served=tuple(entry for entry in snapshot.served if entry.model in models),
        usual=tuple(entry for entry in snapshot.usual if entry.model in models),
        inventory=inventory,
    )


def _held(variant: Variant, entry: VariantMemory | None, cause: str) -> tuple[Decision, VariantMemory | None]:
    """Keep the last number of a variant, or the replicas that exist, and its memory. A variant at zero stays there."""
    previous, number = previous_of(variant, entry), _number(variant, entry)
    if not variant.active and number == 0:
        decision, forgotten = asleep(variant)
        return replace(decision, message=f"{decision.message}; {cause}"), forgotten
    source = Source.CURRENT_REPLICAS if previous is None else Source.PREVIOUS_DESIRED
    words = f"{cause}; keeping {number} ({source.value})"
    since = variant.settling_since if entry is None else entry.settling_since
    metrics = MetricsVerdict(available=False, reason="MetricsUnavailable", message=cause)
    decision = in_one_step(variant, Step("hold", words, number, number), Reason.MODEL_FAILED, metrics)
    coverage = Coverage(0, variant.ready_replicas)
    return replace(decision, previous=previous, source=source, coverage=coverage, settling_since=since), entry


def _number(variant: Variant, entry: VariantMemory | None) -> int:
    """Return the number of a variant that is not decided on. Never 0 for a running workload."""
    previous = previous_of(variant, entry)
    if previous is None:
        previous = max(1, variant.current_replicas) if variant.active else 0
    return variant.bounds.clamp(previous) if previous else 0


def asleep(variant: Variant) -> tuple[Decision, VariantMemory]:
    """Keep a variant at zero, and forget its past, which says nothing about the time after the next start."""
    words = "scaled to zero: no replica to report"
    metrics = MetricsVerdict(available=False, reason="MetricsUnavailable", message=words)
    decision = in_one_step(variant, Step("analyze", "scaled to zero", 0, 0), Reason.INACTIVE, metrics)
    return decision, VariantMemory(variant.key, 0, None, 0)


def in_one_step(variant: Variant, step: Step, reason: Reason, metrics: MetricsVerdict) -> Decision:
    """Return a decision with one step for a variant of which no replica reports."""
    return Decision(
        variant.key,
        variant.model,
        variant.known_accelerator,
        variant.cost,
        variant.current_replicas if variant.active else 0,
        step.after,
        variant.status_desired,
        reason,
        step.reason,
        Source.CURRENT_REPLICAS,
        metrics,
        Coverage(0, 0),
        (step,),
    )


def separate(
    keys: Sequence[K], attempt: Callable[[tuple[K, ...]], T], *, suspects: Collection[K] = ()
) -> tuple[T, dict[K, Exception]]:
    """Return what ``attempt`` gives for the keys that work together, and the error of each key that was set aside.

    The order of the keys must not matter to ``attempt``. If it raises even without any key, so does ``separate``.
    """
    tries = _Tries(attempt)
    kept = tries.joined((), tuple([key for key in keys if key not in suspects]), suspected=False)
    kept = tries.joined(kept, tuple([key for key in keys if key in suspects]), suspected=True)
    result = tries.of(kept)
    if kept and isinstance(result, Exception):
        tries.failed |= dict.fromkeys(kept, result)
        result = tries.of(())
    if isinstance(result, Exception):
        raise result
    return result[0], tries.failed


class _Tries(Generic[K, T]):
    """The results so far, by the keys of the try, and the keys that were set aside."""

    def __init__(self, attempt: Callable[[tuple[K, ...]], T]) -> None:
        self._attempt = attempt
        self._known: dict[tuple[K, ...], tuple[T] | Exception] = {}
        self.failed: dict[K, Exception] = {}

    def of(self, keys: tuple[K, ...]) -> tuple[T] | Exception:
        if keys not in self._known:
            try:
                self._known[keys] = (self._attempt(keys),)
            except Exception as error:  # noqa: BLE001 - a model that raises must not end the others
                self._known[keys] = error
        return self._known[keys]

    def joined(self, kept: tuple[K, ...], keys: tuple[K, ...], *, suspected: bool) -> tuple[K, ...]:
        """Return the kept keys, and those of ``keys`` that work together with them.

        If a key fails only together with another key, both are left out, but a suspect is left out alone. If there are
        more than ``_MOST_REJOINING`` suspects, either all of them join or none.
        """
        self._set_aside(keys)
        waiting = [tuple([key for key in keys if key not in self.failed])]
        while waiting:
            group = waiting.pop()
            result = self.of(kept + group)
            if not isinstance(result, Exception):
                kept += group
            elif len(group) > 1 and not (suspected and len(group) > _MOST_REJOINING):
                waiting += reversed(_halves(group))
            elif group:
                left_out = group if suspected else group + self._partner(group[0], kept)
                self.failed |= dict.fromkeys(left_out, result)
                kept = tuple([key for key in kept if key not in self.failed])
        return kept

    def _set_aside(self, keys: tuple[K, ...]) -> None:
        """Set aside each key that raises alone."""
        result = self.of(keys) if keys else None
        if isinstance(result, Exception) and len(keys) == 1:
            self.failed[keys[0]] = result
        elif isinstance(result, Exception):
            for half in _halves(keys):
                self._set_aside(half)

    def _partner(self, key: K, others: tuple[K, ...]) -> tuple[K, ...]:
        """Return the one other key with which a key raises; empty if it raises only with several others."""
        while len(others) > 1:
            first, second = _halves(others)
            others = first if isinstance(self.of((*first, key)), Exception) else second
        return others if isinstance(self.of((*others, key)), Exception) else ()


def _halves(keys: tuple[K, ...]) -> tuple[tuple[K, ...], tuple[K, ...]]:
    middle = len(keys) // 2
    return keys[:middle], keys[middle:]
