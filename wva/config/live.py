"""The configuration in force: the policy, which changes with the ConfigMaps that say how to decide, and the settings.

An entry that does not parse leaves the last good value in force, and the variants that it concerns report it.
Otherwise the policy depends only on the ConfigMaps that exist and on the namespaces that may have their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from wva import log
from wva.api.meta import Key
from wva.api.variantautoscaling import VariantAutoscaling
from wva.config.declare import printable
from wva.config.entries import Entry, EntryError, EntryMap
from wva.config.keys import SaturationFields, Settings
from wva.config.kinds import Costs, MapKind, Profiles, Queueing, Saturation, ScaleToZero, ServiceClasses
from wva.config.load import NO_INPUTS, Inputs, LiveSettings, Taken
from wva.model.inventory import UnknownInventory
from wva.model.metrics import Freshness
from wva.model.objectives import TIGHTEST, Objectives
from wva.model.optimizers import BY_BUDGET, BestEffort, SolverPolicy
from wva.model.policy import NamespacePolicy, Policy, SaturationPolicy
from wva.model.records import replace
from wva.model.trouble import cause_of
from wva.model.variant import ModelKey
from wva.slices import Steps, at_once

_SHOWN_PROBLEMS: Final = 10
"""A ConfigMap has room for tens of thousands of bad entries; a condition has not."""
_SHOWN_CHANGES: Final = 20
_SHOWN_WARNINGS: Final = 20


@dataclass(frozen=True, slots=True)
class AppliedConfigMap:
    """The result of taking a ConfigMap, in words.

    ``problems`` says what is wrong with it; those in ``accepted`` are about values that are in force. ``ignored`` says
    which other ConfigMap is in force instead. ``refused`` says why its namespace may not have its own. ``gone`` says
    what is in force without it.
    """

    problems: tuple[str, ...] = ()
    ignored: str = ""
    refused: str = ""
    gone: str = ""
    accepted: tuple[str, ...] = ()


def nowhere(namespace: str) -> str:
    """Refuse the ConfigMaps of every namespace but our own."""
    return f"the ConfigMaps of namespace {namespace} are not watched"


class LiveConfiguration:
    """Policy, interval and freshness limits in force: what the ConfigMaps say, and the settings beside it."""

    def __init__(
        self, settings: Settings, inputs: Inputs = NO_INPUTS, *, refusal: Callable[[str], str] = nowhere
    ) -> None:
        """``refusal`` says why a namespace may not have ConfigMaps of its own now; empty when it may."""
        self.main = Key(settings.pod_namespace, settings.config_map_name)
        """The main ConfigMap."""
        self.settings = LiveSettings(settings, inputs)
        self.changed = asyncio.Event()
        self._listeners: list[Callable[[str | None], None]] = []
        self._names = {kind: kind.names(settings) for kind in MapKind}
        self._policy: Policy | None = None
        self._refusal = refusal
        self._texts: dict[Key, Mapping[str, str]] = {}
        self._chosen: dict[tuple[MapKind, str], Key] = {}
        self._failed: dict[str, str] = {}
        self._saturation = Saturation()
        self._scale_to_zero = ScaleToZero()
        self._queueing = Queueing()
        self._maps: dict[MapKind, EntryMap[Any]] = {
            MapKind.SATURATION: self._saturation,
            MapKind.SCALE_TO_ZERO: self._scale_to_zero,
            MapKind.QUEUEING: self._queueing,
            MapKind.SERVICE_CLASSES: ServiceClasses(),
            MapKind.ACCELERATOR_COSTS: Costs(),
            MapKind.PROFILES: Profiles(),
        }
        self._logger = log.get("configuration")

    # --- what is in force ---

    @property
    def policy(self) -> Policy:
        """What the decisions obey: what the ConfigMaps say, with the settings that decisions need."""
        if self._policy is None:
            settings = self.settings.current
            layered: dict[str, dict[str, Any]] = {
                "saturation": self._saturation.local,
                "scale_to_zero": self._scale_to_zero.local,
                "queueing": self._queueing.local,
            }
            namespaces = {namespace for local in layered.values() for namespace in local} - self._failed.keys()
            parts = {name: value for fields in self.global_parts().values() for name, value in fields.items()}
            self._policy = Policy(
                **parts,
                namespaces=tuple(
                    NamespacePolicy(
                        namespace, **{name: local[namespace] for name, local in layered.items() if namespace in local}
                    )
                    for namespace in sorted(namespaces)
                ),
                limited_mode=settings.limited_mode,
                proactive_model=settings.proactive_model,
                scale_to_zero_default=settings.scale_to_zero,
            )
        return self._policy

    def global_parts(self) -> dict[MapKind, dict[str, Any]]:
        """Return, for each kind, the fields of a policy that come from its global ConfigMap."""
        rules, default, queueing = self._saturation.everywhere, self._saturation.default(), self._queueing.default()
        solver = BY_BUDGET
        if queueing is not None:
            best_effort = queueing.saturation_policy or BestEffort.NONE
            solver = SolverPolicy(queueing.unlimited, bool(queueing.delayed_best_effort), best_effort)
        return {
            MapKind.SATURATION: {
                "saturation": rules.default or SaturationPolicy(),
                "overrides": rules.overrides,
                "compatibility": default.compatibility if default else None,
                "enable_limiter": bool(default and default.enable_limiter),
                "unknown_inventory": (default and default.unknown_inventory) or UnknownInventory.NO_GROWTH,
                "tightest": _tightest(default),
            },
            MapKind.SCALE_TO_ZERO: {"scale_to_zero": self._scale_to_zero.everywhere},
            MapKind.QUEUEING: {"queueing": self._queueing.everywhere, "solver": solver},
            MapKind.SERVICE_CLASSES: {"service_targets": self._maps[MapKind.SERVICE_CLASSES].of("").values},
            MapKind.ACCELERATOR_COSTS: {"accelerator_costs": self._maps[MapKind.ACCELERATOR_COSTS].of("").values},
            MapKind.PROFILES: {"profiles": self._maps[MapKind.PROFILES].of("").values},
        }

    @property
    def interval_seconds(self) -> float:
        """Time between the starts of two cycles."""
        return self.settings.current.global_opt_interval

    @property
    def freshness(self) -> Freshness:
        """Age limits of samples."""
        settings = self.settings.current
        return Freshness(settings.fresh_threshold, settings.unavailable_threshold)

    def kinds_of(self, key: Key) -> tuple[MapKind, ...]:
        """Return what a ConfigMap of this name is about in its namespace."""
        local = key.namespace != self.main.namespace
        return tuple(kind for kind, names in self._names.items() if key.name in names and (kind.local or not local))

    def rivals(self, key: Key) -> list[Key]:
        """Return the ConfigMaps of the same kinds, under other names, in the namespace of a ConfigMap."""
        names = dict.fromkeys(name for kind in self.kinds_of(key) for name in self._names[kind])
        return [Key(key.namespace, name) for name in names if name != key.name]

    def warnings(self) -> list[str]:
        """Return what has no effect in the ConfigMaps in force."""
        chosen = self._chosen.items()
        return [f"{key}: {text}" for (kind, scope), key in chosen for text in self._maps[kind].of(scope).warnings]

    def config_maps_in_effect(self) -> dict[str, str]:
        """Return, for each kind, the global ConfigMap that is in force and how many namespaces have their own."""
        in_effect = {}
        for kind, names in self._names.items():
            absent = f"{Key(self.main.namespace, names[0])} (absent: built-in defaults)"
            global_map = str(self._chosen.get((kind, ""), absent))
            namespaces = sum(chosen is kind and namespace != "" for chosen, namespace in self._chosen)
            in_effect[kind.title] = f"{global_map}, local in {namespaces} namespaces" if namespaces else global_map
        return in_effect

    def problem_for(self, va: VariantAutoscaling) -> str:
        """Return what is wrong with the configuration of one variant, empty when nothing is."""
        namespace, model_id = va.metadata.namespace, va.spec.model_id
        errors = [
            (self._chosen[kind, scope], error)
            for kind, entry_map in self._maps.items()
            for scope in ("", namespace)
            if (kind, scope) in self._chosen
            for error in entry_map.of(scope).errors
        ]
        for failure in self._failures(namespace):
            errors += [(key, failure) for key in sorted({*self._chosen.values()}) if key.namespace == namespace]
        # An entry that names no model or no namespace may be meant for any.
        errors = [
            (key, error)
            for key, error in errors
            if error.model_id in {"", model_id} and error.namespace in {"", namespace}
        ]
        messages = [f"ConfigMap {key}: {error}" for key, error in errors]
        known = {error.field for _, error in errors}
        messages += [
            str(excess) for excess in self._excesses(ModelKey(namespace, model_id)) if excess.field not in known
        ]
        more = len(messages) - _SHOWN_PROBLEMS
        messages = [*messages[:_SHOWN_PROBLEMS], *([f"and {more} more"] if more > 0 else [])]
        messages += [
            f"{printable(name)} of the global ConfigMap contradicts the default of namespace {namespace}, "
            "which is in force"
            for name in self.policy.misfits(ModelKey(namespace, model_id))
        ]
        return "; ".join(messages)

    def _excesses(self, model: ModelKey) -> list[EntryError]:
        """Return what makes a model grow at any load, also if no ConfigMap alone does so but two together do."""
        name = f"the entries for {model.model_id} and {model.namespace} together"
        excesses = [self._saturation.excess(name, self.policy.saturation_for(model))]
        queueing = self.policy.queueing_for(model)
        if queueing is not None:
            excesses.append(self._queueing.excess(name, queueing))
        return [excess for excess in excesses if excess is not None]

    # --- changes ---

    def subscribe(self, listener: Callable[[str | None], None]) -> None:
        """Call ``listener`` after every ConfigMap that was taken, with its namespace, None if it is for all of them."""
        self._listeners.append(listener)

    def apply_main(self, data: Mapping[str, str] | None) -> Taken:
        """Take the data of the main ConfigMap (None: it is gone)."""
        if data is None:
            self._logger.warning("main_config_map_gone", in_force="the settings that it gave last")
            return Taken()
        taken = self.settings.take(data)
        self._announce(None)
        return taken

    def apply(self, key: Key, data: Mapping[str, str] | None) -> AppliedConfigMap | None:
        """Take the data of a ConfigMap (None: it is gone); return the result, None if the ConfigMap is not ours."""
        return at_once(self.apply_in_steps(key, data))

    def apply_in_steps(self, key: Key, data: Mapping[str, str] | None) -> Steps[AppliedConfigMap | None]:
        """Do the same as ``apply``, entry by entry. No other ConfigMap may be taken before the last step."""
        kinds, scope = self.kinds_of(key), key.namespace if key.namespace != self.main.namespace else ""
        if not kinds:
            return None
        refusal = self._refusal(scope) if scope else ""
        taken = None if refusal else data
        if self._texts.get(key) != taken:
            self._failed.pop(key.namespace, None)
        if taken is None:
            self._texts.pop(key, None)
        else:
            self._texts[key] = taken
        problems: list[str] = []
        accepted: list[str] = []
        ignored: list[str] = []
        gone: list[str] = []
        for kind in kinds:
            entry_map, before = self._maps[kind], self._chosen.get((kind, scope))
            chosen = yield from self._choose(kind, scope, key, before)
            if key in self._texts and chosen != key:
                ignored.append(f"{chosen} is there as well, and its name comes first")
            elif chosen == key:
                for warning in entry_map.of(scope).warnings[:_SHOWN_WARNINGS]:
                    self._logger.warning("config_warning", kind=kind.title, config_map=str(key), warning=warning)
                problems += map(str, entry_map.of(scope).errors)
                accepted += [str(error) for error in entry_map.of(scope).errors if not error.refused]
            elif before == key and chosen is not None:
                gone.append(f"ConfigMap {chosen} is in force instead")
            elif before == key and scope:
                gone.append(f"the global {kind.title} configuration is in force in namespace {scope}")
            elif before == key:
                gone.append(f"the built-in {kind.title} defaults are in force")
        if scope and key in self._chosen.values():
            problems += map(str, self._failures(key.namespace))
        self._announce(scope or None)
        if refusal and data is not None:
            return AppliedConfigMap(refused=refusal)
        return AppliedConfigMap(tuple(problems), "; ".join(ignored), gone="; ".join(gone), accepted=tuple(accepted))

    def _choose(self, kind: MapKind, scope: str, key: Key, before: Key | None) -> Steps[Key | None]:
        """Put the first ConfigMap of a kind in the namespace of ``key``, by name, in force; return its key."""
        entry_map = self._maps[kind]
        old = entry_map.entries(scope)
        keys = (Key(key.namespace, name) for name in self._names[kind])
        chosen = next((candidate for candidate in keys if candidate in self._texts), None)
        if before is not None and before != chosen:
            entry_map.forget(scope)
        if chosen is None:
            self._chosen.pop((kind, scope), None)
        else:
            self._chosen[kind, scope] = chosen
            if chosen == key or before != chosen:
                try:
                    yield from entry_map.take(scope, self._texts[chosen])
                except Exception as error:
                    if not scope:
                        raise
                    # Only this namespace goes without its ConfigMap.
                    cause = self._failed[scope] = cause_of(error)
                    self._logger.exception("config_map_failed", namespace=scope, cause=cause)
                    entry_map.forget(scope)
        self._policy = None
        new = entry_map.entries(scope)
        changed = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
        if changed:
            logged = changed[:_SHOWN_CHANGES]
            text = f"Updated {kind.title} config"
            self._logger.info(
                text,
                event_name=f"{kind.name.lower()}_config_updated",
                oldEntries=len(old),
                newEntries=len(new),
                old={printable(name): _fields_of(old[name]) for name in logged if name in old},
                new={printable(name): _fields_of(new[name]) for name in logged if name in new},
                moreChanged=len(changed) - len(logged),
                **({"scope": scope} if scope else {}),
            )
        return chosen

    def give_up(self, namespace: str, cause: str) -> list[Key]:
        """Put the ConfigMaps of a namespace out of force until one changes; return them. ``cause`` says what fails."""
        self._failed[namespace] = cause
        self._announce(namespace)
        return list(dict.fromkeys(key for (_, scope), key in self._chosen.items() if scope == namespace))

    def _announce(self, namespace: str | None) -> None:
        self._policy = None
        self.changed.set()
        for listener in self._listeners:
            listener(namespace)

    def _failures(self, namespace: str) -> tuple[EntryError, ...]:
        """Return why WVA does not use the valid ConfigMaps of a namespace: deciding on its models fails with them."""
        if namespace not in self._failed:
            return ()
        expected = f"configuration with which the models of namespace {namespace} can be decided on"
        in_force = "the global configuration until a text changes"
        return (EntryError("all entries", "", self._failed[namespace], expected, in_force),)


def _tightest(default: SaturationFields | None) -> Objectives:
    """Return the objectives that tenants may ask for."""
    ttft = default and default.tightest_ttft_milliseconds
    itl = default and default.tightest_itl_milliseconds
    return replace(
        TIGHTEST,
        ttft_seconds=ttft / 1000.0 if ttft else TIGHTEST.ttft_seconds,
        itl_seconds=itl / 1000.0 if itl else TIGHTEST.itl_seconds,
    )


def _fields_of(value: object) -> object:
    """Return the fields of an entry, for the log."""
    if isinstance(value, Entry):
        return value.fields.model_dump(mode="json", by_alias=True, exclude_none=True)
    return msgspec.to_builtins(value)
