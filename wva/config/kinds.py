"""The kinds of ConfigMaps that say how to decide: their names, and what their entries mean together.

``keys`` declares the fields. Here are the rules about several fields, and the values of ``wva.model`` that come out.
The field names of costs and performance are those in the logs and system descriptions of the Go controller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final

from wva.config.declare import declarations
from wva.config.entries import (
    DEFAULT_ENTRY,
    Notes,
    Rules,
    given,
    needed,
    read_fields,
)
from wva.config.keys import (
    ClassFields,
    CostFields,
    ProfileFields,
    QueueingFields,
    SaturationFields,
    ScaleToZeroFields,
    Settings,
    TargetFields,
)
from wva.config.yaml_text import BadEntryError, Tree, read_tree
from wva.model.optimizers import ANALYZERS_BY_NAME, FITTING
from wva.model.policy import (
    QueueingOverride,
    QueueingPolicy,
    QueueingRules,
    SaturationOverride,
    SaturationPolicy,
    SaturationRules,
    ScaleToZeroEntry,
    ScaleToZeroRules,
)
from wva.model.records import replace
from wva.model.service import HIGHEST_PRIORITY, LOWEST_PRIORITY, AcceleratorCost, PerformanceProfile, ServiceTarget
from wva.slices import Steps

LONG_RETENTION_SECONDS: Final = 24 * 3600.0
LONGEST_RETENTION_SECONDS: Final = 7 * 24 * 3600.0
"""The longest window in which requests are counted."""
MAX_MODELS: Final = 1_000
"""In one key. A class with more comes from a broken tool, and reading it would delay everything else."""
MAX_STEP_MILLISECONDS: Final = 1_000_000.0
MIN_STEP_MILLISECONDS: Final = 1e-3
"""Limits of a step of any engine. Beyond them a request of usual length would take no time at all, or years."""


class MapKind(Enum):
    """What a ConfigMap is about, in the words of the log; its canonical name, and names of older guides and samples."""

    SATURATION = "saturation", "wva-saturation-scaling-config", "saturation-scaling-config", "capacity-scaling-config"
    SCALE_TO_ZERO = "scale-to-zero", "wva-model-scale-to-zero-config", "model-scale-to-zero-config"
    QUEUEING = "queueing model", "wva-queueing-model-config"
    SERVICE_CLASSES = "service class", "service-classes-config", "serviceclass"
    ACCELERATOR_COSTS = "accelerator cost", "accelerator-unit-costs"
    PROFILES = "performance", "wva-model-performance-config"

    def __init__(self, title: str, canonical: str, *aliases: str) -> None:
        """Name the columns of the table above."""
        self.title = title
        self.canonical = canonical
        self.aliases = aliases

    @property
    def local(self) -> bool:
        """Whether a namespace may have one for itself."""
        return self in {MapKind.SATURATION, MapKind.SCALE_TO_ZERO, MapKind.QUEUEING}

    def names(self, settings: Settings) -> tuple[str, ...]:
        """Return under which names it is looked for: that of the settings, the canonical one, then the others."""
        chosen = {
            MapKind.SATURATION: settings.saturation_config_map_name,
            MapKind.SCALE_TO_ZERO: settings.scale_to_zero_config_map_name,
            MapKind.QUEUEING: settings.queueing_model_config_map_name,
            MapKind.SERVICE_CLASSES: settings.service_class_config_map_name,
        }.get(self, self.canonical)
        return tuple(dict.fromkeys((chosen, self.canonical, *self.aliases)))


def local_names(settings: Settings) -> tuple[str, ...]:
    """Return every name that counts in a namespace of others."""
    return tuple(dict.fromkeys(name for kind in MapKind if kind.local for name in kind.names(settings)))


# --- saturation -------------------------------------------------------------------------------------------------------


def _check_saturation(merged: SaturationPolicy) -> None:
    if not merged.kv_fits:
        expected = f"at least kvSpareTrigger ({merged.kv_spare_trigger:g})"
        raise BadEntryError(expected, field_name="kvCacheThreshold", value=f"{merged.kv_cache_threshold:g}")
    if not merged.tokens_fit:
        expected = f"above scaleDownBoundary ({merged.scale_down_boundary:g})"
        raise BadEntryError(expected, field_name="scaleUpThreshold", value=f"{merged.scale_up_threshold:g}")
    if not merged.optimizer_fits:
        able = " or ".join(each.value for each in FITTING[merged.analyzer_name]) or '""'
        expected = f'{able}, which go with analyzerName "{merged.analyzer_name.value or "percentage"}"'
        raise BadEntryError(expected, field_name="optimizerName", value=merged.optimizer_name.value)


def _unknown_analyzer(entry: SaturationFields) -> Iterator[tuple[BadEntryError, str]]:
    """Yield the name of an analyzer that does not exist: the rest of its entry holds, as it did in the original."""
    if entry.analyzer_name is not None and entry.analyzer_name not in ANALYZERS_BY_NAME:
        expected = declarations(SaturationFields)["analyzer_name"].form.expected
        problem = BadEntryError(expected, field_name="analyzerName", value=entry.analyzer_name)
        yield problem, "percentage, with the rest of the entry"


SATURATION: Final = Rules(
    SaturationFields,
    SaturationPolicy(),
    # An unknown analyzer is the percentage analyzer.
    over=lambda beneath, entry: beneath.overlaid(
        given(entry) | ({} if entry.analyzer is None else {"analyzer_name": entry.analyzer})
    ),
    check=_check_saturation,
    unused=_unknown_analyzer,
    told=4,
    made_of=lambda default, merged: SaturationRules(
        default,
        tuple(
            SaturationOverride(
                entry.key,
                entry.model_id,
                entry.namespace,
                policy,
                names_analyzer=entry.fields.analyzer is not None,
                given=tuple(
                    (name, value)
                    for name, value in given(entry.fields).items()
                    if name not in {"analyzer_name", "optimizer_name"}
                ),
                names_optimizer=entry.fields.optimizer_name is not None,
            )
            for entry, policy in merged
        ),
    ),
)


# --- scale to zero ----------------------------------------------------------------------------------------------------


def _long_retention(entry: ScaleToZeroFields) -> Iterator[str]:
    seconds = entry.retention_seconds or 0.0
    if seconds > LONGEST_RETENTION_SECONDS:
        yield "retention_period is longer than 168h, as far as WVA looks back: the model never goes to zero"
    elif seconds > LONG_RETENTION_SECONDS:
        yield "retention_period is longer than 24h: idle models keep their accelerators for that long"


SCALE_TO_ZERO: Final = Rules(
    ScaleToZeroFields,
    ScaleToZeroEntry(DEFAULT_ENTRY, ""),
    over=lambda beneath, entry: replace(beneath, **given(entry)),
    remarks=_long_retention,
    made_of=lambda default, merged: ScaleToZeroRules(
        default,
        tuple(
            ScaleToZeroEntry(entry.key, entry.model_id, entry.namespace, **given(entry.fields)) for entry, _ in merged
        ),
    ),
)


# --- queueing ---------------------------------------------------------------------------------------------------------


def _check_targets(merged: QueueingPolicy) -> None:
    if not merged.targets_fit:
        ttft, itl = merged.target_ttft_milliseconds, merged.target_itl_milliseconds
        name, other, value = ("targetITL", "targetTTFT", itl) if ttft > 0 else ("targetTTFT", "targetITL", ttft)
        raise BadEntryError(f"above 0 because {other} is: both targets or neither", field_name=name, value=f"{value:g}")


QUEUEING: Final = Rules(
    QueueingFields,
    QueueingPolicy(),
    over=lambda beneath, entry: replace(beneath, **given(entry)),
    check=_check_targets,
    pairs=True,
    made_of=lambda default, merged: QueueingRules(
        default,
        tuple(
            QueueingOverride(entry.key, entry.model_id, entry.namespace, policy, tuple(given(entry.fields).items()))
            for entry, policy in merged
        ),
    ),
)


# --- service classes --------------------------------------------------------------------------------------------------
# A key like ``premium.yaml`` holds one class: ``name``, ``priority`` and ``data``, a list of models with their
# objectives. The older form has a list of classes with one model each, under any key.

Targets = dict[str, ServiceTarget]


def read_classes(
    data: Mapping[str, str], before: Mapping[tuple[str, str], ServiceTarget], notes: Notes
) -> Steps[dict[Any, ServiceTarget]]:
    """Return the targets by key and model.

    If a class cannot be read, the last good content of its key stays. If a model cannot be read, its last good
    objectives stay.
    """
    last: dict[str, Targets] = {}
    for (key, model_id), target in before.items():
        last.setdefault(key, {})[model_id] = target
    good: dict[Any, ServiceTarget] = {}
    for key in sorted(notes.limit(data)):
        yield
        kept = last.get(key, {})
        try:
            found = _targets(key, read_tree(data[key]), kept, notes)
        except BadEntryError as problem:
            in_force = f"what it said last of {len(kept)} models" if kept else "nothing of it"
            notes.reject(key, problem, in_force=in_force)
            found = kept
        good |= {(key, model_id): target for model_id, target in found.items()}
    return good


def _targets(key: str, tree: Tree, kept: Targets, notes: Notes) -> Targets:
    """Return what one key says of its models. Raises BadEntryError when all of it cannot be used."""
    if isinstance(tree, str):
        raise BadEntryError("a service class, or a list of them", value="a single value")
    one = _class_of(key, tree, notes) if isinstance(tree, dict) else None
    items = tree if isinstance(tree, list) else tree.get("data", [])
    if not isinstance(items, list):
        expected = "a list of models with their objectives"
        raise BadEntryError(expected, field_name="data", value=_kind_of(items))
    if len(items) > MAX_MODELS:
        raise BadEntryError(f"at most {MAX_MODELS:,} models", value=f"{len(items)}")
    if isinstance(tree, dict):
        _warn_of_unknown(key, tree, ClassFields.names() | {"data"}, notes)
    found: Targets = {}
    for number, item in enumerate(items):
        place = f"[{number}]" if one is None else f"data[{number}]"
        try:
            whose = one or _class_of(key, item, notes)
            fields = read_fields(TargetFields, _scalars(item, TargetFields.names()))
            model_id = needed(fields, "model")
            _warn_of_unknown(f"{key}.{place}", item, TargetFields.names() | ClassFields.names(), notes)
            target = replace(
                whose,
                model_id=model_id,
                ttft_milliseconds=_first(fields.slo_ttft, fields.slo_ttw),
                itl_milliseconds=_first(fields.slo_tpot, fields.slo_itl),
                tps=fields.slo_tps or 0.0,
            )
        except BadEntryError as problem:
            model = item.get("model", "") if isinstance(item, dict) else ""
            model = model if isinstance(model, str) else ""
            if model in kept:
                found.setdefault(model, kept[model])
            name = f"{place}.{problem.field_name}" if problem.field_name else place
            located = BadEntryError(problem.expected, field_name=name, value=problem.value)
            in_force = "nothing of it"
            if model in kept:
                last = kept[model]
                times = f"ttft {last.ttft_milliseconds:g} ms, itl {last.itl_milliseconds:g} ms"
                in_force = f"class {last.class_name}, priority {last.priority}, {times}"
            notes.reject(key, located, in_force=in_force, model_id=model)
            continue
        rival = found.get(target.model_id)
        winner = found[target.model_id] = target if rival is None or target.priority < rival.priority else rival
        if rival is not None:
            _warn_of_rival(f"{key}.{place}", winner, notes)
    return found


def _class_of(key: str, tree: Tree, notes: Notes) -> ServiceTarget:
    """Return the class that a mapping names, without a model."""
    fields = read_fields(ClassFields, _scalars(tree, ClassFields.names()))
    name, priority = needed(fields, "name"), fields.priority
    if priority is None or not HIGHEST_PRIORITY <= priority <= LOWEST_PRIORITY:
        outside = f"{priority} is outside of {HIGHEST_PRIORITY} to {LOWEST_PRIORITY}"
        found = "none is given" if priority is None else outside
        notes.warn(key, f"priority: {found}, {LOWEST_PRIORITY} is taken")
        priority = LOWEST_PRIORITY
    return ServiceTarget(name, priority)


def most_important(good: Mapping[Any, ServiceTarget], notes: Notes) -> tuple[ServiceTarget, ...]:
    """Return the target of each model in its most important class, by model; of equal ones the first key's."""
    chosen: Targets = {}
    for (key, model_id), target in sorted(good.items(), key=lambda item: (item[1].priority, item[0])):
        if chosen.setdefault(model_id, target) is not target:
            _warn_of_rival(key, chosen[model_id], notes)
    return tuple(chosen[model_id] for model_id in sorted(chosen))


def _warn_of_rival(where: str, winner: ServiceTarget, notes: Notes) -> None:
    decides = f"{winner.class_name} with priority {winner.priority} decides"
    notes.warn(where, f"model {winner.model_id} is in several classes; {decides}")


def _warn_of_unknown(where: str, tree: Tree, known: frozenset[str], notes: Notes) -> None:
    unknown = sorted({*map(str, tree)} - known)
    if unknown:
        notes.warn(where, f"unknown fields are ignored: {', '.join(unknown)}")


def _scalars(tree: Tree, names: frozenset[str]) -> dict[str, str]:
    """Return the known fields of a mapping. Raises BadEntryError when it is none, or when one is no scalar."""
    found = {}
    if not isinstance(tree, dict):
        raise BadEntryError("a mapping", value=_kind_of(tree))
    for name in sorted(names & tree.keys()):
        value = tree[name]
        if not isinstance(value, str):
            raise BadEntryError("a single value", field_name=name, value=_kind_of(value))
        found[name] = value
    return found


def _first(*values: float | None) -> float:
    return next((value for value in values if value is not None), 0.0)


def _kind_of(value: Tree) -> str:
    return "a mapping" if isinstance(value, dict) else "a list" if isinstance(value, list) else "a single value"


# --- accelerator costs and performance --------------------------------------------------------------------------------


def cost_of(key: str, fields: CostFields) -> AcceleratorCost:
    """Return the cost of the accelerator that the key names. Raises BadEntryError."""
    return AcceleratorCost(key, needed(fields, "cost"), fields.device or "")


def profile_of(_key: str, fields: ProfileFields) -> PerformanceProfile:
    """Return the profile of an entry, which stands under any key.

    Raises BadEntryError for times that no engine can have: with them a queue has no meaningful state for any requests.
    """
    profile = PerformanceProfile(
        alpha=needed(fields, "alpha"),
        beta=needed(fields, "beta"),
        gamma=fields.gamma or 0.0,
        delta=fields.delta or 0.0,
        max_batch_size=fields.max_batch_size or 0,
        accelerator_count=fields.acc_count or 1,
        at_tokens=fields.at_tokens or 0,
        model_id=needed(fields, "model_id", "name"),
        accelerator=needed(fields, "acc"),
    )
    if profile.alpha <= 0 and profile.gamma <= 0:
        raise BadEntryError("above 0, or gamma above 0", field_name="alpha", value=f"{profile.alpha:g}")
    batch = max(1, profile.max_batch_size)
    step, token = profile.alpha + profile.beta * batch, profile.delta * batch
    limit = f"at most {MAX_STEP_MILLISECONDS:,.0f} ms"
    if step > MAX_STEP_MILLISECONDS:
        raise BadEntryError(f"alpha + beta * maxBatchSize {limit}", field_name="beta", value=f"{step:g} ms")
    if token > MAX_STEP_MILLISECONDS:
        raise BadEntryError(f"delta * maxBatchSize {limit}", field_name="delta", value=f"{token:g} ms")
    if max(step, profile.gamma) < MIN_STEP_MILLISECONDS:
        least = f"a step, or gamma, of at least {MIN_STEP_MILLISECONDS:g} ms"
        raise BadEntryError(least, field_name="alpha", value=f"{step:g} ms")
    return profile


def one_of_each_pair(good: Mapping[Any, PerformanceProfile], notes: Notes) -> tuple[PerformanceProfile, ...]:
    """Return one profile for each model and accelerator, sorted by both: the first by key."""
    first: dict[tuple[str, str], str] = {}
    for key, profile in good.items():
        winner = first.setdefault((profile.model_id, profile.accelerator), key)
        if winner != key:
            notes.warn(key, f"has no effect: {winner} is for the same model and accelerator and comes first")
    return tuple(good[first[pair]] for pair in sorted(first))
