"""Values that cannot be used: the next source counts, and a Problem says what happened."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from tests.config.samples import FIELDS, given, loaded, samples, sources
from wva.config import Given, fatal_problems, load
from wva.config.declare import MASK, POOL_GROUPS, TARGET_KINDS, shown

BAD = {
    "verbosity": ["many", "-1", "11", "1.5"],
    "log_level": ["loud"],
    "log_encoding": ["xml"],
    "target_kinds": ["Deployment", "DaemonSet", "statefulset", "StatefulSet;LeaderWorkerSet", "StatefulSet,"],
    "pool_group": ["inference.networking.k8s.io/v1"],
    "scale_from_zero_max_concurrency": ["-1", "1_0", "1e1", " 3", "9" * 30],
    "metrics_cache_ttl": ["soon", "0s", "-1s"],
    "metrics_cache_max_size": ["-1", "all"],
    "epp_bearer_token": ["two words", "line\nend", "\u20ac"],
}
DURATIONS = [name for name, field in FIELDS.items() if isinstance(field.default, float)]
SWITCHES = [name for name, field in FIELDS.items() if isinstance(field.default, bool)]
CASES = [
    *((name, text) for name, texts in BAD.items() for text in texts),
    *((name, text) for name in DURATIONS for text in ("soon", "60", "1d", "-5s", "1 s", "1h 30m")),
    *((name, text) for name in DURATIONS if name != "metrics_cache_fetch_interval" for text in ("0", "0s")),
    *((name, text) for name in SWITCHES for text in ("maybe", "on", "2", "y")),
]


@pytest.mark.parametrize(("name", "text"), CASES)
def test_a_bad_value_is_told_and_the_default_stays(name, text):
    """The problem names key, value, what was expected and what is in force."""
    for source in sources(name):
        result = given(name, {source: text})
        assert getattr(result.settings, name) == FIELDS[name].default
        (problem,) = result.problems
        origin = FIELDS[name]
        assert problem.key == (f"--{origin.flags[0]}" if source == "flag" else origin.keys[0])
        value = MASK if isinstance(FIELDS[name].default, SecretStr) else text
        assert (problem.source, problem.value) == (source, value)
        assert problem.expected
        assert problem.in_force == shown(FIELDS[name].default)
        assert str(problem) == (
            f"{problem.key}={value!r} ({source}): expected {problem.expected}; in force: {problem.in_force}"
        )


@pytest.mark.parametrize("name", [name for name in FIELDS if name in BAD or name in DURATIONS or name in SWITCHES])
def test_a_bad_value_lets_the_next_source_speak(name):
    """An unreadable flag does not hide a good environment."""
    higher, *rest = sources(name)
    if not rest:
        return
    text, value = samples(name)[0]
    bad = BAD.get(name, ["nonsense"])[0]
    result = given(name, {higher: bad, rest[0]: text})
    assert getattr(result.settings, name) == value
    assert result.sources[name] == rest[0]
    assert result.problems[0].in_force == shown(value)


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True", "yes"])
def test_true_is_what_go_and_the_config_maps_of_the_original_accept(text):
    """The union of both."""
    assert loaded(environment={"LEADER_ELECT": text}).settings.leader_elect is True


@pytest.mark.parametrize("text", ["0", "f", "F", "FALSE", "false", "False", "no"])
def test_false_is_too(text):
    """An unknown word is a problem instead of a silent false."""
    result = loaded(environment={"METRICS_SECURE": text})
    assert result.settings.metrics_secure is False
    assert result.problems == ()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("1m30s", 90), ("1.5h", 5400), ("500ms", 0.5), ("1h0m0s", 3600), ("250000us", 0.25)],
)
def test_durations_are_those_of_go(text, seconds):
    """Units, fractions and sums."""
    assert loaded(config_map={"GLOBAL_OPT_INTERVAL": text}).settings.global_opt_interval == seconds


def test_the_lease_needs_a_name():
    """An empty name would address a whole collection."""
    result = loaded(flags={"leader_election_id": ""})
    assert result.settings.leader_election_id == "72dd1cf1.llm-d.ai"
    assert len(result.problems) == 1


@pytest.mark.parametrize("job", ["a\udc80", "x" * 1025])
def test_a_job_that_no_query_can_name_is_none(job):
    """It stands in a query before each start from zero."""
    result = loaded(environment={"WVA_METRICS_JOB": job})
    assert result.settings.metrics_job == ""
    assert [problem.key for problem in result.problems] == ["WVA_METRICS_JOB"]


def test_a_secret_is_masked_in_a_problem():
    """Neither what was given nor what is in force is told."""
    key = "EPP_METRIC_READER_BEARER_TOKEN"
    (problem,) = loaded(environment={key: "given token"}, config_map={key: "in-force"}).problems
    assert str(problem) == f"{key}='***' (environment): expected one word of printable ASCII; in force: ***"
    assert "given" not in repr(problem)


def test_every_problem_is_told_at_once():
    """Nobody wants to repair them one by one."""
    result = loaded(environment={"LEADER_ELECT": "maybe", "V": "many"}, config_map={"GLOBAL_OPT_INTERVAL": "soon"})
    assert sorted(problem.key for problem in result.problems) == ["GLOBAL_OPT_INTERVAL", "LEADER_ELECT", "V"]


@pytest.mark.parametrize(
    ("environment", "in_force"),
    [
        ({"PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD": "10m"}, (60.0, 300.0)),
        ({"PROMETHEUS_METRICS_CACHE_UNAVAILABLE_THRESHOLD": "30s"}, (60.0, 300.0)),
    ],
)
def test_freshness_limits_in_the_wrong_order_bring_back_the_defaults(environment, in_force):
    """A fresh sample cannot be older than a missing one; the problem names both."""
    result = loaded(environment=environment)
    assert (result.settings.fresh_threshold, result.settings.unavailable_threshold) == in_force
    (problem,) = result.problems
    assert "PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD" in str(problem)
    assert "PROMETHEUS_METRICS_CACHE_UNAVAILABLE_THRESHOLD" in str(problem)
    assert "in force: the defaults 60s and 300s" in str(problem)


def test_equal_freshness_limits_are_allowed():
    """Then nothing is ever stale."""
    keys = ("PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD", "PROMETHEUS_METRICS_CACHE_UNAVAILABLE_THRESHOLD")
    result = loaded(environment=dict.fromkeys(keys, "2m"))
    assert result.problems == ()
    assert result.settings.fresh_threshold == result.settings.unavailable_threshold == 120


NO_EFFECT = [name for name, field in FIELDS.items() if field.no_effect]


@pytest.mark.parametrize("name", NO_EFFECT)
def test_a_flag_without_effect_is_accepted_and_told(name):
    """Manifests of the original keep working, and nobody believes that it does something."""
    origin = FIELDS[name]
    result = loaded(flags={name: samples(name)[0][0]})
    assert result.problems == ()
    (line,) = result.without_effect
    assert line == f"--{origin.flags[0]}: {origin.no_effect}"


@pytest.mark.parametrize("name", NO_EFFECT)
def test_a_key_without_effect_is_told_too(name):
    """Unless it says what holds anyway, as manifests of the original do."""
    origin, default = FIELDS[name], FIELDS[name].default
    if not origin.places:
        return
    for source in ("environment", "config_map"):
        (line,) = loaded(**{source: {origin.keys[0]: samples(name)[0][0]}}).without_effect
        assert line == f"{origin.keys[0]}: {origin.no_effect}"
        assert loaded(**{source: {origin.keys[0]: shown(default)}}).without_effect == ()


@pytest.mark.parametrize(
    ("text", "level"),
    [("WARNING", "warn"), ("panic", "error"), ("5", "debug"), ("1", "debug"), (" Info ", "info"), ("error", "error")],
)
def test_levels_may_be_written_as_others_write_them(text, level):
    """Zap's words and numbers."""
    assert loaded(flags={"log_level": text}).settings.effective_log_level == level


def test_level_zero_is_no_level():
    """Zap wants numbers above 0."""
    assert len(loaded(flags={"log_level": "0"}).problems) == 1


def test_nothing_given_is_without_effect():
    """The warning needs a cause."""
    assert len(NO_EFFECT) >= 5
    assert loaded().without_effect == ()
    assert loaded(flags={"leader_elect": "true"}).without_effect == ()


@pytest.mark.parametrize(
    ("environment", "config_map", "state"),
    [
        ({}, {}, "is not set"),
        ({"PROMETHEUS_BASE_URL": ""}, {}, "is empty"),
        ({}, {"PROMETHEUS_BASE_URL": ""}, "is empty"),
    ],
)
def test_a_missing_url_is_fatal(environment, config_map, state):
    """One line: the key, and the two places where it may be set."""
    sources = Given({}, {"POD_NAMESPACE": "wva", "CONFIG_MAP_NAME": "main", **environment}, config_map)
    result = loaded(environment=sources.environment, config_map=config_map)
    (line,) = fatal_problems(result, sources)
    assert line.startswith(f"PROMETHEUS_BASE_URL {state}: ")
    assert "the environment or the ConfigMap wva/main" in line


def test_with_a_url_nothing_is_fatal():
    """Whether it can be reached is seen later."""
    environment = {"PROMETHEUS_BASE_URL": "https://prometheus"}
    assert fatal_problems(loaded(environment=environment), Given({}, environment, {})) == []


@pytest.mark.parametrize(
    ("environment", "level"),
    [({}, "info"), ({"V": "3"}, "info"), ({"V": "4"}, "debug"), ({"V": "5", "LOG_LEVEL": "warn"}, "warn")],
)
def test_the_log_level_is_its_own_setting_or_follows_the_verbosity(environment, level):
    """LOG_LEVEL wins; the original's -v 4 means debug."""
    assert loaded(environment=environment).settings.effective_log_level == level


FATAL = [
    ("GLOBAL_OPT_INTERVAL", "0s", "1m"),
    ("GLOBAL_OPT_INTERVAL", "-5s", "1m"),
    ("POOL_GROUP", "x", POOL_GROUPS[0]),
    ("WVA_TARGET_KINDS", "DaemonSet", TARGET_KINDS[0]),
]


@pytest.mark.parametrize(("key", "bad", "good"), FATAL)
def test_a_value_that_must_not_give_way_to_a_default_is_fatal(key, bad, good):
    """Also when a lower source has a good one: the higher was meant. Not when nobody would read it."""
    url = {"PROMETHEUS_BASE_URL": "https://prometheus"}
    for environment, config_map in (({key: bad}, {}), ({}, {key: bad}), ({key: bad}, {key: good})):
        sources = Given({}, url | environment, config_map)
        (line,) = fatal_problems(load(sources), sources)
        assert line.startswith(f"{key}={bad!r} ")
        assert line.endswith("; the process does not start with it")
    sources = Given({}, url | {key: good}, {key: bad})
    assert fatal_problems(load(sources), sources) == []
    assert len(load(sources).problems) == 1


def test_spaces_in_the_list_of_target_kinds_mean_nothing():
    """People write a list either way."""
    assert loaded(environment={"WVA_TARGET_KINDS": " StatefulSet, LeaderWorkerSet "}).settings.target_kinds == (
        "StatefulSet,LeaderWorkerSet"
    )


def test_an_interval_that_is_no_duration_is_not_fatal():
    """The default holds then, as it always did."""
    sources = Given({}, {"PROMETHEUS_BASE_URL": "https://prometheus", "GLOBAL_OPT_INTERVAL": "soon"}, {})
    assert fatal_problems(load(sources), sources) == []
