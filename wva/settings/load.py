"""From the given texts to the settings in force.

A value that does not parse never stops the process by itself. It becomes a ``Problem`` that names the key, the value,
the expected value and the value in force instead, and the next source is asked. ``fatal_problems`` reports missing
required settings, and the few values that must not give way to a default, all of them at once.

Prometheus connection settings are the exception to per-key precedence: if the environment gives the URL, all of them
come from there, because a token in a ConfigMap must never be sent to another source's URL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

from pydantic import SecretStr, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from wva.settings.model import Settings
from wva.settings.origin import FatalValue, Origin, origin_of
from wva.settings.prometheus import ConnectionSettings
from wva.settings.sources import Layers
from wva.settings.text import MASK, shortened, shown, without_user

SourceName = Literal["flag", "environment", "configmap", "default"]

URL_KEY: Final = "PROMETHEUS_BASE_URL"
SECRETS: Final = frozenset(name for name, info in Settings.model_fields.items() if info.annotation is SecretStr)
_CONNECTION: Final = frozenset(ConnectionSettings.model_fields)
_ADAPTERS: Final[dict[str, TypeAdapter[Any]]] = {
    name: TypeAdapter(info.rebuild_annotation()) for name, info in Settings.model_fields.items()
}
_KNOWN_KEYS: Final = frozenset(key for info in Settings.model_fields.values() for key in origin_of(info).keys)
_MAX_UNKNOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Given:
    """What the process was started with: flags by field name, the environment, the main ConfigMap's data.

    All three may hold secrets, so none is shown.
    """

    flags: Mapping[str, str] = field(repr=False)
    environment: Mapping[str, str] = field(repr=False)
    config_map: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Problem:
    """A value that was given but cannot be used as it is; with a ``fatal`` one the process does not start."""

    source: str
    key: str
    value: str
    expected: str
    in_force: str
    fatal: bool = False

    def __str__(self) -> str:
        """Return the one line that an operator needs."""
        return f"{self._rejected}; in force: {self.in_force}"

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


class _Candidate(NamedTuple):
    """One text that was given for one setting."""

    name: str
    source: SourceName
    key: str
    text: str


class _Rejected(NamedTuple):
    candidate: _Candidate
    expected: str
    fatal: bool


def load(given: Given) -> Loaded:
    """Merge the sources: flags over environment over ConfigMap over defaults."""
    layers: dict[SourceName, dict[str, Any]] = {"flag": {}, "environment": {}, "configmap": {}}
    rejected: list[_Rejected] = []
    without_effect: list[str] = []
    for name, info in Settings.model_fields.items():
        origin = origin_of(info)
        for candidate in _candidates(name, origin, given):
            value, error, fatal = validate(name, candidate.text)
            if origin.no_effect and (error or value != info.default):
                dashes = "--" if candidate.source == "flag" else ""
                without_effect.append(f"{dashes}{candidate.key}: {origin.no_effect}")
            if error is None:
                layers[candidate.source][name] = value
            else:
                shadowed = any(name in values for values in layers.values())
                rejected.append(_Rejected(candidate, error, fatal and not shadowed))
    settings = Settings(layers=Layers((layers["flag"], layers["environment"], layers["configmap"])))  # type: ignore[call-arg]  # read by settings_customise_sources
    sources: dict[str, SourceName] = {
        name: next((source for source, values in layers.items() if name in values), "default")
        for name in Settings.model_fields
    }
    problems = tuple(_problem(settings, entry) for entry in rejected)
    return _without_contradiction(Loaded(settings, sources, problems, tuple(without_effect)))


def fatal_problems(loaded: Loaded, given: Given) -> list[str]:
    """Return one line per reason why the process could never work; empty when it can start."""
    settings = loaded.settings
    lines = [problem.refusal for problem in loaded.problems if problem.fatal]
    if not settings.prometheus_base_url:
        name = shortened(f"{settings.pod_namespace}/{settings.config_map_name}")
        where = f"the environment or the ConfigMap {name}"
        value = given.environment.get(URL_KEY, given.config_map.get(URL_KEY))
        state = "is not set" if value is None else "is empty"
        lines.append(f"{URL_KEY} {state}: expected the URL of Prometheus in {where}; nothing is in force without it")
    return lines


def unknown_keys(data: Mapping[str, str]) -> list[str]:
    """Return the keys of a main ConfigMap that no setting has, such as misspelt ones; at most ten, shortened."""
    unknown = (shortened(key) for key in sorted(data) if key not in _KNOWN_KEYS)
    return list(islice(unknown, _MAX_UNKNOWN))


def config_map_text(origin: Origin, data: Mapping[str, str]) -> tuple[str, str] | None:
    """Return key and text that a ConfigMap gives for a setting. Empty text means unset."""
    if "configmap" not in origin.places:
        return None
    return next(((key, data[key]) for key in origin.keys if data.get(key)), None)


def validate(name: str, text: str) -> tuple[Any, str | None, bool]:
    """Return the value and None, or None and what was expected; then, whether such a value is fatal at the start."""
    try:
        return _ADAPTERS[name].validate_python(text), None, False
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)[0]
        fatal = isinstance(details.get("ctx", {}).get("error"), FatalValue)
        return None, details["msg"].removeprefix("Value error, "), fatal


def _candidates(name: str, origin: Origin, given: Given) -> Iterator[_Candidate]:
    """Yield what was given for one field, most important first. Empty text means unset, except in a flag."""
    if name in given.flags:
        yield _Candidate(name, "flag", origin.flags[0], given.flags[name])
    if "environment" in origin.places:
        key = next((key for key in origin.keys if given.environment.get(key)), None)
        if key is not None:
            yield _Candidate(name, "environment", key, given.environment[key])
    found = config_map_text(origin, given.config_map)
    if found is not None and not (name in _CONNECTION and given.environment.get(URL_KEY)):
        yield _Candidate(name, "configmap", *found)


def _problem(settings: Settings, rejected: _Rejected) -> Problem:
    (name, source, key, text), expected, fatal = rejected
    value = MASK if name in SECRETS else without_user(text)
    in_force = shortened(shown(getattr(settings, name)))
    return Problem(source, f"--{key}" if source == "flag" else key, value, expected, in_force, fatal)


def _without_contradiction(loaded: Loaded) -> Loaded:
    """Bring both defaults back when a fresh sample could be older than a missing one: it is unclear which was meant."""
    settings = loaded.settings
    if settings.fresh_threshold <= settings.unavailable_threshold:
        return loaded
    defaults = {name: Settings.model_fields[name].default for name in ("fresh_threshold", "unavailable_threshold")}
    problem = Problem(
        "all",
        _key("fresh_threshold"),
        shown(settings.fresh_threshold),
        f"at most {_key('unavailable_threshold')} ({shown(settings.unavailable_threshold)})",
        f"the defaults {' and '.join(shown(value) for value in defaults.values())}",
    )
    sources = {**loaded.sources, **dict.fromkeys(defaults, "default")}
    settings = settings.model_copy(update=defaults)
    return Loaded(settings, sources, (*loaded.problems, problem), loaded.without_effect)  # type: ignore[arg-type]  # "default" is a SourceName


def _key(name: str) -> str:
    return origin_of(_field(name)).keys[0]


def _field(name: str) -> FieldInfo:
    return Settings.model_fields[name]
