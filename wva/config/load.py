"""Turns the given texts into the settings in force, and reports the texts that cannot be used.

A value that does not parse becomes a ``Problem``, and the next source is asked. ``fatal_problems`` reports missing
required settings, and the few values that must not give way to a default, all of them at once.

Connection settings of Prometheus are the exception to per-key precedence: if the environment gives the URL, all of them
come from there, because a token in a ConfigMap must never be sent to another source's URL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from wva import log
from wva.config.declare import Declaration, FatalValue, declarations, shortened, shown
from wva.config.keys import LIMITS, LOG_CHANGE, Settings
from wva.model.records import replace

SourceName = Literal["flag", "environment", "configmap", "default"]

URL_KEY: Final = "PROMETHEUS_BASE_URL"
NOT_SET: Final = "(not set)"
_MAX_UNKNOWN: Final = 10
_MAX_LISTED_CHARACTERS: Final = 700


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the process was started with: flags by attribute, the environment, the main ConfigMap's data.

    All three may hold secrets, so none is shown.
    """

    flags: Mapping[str, str] = field(repr=False)
    environment: Mapping[str, str] = field(repr=False)
    config_map: Mapping[str, str] = field(repr=False)


NO_INPUTS: Final = Inputs({}, {}, {})


@dataclass(frozen=True, slots=True)
class Problem:
    """A value that cannot be used as it is; with a ``fatal`` one the process does not start."""

    source: str
    key: str
    value: str
    expected: str
    in_force: str
    fatal: bool = False

    def __str__(self) -> str:
        """Return the one line that an operator needs."""
        return f"{self._rejected}; in force: {self.in_force or 'nothing'}"

    @property
    def refusal(self) -> str:
        """The line of a process that does not start because of this."""
        return f"{self._rejected}; the process does not start with it"

    @property
    def _rejected(self) -> str:
        return f"{self.key}={shortened(self.value)!r} ({self.source}): expected {self.expected}"


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings in force, where each came from, and what could not be used."""

    settings: Settings
    sources: Mapping[str, SourceName]
    problems: tuple[Problem, ...]
    without_effect: tuple[str, ...]


def load(inputs: Inputs, model: type[Settings] = Settings, last: Loaded | None = None) -> Loaded:
    """Merge the sources: flags over environment over ConfigMap over ``last``.

    ``last`` is what a running process has in force (None: the defaults). It replaces a wrong value of the ConfigMap.
    """
    keys = declarations(model)
    beneath = last or Loaded(model(), dict.fromkeys(keys, "default"), (), ())
    good: dict[str, tuple[Any, SourceName]] = {}
    rejected: list[tuple[str, Problem]] = []
    without_effect: list[str] = []
    for name, declared in keys.items():
        shut_out = inputs.environment.get(declared.shut_out_by)
        texts: dict[SourceName, tuple[str, str] | None] = {
            "flag": (declared.flags[0], inputs.flags[name]) if name in inputs.flags else None,
            "environment": text_in("environment", declared, inputs.environment),
            "configmap": None if shut_out else text_in("configmap", declared, inputs.config_map),
        }
        for source, key_and_text in texts.items():
            if key_and_text is None:
                continue
            (key, text), value = key_and_text, None
            spelling = f"--{key}" if source == "flag" else key
            try:
                value = declared.form.read(text)
                good.setdefault(name, (value, source))
            except ValueError as error:
                fatal = isinstance(error, FatalValue) and name not in good
                problem = Problem(source, spelling, declared.masked(text), declared.form.expected, "", fatal)
                rejected.append((name, problem))
                if source == "configmap":
                    good.setdefault(name, (getattr(beneath.settings, name), beneath.sources[name]))
            if declared.no_effect and value != declared.default:
                without_effect.append(f"{spelling}: {declared.no_effect}")
    settings = model(**{name: value for name, (value, _) in good.items()})
    sources: dict[str, SourceName] = {name: good[name][1] if name in good else "default" for name in keys}
    problems = [replace(problem, in_force=shortened(shown(getattr(settings, name)))) for name, problem in rejected]
    fresh, missing = LIMITS
    if settings.fresh_threshold > settings.unavailable_threshold:
        # A fresh sample could be older than a missing one, and it is unclear which was meant.
        expected = f"at most {keys[missing].key} ({shown(settings.unavailable_threshold)})"
        stay = {name: getattr(beneath.settings, name) for name in LIMITS}
        in_force = f"{'' if last else 'the defaults '}{' and '.join(map(shown, stay.values()))}"
        problems.append(Problem("all", keys[fresh].key, shown(settings.fresh_threshold), expected, in_force))
        settings = settings.model_copy(update=stay)
        sources |= {name: beneath.sources[name] for name in LIMITS}
    return Loaded(settings, sources, tuple(problems), tuple(without_effect))


def text_in(place: str, declared: Declaration, data: Mapping[str, str]) -> tuple[str, str] | None:
    """Return key and text that the environment or a ConfigMap gives for a setting. Empty text means unset."""
    keys = declared.keys if place in declared.places else ()
    return next(((key, data[key]) for key in keys if data.get(key)), None)


def fatal_problems(loaded: Loaded, inputs: Inputs, *, may_have_more: bool = False) -> list[str]:
    """Return one line per reason why the process could never work; empty when it can start.

    ``may_have_more``: the ConfigMap was not read and may have what is missing here.
    """
    settings = loaded.settings
    lines = [problem.refusal for problem in loaded.problems if problem.fatal]
    if not settings.prometheus_base_url and not may_have_more:
        name = shortened(f"{settings.pod_namespace}/{settings.config_map_name}")
        where = f"the environment or the ConfigMap {name}"
        value = inputs.environment.get(URL_KEY, inputs.config_map.get(URL_KEY))
        state = "is not set" if value is None else "is empty"
        lines.append(f"{URL_KEY} {state}: expected the URL of Prometheus in {where}; nothing is in force without it")
    return lines


def unknown_keys(data: Mapping[str, str], model: type[Settings] = Settings) -> list[str]:
    """Return the keys of a main ConfigMap that no setting has, such as misspelt ones; at most ten, shortened."""
    known = {key for declared in declarations(model).values() for key in declared.keys}
    return [shortened(key) for key in sorted(data) if key not in known][:_MAX_UNKNOWN]


# --- changes that need a restart --------------------------------------------------------------------------------------


class StaticChange(NamedTuple):
    """One static setting that the ConfigMap gives another value; the texts show no secret."""

    parameter: str
    old: str
    new: str

    def __str__(self) -> str:
        """Return the change as part of a sentence."""
        return f"{self.parameter}: {shortened(self.old)} -> {shortened(self.new)}"


def static_changes(
    before: Mapping[str, str], now: Mapping[str, str], model: type[Settings] = Settings
) -> list[StaticChange]:
    """Return the static settings for which two states of the main ConfigMap give different values.

    That a flag or the environment overrides a setting does not matter: the value in force stays in any case, and the
    next start would read the new one. Removing a key is a change too. Texts that mean the same value (``60s`` and
    ``1m``) are no change.
    """
    changes = []
    for declared in declarations(model).values():
        if declared.live is None:
            (old, old_text, old_key), (new, new_text, new_key) = _meaning(declared, before), _meaning(declared, now)
            if old != new:
                changes.append(StaticChange(new_key or old_key, old_text, new_text))
    return changes


def _meaning(declared: Declaration, data: Mapping[str, str]) -> tuple[object, str, str]:
    """Return what a ConfigMap gives for a setting: something to compare, a text to show, the key."""
    key_and_text = text_in("configmap", declared, data)
    if key_and_text is None:
        return None, NOT_SET, ""
    key, text = key_and_text
    try:
        value = declared.form.read(text)
    except ValueError:
        return ("unusable", text), declared.masked(text), key
    return value, shown(value) or repr(""), key


def summary(changes: list[StaticChange]) -> str:
    """Return the changes as one sentence of bounded length."""
    listed: list[str] = []
    for change in changes:
        if sum(map(len, listed)) + len(str(change)) > _MAX_LISTED_CHARACTERS:
            listed.append(f"and {len(changes) - len(listed)} more")
            break
        listed.append(str(change))
    return (
        f"Attempted to change immutable parameters: {'; '.join(listed)}. The running values stay until the controller "
        "is restarted; the other changes of the ConfigMap are applied."
    )


# --- what ``wva config`` and ``/debug/config`` show -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SettingInForce:
    """One setting: its canonical name, value and source.

    ``applies`` tells whether a change of the ConfigMap is followed ``live`` or at the next ``start``. Values are texts
    as a ConfigMap would have them; secrets are masked.
    """

    name: str
    value: str
    source: SourceName
    applies: Literal["live", "start"]
    default: str
    flags: tuple[str, ...]
    keys: tuple[str, ...]


def describe(loaded: Loaded) -> list[SettingInForce]:
    """Return every setting, in the order of the documentation."""
    entries = []
    for name, declared in declarations(type(loaded.settings)).items():
        flags = tuple(f"-{flag}" if len(flag) == 1 else f"--{flag}" for flag in declared.flags)
        keys = declared.keys if declared.places else ()
        entries.append(
            SettingInForce(
                name=(*keys, *flags)[0],
                value=shown(getattr(loaded.settings, name)),
                source=loaded.sources[name],
                applies="live" if declared.live else "start",
                default=shown(declared.default),
                flags=flags,
                keys=keys,
            )
        )
    return entries


# --- settings that follow the main ConfigMap --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Taken:
    """The result of taking a main ConfigMap: what is wrong with it, and the rejected changes that are news."""

    problems: tuple[str, ...] = ()
    rejected: str = ""


class LiveSettings:
    """Settings of the process with the live ones as the main ConfigMap has them now.

    A live setting follows at once, and the log has the old and the new value. A value that does not parse leaves the
    last good one in force. Any other setting stays as it was at the start: an attempt to change it is reported once for
    each content of the ConfigMap. Deleting the ConfigMap changes no setting.
    """

    def __init__(self, settings: Settings, inputs: Inputs, *, set_level: Callable[[str], None] = log.set_level) -> None:
        """Start with what the process was started with. ``set_level`` changes the log level."""
        self._model = type(settings)
        self._live = {name: declared for name, declared in declarations(self._model).items() if declared.live}
        self._loaded = replace(load(inputs, self._model), settings=settings)
        self.inputs = inputs
        self._data = inputs.config_map
        self._rejected: list[StaticChange] = []
        self.standing = Taken()
        """What is wrong with the present ConfigMap, and its rejected changes, whether or not they are news."""
        self._set_level = set_level
        self._logger = log.get("configuration")

    @property
    def current(self) -> Settings:
        """The settings in force."""
        return self._loaded.settings

    def describe(self) -> list[SettingInForce]:
        """Return every setting with its value and source; secrets are masked."""
        return describe(self._loaded)

    def take(self, data: Mapping[str, str]) -> Taken:
        """Take the data of the main ConfigMap."""
        old = self._loaded
        loaded = load(replace(self.inputs, config_map=data), self._model, old)
        update = {name: getattr(loaded.settings, name) for name in self._live}
        sources = {**old.sources, **{name: loaded.sources[name] for name in self._live}}
        self._loaded = replace(old, settings=old.settings.model_copy(update=update), sources=sources)
        former, current = old.settings, self.current
        for name, declared in sorted(self._live.items()):
            # A changed key has no effect while a flag or the environment gives the setting.
            key_and_text, source = text_in("configmap", declared, data), sources[name]
            if (
                key_and_text
                and key_and_text != text_in("configmap", declared, self._data)
                and source in {"flag", "environment"}
            ):
                in_force = shown(getattr(current, name))
                self._logger.warning("setting_overridden", key=key_and_text[0], by=source, in_force=in_force)
        for live in dict.fromkeys(declared.live for declared in self._live.values() if declared.live != LOG_CHANGE):
            group = {declared.key: name for name, declared in self._live.items() if declared.live == live}
            changed = {key: name for key, name in group.items() if getattr(former, name) != getattr(current, name)}
            if live is not None and changed:
                texts = [
                    {key: shown(getattr(settings, name)) for key, name in changed.items()}
                    for settings in (former, current)
                ]
                # If there is only one key, the text names it.
                before, after = texts if len(group) > 1 else [next(iter(values.values())) for values in texts]
                self._logger.info(live.text, event_name=live.event_name, old=before, new=after)
        level, wanted = former.effective_log_level, current.effective_log_level
        if level != wanted:
            # The line is written while the more verbose of the two levels is in force.
            if log.LEVELS[wanted] < log.LEVELS[level]:
                self._set_level(wanted)
            self._logger.info(LOG_CHANGE.text, event_name=LOG_CHANGE.event_name, old=level, new=wanted)
            self._set_level(wanted)
        self._data = data
        changes = static_changes(self.inputs.config_map, data, self._model)
        news, self._rejected = changes != self._rejected, changes
        rejected = summary(changes) if changes else ""
        if news and changes:
            self._logger.error(
                "Attempted to change immutable parameters",
                event_name="immutable_change_rejected",
                changes=[change._asdict() for change in changes],
                in_force="the values since the start; a restart takes the new ones",
            )
        elif news:
            self._logger.info("immutable_changes_withdrawn")
        limits = {key for name in LIMITS for key in self._live[name].keys}
        problems = tuple(
            str(problem)
            for problem in loaded.problems
            if problem.source == "configmap" or (problem.source == "all" and not limits.isdisjoint(data))
        )
        self.standing = Taken(problems, rejected)
        return Taken(problems, rejected if news else "")
