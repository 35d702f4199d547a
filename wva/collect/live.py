"""The configuration in force, changing while the process runs.

ConfigMap text comes in through ``apply``, parsed values are read by the loop and the collector. What does not parse
leaves the last good value in force and is remembered as a problem, so that the variants it concerns can say so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

from wva import log
from wva.api.meta import Key
from wva.api.variantautoscaling import VariantAutoscaling
from wva.collect.configmaps import EntryError, SaturationConfig, parse_saturation
from wva.model.metrics import Freshness
from wva.model.policy import Policy
from wva.settings import Given, Loaded, Problem, Settings, load, origin_of

_LIMITS = ("fresh_threshold", "unavailable_threshold")
_TOLD_PROBLEMS = 10
"""A ConfigMap has room for tens of thousands of bad entries; a condition has not."""
_DYNAMIC = ("global_opt_interval", *_LIMITS)


class LiveConfiguration:
    """Policy, interval and freshness limits in force."""

    def __init__(self, settings: Settings, given: Given) -> None:
        """Start with what the process was started with."""
        namespace = settings.pod_namespace
        self._main = Key(namespace, settings.config_map_name)
        self._saturation = Key(namespace, settings.saturation_config_map_name)
        self._settings = settings
        self._given = given
        self._listeners: list[Callable[[], None]] = []
        self._logger = log.get("configuration")
        self._saturation_config = SaturationConfig(policy=Policy())
        self.changed = asyncio.Event()

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after every ConfigMap that was taken."""
        self._listeners.append(listener)

    @property
    def policy(self) -> Policy:
        """What the decisions obey."""
        return self._saturation_config.policy

    @property
    def interval_seconds(self) -> float:
        """Time between the starts of two cycles."""
        return self._settings.global_opt_interval

    @property
    def freshness(self) -> Freshness:
        """Age limits of samples."""
        return Freshness(self._settings.fresh_threshold, self._settings.unavailable_threshold)

    @property
    def watched(self) -> frozenset[Key]:
        """The ConfigMaps that configure this process."""
        return frozenset({self._main, self._saturation})

    def problem_for(self, va: VariantAutoscaling) -> str:
        """Return what is wrong with the configuration of one variant, empty when nothing is."""
        concerning = [error for error in self._saturation_config.errors if _concerns(error, va)]
        told = [f"ConfigMap {self._saturation}: {error}" for error in concerning[:_TOLD_PROBLEMS]]
        if len(concerning) > len(told):
            told.append(f"and {len(concerning) - len(told)} more")
        return "; ".join(told)

    def apply(self, key: Key, data: Mapping[str, str] | None) -> list[str] | None:
        """Take the data of a ConfigMap (None: it is gone); return its problems, None if it is not one of ours."""
        if key == self._saturation:
            problems = self._apply_saturation(data)
        elif key == self._main:
            problems = self._apply_main(data or {})
        else:
            return None
        self.changed.set()
        for listener in self._listeners:
            listener()
        return problems

    def _apply_saturation(self, data: Mapping[str, str] | None) -> list[str]:
        old = self._saturation_config
        if data is None:
            self._saturation_config = SaturationConfig(policy=Policy())
        else:
            self._saturation_config = parse_saturation(data, previous=old.policy)
        new = self._saturation_config
        if old.policy != new.policy:
            self._logger.info(
                "Updated saturation config",
                event_name="saturation_config_updated",
                oldEntries=1 + len(old.policy.overrides),
                newEntries=1 + len(new.policy.overrides),
                old=repr(old.policy),
                new=repr(new.policy),
            )
        for warning in new.warnings:
            self._logger.warning("saturation_config_warning", config_map=str(self._saturation), warning=warning)
        return [str(error) for error in new.errors]

    def _apply_main(self, data: Mapping[str, str]) -> list[str]:
        loaded = load(replace(self._given, config_map=data))
        old = self._settings
        problems, kept = self._main_problems(loaded, data)
        update = {name: getattr(loaded.settings, name) for name in _DYNAMIC if name not in kept}
        self._settings = old.model_copy(update=update)
        if old.global_opt_interval != self._settings.global_opt_interval:
            self._logger.info(
                "Updated optimization interval",
                event_name="interval_updated",
                old=f"{old.global_opt_interval:g}s",
                new=f"{self._settings.global_opt_interval:g}s",
            )
        return [str(problem) for problem in problems]

    def _main_problems(self, loaded: Loaded, data: Mapping[str, str]) -> tuple[list[Problem], set[str]]:
        """Return what is wrong with the main ConfigMap, and the settings whose last good value stays for it."""
        names = {key: name for name in _DYNAMIC for key in origin_of(Settings.model_fields[name]).keys}
        old, problems, kept = self._settings, [], set[str]()
        for problem in loaded.problems:
            if problem.source == "configmap" and problem.key in names:
                name = names[problem.key]
                kept.add(name)
                problems.append(replace(problem, in_force=str(getattr(old, name))))
            elif problem.source == "configmap":
                problems.append(problem)
            elif problem.source == "all" and any(names.get(key) in _LIMITS for key in data):
                kept.update(_LIMITS)
                limits = f"{old.fresh_threshold:g}s and {old.unavailable_threshold:g}s"
                problems.append(replace(problem, in_force=limits))
        return problems, kept


def _concerns(error: EntryError, va: VariantAutoscaling) -> bool:
    """Tell whether a rejected entry was meant for this variant; one that names no model may be meant for any."""
    if error.model_id and error.model_id != va.spec.model_id:
        return False
    return not error.namespace or error.namespace == va.metadata.namespace
