"""What the ConfigMaps mean, after merging and validation: values that a decision can use directly.

An entry of a ConfigMap is for one model, or is the ``default``. A namespace with entries of its own has a
``NamespacePolicy``: each of these entries goes before the global one. A global entry that the namespace takes over is
merged onto the ``default`` of the namespace when it is asked for. So a policy is as large as the texts of its entries.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar, cast

from wva.model.inventory import UnknownInventory
from wva.model.optimizers import BY_BUDGET, FITTING, Analyzer, Optimizer, SolverPolicy, fits
from wva.model.records import replace
from wva.model.service import AcceleratorCost, PerformanceProfile, ServiceTarget
from wva.model.variant import ModelKey

DEFAULT_SCALE_UP_THRESHOLD: Final = 0.85
DEFAULT_SCALE_DOWN_BOUNDARY: Final = 0.70
DEFAULT_TRANSITION_DEADLINE_SECONDS: Final = 600.0
DEFAULT_RETENTION_SECONDS: Final = 600.0
DEFAULT_SLO_MULTIPLIER: Final = 3.0
MAX_KEEP_WARM_SECONDS: Final = 86_400.0
"""A day: what comes back later than that is no reason to keep replicas."""
DEFAULT_ANALYZER: Final = Analyzer.DEMAND
_THRESHOLDS: Final = frozenset(
    {"kv_cache_threshold", "queue_length_threshold", "kv_spare_trigger", "queue_spare_trigger"}
)
"""What sets the percentage analyzer. The demand analyzer reads them only while it knows nothing."""


class Compatibility(StrEnum):
    """Old behaviour that can be asked for by name.

    ``v0.5`` brings back the target arithmetic of v0.5 with its transition rule, its reading of a missing or NaN sample
    as 0, and its number without a decision. Where scaling to zero or the GPU limiter is switched on, it brings back
    their arithmetic too (docs/design/compatibility-v05.md).
    """

    V0_5 = "v0.5"


@dataclass(frozen=True, slots=True)
class SaturationPolicy:
    """Analyzer of a model and the thresholds of the saturation analyzers, complete and valid.

    A replica is saturated at ``kv_cache_threshold`` (K, share of the KV cache) or ``queue_length_threshold`` (Q,
    waiting requests). The model grows when the mean spare KV is below ``kv_spare_trigger`` (k) or the mean spare
    queue below ``queue_spare_trigger`` (q). After ``transition_deadline_seconds`` an unfinished change stops counting
    as on its way. ``analyzer_name`` is which analyzer the entry or its default asks for, ``optimizer_name`` which
    optimizer; the token analyzer grows above the utilization ``scale_up_threshold`` and may shrink below
    ``scale_down_boundary``. ``keep_warm`` is the longest time in seconds that the demand analyzer keeps replicas for
    demand that has gone and is known to come back; 0 is never, a day is as long as it finds right.
    """

    kv_cache_threshold: float = 0.80
    queue_length_threshold: float = 5.0
    kv_spare_trigger: float = 0.1
    queue_spare_trigger: float = 3.0
    transition_deadline_seconds: float = DEFAULT_TRANSITION_DEADLINE_SECONDS
    analyzer_name: Analyzer = DEFAULT_ANALYZER
    scale_up_threshold: float = DEFAULT_SCALE_UP_THRESHOLD
    scale_down_boundary: float = DEFAULT_SCALE_DOWN_BOUNDARY
    optimizer_name: Optimizer = Optimizer.BY_ANALYZER
    keep_warm: float = MAX_KEEP_WARM_SECONDS

    @property
    def kv_fits(self) -> bool:
        """Whether a replica can be spare at all: the trigger is within the threshold."""
        return self.kv_cache_threshold >= self.kv_spare_trigger

    @property
    def tokens_fit(self) -> bool:
        """Whether the token analyzer, if it is asked for, shrinks below where it grows."""
        return self.analyzer_name is not Analyzer.TOKENS or self.scale_up_threshold > self.scale_down_boundary

    @property
    def optimizer_fits(self) -> bool:
        """Whether the optimizer, if one is named, can answer what the analyzer finds."""
        return fits(self.optimizer_name, self.analyzer_name)

    def overlaid(self, said: Mapping[str, Any]) -> SaturationPolicy:
        """Return this policy with what an entry says, by attribute.

        An entry that names no analyzer has the one of this policy. Where that is the demand analyzer, an entry with
        thresholds of the percentage analyzer, or with an optimizer of it, asks for that one: such entries are older
        than the demand analyzer. An entry that names an analyzer inherits no optimizer: it was chosen for another one.
        """
        if "analyzer_name" in said:
            return replace(self, **{"optimizer_name": Optimizer.BY_ANALYZER, **said})
        older = said.get("optimizer_name") in FITTING[Analyzer.PERCENTAGE] or not _THRESHOLDS.isdisjoint(said)
        percentage = older and self.analyzer_name is Analyzer.DEMAND
        return replace(self, **said, analyzer_name=Analyzer.PERCENTAGE if percentage else self.analyzer_name)


@dataclass(frozen=True, slots=True)
class _ForModel:
    """An entry for one model; ``namespace`` None applies to the model id in every namespace."""

    name: str
    model_id: str
    namespace: str | None


@dataclass(frozen=True, slots=True)
class SaturationOverride(_ForModel):
    """A complete policy for one model.

    ``names_analyzer`` tells an analyzer that the entry itself asks for from one that it inherited, ``names_optimizer``
    likewise; ``given`` are the thresholds that it names itself.
    """

    policy: SaturationPolicy
    names_analyzer: bool = False
    given: tuple[tuple[str, float], ...] = ()
    names_optimizer: bool = False

    def over(self, default: SaturationPolicy) -> SaturationPolicy | None:
        """Return the entry laid over another default; None when the two contradict each other."""
        said: dict[str, Any] = dict(self.given)
        said |= {"analyzer_name": self.policy.analyzer_name} if self.names_analyzer else {}
        said |= {"optimizer_name": self.policy.optimizer_name} if self.names_optimizer else {}
        merged = default.overlaid(said)
        return merged if merged.kv_fits and merged.tokens_fit and merged.optimizer_fits else None


@dataclass(frozen=True, slots=True)
class ScaleToZeroPolicy:
    """Whether a model may go to zero replicas, and after how long without a request."""

    enabled: bool = False
    retention_seconds: float = DEFAULT_RETENTION_SECONDS


@dataclass(frozen=True, slots=True)
class ScaleToZeroEntry(_ForModel):
    """What one entry says of one model (its ``default``: of all, with an empty ``model_id``); None is inherited."""

    namespace: str | None = None
    enabled: bool | None = None
    retention_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class QueueingPolicy:
    """Settings of the queueing analyzer.

    Replicas are planned for a utilization of 1 - 1 / ``slo_multiplier`` while no target is given: targets are in
    milliseconds, and 0 means that they are derived. ``tuning_enabled``: the parameters of a replica are learned while
    it serves.
    """

    slo_multiplier: float = DEFAULT_SLO_MULTIPLIER
    tuning_enabled: bool = True
    target_ttft_milliseconds: float = 0.0
    target_itl_milliseconds: float = 0.0

    @property
    def targets_fit(self) -> bool:
        """Whether there are both targets or neither."""
        return (self.target_ttft_milliseconds > 0) == (self.target_itl_milliseconds > 0)


@dataclass(frozen=True, slots=True)
class QueueingOverride(_ForModel):
    """A complete queueing policy for one model; ``given`` are the fields that the entry names itself."""

    policy: QueueingPolicy
    given: tuple[tuple[str, Any], ...] = ()

    def over(self, default: QueueingPolicy) -> QueueingPolicy | None:
        """Return the entry laid over another default; None when the two contradict each other."""
        merged = replace(default, **dict(self.given))
        return merged if merged.targets_fit else None


@dataclass(frozen=True, slots=True)
class SaturationRules:
    """The saturation entries of one ConfigMap: ``default``, None without one, and the overrides of models."""

    default: SaturationPolicy | None = None
    overrides: tuple[SaturationOverride, ...] = ()


@dataclass(frozen=True, slots=True)
class ScaleToZeroRules:
    """The scale-to-zero entries of one ConfigMap: ``default``, None without one, and those of models."""

    default: ScaleToZeroEntry | None = None
    entries: tuple[ScaleToZeroEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueingRules:
    """The queueing entries of one ConfigMap; a ``default`` switches the queueing analyzer on for every model."""

    default: QueueingPolicy | None = None
    overrides: tuple[QueueingOverride, ...] = ()


@dataclass(frozen=True, slots=True)
class NamespacePolicy:
    """What a namespace with ConfigMaps of its own says itself."""

    namespace: str
    saturation: SaturationRules = SaturationRules()
    scale_to_zero: ScaleToZeroRules = ScaleToZeroRules()
    queueing: QueueingRules = QueueingRules()


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything configurable that a decision depends on.

    ``overrides`` are sorted by name, ``namespaces`` by namespace, ``service_targets`` by model id,
    ``accelerator_costs`` by accelerator and ``profiles`` by model id and accelerator. ``limited_mode``,
    ``proactive_model`` and ``scale_to_zero_default`` are settings of the process; ``enable_limiter``,
    ``unknown_inventory`` (what a budget allows while the number of GPUs is unknown) and ``solver`` come from
    the global ``default`` entries alone.
    """

    saturation: SaturationPolicy = SaturationPolicy()
    overrides: tuple[SaturationOverride, ...] = ()
    compatibility: Compatibility | None = None
    enable_limiter: bool = False
    scale_to_zero: ScaleToZeroRules = ScaleToZeroRules()
    queueing: QueueingRules = QueueingRules()
    namespaces: tuple[NamespacePolicy, ...] = ()
    service_targets: tuple[ServiceTarget, ...] = ()
    accelerator_costs: tuple[AcceleratorCost, ...] = ()
    profiles: tuple[PerformanceProfile, ...] = ()
    limited_mode: bool = False
    proactive_model: bool = False
    scale_to_zero_default: bool = False
    unknown_inventory: UnknownInventory = UnknownInventory.NO_GROWTH
    solver: SolverPolicy = BY_BUDGET

    @property
    def limited(self) -> bool:
        """Whether all growth is kept within the GPUs that there are."""
        return self.enable_limiter or self.limited_mode

    @property
    def model_limited(self) -> bool:
        """Whether the model-based optimizer keeps to the GPUs that there are."""
        return self.limited if self.solver.unlimited is None else not self.solver.unlimited

    @property
    def counts_gpus(self) -> bool:
        """Whether anything that may be asked wants to know how many GPUs there are."""
        return self.limited or self.model_limited

    def saturation_for(self, model: ModelKey) -> SaturationPolicy:
        """Return the thresholds of one model: its own override, else one for any namespace, else the default."""
        local = self._local(model.namespace).saturation
        override, _ = _override_for(local, self.overrides, model)
        if override is not None:
            return override.policy
        return self.saturation if local.default is None else local.default

    def scale_to_zero_for(self, model: ModelKey) -> ScaleToZeroPolicy:
        """Return whether and when a model may go to zero: its own entry, else ``default``, else the setting."""
        local, everywhere = self._local(model.namespace).scale_to_zero, self.scale_to_zero
        entry = _entry_for(local.entries, model) or _entry_for(everywhere.entries, model)
        enabled, retention = self.scale_to_zero_default, DEFAULT_RETENTION_SECONDS
        for saying in (local.default or everywhere.default, entry):
            if saying is not None:
                enabled = enabled if saying.enabled is None else saying.enabled
                retention = retention if saying.retention_seconds is None else saying.retention_seconds
        return ScaleToZeroPolicy(enabled, retention)

    def queueing_for(self, model: ModelKey) -> QueueingPolicy | None:
        """Return the queueing policy of a model; None when no queueing entry is about it.

        A model that asks for the queueing analyzer by ``analyzerName`` alone has none: it takes ``QueueingPolicy()``.
        """
        local = self._local(model.namespace).queueing
        override, _ = _override_for(local, self.queueing.overrides, model)
        return local.default or self.queueing.default if override is None else override.policy

    def analyzer_for(self, model: ModelKey) -> Analyzer:
        """Return which analyzer judges a model.

        The ``analyzerName`` of the model's own entry wins; else an entry of the queueing ConfigMap, also its
        ``default``, selects the queueing analyzer; else what holds for the model says (``SaturationPolicy.overlaid``).
        """
        local = self._local(model.namespace).saturation
        override, _ = _override_for(local, self.overrides, model)
        if (override is None or not override.names_analyzer) and self.queueing_for(model) is not None:
            return Analyzer.QUEUEING
        default = self.saturation if local.default is None else local.default
        return (default if override is None else override.policy).analyzer_name

    def asks_engines(self, model: ModelKey) -> bool:
        """Tell whether something that judges a model wants to know means and rates of its engines."""
        return self.proactive_model or self.analyzer_for(model) in {Analyzer.TOKENS, Analyzer.QUEUEING}

    def asks_counters(self, model: ModelKey) -> bool:
        """Tell whether something that judges a model wants to know what its engines have counted."""
        return self.proactive_model or self.analyzer_for(model) in {Analyzer.DEMAND, Analyzer.QUEUEING}

    def optimizer_for(self, model: ModelKey) -> Optimizer:
        """Return what turns the need of a model into replicas: what it asks for if that fits its analyzer.

        Else the one that the analyzer has by itself; of a capacity analyzer that shares scarce GPUs by score when
        several models are in need.
        """
        analyzer, wanted = self.analyzer_for(model), self.saturation_for(model).optimizer_name
        if wanted is not Optimizer.BY_ANALYZER and fits(wanted, analyzer):
            return wanted
        own = () if analyzer is Analyzer.TOKENS else FITTING[analyzer]
        return own[0] if own else Optimizer.BY_ANALYZER

    def misfits(self, model: ModelKey) -> tuple[str, ...]:
        """Return the names of global entries that contradict the defaults of the model's namespace."""
        local = self._local(model.namespace)
        _, saturation = _override_for(local.saturation, self.overrides, model)
        _, queueing = _override_for(local.queueing, self.queueing.overrides, model)
        return tuple(name for name in (saturation, queueing) if name)

    def service_target_for(self, model: ModelKey) -> ServiceTarget | None:
        """Return the objectives of the service class that a model is in; None when it is in none."""
        return _found(self.service_targets, model.model_id, key=lambda target: target.model_id)

    def accelerator_cost(self, accelerator: str) -> float | None:
        """Return what one accelerator costs per hour, in the unit of the ConfigMap; None when it is unknown."""
        found = _found(self.accelerator_costs, accelerator, key=lambda cost: cost.accelerator)
        return None if found is None else found.cost

    def profile_for(self, model_id: str, accelerator: str) -> PerformanceProfile | None:
        """Return the performance parameters of a model on an accelerator; None when they are unknown."""
        wanted = (model_id, accelerator)
        return _found(self.profiles, wanted, key=lambda profile: (profile.model_id, profile.accelerator))

    def _local(self, namespace: str) -> NamespacePolicy:
        return _found(self.namespaces, namespace, key=lambda local: local.namespace) or _NOTHING_SAID


_NOTHING_SAID: Final = NamespacePolicy("")
_R = TypeVar("_R")


def _found(records: tuple[_R, ...], wanted: Any, *, key: Callable[[_R], Any]) -> _R | None:
    """Return the record with a key of those that are sorted by it."""
    position = bisect_left(records, wanted, key=key)
    return records[position] if position < len(records) and key(records[position]) == wanted else None


_Entry = TypeVar("_Entry", bound=_ForModel)


_Override = TypeVar("_Override", SaturationOverride, QueueingOverride)


def _override_for(
    local: SaturationRules | QueueingRules, everywhere: tuple[_Override, ...], model: ModelKey
) -> tuple[_Override | None, str]:
    """Return the override that holds for a model: that of its namespace, else a global one over the default there.

    A global one that contradicts this default does not hold: then its name is returned beside None.
    """
    if not local.overrides and not everywhere:
        return None, ""
    own = _entry_for(cast("tuple[_Override, ...]", local.overrides), model) if local.overrides else None
    taken = _entry_for(everywhere, model) if everywhere and own is None else None
    if taken is None or local.default is None:
        return own or taken, ""
    merged = taken.over(cast("Any", local.default))
    return (None, taken.name) if merged is None else (replace(taken, policy=cast("Any", merged)), "")


def _entry_for(entries: tuple[_Entry, ...], model: ModelKey) -> _Entry | None:
    """Return the entry for a model in its namespace, else the one for the model in any namespace."""
    candidates: Iterable[_Entry] = entries
    if len(entries) > _FEW:
        known = _indexes.get(id(entries))
        if known is None or known[0] is not entries:
            index: dict[str, list[Any]] = {}
            for entry in entries:
                index.setdefault(entry.model_id, []).append(entry)
            if len(_indexes) >= _INDEXES:
                _indexes.clear()
            known = _indexes[id(entries)] = entries, index
        candidates = known[1].get(model.model_id, ())
    anywhere: _Entry | None = None
    for entry in candidates:
        if entry.model_id != model.model_id:
            continue
        if entry.namespace == model.namespace:
            return entry
        if entry.namespace is None and anywhere is None:
            anywhere = entry
    return anywhere


_FEW: Final = 16
"""Entries that are as quickly looked through as looked up."""

_INDEXES: Final = 64
_indexes: dict[int, tuple[object, dict[str, list[Any]]]] = {}
"""Entries by model, by the identity of the tuple that holds them, which is kept along: looking through thousands for
each of thousands of models would take longer than deciding."""
