"""From what was given to what is in force.

A value that does not parse never stops the process by itself: it becomes a ``Problem`` that names the key, the value,
what was expected and what is in force instead, and the next source is asked. What is required and missing is said by
``fatal_problems``, all of it at once.

Prometheus connection settings are the exception to per-key precedence: if the environment gives the URL, all of them
come from there, because a token in a ConfigMap must never be sent to another source's URL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import SecretStr, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from wva.settings.model import Origin, Settings, origin_of
from wva.settings.sources import Layers

SourceName = Literal["flag", "environment", "configmap", "default"]

URL_KEY: Final = "PROMETHEUS_BASE_URL"
_CONNECTION_PREFIX: Final = "prometheus_"
_MASK: Final = "***"


@dataclass(frozen=True, slots=True)
class Given:
    """What the process was started with: flags by field name, the environment, the main ConfigMap's data."""

    flags: Mapping[str, str]
    environment: Mapping[str, str]
    config_map: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Problem:
    """A value that was given but cannot be used as it is."""

    source: str
    key: str
    value: str
    expected: str
    in_force: str

    def __str__(self) -> str:
        """Return the one line that an operator needs."""
        return f"{self.key}={self.value!r} ({self.source}): expected {self.expected}; in force: {self.in_force}"


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings in force, where each came from, and what could not be used."""

    settings: Settings
    sources: Mapping[str, SourceName]
    problems: tuple[Problem, ...]
    without_effect: tuple[str, ...]


def load(given: Given) -> Loaded:
    """Merge the sources: flags over environment over ConfigMap over defaults."""
    layers: dict[SourceName, dict[str, Any]] = {"flag": {}, "environment": {}, "configmap": {}}
    rejected: list[tuple[SourceName, str, str, str, str]] = []
    without_effect: list[str] = []
    connection_from_environment = bool(given.environment.get(URL_KEY))
    for name, field in Settings.model_fields.items():
        origin = origin_of(field)
        for source, key, text in _candidates(name, origin, given):
            if source == "configmap" and name.startswith(_CONNECTION_PREFIX) and connection_from_environment:
                continue
            if origin.no_effect and source == "flag":
                without_effect.append(f"--{key}: {origin.no_effect}")
            value, error = _validate(field, text)
            if error is None:
                layers[source][name] = value
            else:
                rejected.append((source, name, key, text, error))
    settings = Settings(layers=Layers((layers["flag"], layers["environment"], layers["configmap"])))  # type: ignore[call-arg]  # read by settings_customise_sources
    problems = [_problem(settings, entry) for entry in rejected]
    settings, more = _check_thresholds(settings)
    sources: dict[str, SourceName] = {
        name: next((source for source, values in layers.items() if name in values), "default")
        for name in Settings.model_fields
    }
    return Loaded(settings, sources, (*problems, *more), tuple(without_effect))


def fatal_problems(settings: Settings, given: Given) -> list[str]:
    """Return one line per thing without which the process could never work; empty when it can start."""
    lines: list[str] = []
    if not settings.prometheus_base_url:
        where = f"the environment or the ConfigMap {settings.pod_namespace}/{settings.config_map_name}"
        value = given.environment.get(URL_KEY, given.config_map.get(URL_KEY))
        state = "is not set" if value is None else "is empty"
        lines.append(f"{URL_KEY} {state}: expected the URL of Prometheus in {where}; nothing is in force without it")
    return lines


def _candidates(name: str, origin: Origin, given: Given) -> list[tuple[SourceName, str, str]]:
    """Return what was given for one field. Empty text in the environment or the ConfigMap means unset."""
    found: list[tuple[SourceName, str, str]] = []
    if name in given.flags:
        found.append(("flag", origin.flags[0], given.flags[name]))
    places: tuple[tuple[SourceName, Mapping[str, str]], ...] = (
        ("environment", given.environment),
        ("configmap", given.config_map),
    )
    for source, values in places:
        if source in origin.places:
            key = next((key for key in origin.keys if values.get(key)), None)
            if key is not None:
                found.append((source, key, values[key]))
    return found


def _validate(field: FieldInfo, text: str) -> tuple[Any, str | None]:
    """Return the value and None, or None and what was expected."""
    adapter: TypeAdapter[Any] = TypeAdapter(field.rebuild_annotation())
    try:
        return adapter.validate_python(text), None
    except ValidationError as error:
        message = error.errors(include_url=False, include_input=False)[0]["msg"]
        return None, message.removeprefix("Value error, ")


def _problem(settings: Settings, entry: tuple[SourceName, str, str, str, str]) -> Problem:
    source, name, key, text, expected = entry
    secret = isinstance(getattr(settings, name), SecretStr)
    in_force = _MASK if secret else str(getattr(settings, name))
    return Problem(source, f"--{key}" if source == "flag" else key, _MASK if secret else text, expected, in_force)


def _check_thresholds(settings: Settings) -> tuple[Settings, list[Problem]]:
    """Keep the order of the two freshness limits: a fresh sample cannot be older than an unavailable one."""
    if settings.fresh_threshold <= settings.unavailable_threshold:
        return settings, []
    defaults = {name: Settings.model_fields[name].default for name in ("fresh_threshold", "unavailable_threshold")}
    problem = Problem(
        "all",
        "PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD",
        f"{settings.fresh_threshold:g}s",
        f"at most PROMETHEUS_METRICS_CACHE_UNAVAILABLE_THRESHOLD ({settings.unavailable_threshold:g}s)",
        f"the defaults {defaults['fresh_threshold']:g}s and {defaults['unavailable_threshold']:g}s",
    )
    return settings.model_copy(update=defaults), [problem]
