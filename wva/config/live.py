"""The configuration in force: the policy, which changes with the ConfigMaps that say how to decide, and the settings.

An entry that does not parse leaves the last good value in force. It is remembered as a problem, so that the variants
which it concerns can report it. Otherwise the policy depends only on the ConfigMaps that exist and on the namespaces
that may have their own, in any order of arrival: only a broken entry depends on the past.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from functools import partial
from typing import Any, Final

from wva import log
from wva.api.meta import Key
from wva.api.variantautoscaling import VariantAutoscaling
from wva.config.declare import printable
from wva.config.entries import Entry, EntryError, EntryMap, GlobalMap, LayeredMap, read_each
from wva.config.keys import CostFields, ProfileFields, Settings
from wva.config.kinds import (
    QUEUEING,
    SATURATION,
    SCALE_TO_ZERO,
    MapKind,
    cost_of,
    most_important,
    one_of_each_pair,
    profile_of,
    read_classes,
)
from wva.config.load import Given, LiveSettings, Taken
from wva.model.inventory import UnknownInventory
from wva.model.metrics import Freshness
from wva.model.optimizers import BY_BUDGET, BestEffort, SolverPolicy
from wva.model.policy import NamespacePolicy, Policy, QueueingRules, SaturationPolicy, SaturationRules, ScaleToZeroRules
from wva.model.records import replace
from wva.model.trouble import cause_of
from wva.model.variant import ModelKey
from wva.slices import Steps, at_once

_TOLD_PROBLEMS: Final = 10
"""A ConfigMap has room for tens of thousands of bad entries; a condition has not."""
_TOLD_CHANGES: Final = 20
_TOLD_WARNINGS: Final = 20


@dataclass(frozen=True, slots=True)
class AppliedConfigMap:
    """What came of a ConfigMap.

    ``problems`` is what is wrong with it. ``ignored``: another ConfigMap is in force, though this one might be.
    ``refused``: its namespace may not have its own. ``gone`` is what is in force without it.
    """

    problems: tuple[str, ...] = ()
    ignored: str = ""
    refused: str = ""
    gone: str = ""


def nowhere(namespace: str) -> str:
    """Refuse the ConfigMaps of every namespace but our own."""
    return f"the ConfigMaps of namespace {namespace} are not watched"


class LivePolicy:
    """What the policy ConfigMaps say."""

    def __init__(self, settings: Settings, *, refusal: Callable[[str], str] = nowhere) -> None:
        """Start with the built-in values.

        ``refusal`` says why a namespace may not have ConfigMaps of its own now; empty when it may.
        """
        self._names = {kind: kind.names(settings) for kind in MapKind}
        self._current: Policy | None = None
        self._own = settings.pod_namespace
        self._refusal = refusal
        self._texts: dict[Key, Mapping[str, str]] = {}
        self._chosen: dict[tuple[MapKind, str], Key] = {}
        self._failed: dict[str, str] = {}
        self._saturation = LayeredMap(SATURATION)
        self._scale_to_zero = LayeredMap(SCALE_TO_ZERO)
        self._queueing = LayeredMap(QUEUEING)
        self._classes = GlobalMap(read_classes, most_important)
        self._costs = GlobalMap(partial(read_each, CostFields, cost_of), lambda good, _: tuple(good.values()))
        self._profiles = GlobalMap(partial(read_each, ProfileFields, profile_of), one_of_each_pair)
        self._maps: dict[MapKind, EntryMap[Any]] = {
            MapKind.SATURATION: self._saturation,
            MapKind.SCALE_TO_ZERO: self._scale_to_zero,
            MapKind.QUEUEING: self._queueing,
            MapKind.SERVICE_CLASSES: self._classes,
            MapKind.ACCELERATOR_COSTS: self._costs,
            MapKind.PROFILES: self._profiles,
        }
        self._logger = log.get("configuration")

    @property
    def current(self) -> Policy:
        """What the ConfigMaps say, for decisions; the settings of the process are not in it."""
        if self._current is None:
            layered = (self._saturation, self._scale_to_zero, self._queueing)
            namespaces = sorted({namespace for held in layered for namespace in held.local} - self._failed.keys())
            parts = {name: value for fields in self.global_parts().values() for name, value in fields.items()}
            self._current = Policy(
                **parts,
                namespaces=tuple(
                    NamespacePolicy(
                        namespace,
                        self._saturation.local.get(namespace, SaturationRules()),
                        self._scale_to_zero.local.get(namespace, ScaleToZeroRules()),
                        self._queueing.local.get(namespace, QueueingRules()),
                    )
                    for namespace in namespaces
                ),
            )
        return self._current

    def global_parts(self) -> dict[MapKind, dict[str, Any]]:
        """Return, for each kind, the fields of a policy that come from its global ConfigMap."""
        rules, default, solver = self._saturation.everywhere, self._saturation.default(), self._queueing.default()
        return {
            MapKind.SATURATION: {
                "saturation": rules.default or SaturationPolicy(),
                "overrides": rules.overrides,
                "compatibility": default.compatibility if default else None,
                "enable_limiter": bool(default and default.enable_limiter),
                "unknown_inventory": (default and default.unknown_inventory) or UnknownInventory.NO_GROWTH,
            },
            MapKind.SCALE_TO_ZERO: {"scale_to_zero": self._scale_to_zero.everywhere},
            MapKind.QUEUEING: {
                "queueing": self._queueing.everywhere,
                "solver": BY_BUDGET
                if solver is None
                else SolverPolicy(
                    solver.unlimited, bool(solver.delayed_best_effort), solver.saturation_policy or BestEffort.NONE
                ),
            },
            MapKind.SERVICE_CLASSES: {"service_targets": self._classes.of("").values},
            MapKind.ACCELERATOR_COSTS: {"accelerator_costs": self._costs.of("").values},
            MapKind.PROFILES: {"profiles": self._profiles.of("").values},
        }

    def kinds_of(self, key: Key) -> tuple[MapKind, ...]:
        """Return what a ConfigMap of this name is about in its namespace."""
        local = key.namespace != self._own
        return tuple(kind for kind, names in self._names.items() if key.name in names and (kind.local or not local))

    def problem_for(self, va: VariantAutoscaling) -> str:
        """Return what is wrong with the configuration of one variant, empty when nothing is."""
        namespace, model_id = va.metadata.namespace, va.spec.model_id
        # An entry that names no model or no namespace may be meant for any.
        errors: list[tuple[Key, EntryError]] = []
        for kind, held in self._maps.items():
            for place in ("", namespace):
                key = self._chosen.get((kind, place))
                errors += [] if key is None else [(key, error) for error in held.of(place).errors]
        for failure in self._failures(namespace):
            errors += [(key, failure) for key in sorted({*self._chosen.values()}) if key.namespace == namespace]
        told = [
            f"ConfigMap {key}: {error}"
            for key, error in errors
            if error.model_id in {"", model_id} and error.namespace in {"", namespace}
        ]
        more = len(told) - _TOLD_PROBLEMS
        told = [*told[:_TOLD_PROBLEMS], *([f"and {more} more"] if more > 0 else [])]
        told += [
            f"{printable(name)} of the global ConfigMap contradicts the default of namespace {namespace}, "
            "which is in force"
            for name in self.current.misfits(ModelKey(namespace, model_id))
        ]
        return "; ".join(told)

    def apply(self, key: Key, data: Mapping[str, str] | None) -> AppliedConfigMap | None:
        """Take the data of a ConfigMap (None: it is gone); return what came of it, None if it is not ours."""
        return at_once(self.apply_in_steps(key, data))

    def apply_in_steps(self, key: Key, data: Mapping[str, str] | None) -> Steps[AppliedConfigMap | None]:
        """Do the same as ``apply``, entry by entry. No other ConfigMap may be taken before the last step."""
        local, kinds = key.namespace != self._own, self.kinds_of(key)
        if not kinds:
            return None
        refusal = self._refusal(key.namespace) if local else ""
        if self._texts.get(key) != (None if refusal else data):
            self._failed.pop(key.namespace, None)
        if data is None or refusal:
            self._texts.pop(key, None)
        else:
            self._texts[key] = data
        outcomes: tuple[AppliedConfigMap, ...] = ()
        for kind in kinds:
            outcomes += ((yield from self._settle(kind, key)),)
        self._current = None
        failures = self._failures(key.namespace) if local and key in self._chosen.values() else ()
        if refusal and data is not None:
            return AppliedConfigMap(refused=refusal)
        return AppliedConfigMap(
            (*(problem for outcome in outcomes for problem in outcome.problems), *map(str, failures)),
            "; ".join(outcome.ignored for outcome in outcomes if outcome.ignored),
            gone="; ".join(outcome.gone for outcome in outcomes if outcome.gone),
        )

    def give_up(self, namespace: str, cause: str) -> list[Key]:
        """Put the ConfigMaps of a namespace out of force until one of their texts changes; return them.

        ``cause`` says in words what fails with them.
        """
        self._failed[namespace] = cause
        self._current = None
        return list(dict.fromkeys(key for (_, place), key in self._chosen.items() if place == namespace))

    def rivals(self, key: Key) -> list[Key]:
        """Return the other names under which the same may be said in the namespace of a ConfigMap."""
        names = dict.fromkeys(name for kind in self.kinds_of(key) for name in self._names[kind])
        return [Key(key.namespace, name) for name in names if name != key.name]

    def warnings(self) -> list[str]:
        """Return what has no effect in the ConfigMaps in force."""
        chosen = self._chosen.items()
        return [f"{key}: {text}" for (kind, place), key in chosen for text in self._maps[kind].of(place).warnings]

    def config_maps_in_effect(self) -> dict[str, str]:
        """Return, for each kind, the global ConfigMap that is in force and how many namespaces have their own."""
        told = {}
        for kind, names in self._names.items():
            key = self._chosen.get((kind, ""))
            found = str(key) if key else f"{Key(self._own, names[0])} (absent: built-in defaults)"
            namespaces = sum(chosen is kind and namespace != "" for chosen, namespace in self._chosen)
            told[kind.title] = f"{found}, local in {namespaces} namespaces" if namespaces else found
        return told

    def _settle(self, kind: MapKind, key: Key) -> Steps[AppliedConfigMap]:
        """Make what is in force of a kind in the namespace of a ConfigMap agree with the ConfigMaps that are there."""
        place = "" if key.namespace == self._own else key.namespace
        held, before = self._maps[kind], self._chosen.get((kind, place))
        old = held.of(place).good
        keys = (Key(key.namespace, name) for name in self._names[kind])
        chosen = next((each for each in keys if each in self._texts), None)
        if before is not None and before != chosen:
            held.forget(place)
        if chosen is None:
            self._chosen.pop((kind, place), None)
        else:
            self._chosen[kind, place] = chosen
            if chosen == key or before != chosen:
                try:
                    yield from held.take(place, self._texts[chosen])
                except Exception as error:
                    if not place:
                        raise
                    # Only the namespace with whose ConfigMap that fails goes without it.
                    cause = self._failed[place] = cause_of(error)
                    self._logger.exception("config_map_failed", namespace=place, cause=cause)
                    held.forget(place)
        self._current = None
        new = held.of(place).good
        changed: list[Any] = sorted((each for each in {*old, *new} if old.get(each) != new.get(each)), key=str)
        if changed:
            told, text = changed[:_TOLD_CHANGES], f"Updated {kind.title} config"
            self._logger.info(
                text,
                event_name=f"{kind.name.lower()}_config_updated",
                oldEntries=len(old),
                newEntries=len(new),
                old={printable(str(each)): _fields_of(old[each]) for each in told if each in old},
                new={printable(str(each)): _fields_of(new[each]) for each in told if each in new},
                moreChanged=max(0, len(changed) - _TOLD_CHANGES),
                **({"scope": place} if place else {}),
            )
        if key in self._texts and chosen != key:
            return AppliedConfigMap(ignored=f"{chosen} is there as well, and its name comes first")
        if chosen == key:
            for warning in held.of(place).warnings[:_TOLD_WARNINGS]:
                self._logger.warning("config_warning", kind=kind.title, config_map=str(key), warning=warning)
            return AppliedConfigMap(tuple(str(error) for error in held.of(place).errors))
        if before != key:
            return AppliedConfigMap()
        if chosen is not None:
            return AppliedConfigMap(gone=f"ConfigMap {chosen} is in force instead")
        if place:
            return AppliedConfigMap(gone=f"the global {kind.title} configuration is in force in namespace {place}")
        return AppliedConfigMap(gone=f"the built-in {kind.title} defaults are in force")

    def _failures(self, namespace: str) -> tuple[EntryError, ...]:
        """Return why WVA does not use the valid ConfigMaps of a namespace: deciding on its models fails with them."""
        if namespace not in self._failed:
            return ()
        expected = f"configuration with which the models of namespace {namespace} can be decided on"
        in_force = "the global configuration until a text changes"
        return (EntryError("all entries", "", self._failed[namespace], expected, in_force),)


def _fields_of(value: object) -> object:
    """Return the fields of an entry, for the log."""
    if isinstance(value, Entry):
        return value.fields.model_dump(mode="json", by_alias=True, exclude_none=True)
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)


class LiveConfiguration(LivePolicy):
    """Policy, interval and freshness limits in force: what the policy ConfigMaps say, and the settings beside it."""

    def __init__(self, settings: Settings, given: Given, *, refusal: Callable[[str], str] = nowhere) -> None:
        """Start with what the process was started with.

        ``refusal`` says why a namespace may not have ConfigMaps of its own now; empty when it may.
        """
        super().__init__(settings, refusal=refusal)
        self.main = Key(settings.pod_namespace, settings.config_map_name)
        """The main ConfigMap."""
        self.settings = LiveSettings(settings, given)
        self._policy: Policy | None = None
        self._listeners: list[Callable[[str | None], None]] = []
        self.changed = asyncio.Event()

    def subscribe(self, listener: Callable[[str | None], None]) -> None:
        """Call ``listener`` after every ConfigMap that was taken, with its namespace, None if it is for all of them."""
        self._listeners.append(listener)

    @property
    def policy(self) -> Policy:
        """What the decisions obey: what the ConfigMaps say, with the settings that decisions need."""
        if self._policy is None:
            settings = self.settings.current
            self._policy = replace(
                self.current,
                limited_mode=settings.limited_mode,
                proactive_model=settings.proactive_model,
                scale_to_zero_default=settings.scale_to_zero,
            )
        return self._policy

    @property
    def interval_seconds(self) -> float:
        """Time between the starts of two cycles."""
        return self.settings.current.global_opt_interval

    @property
    def freshness(self) -> Freshness:
        """Age limits of samples."""
        settings = self.settings.current
        return Freshness(settings.fresh_threshold, settings.unavailable_threshold)

    def apply_in_steps(self, key: Key, data: Mapping[str, str] | None) -> Steps[AppliedConfigMap | None]:
        """Take a policy ConfigMap entry by entry, and tell the listeners."""
        outcome = yield from super().apply_in_steps(key, data)
        if outcome is not None:
            self._announce(None if key.namespace == self.main.namespace else key.namespace)
        return outcome

    def give_up(self, namespace: str, cause: str) -> list[Key]:
        """Put the ConfigMaps of a namespace out of force, and tell the listeners."""
        keys = super().give_up(namespace, cause)
        self._announce(namespace)
        return keys

    def apply_main(self, data: Mapping[str, str] | None) -> Taken:
        """Take the data of the main ConfigMap (None: it is gone)."""
        if data is None:
            self.settings.keep()
            return Taken()
        taken = self.settings.take(data)
        self._announce()
        return taken

    def _announce(self, namespace: str | None = None) -> None:
        self._policy = None
        self.changed.set()
        for listener in self._listeners:
            listener(namespace)
