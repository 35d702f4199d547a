"""The settings in force, which change with the main ConfigMap while the process runs.

A dynamic setting follows the ConfigMap at once, and the log has the old and the new value. A value that does not parse
leaves the last good one in force. A static setting stays as it was at the start: an attempt to change it is reported
once for each content of the ConfigMap. Deleting the ConfigMap changes no setting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from wva import log
from wva.collect.answer_cache import CacheSettings
from wva.model.metrics import Freshness
from wva.model.records import replace
from wva.settings import Given, Loaded, Problem, Settings, load, origin_of
from wva.settings.changes import Change, static_changes, summary
from wva.settings.describe import SettingInForce, describe
from wva.settings.load import config_map_text
from wva.settings.text import shown

_LIMITS: Final = ("fresh_threshold", "unavailable_threshold")
_CACHE: Final = (
    "metrics_cache_enabled",
    "metrics_cache_ttl",
    "metrics_cache_cleanup_interval",
    "metrics_cache_fetch_interval",
    *_LIMITS,
    "stale_threshold",
    "metrics_cache_max_size",
)
_KEYS: Final = {
    name: origin.keys for name, field in Settings.model_fields.items() if (origin := origin_of(field)).dynamic
}
DYNAMIC: Final = frozenset(_KEYS)
_NAMES: Final = {key: name for name, keys in _KEYS.items() for key in keys}


@dataclass(frozen=True, slots=True)
class Taken:
    """What came of a main ConfigMap: what is wrong with it, and the rejected changes if they have not been told yet."""

    problems: tuple[str, ...] = ()
    rejected: str = ""


class LiveSettings:
    """Settings of the process with the dynamic ones as the main ConfigMap has them now."""

    def __init__(self, settings: Settings, given: Given, *, set_level: Callable[[str], None] = log.set_level) -> None:
        """Start with what the process was started with. ``set_level`` changes the log level."""
        loaded = load(given)
        self._loaded = replace(loaded, settings=settings)
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

    @property
    def freshness(self) -> Freshness:
        """Age limits of samples."""
        return Freshness(self.current.fresh_threshold, self.current.unavailable_threshold)

    @property
    def metrics_cache(self) -> CacheSettings:
        """How long answers of Prometheus are kept."""
        settings = self.current
        return CacheSettings(
            enabled=settings.metrics_cache_enabled,
            ttl_seconds=settings.metrics_cache_ttl,
            stale_seconds=settings.stale_threshold,
            cleanup_interval_seconds=settings.metrics_cache_cleanup_interval,
            fetch_interval_seconds=settings.metrics_cache_fetch_interval,
            max_size=settings.metrics_cache_max_size,
            interval_seconds=settings.global_opt_interval,
        )

    def describe(self) -> list[SettingInForce]:
        """Return every setting with its value and source; secrets are masked."""
        return describe(self._loaded)

    def take(self, data: Mapping[str, str]) -> Taken:
        """Take the data of the main ConfigMap."""
        old = self._loaded
        fresh = load(replace(self._given, config_map=data))
        problems, kept = self._problems(fresh, data)
        if _out_of_order([getattr((old if name in kept else fresh).settings, name) for name in _LIMITS]):
            kept |= frozenset(_LIMITS)  # one that stays contradicts one that came with it
        names = DYNAMIC - kept
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
        for problem in fresh.problems:
            if problem.source == "configmap":
                name = _NAMES.get(problem.key)
                if name is None:
                    problems.append(problem)
                else:
                    kept.add(name)
                    problems.append(replace(problem, in_force=shown(getattr(settings, name))))
            elif problem.source == "all" and any(_NAMES.get(key) in _LIMITS for key in data):
                kept.update(_LIMITS)
                limits = f"{shown(settings.fresh_threshold)} and {shown(settings.unavailable_threshold)}"
                problems.append(replace(problem, in_force=limits))
        return problems, frozenset(kept)

    def _reject(self, data: Mapping[str, str]) -> str:
        """Return what to tell about changes of static settings; empty when there are none or they have been told."""
        changes = static_changes(self._given.config_map, data)
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
        for name in sorted(DYNAMIC):
            origin, source = origin_of(Settings.model_fields[name]), self._loaded.sources[name]
            found = config_map_text(origin, data)
            if found is None or source in {"configmap", "default"} or found == config_map_text(origin, self._data):
                continue
            self._logger.warning(
                "setting_overridden", key=found[0], by=source, in_force=shown(getattr(self.current, name))
            )

    def _tell_changes(self, old: Settings) -> None:
        """Log what changed, and push it to the parts that do not read the settings again."""
        new = self.current
        self._tell("Updated optimization interval", "interval_updated", ("global_opt_interval",), old)
        self._tell("Updated Prometheus cache config", "metrics_cache_updated", _CACHE, old)
        before, after = old.effective_log_level, new.effective_log_level
        if before == after:
            return
        # The line is written while the chattier of the two levels is in force.
        if log.LEVELS[after] < log.LEVELS[before]:
            self._set_level(after)
        self._logger.info("Updated log config", event_name="log_level_updated", old=before, new=after)
        self._set_level(after)

    def _tell(self, text: str, event_name: str, names: tuple[str, ...], old: Settings) -> None:
        changed = [name for name in names if getattr(old, name) != getattr(self.current, name)]
        if not changed:
            return
        if len(names) == 1:
            name = names[0]
            before, after = shown(getattr(old, name)), shown(getattr(self.current, name))
            self._logger.info(text, event_name=event_name, old=before, new=after)
            return
        self._logger.info(
            text,
            event_name=event_name,
            old={_KEYS[name][0]: shown(getattr(old, name)) for name in changed},
            new={_KEYS[name][0]: shown(getattr(self.current, name)) for name in changed},
        )


def _out_of_order(limits: list[float]) -> bool:
    return sorted(limits) != limits
