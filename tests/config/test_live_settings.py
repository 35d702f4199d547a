"""The main ConfigMap while the process runs: which changes apply, which wait for a restart, and what WVA reports."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.config.samples import FIELDS, samples
from wva.config import Inputs, load
from wva.config.live import LiveConfiguration
from wva.config.load import LiveSettings

URL = "PROMETHEUS_BASE_URL"
START = {URL: "https://start", "GLOBAL_OPT_INTERVAL": "60s"}
NAMES = sorted(name for name, declared in FIELDS.items() if declared.live)


class LiveSettingsScene:
    """Live settings of a process, and what it logged."""

    def __init__(self, config_map=START, *, environment=None, flags=None):
        """Start with these sources."""
        self.given = Inputs(flags or {}, environment or {}, dict(config_map))
        self.levels = []
        self.live = LiveSettings(load(self.given).settings, self.given, set_level=self.levels.append)

    def take(self, **data):
        """Take the ConfigMap of the start with changes; None removes a key. Return the outcome and the log lines."""
        merged = {key: text for key, text in {**self.given.config_map, **data}.items() if text is not None}
        with capture_logs() as logged:
            taken = self.live.take(merged)
        return taken, logged

    def value(self, name):
        """Return the value in force."""
        return getattr(self.live.current, name)

    def source(self, name):
        """Return the source of the value in force."""
        key = FIELDS[name].keys[0]
        return next(entry.source for entry in self.live.describe() if entry.name == key)


def key(name):
    """Return the canonical key of a field."""
    return FIELDS[name].keys[0]


@pytest.mark.parametrize("name", NAMES)
def test_a_dynamic_setting_follows_the_config_map(name):
    """Value and source follow each change, and return to the default when the key is removed."""
    scene = LiveSettingsScene({URL: "https://start"})
    for text, value in samples(name):
        assert scene.take(**{key(name): text})[0].problems == ()
        assert (scene.value(name), scene.source(name)) == (value, "configmap")
    scene.take(**{key(name): None})
    assert (scene.value(name), scene.source(name)) == (FIELDS[name].default, "default")


@pytest.mark.parametrize("name", NAMES)
def test_a_value_that_cannot_be_used_leaves_the_last_good_one(name):
    """The last good value stays in force, and not the default."""
    scene = LiveSettingsScene({URL: "https://start"})
    text, value = samples(name)[0]
    scene.take(**{key(name): text})
    taken, _ = scene.take(**{key(name): "no such value"})
    assert scene.value(name) == value
    (problem,) = taken.problems
    assert problem.startswith(f"{key(name)}='no such value' (configmap): expected ")


@pytest.mark.parametrize("name", NAMES)
def test_the_environment_still_wins(name):
    """WVA logs once that the key of the ConfigMap has no effect."""
    (mine, value), (other, _) = samples(name)
    scene = LiveSettingsScene({URL: "https://start"}, environment={key(name): mine})
    _, logged = scene.take(**{key(name): other})
    assert scene.value(name) == value
    (line,) = [line for line in logged if line["event"] == "setting_overridden"]
    assert (line["key"], line["by"]) == (key(name), "environment")
    assert scene.take(**{key(name): other})[1] == []


def test_a_new_interval_is_logged_with_the_old_one():
    """The event name is the one that the configuration guide names."""
    _, logged = LiveSettingsScene().take(GLOBAL_OPT_INTERVAL="2m")
    (line,) = logged
    assert line["event"] == "Updated optimization interval"
    assert (line["old"], line["new"], line["log_level"]) == ("60s", "120s", "info")


def test_changed_limits_are_logged_together():
    """One line has the changed limits, and no others."""
    _, logged = LiveSettingsScene().take(
        PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD="30s", PROMETHEUS_METRICS_CACHE_TTL="10s"
    )
    (line,) = logged
    assert line["event"] == "Updated Prometheus cache config"
    assert line["old"] == {"PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD": "60s", "PROMETHEUS_METRICS_CACHE_TTL": ""}
    assert line["new"] == {"PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD": "30s", "PROMETHEUS_METRICS_CACHE_TTL": "10s"}


@pytest.mark.parametrize(
    ("data", "level"), [({"LOG_LEVEL": "debug"}, "debug"), ({"V": "4"}, "debug"), ({"LOG_LEVEL": "error"}, "error")]
)
def test_the_log_level_changes_at_once(data, level):
    """Either key changes it. WVA writes the line about it at the chattier of the two levels."""
    scene = LiveSettingsScene()
    _, logged = scene.take(**data)
    assert scene.levels[-1] == level
    (line,) = logged
    assert (line["event"], line["old"], line["new"]) == ("Updated log config", "info", level)
    assert scene.take(**data)[1] == []


def test_a_verbosity_below_an_explicit_level_changes_nothing():
    """LOG_LEVEL has precedence over V."""
    scene = LiveSettingsScene({"LOG_LEVEL": "warn"})
    scene.take(V="5")
    assert scene.levels == []


def test_a_static_change_is_rejected_and_the_rest_applied():
    """WVA logs one error line and returns one text for the event; both name each parameter."""
    scene = LiveSettingsScene()
    taken, logged = scene.take(**{URL: "https://new", "METRICS_ADDR": ":1", "GLOBAL_OPT_INTERVAL": "5s"})
    assert scene.value("prometheus_base_url") == "https://start"
    assert scene.value("metrics_bind_address") == "0"
    assert scene.value("global_opt_interval") == 5
    assert f"{URL}: https://start -> https://new" in taken.rejected
    assert "METRICS_ADDR: (not set) -> :1" in taken.rejected
    (line,) = [line for line in logged if line["log_level"] == "error"]
    assert line["event"] == "Attempted to change immutable parameters"
    assert {change["parameter"] for change in line["changes"]} == {URL, "METRICS_ADDR"}


def test_a_rejection_is_told_once_for_the_same_content():
    """WVA does not report the same rejected values again, also if other keys change. It reports other values."""
    scene = LiveSettingsScene()
    assert scene.take(**{URL: "https://new"})[0].rejected
    assert scene.take(**{URL: "https://new"})[0].rejected == ""
    assert scene.take(**{URL: "https://new", "GLOBAL_OPT_INTERVAL": "7s"})[0].rejected == ""
    assert "https://newer" in scene.take(**{URL: "https://newer"})[0].rejected
    assert scene.take()[0].rejected == ""
    assert scene.take(**{URL: "https://newer"})[0].rejected


def test_a_removed_static_key_is_an_attempt_too():
    """WVA reports the removal, because the next start would not have the key."""
    taken, _ = LiveSettingsScene().take(**{URL: None})
    assert f"{URL}: https://start -> (not set)" in taken.rejected


def test_an_overridden_static_key_that_stays_is_no_attempt():
    """The ConfigMap may differ from the environment. WVA reports only a change of the ConfigMap."""
    scene = LiveSettingsScene(environment={URL: "https://environment"})
    assert scene.take(GLOBAL_OPT_INTERVAL="5s")[0].rejected == ""
    assert "https://start -> https://new" in scene.take(**{URL: "https://new"})[0].rejected


def test_secrets_are_in_no_text():
    """Results, log lines and descriptions contain neither the old nor the new secret."""
    scene = LiveSettingsScene({**START, "PROMETHEUS_BEARER_TOKEN": "hunter2"})
    taken, logged = scene.take(PROMETHEUS_BEARER_TOKEN="hunter3", EPP_METRIC_READER_BEARER_TOKEN="hunter 4")
    told = repr((taken, logged, scene.live.describe()))
    assert "PROMETHEUS_BEARER_TOKEN" in told
    assert "hunter" not in told


def test_a_deleted_config_map_takes_nothing_with_it():
    """The last good settings stay in force, and WVA logs the deletion."""
    scene = LiveSettingsScene()
    configuration = LiveConfiguration(scene.live.current, scene.given)
    configuration.apply_main({"GLOBAL_OPT_INTERVAL": "5s"})
    with capture_logs() as logged:
        configuration.apply_main(None)
    assert configuration.interval_seconds == 5
    assert [line["event"] for line in logged] == ["main_config_map_gone"]


def test_contradicting_limits_leave_the_last_good_ones():
    """WVA rejects both limits, because it cannot know which one is wrong."""
    scene = LiveSettingsScene({"PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD": "45s"})
    taken, _ = scene.take(PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD="10m")
    assert scene.value("fresh_threshold") == 45
    assert taken.problems[0].endswith("in force: 45s and 300s")


def test_a_limit_that_stays_keeps_those_that_contradict_it():
    """A bad value leaves the last good limit in force. WVA rejects a new limit that contradicts it."""
    fresh, missing = "PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD", "PROMETHEUS_METRICS_CACHE_UNAVAILABLE_THRESHOLD"
    scene = LiveSettingsScene({fresh: "200s"})
    taken, _ = scene.take(**{fresh: "soon", missing: "100s"})
    assert (scene.value("fresh_threshold"), scene.value("unavailable_threshold")) == (200, 300)
    assert taken.problems


def test_the_cache_obeys_the_settings():
    """Every key changes its field."""
    scene = LiveSettingsScene()
    scene.take(
        PROMETHEUS_METRICS_CACHE_ENABLED="false",
        PROMETHEUS_METRICS_CACHE_TTL="10s",
        PROMETHEUS_METRICS_CACHE_CLEANUP_INTERVAL="20s",
        PROMETHEUS_METRICS_CACHE_FETCH_INTERVAL="0",
        PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD="90s",
        PROMETHEUS_METRICS_CACHE_MAX_SIZE="5",
        GLOBAL_OPT_INTERVAL="15s",
    )
    current = scene.live.current
    assert (current.metrics_cache_enabled, current.metrics_cache_ttl) == (False, 10)
    assert (current.metrics_cache_cleanup_interval, current.metrics_cache_fetch_interval) == (20, 0)
    assert (current.stale_threshold, current.metrics_cache_max_size, current.global_opt_interval) == (90, 5, 15)


KEYS = sorted({key for field in FIELDS.values() for key in field.keys})
TEXTS = st.text(max_size=40) | st.sampled_from(
    [
        "",
        "0",
        "true",
        "no",
        "5s",
        "-5s",
        "0s",
        "10m",
        "300h",
        "70s",
        "100s",
        "200s",
        "1h",
        "1e9h",
        "debug",
        "9" * 400,
        "\x00",
        "https://u:p@h",
        "x" * 5000,
    ]
)


@given(st.lists(st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=8), TEXTS, max_size=8), max_size=4))
def test_no_content_breaks_anything(contents):
    """WVA raises no exception, keeps the limits in order and the interval above zero, and keeps static settings."""
    scene = LiveSettingsScene()
    before = scene.live.current
    with capture_logs():
        for data in contents:
            taken = scene.live.take(data)
            now = scene.live.current
            assert now.global_opt_interval > 0
            assert now.fresh_threshold <= now.unavailable_threshold
            assert all(getattr(now, name) == getattr(before, name) for name in FIELDS if name not in NAMES)
            assert len(taken.rejected) < 1000
            assert all(len(problem) < 2000 for problem in taken.problems)
