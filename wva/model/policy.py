"""What the ConfigMaps mean, after merging and validation.

An entry of a ConfigMap is for one model, or is the ``default``. A namespace with entries of its own has a
``NamespacePolicy``: each of these entries goes before the global one. A global entry that the namespace takes over is
merged onto the ``default`` of the namespace when it is asked for. So a policy is as large as the texts of its entries.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from operator import attrgetter
from typing import Any, Final, Generic, Self, TypeVar

from wva.model.inventory import UnknownInventory
from wva.model.objectives import NOTHING_ASKED, TIGHTEST, AgreedObjectives, AskedObjectives, Objectives, agreed
from wva.model.optimizers import BY_BUDGET, FITTING, Analyzer, Optimizer, SolverPolicy, fits
from wva.model.records import replace
from wva.model.service import AcceleratorCost, PerformanceProfile, ServiceTarget
from wva.model.variant import ModelKey

DEFAULT_RETENTION_SECONDS: Final = 600.0
DEFAULT_SLO_MULTIPLIER: Final = 3.0
MAX_KEEP_WARM_SECONDS: Final = 86_400.0
"""A day: WVA keeps no replicas for demand that comes back later than that."""
MAX_SURGE_FACTOR: Final = 16.0
LEAST_SHARE: Final = 0.01
"""A model that grows at less than this share of what its replicas can do grows with every request."""
DEFAULT_ANALYZER: Final = Analyzer.DEMAND
_ROUNDING: Final = 1e-9
_THRESHOLDS: Final = {"kv_cache_threshold", "queue_length_threshold", "kv_spare_trigger", "queue_spare_trigger"}
"""The settings of the percentage analyzer. The demand analyzer reads them only while it knows nothing."""


class Compatibility(StrEnum):
    """Old behaviour that can be asked for by name; docs/design/compatibility-v05.md says what it brings back."""

    V0_5 = "v0.5"


class Merged:
    """A policy of which a nearer entry may replace single fields."""

    __slots__ = ()

    def overlaid(self, fields: Mapping[str, Any]) -> Self:
        """Return this policy with the fields that an entry sets: ``fields``, by attribute."""
        return replace(self, **fields)

    def contradiction(self) -> tuple[str, str] | None:
        """Return an attribute that contradicts another one, and in words what is expected; None if all fit together."""
        return None

    def excess(self) -> tuple[str, str] | None:
        """Return an attribute with which a model grows at any load, and in words what is expected; None if none does.

        Such a policy is in force all the same: the Go controller takes these numbers.
        """
        return None


@dataclass(frozen=True, slots=True)
class SaturationPolicy(Merged):
    """Analyzer of a model and the thresholds of the saturation analyzers, complete and valid.

    A replica is saturated at ``kv_cache_threshold`` (K, share of the KV cache) or ``queue_length_threshold`` (Q,
    waiting requests). The model grows when the mean spare KV is below ``kv_spare_trigger`` (k) or the mean spare
    queue below ``queue_spare_trigger`` (q). After ``transition_deadline_seconds`` an unfinished change stops counting
    as on its way. ``analyzer_name`` and ``optimizer_name`` are those that the entry or its default asks for. The token
    analyzer grows above the utilization ``scale_up_threshold`` and may shrink below ``scale_down_boundary``.
    ``keep_warm`` is the longest time in seconds that the demand analyzer keeps replicas for demand that has gone and
    is known to come back: 0 is never, a day is as long as it finds right. For a backlog it orders at most
    ``surge_factor`` times the demand. Its objectives are ``target_ttft_milliseconds`` for the first token,
    ``target_itl_milliseconds`` between tokens, and ``in_time``, the share of requests that shall meet them; 0 is not
    given.
    """

    kv_cache_threshold: float = 0.80
    queue_length_threshold: float = 5.0
    kv_spare_trigger: float = 0.1
    queue_spare_trigger: float = 3.0
    transition_deadline_seconds: float = 600.0
    analyzer_name: Analyzer = DEFAULT_ANALYZER
    scale_up_threshold: float = 0.85
    scale_down_boundary: float = 0.70
    optimizer_name: Optimizer = Optimizer.BY_ANALYZER
    keep_warm: float = MAX_KEEP_WARM_SECONDS
    surge_factor: float = 3.0
    target_ttft_milliseconds: float = 0.0
    target_itl_milliseconds: float = 0.0
    in_time: float = 0.0

    def contradiction(self) -> tuple[str, str] | None:
        """Return the first field that does not fit: with a trigger above its threshold no replica could be spare."""
        if self.kv_cache_threshold < self.kv_spare_trigger:
            return "kv_cache_threshold", f"at least kvSpareTrigger ({self.kv_spare_trigger:g})"
        if self.analyzer_name is Analyzer.TOKENS and self.scale_up_threshold <= self.scale_down_boundary:
            return "scale_up_threshold", f"above scaleDownBoundary ({self.scale_down_boundary:g})"
        if not fits(self.optimizer_name, self.analyzer_name):
            fitting = " or ".join(FITTING[self.analyzer_name]) or '""'
            return "optimizer_name", f'{fitting}, which go with analyzerName "{self.analyzer_name.shown}"'
        return None

    def excess(self) -> tuple[str, str] | None:
        """Return the first threshold that leaves a replica nothing, or next to nothing, before the model grows."""
        if self.analyzer_name is Analyzer.QUEUEING:
            return None
        tokens = self.analyzer_name is Analyzer.TOKENS  # reads the thresholds, but not the triggers
        spare_kv, spare_queue = (0.0, 0.0) if tokens else (self.kv_spare_trigger, self.queue_spare_trigger)
        least = LEAST_SHARE - _ROUNDING
        if self.kv_cache_threshold - spare_kv < least:
            above = "" if tokens else f" above kvSpareTrigger ({spare_kv:g})"
            return "kv_cache_threshold", f"at least {LEAST_SHARE:g}{above}"
        if self.queue_length_threshold <= 0 or self.queue_length_threshold < spare_queue:
            above = "" if tokens else f" and at least queueSpareTrigger ({spare_queue:g})"
            return "queue_length_threshold", f"above 0{above}"
        if tokens and self.scale_up_threshold < least:
            return "scale_up_threshold", f"at least {LEAST_SHARE:g}"
        return None

    def overlaid(self, fields: Mapping[str, Any]) -> SaturationPolicy:
        """Return this policy with the fields that an entry sets: ``fields``, by attribute.

        An entry that names no analyzer has the one of this policy. If that is the demand analyzer, an entry with
        thresholds or an optimizer of the percentage analyzer gets the percentage analyzer: such entries are older than
        the demand analyzer. An entry that names an analyzer does not inherit the optimizer of another analyzer.
        """
        if "analyzer_name" in fields:
            return replace(self, **{"optimizer_name": Optimizer.BY_ANALYZER, **fields})
        older = fields.get("optimizer_name") in FITTING[Analyzer.PERCENTAGE] or not _THRESHOLDS.isdisjoint(fields)
        percentage = older and self.analyzer_name is Analyzer.DEMAND
        return replace(self, **fields, analyzer_name=Analyzer.PERCENTAGE if percentage else self.analyzer_name)


@dataclass(frozen=True, slots=True)
class QueueingPolicy(Merged):
    """Settings of the queueing analyzer.

    Replicas are planned for a utilization of 1 - 1 / ``slo_multiplier`` while no target is given: targets are in
    milliseconds, and 0 means that they are derived. ``tuning_enabled``: WVA learns the parameters of a replica while it
    serves.
    """

    slo_multiplier: float = DEFAULT_SLO_MULTIPLIER
    tuning_enabled: bool = True
    target_ttft_milliseconds: float = 0.0
    target_itl_milliseconds: float = 0.0

    def contradiction(self) -> tuple[str, str] | None:
        """Return the target that is missing when there is only one."""
        missing, given = ("itl", "TTFT") if self.target_ttft_milliseconds > 0 else ("ttft", "ITL")
        if (self.target_ttft_milliseconds > 0) == (self.target_itl_milliseconds > 0):
            return None
        return f"target_{missing}_milliseconds", f"above 0 because target{given} is: both targets or neither"

    def excess(self) -> tuple[str, str] | None:
        """Return the multiplier if replicas are planned for next to no utilization with it."""
        if self.target_ttft_milliseconds > 0 or 1 - 1 / self.slo_multiplier >= LEAST_SHARE - _ROUNDING:
            return None
        return "slo_multiplier", f"at least {1 / (1 - LEAST_SHARE):.4g}"


@dataclass(frozen=True, slots=True)
class ScaleToZeroPolicy:
    """Whether a model may go to zero replicas, and after how long without a request.

    ``given``: an entry gives this time, so it is not the default.
    """

    enabled: bool = False
    retention_seconds: float = DEFAULT_RETENTION_SECONDS
    given: bool = False


@dataclass(frozen=True, slots=True)
class _ForModel:
    """An entry for one model; ``namespace`` None applies to the model id in every namespace."""

    name: str
    model_id: str
    namespace: str | None


@dataclass(frozen=True, slots=True)
class ScaleToZeroEntry(Merged, _ForModel):
    """What one entry sets for one model, or with an empty ``model_id`` for all models; None is inherited."""

    namespace: str | None = None
    enabled: bool | None = None
    retention_seconds: float | None = None


P = TypeVar("P", bound=Merged)


@dataclass(frozen=True, slots=True)
class Override(_ForModel, Generic[P]):
    """A complete policy for one model; ``given`` are the fields that the entry names itself."""

    policy: P
    given: tuple[tuple[str, Any], ...] = ()

    def own_fields(self) -> dict[str, Any]:
        """Return the fields that the entry itself sets, by attribute."""
        return dict(self.given)

    def over(self, default: P) -> Self | None:
        """Return the entry laid over another default; None when the two contradict each other."""
        merged = default.overlaid(self.own_fields())
        return None if merged.contradiction() else replace(self, policy=merged)


class QueueingOverride(Override[QueueingPolicy]):
    """A complete queueing policy for one model."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class SaturationOverride(Override[SaturationPolicy]):
    """An override, and whether the entry itself names the analyzer and the optimizer, or has inherited them."""

    names_analyzer: bool = False
    names_optimizer: bool = False

    def own_fields(self) -> dict[str, Any]:
        """Return the fields that the entry itself sets, by attribute.

        Old recordings have analyzer and optimizer only in ``policy`` and in the two flags.
        """
        named = {"analyzer_name": self.names_analyzer, "optimizer_name": self.names_optimizer}
        return dict(self.given) | {name: getattr(self.policy, name) for name, itself in named.items() if itself}


class _Entries:
    """The entries of one ConfigMap: ``default``, None without one, and those for models, of which the first counts."""

    default: Any
    overrides: tuple[Any, ...]

    @cached_property
    def _by_model(self) -> dict[tuple[str, str | None], Any]:
        """The entries by model and namespace: a search among thousands for each model takes longer than deciding."""
        return {(entry.model_id, entry.namespace): entry for entry in reversed(self.overrides)}

    def entry_for(self, model: ModelKey) -> Any:
        """Return the entry for a model in its namespace, else the one for the model in any namespace."""
        return self._by_model.get((model.model_id, model.namespace)) or self._by_model.get((model.model_id, None))

    def override_for(self, model: ModelKey, everywhere: _Entries) -> tuple[Any, str]:
        """Return the override that holds for a model: that of its namespace, else a global one over the default there.

        A global one that contradicts this default does not hold: then its name is returned beside None.
        """
        own = self.entry_for(model)
        inherited = None if own else everywhere.entry_for(model)
        if inherited is None or self.default is None:
            return own or inherited, ""
        merged = inherited.over(self.default)
        return merged, "" if merged else inherited.name


@dataclass(frozen=True)
class SaturationRules(_Entries):
    """The saturation entries of one ConfigMap."""

    default: SaturationPolicy | None = None
    overrides: tuple[SaturationOverride, ...] = ()


@dataclass(frozen=True)
class QueueingRules(_Entries):
    """The queueing entries of one ConfigMap; a ``default`` switches the queueing analyzer on for every model."""

    default: QueueingPolicy | None = None
    overrides: tuple[QueueingOverride, ...] = ()


@dataclass(frozen=True)
class ScaleToZeroRules(_Entries):
    """The scale-to-zero entries of one ConfigMap."""

    default: ScaleToZeroEntry | None = None
    entries: tuple[ScaleToZeroEntry, ...] = ()

    @property
    def overrides(self) -> tuple[ScaleToZeroEntry, ...]:  # type: ignore[override]
        """Its entries."""
        return self.entries


@dataclass(frozen=True, slots=True)
class NamespacePolicy:
    """The entries of a namespace that has ConfigMaps of its own."""

    namespace: str
    saturation: SaturationRules = SaturationRules()
    scale_to_zero: ScaleToZeroRules = ScaleToZeroRules()
    queueing: QueueingRules = QueueingRules()


@dataclass(frozen=True)
class Policy:
    """Everything configurable that a decision depends on.

    ``overrides`` are sorted by name, the other records by what they are for. ``limited_mode``, ``proactive_model`` and
    ``scale_to_zero_default`` are settings of the process; ``enable_limiter``, ``unknown_inventory`` (what a budget
    allows while the number of GPUs is unknown), ``solver`` and ``tightest`` (the objectives that tenants may ask for)
    come from the global ``default`` entries alone.
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
    tightest: Objectives = TIGHTEST

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
        """Whether any decision may need the number of GPUs."""
        return self.limited or self.model_limited

    def saturation_for(self, model: ModelKey) -> SaturationPolicy:
        """Return the thresholds of one model: its own override, else one for any namespace, else the default."""
        override, default = self._saturation(model)
        return default if override is None else override.policy

    def scale_to_zero_for(self, model: ModelKey) -> ScaleToZeroPolicy:
        """Return whether and when a model may go to zero: its own entry, else ``default``, else the setting."""
        local, everywhere = self._local(model.namespace).scale_to_zero, self.scale_to_zero
        own = local.entry_for(model) or everywhere.entry_for(model)
        entries = [entry for entry in (own, local.default or everywhere.default) if entry is not None]
        enabled = [entry.enabled for entry in entries if entry.enabled is not None]
        retention = [entry.retention_seconds for entry in entries if entry.retention_seconds is not None]
        seconds = (*retention, DEFAULT_RETENTION_SECONDS)[0]
        return ScaleToZeroPolicy((*enabled, self.scale_to_zero_default)[0], seconds, bool(retention))

    def queueing_for(self, model: ModelKey) -> QueueingPolicy | None:
        """Return the queueing policy of a model; None when no queueing entry is about it.

        A model that asks for the queueing analyzer by ``analyzerName`` alone has none: it takes ``QueueingPolicy()``.
        """
        local = self._local(model.namespace).queueing
        override: QueueingOverride | None = local.override_for(model, self.queueing)[0]
        return local.default or self.queueing.default if override is None else override.policy

    def analyzer_for(self, model: ModelKey) -> Analyzer:
        """Return which analyzer judges a model.

        The ``analyzerName`` of the model's own entry wins; else an entry of the queueing ConfigMap, also its
        ``default``, selects the queueing analyzer; else the merged policy decides (``SaturationPolicy.overlaid``).
        """
        override, default = self._saturation(model)
        if (override is None or not override.names_analyzer) and self.queueing_for(model) is not None:
            return Analyzer.QUEUEING
        return (default if override is None else override.policy).analyzer_name

    def asks_engines(self, model: ModelKey) -> bool:
        """Tell whether an analyzer of a model needs the means and rates of its engines."""
        return self.proactive_model or self.analyzer_for(model) in {Analyzer.TOKENS, Analyzer.QUEUEING}

    def asks_counters(self, model: ModelKey) -> bool:
        """Tell whether an analyzer of a model needs the counters of its engines."""
        return self.proactive_model or self.analyzer_for(model) in {Analyzer.DEMAND, Analyzer.QUEUEING}

    def optimizer_for(self, model: ModelKey) -> Optimizer:
        """Return the optimizer that a model asks for if that fits its analyzer, else the default of the analyzer.

        The token analyzer and the demand analyzer have ``BY_ANALYZER`` as their default.
        """
        analyzer, wanted = self.analyzer_for(model), self.saturation_for(model).optimizer_name
        if wanted is not Optimizer.BY_ANALYZER and fits(wanted, analyzer):
            return wanted
        own = () if analyzer is Analyzer.TOKENS else FITTING[analyzer]
        return own[0] if own else Optimizer.BY_ANALYZER

    def misfits(self, model: ModelKey) -> tuple[str, ...]:
        """Return the names of global entries that contradict the defaults of the model's namespace."""
        local = self._local(model.namespace)
        _, saturation = local.saturation.override_for(model, self._everywhere)
        _, queueing = local.queueing.override_for(model, self.queueing)
        return tuple(name for name in (saturation, queueing) if name)

    def service_target_for(self, model: ModelKey) -> ServiceTarget | None:
        """Return the objectives of the service class that a model is in."""
        return _find(self.service_targets, model.model_id, key=lambda target: target.model_id)

    def objectives_for(self, model: ModelKey, asked: Sequence[AskedObjectives] = ()) -> AgreedObjectives:
        """Return the objectives of a model; ``asked`` are those that the annotations of its variants ask for."""
        local = self._local(model.namespace).saturation
        override, _ = self._saturation(model)
        levels = [tuple(asked)]
        if override is not None:
            fields = override.own_fields()
            own = local.entry_for(model) is not None
            values = [fields.get(name) or 0.0 for name in _OBJECTIVES]
            levels.append((_asked_objectives(values, f"entry {override.name}", tenant=own),))
        if (service := self.service_target_for(model)) is not None:
            levels.append((service.asked,))
        if local.default is not None:
            levels.append(
                (_asked_objectives(_objectives(local.default), f"default of namespace {model.namespace}", tenant=True),)
            )
        if any(times := _objectives(self.saturation)):
            levels.append((_asked_objectives(times, "default of all namespaces"),))
        return (
            agreed(levels, self.tightest) if any(source.says for level in levels for source in level) else NOTHING_ASKED
        )

    def accelerator_cost(self, accelerator: str) -> float | None:
        """Return what one accelerator costs per hour, in the unit of the ConfigMap."""
        entry = _find(self.accelerator_costs, accelerator, key=lambda cost: cost.accelerator)
        return None if entry is None else entry.cost

    def profile_for(self, model_id: str, accelerator: str) -> PerformanceProfile | None:
        """Return the known performance of a model on an accelerator."""
        wanted = (model_id, accelerator)
        return _find(self.profiles, wanted, key=lambda profile: (profile.model_id, profile.accelerator))

    def _saturation(self, model: ModelKey) -> tuple[SaturationOverride | None, SaturationPolicy]:
        """Return the override that holds for a model, and the default of its namespace."""
        local = self._local(model.namespace).saturation
        return local.override_for(model, self._everywhere)[0], local.default or self.saturation

    @cached_property
    def _everywhere(self) -> SaturationRules:
        return SaturationRules(self.saturation, self.overrides)

    def _local(self, namespace: str) -> NamespacePolicy:
        return _find(self.namespaces, namespace, key=lambda local: local.namespace) or _NO_ENTRIES


_NO_ENTRIES: Final = NamespacePolicy("")
_OBJECTIVES: Final = ("target_ttft_milliseconds", "target_itl_milliseconds", "in_time")
_objectives: Final = attrgetter(*_OBJECTIVES)


def _asked_objectives(values: Sequence[float], origin: str, *, tenant: bool = False) -> AskedObjectives:
    """Return the objectives that an entry of the saturation ConfigMap asks for; 0 is none."""
    ttft, itl, in_time = values
    return AskedObjectives(ttft / 1000.0 or None, itl / 1000.0 or None, in_time or None, origin, tenant)


R = TypeVar("R")


def _find(records: tuple[R, ...], wanted: Any, *, key: Callable[[R], Any]) -> R | None:
    """Return the record with the wanted key; the records are sorted by key."""
    position = bisect_left(records, wanted, key=key)
    return records[position] if position < len(records) and key(records[position]) == wanted else None
