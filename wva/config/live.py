"""The configuration in force, changing while the process runs: the settings of the process and the policy.

ConfigMap text comes in through ``apply`` and ``apply_main``, parsed values are read by the loop and the collector. A
live setting follows the main ConfigMap at once, and the log has the old and the new value. A value that does not parse
leaves the last good one in force. Any other setting stays as it was at the start: an attempt to change it is reported
once for each content of the ConfigMap. Deleting the main ConfigMap changes no setting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from wva import log
from wva.api.meta import Key
from wva.config.declare import Live, declarations, shown
from wva.config.keys import LIMITS, LOG_CHANGE, Settings
from wva.config.load import (
    Change,
    Given,
    Loaded,
    Problem,
    SettingInForce,
    config_map_text,
    describe,
    load,
    static_changes,
    summary,
)
from wva.config.policy_maps import AppliedConfigMap, LivePolicy, nowhere
from wva.model.metrics import Freshness
from wva.model.policy import Policy
from wva.model.records import replace
from wva.slices import Steps


@dataclass(frozen=True, slots=True)
class Taken:
    """What came of a main ConfigMap: what is wrong with it, and the rejected changes if they have not been told yet."""

    problems: tuple[str, ...] = ()
    rejected: str = ""


class LiveSettings:
    """Settings of the process with the live ones as the main ConfigMap has them now."""

    def __init__(self, settings: Settings, given: Given, *, set_level: Callable[[str], None] = log.set_level) -> None:
        """Start with what the process was started with. ``set_level`` changes the log level."""
        self._model = type(settings)
        self._live = {name: declared for name, declared in declarations(self._model).items() if declared.live}
        self._loaded = replace(load(given, self._model), settings=settings)
        self._given = given
        self._data = given.config_map
        self._rejected: list[Change] = []
        self.standing = Taken()
        """What is to be said of the ConfigMap as it is, whether or not it has been said."""
        self._set_level = set_level
        self._logger = log.get("configuration")

    @property
    def current(self) -> Settings:
        """The settings in force."""
        return self._loaded.settings

    @property
    def started_with_config_map(self) -> bool:
        """Whether the main ConfigMap gave anything when the process started."""
        return bool(self._given.config_map)

    def describe(self) -> list[SettingInForce]:
        """Return every setting with its value and source; secrets are masked."""
        return describe(self._loaded)

    def take(self, data: Mapping[str, str]) -> Taken:
        """Take the data of the main ConfigMap."""
        old = self._loaded
        fresh = load(replace(self._given, config_map=data), self._model)
        problems, kept = self._problems(fresh, data)
        limits = [getattr((old if name in kept else fresh).settings, name) for name in LIMITS]
        if sorted(limits) != limits:
            kept |= frozenset(LIMITS)  # one that stays contradicts one that came with it
        names = self._live.keys() - kept
        update = {name: getattr(fresh.settings, name) for name in names}
        sources = {**old.sources, **{name: fresh.sources[name] for name in names}}
        self._loaded = replace(old, settings=old.settings.model_copy(update=update), sources=sources)
        self._tell_overridden(data)
        self._tell_changes(old.settings)
        self._data = data
        taken = Taken(tuple(str(problem) for problem in problems), self._reject(data))
        self.standing = Taken(taken.problems, summary(self._rejected) if self._rejected else "")
        return taken

    def keep(self) -> None:
        """Go on without the main ConfigMap, which is gone: everything stays as it was."""
        self._logger.warning("main_config_map_gone", in_force="the settings that it gave last")

    def _problems(self, fresh: Loaded, data: Mapping[str, str]) -> tuple[list[Problem], frozenset[str]]:
        """Return what is wrong with the ConfigMap, and the settings whose last good value stays for it."""
        settings, problems, kept = self.current, [], set[str]()
        names = {key: name for name, declared in self._live.items() for key in declared.keys}
        for problem in fresh.problems:
            if problem.source == "configmap":
                name = names.get(problem.key)
                if name is not None:
                    kept.add(name)
                    problem = replace(problem, in_force=shown(getattr(settings, name)))  # noqa: PLW2901 - the same one
                problems.append(problem)
            elif problem.source == "all" and any(names.get(key) in LIMITS for key in data):
                kept.update(LIMITS)
                limits = " and ".join(shown(getattr(settings, name)) for name in LIMITS)
                problems.append(replace(problem, in_force=limits))
        return problems, frozenset(kept)

    def _reject(self, data: Mapping[str, str]) -> str:
        """Return what to tell about changes of static settings; empty when there are none or they have been told."""
        changes = static_changes(self._given.config_map, data, self._model)
        if changes == self._rejected:
            return ""
        self._rejected = changes
        if not changes:
            self._logger.info("immutable_changes_withdrawn")
            return ""
        self._logger.error(
            "Attempted to change immutable parameters",
            event_name="immutable_change_rejected",
            changes=[change._asdict() for change in changes],
            in_force="the values since the start; a restart takes the new ones",
        )
        return summary(changes)

    def _tell_overridden(self, data: Mapping[str, str]) -> None:
        """Say which changed keys do nothing because a flag or the environment gives the setting."""
        for name, declared in sorted(self._live.items()):
            source, found = self._loaded.sources[name], config_map_text(declared, data)
            if found is None or source in {"configmap", "default"} or found == config_map_text(declared, self._data):
                continue
            in_force = shown(getattr(self.current, name))
            self._logger.warning("setting_overridden", key=found[0], by=source, in_force=in_force)

    def _tell_changes(self, old: Settings) -> None:
        """Log what changed, and push it to the parts that do not read the settings again."""
        new = self.current
        changed: dict[Live, dict[str, tuple[str, str]]] = {}
        for name, declared in self._live.items():
            was, now = getattr(old, name), getattr(new, name)
            if was != now and declared.live is not None and declared.live != LOG_CHANGE:
                changed.setdefault(declared.live, {})[declared.key] = shown(was), shown(now)
        for live, values in changed.items():
            if sum(declared.live == live for declared in self._live.values()) == 1:
                ((was, now),) = values.values()
                self._logger.info(live.text, event_name=live.event_name, old=was, new=now)
            else:
                before, after = ({key: pair[side] for key, pair in values.items()} for side in (0, 1))
                self._logger.info(live.text, event_name=live.event_name, old=before, new=after)
        level, wanted = old.effective_log_level, new.effective_log_level
        if level == wanted:
            return
        # The line is written while the chattier of the two levels is in force.
        if log.LEVELS[wanted] < log.LEVELS[level]:
            self._set_level(wanted)
        self._logger.info(LOG_CHANGE.text, event_name=LOG_CHANGE.event_name, old=level, new=wanted)
        self._set_level(wanted)


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
