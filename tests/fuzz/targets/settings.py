"""The main ConfigMap, at the start and while the process runs. An input is a JSON mapping, or one text for all keys."""

from __future__ import annotations

import json
import math

from wva.config import Inputs, Settings, fatal_problems, load
from wva.config.declare import declarations
from wva.config.load import LiveSettings, describe, static_changes, summary, unknown_keys

KEYS = sorted({key for field in declarations(Settings).values() for key in field.keys})
SECRET = "hunter2"
LONGEST_LINE = 2_000
MOST_CHARACTERS = 1_000
"""The longest text that becomes the value of every setting."""
_BASE = {"PROMETHEUS_BASE_URL": "https://p", "POD_NAMESPACE": "wva"}


def words():
    """Return every key, and values of all types."""
    yield from KEYS
    yield from ("30s", "1h30m", "0", "true", "false", "debug", "info", "https://", "http://u:p@h:1/", "-1s", "1000000h")
    yield from (
        "9999999999",
        "1e9",
        "10",
        "",
        " ",
        SECRET,
        "\x00",
        "/etc/token",
        ":8443",
        "a,b",
        "0.5",
        "inference.networking.k8s.io",
    )


def check(data):
    """Every setting in force has a value that its field allows, messages are short, and no text has a secret."""
    given = _mapping(data)
    secret = {"PROMETHEUS_BEARER_TOKEN": SECRET + given.get("PROMETHEUS_BEARER_TOKEN", "")}
    sources = Inputs({}, _BASE, given | secret)
    loaded = load(sources)
    _judge(loaded.settings)
    live = LiveSettings(load(Inputs({}, _BASE, {})).settings, Inputs({}, _BASE, {}), set_level=lambda _: None)
    taken = live.take(given | secret)
    _judge(live.current)
    assert live.current.global_opt_interval > 0
    told = [*map(str, loaded.problems), *fatal_problems(loaded, sources), *taken.problems, taken.rejected]
    told += [summary(static_changes({}, given | secret)), *unknown_keys(given)]
    assert all(len(line) <= LONGEST_LINE for line in told)
    if not any(SECRET in text for text in (*given, *given.values())):
        assert SECRET not in repr([told, describe(loaded), loaded])
    return any(source == "configmap" for name, source in loaded.sources.items() if "token" not in name)


def _mapping(data):
    text = data.decode("utf-8", errors="replace")
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        return dict.fromkeys(KEYS, text[:MOST_CHARACTERS])
    return {key: value for key, value in given.items() if isinstance(value, str)}


def _judge(settings):
    assert 0 < settings.global_opt_interval < math.inf
    assert 0 < settings.fresh_threshold <= settings.unavailable_threshold < math.inf
    assert settings.scale_from_zero_max_concurrency >= 0
    assert settings.pod_namespace == "wva"
    for name in declarations(Settings):
        value = getattr(settings, name)
        assert not isinstance(value, float) or math.isfinite(value)
