"""The policy in force. It changes with the ConfigMaps that say how to decide.

An entry that does not parse leaves the last good value in force. It is remembered as a problem, so that the variants
which it concerns can report it. Otherwise the policy depends only on the ConfigMaps that exist and on the namespaces
that may have their own, in any order of arrival: only a broken entry depends on the past.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, Final

from wva import log
from wva.api.meta import Key
from wva.api.variantautoscaling import VariantAutoscaling
from wva.collect.config import queueing, saturation, scale_to_zero
from wva.collect.config.accelerators import read_costs, read_profiles
from wva.collect.config.entry import EntryError, shown
from wva.collect.config.held import GlobalMap, Held, LayeredMap
from wva.collect.config.layers import Entry
from wva.collect.config.names import CANONICAL, MapKind, MapNames
from wva.collect.config.service_classes import read_service_classes
from wva.model.failures import cause_of
from wva.model.policy import NamespacePolicy, Policy, QueueingRules, SaturationPolicy, SaturationRules, ScaleToZeroRules
from wva.model.variant import ModelKey
from wva.settings import Settings
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
        self.names = MapNames.from_settings(settings)
        self._current: Policy | None = None
        self._own = settings.pod_namespace
        self._refusal = refusal
        self._texts: dict[Key, Mapping[str, str]] = {}
        self._chosen: dict[tuple[MapKind, str], Key] = {}
        self._failed: dict[str, str] = {}
        self._saturation = LayeredMap(saturation.RULES, saturation.rules_of)
        self._scale_to_zero = LayeredMap(scale_to_zero.RULES, scale_to_zero.rules_of)
        self._queueing = LayeredMap(queueing.RULES, queueing.rules_of)
        self._classes = GlobalMap(read_service_classes)
        self._costs = GlobalMap(read_costs)
        self._profiles = GlobalMap(read_profiles)
        self._held: dict[MapKind, Held] = {
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
            self._current = self._policy()
        return self._current

    def problem_for(self, va: VariantAutoscaling) -> str:
        """Return what is wrong with the configuration of one variant, empty when nothing is."""
        told: list[str] = []
        more = 0
        for key, error in self._errors_about(va.metadata.namespace):
            if _concerns(error, va):
                if len(told) < _TOLD_PROBLEMS:
                    told.append(f"ConfigMap {key}: {error}")
                else:
                    more += 1
        told += [f"and {more} more"] if more else []
        namespace = va.metadata.namespace
        told += [
            f"{shown(name)} of the global ConfigMap contradicts the default of namespace {namespace}, which is in force"
            for name in self.current.misfits(ModelKey(namespace, va.spec.model_id))
        ]
        return "; ".join(told)

    def apply(self, key: Key, data: Mapping[str, str] | None) -> AppliedConfigMap | None:
        """Take the data of a ConfigMap (None: it is gone); return what came of it, None if it is none of ours."""
        return at_once(self.apply_in_steps(key, data))

    def apply_in_steps(self, key: Key, data: Mapping[str, str] | None) -> Steps[AppliedConfigMap | None]:
        """Do the same as ``apply``, entry by entry. No other ConfigMap may be taken before the last step."""
        local = key.namespace != self._own
        kinds = self.names.kinds_of(key.name, local=local)
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
        failure = [str(self._failure(key.namespace))] if local and key in self._chosen.values() else []
        if refusal and data is not None:
            return AppliedConfigMap(refused=refusal)
        return AppliedConfigMap(
            (*(problem for outcome in outcomes for problem in outcome.problems), *filter(None, failure)),
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
        kinds = self.names.kinds_of(key.name, local=key.namespace != self._own)
        names = dict.fromkeys(name for kind in kinds for name in self.names.of[kind])
        return [Key(key.namespace, name) for name in names if name != key.name]

    def warnings(self) -> list[str]:
        """Return what the ConfigMaps in force say in vain."""
        chosen = self._chosen.items()
        return [f"{key}: {text}" for (kind, place), key in chosen for text in self._held[kind].warnings(place)]

    def in_effect(self) -> dict[str, str]:
        """Return, for each kind, the global ConfigMap that is in force and the namespaces that have their own."""
        told = {}
        for kind in CANONICAL:
            key = self._chosen.get((kind, ""))
            found = str(key) if key else f"{Key(self._own, self.names.of[kind][0])} (absent: built-in defaults)"
            namespaces = [namespace for chosen, namespace in self._chosen if chosen is kind and namespace]
            told[kind.value] = f"{found}, local in {len(namespaces)} namespaces" if namespaces else found
        return told

    def _settle(self, kind: MapKind, key: Key) -> Steps[AppliedConfigMap]:
        """Make what is in force of a kind in the namespace of a ConfigMap agree with the ConfigMaps that are there."""
        place = "" if key.namespace == self._own else key.namespace
        held, before = self._held[kind], self._chosen.get((kind, place))
        old = held.good(place)
        chosen = self._choose(kind, key.namespace)
        if before is not None and before != chosen:
            held.forget(place)
        if chosen is None:
            self._chosen.pop((kind, place), None)
        else:
            self._chosen[kind, place] = chosen
            if chosen == key or before != chosen:
                yield from self._take(held, place, self._texts[chosen])
        self._current = None
        self._tell_change(kind, place, old, held.good(place))
        if key in self._texts and chosen != key:
            return AppliedConfigMap(ignored=f"{chosen} is there as well, and its name comes first")
        if chosen != key:
            return AppliedConfigMap(gone=self._without(kind, place, chosen) if before == key else "")
        for warning in held.warnings(place)[:_TOLD_WARNINGS]:
            self._logger.warning("config_warning", kind=kind.value, config_map=str(key), warning=warning)
        return AppliedConfigMap(tuple(str(error) for error in held.errors(place)))

    def _take(self, held: Held, place: str, text: Mapping[str, str]) -> Steps[None]:
        """Take what a ConfigMap says. One of a namespace with which that fails is put out of force."""
        try:
            yield from held.take(place, text)
        except Exception as error:
            if not place:
                raise
            cause = cause_of(error)
            self._logger.exception("config_map_failed", namespace=place, cause=cause)
            held.forget(place)
            self._failed[place] = cause

    def _failure(self, namespace: str) -> EntryError | str:
        """Return why the ConfigMaps of a namespace are not in force although nothing in them is wrong; else nothing."""
        cause = self._failed.get(namespace)
        if cause is None:
            return ""
        expected = f"configuration with which the models of namespace {namespace} can be decided on"
        return EntryError("all entries", "", cause, expected, "the global configuration until a text changes")

    def _choose(self, kind: MapKind, namespace: str) -> Key | None:
        """Return the ConfigMap that counts of those of a kind in a namespace."""
        keys = (Key(namespace, name) for name in self.names.of[kind])
        return next((key for key in keys if key in self._texts), None)

    def _without(self, kind: MapKind, place: str, chosen: Key | None) -> str:
        if chosen is not None:
            return f"ConfigMap {chosen} is in force instead"
        if place:
            return f"the global {kind.value} configuration is in force in namespace {place}"
        return f"the built-in {kind.value} defaults are in force"

    def _errors_about(self, namespace: str) -> Iterator[tuple[Key, EntryError]]:
        for kind, held in self._held.items():
            for place in ("", namespace):
                key = self._chosen.get((kind, place))
                if key is not None:
                    yield from ((key, error) for error in held.errors(place))
        failure = self._failure(namespace)
        chosen = sorted({key for (_, place), key in self._chosen.items() if place == namespace})
        if isinstance(failure, EntryError):
            yield from ((key, failure) for key in chosen)

    def _policy(self) -> Policy:
        everywhere, default = self._saturation.everywhere, self._saturation.global_default
        layered = (self._saturation, self._scale_to_zero, self._queueing)
        namespaces = sorted({namespace for held in layered for namespace in held.local} - self._failed.keys())
        return Policy(
            everywhere.default or SaturationPolicy(),
            everywhere.overrides,
            compatibility=default.compatibility if default else None,
            enable_limiter=bool(default and default.enable_limiter),
            scale_to_zero=self._scale_to_zero.everywhere,
            queueing=self._queueing.everywhere,
            unknown_inventory=saturation.unknown_inventory_of(default),
            solver=queueing.solver_of(self._queueing.global_default),
            namespaces=tuple(
                NamespacePolicy(
                    namespace,
                    self._saturation.local.get(namespace, SaturationRules()),
                    self._scale_to_zero.local.get(namespace, ScaleToZeroRules()),
                    self._queueing.local.get(namespace, QueueingRules()),
                )
                for namespace in namespaces
            ),
            service_targets=self._classes.current.targets,
            accelerator_costs=self._costs.current.values,
            profiles=self._profiles.current.values,
        )

    def _tell_change(self, kind: MapKind, place: str, old: Mapping[Any, object], new: Mapping[Any, object]) -> None:
        if old == new:
            return
        changed: list[Any] = sorted((key for key in {*old, *new} if old.get(key) != new.get(key)), key=str)
        text = f"Updated {kind.value} config"
        self._logger.info(
            text,
            event_name=f"{kind.name.lower()}_config_updated",
            oldEntries=len(old),
            newEntries=len(new),
            old=_said(old, changed),
            new=_said(new, changed),
            moreChanged=max(0, len(changed) - _TOLD_CHANGES),
            **({"scope": place} if place else {}),
        )


def _said(entries: Mapping[Any, object], changed: list[Any]) -> dict[str, object]:
    """Return what entries say, for the log."""
    return {shown(str(key)): _values(entries[key]) for key in changed[:_TOLD_CHANGES] if key in entries}


def _values(value: object) -> object:
    if isinstance(value, Entry):
        return value.fields.model_dump(mode="json", by_alias=True, exclude_none=True)
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)


def _concerns(error: EntryError, va: VariantAutoscaling) -> bool:
    """Tell whether a rejected entry was meant for this variant; one that names no model may be meant for any."""
    if error.model_id and error.model_id != va.spec.model_id:
        return False
    return not error.namespace or error.namespace == va.metadata.namespace
