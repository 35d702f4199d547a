"""The kinds of ConfigMaps that say how to decide: their names, and what their entries mean together.

``keys`` declares the fields. Here are the rules about several fields, and the values of ``wva.model`` that come out.
The field names of costs and performance are those in the logs and system descriptions of the Go controller.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, Final

from wva.config import keys
from wva.config.declare import by_key
from wva.config.entries import (
    DEFAULT_ENTRY,
    Entry,
    EntryError,
    EntryMap,
    LayeredMap,
    MapContent,
    needed,
    read_fields,
    text_of,
)
from wva.config.yaml_text import BadEntryError, Tree, kind_of
from wva.model.objectives import ITL_MILLISECONDS, TTFT_MILLISECONDS
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

OwnFields = tuple[tuple[str, Any], ...]
Targets = dict[str, ServiceTarget]
ZeroEntry = Entry[keys.ScaleToZeroFields]
LONG_RETENTION_SECONDS: Final = 24 * 3600.0
LONGEST_RETENTION_SECONDS: Final = 7 * 24 * 3600.0
"""The longest window in which requests are counted."""
MAX_MODELS: Final = 1_000
"""The limit of one key. A class with more models comes from a broken tool, and would delay everything else."""
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

    def names(self, settings: keys.Settings) -> tuple[str, ...]:
        """Return the names that WVA looks for: that of the settings, the canonical one, then the others."""
        chosen = {
            MapKind.SATURATION: settings.saturation_config_map_name,
            MapKind.SCALE_TO_ZERO: settings.scale_to_zero_config_map_name,
            MapKind.QUEUEING: settings.queueing_model_config_map_name,
            MapKind.SERVICE_CLASSES: settings.service_class_config_map_name,
        }.get(self, self.canonical)
        return tuple(dict.fromkeys((chosen, self.canonical, *self.aliases)))


def local_names(settings: keys.Settings) -> tuple[str, ...]:
    """Return every name that counts in namespaces other than our own."""
    return tuple(dict.fromkeys(name for kind in MapKind if kind.local for name in kind.names(settings)))


# --- entries for models -----------------------------------------------------------------------------------------------


class Saturation(LayeredMap[keys.SaturationFields, SaturationPolicy, SaturationRules]):
    """Thresholds and analyzers of models."""

    fields = keys.SaturationFields
    base = SaturationPolicy()
    rules = SaturationRules
    fields_shown = 4
    said_elsewhere = frozenset({"targetTTFT", "targetITL", "inTime"})

    @staticmethod
    def override(
        name: str, model_id: str, namespace: str | None, policy: SaturationPolicy, own_fields: OwnFields
    ) -> SaturationOverride:
        """Return a complete policy for a model."""
        named = ("analyzer_name" in dict(own_fields), "optimizer_name" in dict(own_fields))
        return SaturationOverride(name, model_id, namespace, policy, own_fields, *named)


class ScaleToZero(LayeredMap[keys.ScaleToZeroFields, ScaleToZeroEntry, ScaleToZeroRules]):
    """Whether and when models may go to zero."""

    fields = keys.ScaleToZeroFields
    base = ScaleToZeroEntry(DEFAULT_ENTRY, "")
    rules = ScaleToZeroRules

    @staticmethod
    def override(
        name: str, model_id: str, namespace: str | None, _policy: object, own_fields: OwnFields
    ) -> ScaleToZeroEntry:
        """Return what the entry itself says."""
        return ScaleToZeroEntry(name, model_id, namespace, **dict(own_fields))

    def read(self, key: str, tree: Tree, last: ZeroEntry | None, content: MapContent[ZeroEntry]) -> ZeroEntry:
        """Return the entry; warn of a long retention."""
        entry = super().read(key, tree, last, content)
        seconds = entry.fields.retention_seconds or 0.0
        if seconds > LONGEST_RETENTION_SECONDS:
            content.warn(
                key, "retention_period is longer than 168h, as far as WVA looks back: the model never goes to zero"
            )
        elif seconds > LONG_RETENTION_SECONDS:
            content.warn(key, "retention_period is longer than 24h: idle models keep their accelerators for that long")
        return entry


class Queueing(LayeredMap[keys.QueueingFields, QueueingPolicy, QueueingRules]):
    """Models that the queueing analyzer judges."""

    fields = keys.QueueingFields
    base = QueueingPolicy()
    override = QueueingOverride
    rules = QueueingRules
    pairs = True


# --- service classes --------------------------------------------------------------------------------------------------


class ServiceClasses(EntryMap[Targets]):
    """Objectives of models, by key and model.

    A key like ``premium.yaml`` holds one class: ``name``, ``priority`` and ``data``, a list of models with their
    objectives. The older form has a list of classes with one model each, under any key. If a class cannot be read, the
    last good content of its key stays. If a model cannot be read, its last good objectives stay.
    """

    known = keys.ClassFields.names() | {"data"}
    nested = True

    def read(self, key: str, tree: Tree, last: Targets | None, content: MapContent[Targets]) -> Targets:
        """Return what one key says of its models."""
        if not isinstance(tree, (dict, list)):
            raise BadEntryError("a service class, or a list of them", value="a single value")
        key_class = _class_of(key, tree, content) if isinstance(tree, dict) else None
        items = tree if isinstance(tree, list) else tree.get("data", [])
        if not isinstance(items, list):
            raise BadEntryError("a list of models with their objectives", field_name="data", value=kind_of(items))
        if len(items) > MAX_MODELS:
            raise BadEntryError(f"at most {MAX_MODELS:,} models", value=f"{len(items)}")
        targets: Targets = {}
        for number, item in enumerate(items):
            path = f"[{number}]" if key_class is None else f"data[{number}]"
            try:
                if not isinstance(item, dict):
                    raise BadEntryError("a mapping", value=kind_of(item))
                item_class = key_class or _class_of(key, item, content)
                fields = read_fields(keys.TargetFields, item)
                model = needed(fields, "model")
                content.warn_of_unknown(f"{key}.{path}", item, keys.TargetFields.names() | keys.ClassFields.names())
                ttft = (fields.slo_ttw if fields.slo_ttft is None else fields.slo_ttft) or 0.0
                itl = (fields.slo_itl if fields.slo_tpot is None else fields.slo_tpot) or 0.0
                tps = fields.slo_tps or 0.0
                target = replace(item_class, model_id=model, ttft_milliseconds=ttft, itl_milliseconds=itl, tps=tps)
                target = replace(target, in_time=fields.in_time or 0.0)
                content.misfits += _times_out_of_range(key, path, item, fields)
            except BadEntryError as problem:
                model = text_of(item, "model")
                last_target = (last or {}).get(model)
                if last_target is not None:
                    targets.setdefault(model, last_target)
                in_force = _words_of(targets[model]) if model in targets else "nothing of this model"
                problem.field_name = f"{path}.{problem.field_name}" if problem.field_name else path
                content.reject(key, problem, in_force, model)
                continue
            rival = targets.get(target.model_id)
            winner = targets[target.model_id] = target if rival is None or target.priority < rival.priority else rival
            if rival is not None:
                _tell_of_rival(key, path, winner, target if winner is rival else rival, content)
        return targets

    def values(self, content: MapContent[Targets]) -> tuple[ServiceTarget, ...]:
        """Return the target of each model in its most important class, by model; of equal classes the first key's."""
        chosen: Targets = {}
        targets = [(key, target) for key in sorted(content.good) for target in content.good[key].values()]
        for key, target in sorted(targets, key=lambda pair: pair[1].priority):
            if chosen.setdefault(target.model_id, target) is not target:
                _tell_of_rival(key, "", chosen[target.model_id], target, content)
        return tuple(chosen[model_id] for model_id in sorted(chosen))

    def entries(self, namespace: str) -> dict[str, object]:
        """Return the objectives by key and model."""
        good = self.of(namespace).good
        return {f"{key} {model_id}": target for key in good for model_id, target in good[key].items()}

    def in_force(self, _key: str, _problem: BadEntryError, last: Targets | None, _content: object) -> str:
        """Return in words how many models keep their last objectives."""
        return f"what it said last of {len(last)} models" if last else "nothing of it"


def _class_of(key: str, tree: Tree, content: MapContent[Targets]) -> ServiceTarget:
    """Return the class that a mapping names, without a model."""
    fields = read_fields(keys.ClassFields, tree)
    name, priority = needed(fields, "name"), fields.priority
    if priority is None or not HIGHEST_PRIORITY <= priority <= LOWEST_PRIORITY:
        outside = f"{priority} is outside of {HIGHEST_PRIORITY} to {LOWEST_PRIORITY}"
        content.warn(key, f"priority: {'none is given' if priority is None else outside}, {LOWEST_PRIORITY} is taken")
        priority = LOWEST_PRIORITY
    return ServiceTarget(name, priority)


def _times_out_of_range(key: str, path: str, item: Tree, fields: keys.TargetFields) -> Iterator[EntryError]:
    """Yield what is wrong with the times of a model that the demand analyzer takes as not given.

    Earlier releases read any time, and the queueing analyzer still does. So such a model is not refused.
    """
    ttft_name = "slo-ttw" if fields.slo_ttft is None else "slo-ttft"
    itl_name = "slo-itl" if fields.slo_tpot is None else "slo-tpot"
    for name, limits in ((ttft_name, TTFT_MILLISECONDS), (itl_name, ITL_MILLISECONDS)):
        milliseconds = getattr(fields, by_key(keys.TargetFields)[name].attribute)
        if milliseconds and limits.find(milliseconds) is None:
            expected = f"{limits.expected} of milliseconds, or 0 for none"
            problem = BadEntryError(expected, field_name=f"{path}.{name}", value=text_of(item, name))
            in_force = "no objective of this class; the queueing model takes it as it is written"
            yield replace(EntryError.of(key, problem, in_force, text_of(item, "model")), refused=False)


def _words_of(target: ServiceTarget) -> str:
    """Return a target for people, without the values that it does not give."""
    values = (
        (target.ttft_milliseconds, f"ttft {target.ttft_milliseconds:g} ms"),
        (target.itl_milliseconds, f"itl {target.itl_milliseconds:g} ms"),
        (target.in_time, f"in-time {target.in_time:g}"),
        (target.tps, f"tps {target.tps:g}"),
    )
    known = [words for value, words in values if value]
    return ", ".join([f"class {target.class_name}", f"priority {target.priority}", *known])


def _tell_of_rival(
    key: str, path: str, winner: ServiceTarget, loser: ServiceTarget, content: MapContent[Targets]
) -> None:
    """Note that a model is named twice. In several classes that may be meant; in one it is a mistake."""
    if winner.class_name == loser.class_name:
        name = f"{path}.model" if path else "model"
        problem = BadEntryError(f"it once in class {winner.class_name}", field_name=name, value=winner.model_id)
        misfit = EntryError.of(key, problem, _words_of(winner), winner.model_id)
        content.misfits.append(replace(misfit, refused=False))
        return
    decides = f"{winner.class_name} with priority {winner.priority} decides"
    where = f"{key}.{path}" if path else key
    content.warn(where, f"model {winner.model_id} is in several classes; {decides}")


# --- accelerator costs and performance --------------------------------------------------------------------------------


class Costs(EntryMap[AcceleratorCost]):
    """Costs of the accelerators that the keys name."""

    known = keys.CostFields.names()

    def read(self, key: str, tree: Tree, _last: object, _content: object) -> AcceleratorCost:
        """Return the cost of one accelerator."""
        fields = read_fields(keys.CostFields, tree)
        return AcceleratorCost(key, needed(fields, "cost"), fields.device or "")


class Profiles(EntryMap[PerformanceProfile]):
    """Performance of models on accelerators, under any key."""

    known = keys.ProfileFields.names()

    def read(self, _key: str, tree: Tree, _last: object, _content: object) -> PerformanceProfile:
        """Return the profile of an entry.

        Raises BadEntryError for times that no engine can have: with them a queue has no meaningful state for any
        requests.
        """
        fields = read_fields(keys.ProfileFields, tree)
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

    def values(self, content: MapContent[PerformanceProfile]) -> tuple[PerformanceProfile, ...]:
        """Return one profile for each model and accelerator, sorted by both: the first by key."""
        first: dict[tuple[str, str], str] = {}
        for key in sorted(content.good):
            profile = content.good[key]
            winner = first.setdefault((profile.model_id, profile.accelerator), key)
            if winner != key:
                content.warn(key, f"has no effect: {winner} is for the same model and accelerator and comes first")
        return tuple(content.good[first[pair]] for pair in sorted(first))

    def model_and_namespace(
        self, _key: str, tree: Tree, last: PerformanceProfile | None, _content: object
    ) -> tuple[str, str]:
        """Return the model of the last good profile, else the one that is written."""
        return last.model_id if last else text_of(tree, "model_id") or text_of(tree, "name"), ""
