"""For a value that cannot be used, WVA reports a Problem and uses the next source."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from tests.config.samples import FIELDS, given, loaded, samples, sources
from wva.config import Inputs, fatal_problems, load
from wva.config.declare import MASK, POOL_GROUPS, TARGET_KINDS, shown

BAD = {
    "verbosity": ["many", "-1", "11", "1.5"],
    "log_level": ["loud"],
    "log_encoding": ["xml"],
    "target_kinds": ["Deployment", "DaemonSet", "statefulset", "StatefulSet;LeaderWorkerSet", "StatefulSet,"],
    "role_labels": [" ", "llm-d.ai/", "a/b/c", "-a", "a,,b", "Upper.example/a", "x" * 64],
    "role_values": ["prefill", "a=", "=decode", "a=router", "a=prefill,a=decode", "a b=prefill", "a=prefill,"],
    "pool_group": ["inference.networking.k8s.io/v1"],
    "scale_from_zero_max_concurrency": ["-1", "1_0", "1e1", " 3", "9" * 30],
    "metrics_cache_ttl": ["soon", "0s", "-1s"],
    "metrics_cache_max_size": ["-1", "all"],
    "epp_bearer_token": ["two words", "line\nend", "\u20ac"],
}
DURATIONS = [name for name, field in FIELDS.items() if isinstance(field.default, float)]
OPTIONAL = {"metrics_cache_fetch_interval", "fast_lane_interval"}
SWITCHES = [name for name, field in FIELDS.items() if isinstance(field.default, bool)]
CASES = [
    *((name, text) for name, texts in BAD.items() for text in texts),
    *((name, text) for name in DURATIONS for text in ("soon", "60", "1d", "-5s", "1 s", "1h 30m")),
    *((name, text) for name in DURATIONS if name not in OPTIONAL for text in ("0", "0s")),
    *((name, text) for name in SWITCHES for text in ("maybe", "on", "2", "y")),
]


@pytest.mark.parametrize(("name", "text"), CASES)
def test_a_bad_value_is_told_and_the_default_stays(name, text):
    """The problem has the key, the value, the expected form and the value in force."""
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
        in_force = problem.in_force or "nothing"
        assert str(problem) == f"{problem.key}={value!r} ({source}): expected {problem.expected}; in force: {in_force}"


@pytest.mark.parametrize("name", [name for name in FIELDS if name in BAD or name in DURATIONS or name in SWITCHES])
def test_a_bad_value_lets_the_next_source_speak(name):
    """A bad value of one source does not hide a good value of the next."""
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
    """WVA accepts the words of both."""
    assert loaded(environment={"LEADER_ELECT": text}).settings.leader_elect is True


@pytest.mark.parametrize("text", ["0", "f", "F", "FALSE", "false", "False", "no"])
def test_false_is_too(text):
    """WVA accepts the words of both for false, too."""
    result = loaded(environment={"METRICS_SECURE": text})
    assert result.settings.metrics_secure is False
    assert result.problems == ()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("1m30s", 90), ("1.5h", 5400), ("500ms", 0.5), ("1h0m0s", 3600), ("250000us", 0.25)],
)
def test_durations_are_those_of_go(text, seconds):
    """WVA reads units, fractions and sums."""
    assert loaded(config_map={"GLOBAL_OPT_INTERVAL": text}).settings.global_opt_interval == seconds


def test_the_lease_needs_a_name():
    """The path of a lease with an empty name would be that of a whole collection."""
    result = loaded(flags={"leader_election_id": ""})
    assert result.settings.leader_election_id == "72dd1cf1.llm-d.ai"
    assert len(result.problems) == 1


@pytest.mark.parametrize("job", ["a\udc80", "x" * 1025])
def test_a_job_that_no_query_can_name_is_none(job):
    """WVA rejects such a job, because the query before each start from zero contains it."""
    result = loaded(environment={"WVA_METRICS_JOB": job})
    assert result.settings.metrics_job == ""
    assert [problem.key for problem in result.problems] == ["WVA_METRICS_JOB"]


def test_a_secret_is_masked_in_a_problem():
    """The problem shows neither the given secret nor the one in force."""
    key = "EPP_METRIC_READER_BEARER_TOKEN"
    (problem,) = loaded(environment={key: "given token"}, config_map={key: "in-force"}).problems
    assert str(problem) == f"{key}='***' (environment): expected one word of printable ASCII; in force: ***"
    assert "given" not in repr(problem)


def test_every_problem_is_told_at_once():
    """WVA reports all bad values of one start together."""
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
    """The limit of fresh samples must not be above that of missing ones. The problem names both keys."""
    result = loaded(environment=environment)
    assert (result.settings.fresh_threshold, result.settings.unavailable_threshold) == in_force
    (problem,) = result.problems
    assert "PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD" in str(problem)
    assert "PROMETHEUS_METRICS_CACHE_UNAVAILABLE_THRESHOLD" in str(problem)
    assert "in force: the defaults 60s and 300s" in str(problem)


def test_equal_freshness_limits_are_allowed():
    """With equal limits no sample is stale."""
    keys = ("PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD", "PROMETHEUS_METRICS_CACHE_UNAVAILABLE_THRESHOLD")
    result = loaded(environment=dict.fromkeys(keys, "2m"))
    assert result.problems == ()
    assert result.settings.fresh_threshold == result.settings.unavailable_threshold == 120


NO_EFFECT = [name for name, field in FIELDS.items() if field.no_effect]


@pytest.mark.parametrize("name", NO_EFFECT)
def test_a_flag_without_effect_is_accepted_and_told(name):
    """WVA accepts the flags of old manifests and reports those without effect."""
    origin = FIELDS[name]
    result = loaded(flags={name: samples(name)[0][0]})
    assert result.problems == ()
    (line,) = result.without_effect
    assert line == f"--{origin.flags[0]}: {origin.no_effect}"


@pytest.mark.parametrize("name", NO_EFFECT)
def test_a_key_without_effect_is_told_too(name):
    """WVA reports the key unless it has the default value, as in manifests of the original."""
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
    """WVA accepts the words and numbers of Zap."""
    assert loaded(flags={"log_level": text}).settings.effective_log_level == level


def test_level_zero_is_no_level():
    """WVA rejects level 0, as Zap does."""
    assert len(loaded(flags={"log_level": "0"}).problems) == 1


def test_nothing_given_is_without_effect():
    """Without such a flag or key WVA reports none."""
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
    """One line names the key and the two places where it may be set."""
    sources = Inputs({}, {"POD_NAMESPACE": "wva", "CONFIG_MAP_NAME": "main", **environment}, config_map)
    result = loaded(environment=sources.environment, config_map=config_map)
    (line,) = fatal_problems(result, sources)
    assert line.startswith(f"PROMETHEUS_BASE_URL {state}: ")
    assert "the environment or the ConfigMap wva/main" in line


def test_with_a_url_nothing_is_fatal():
    """This check does not connect to Prometheus."""
    environment = {"PROMETHEUS_BASE_URL": "https://prometheus"}
    assert fatal_problems(loaded(environment=environment), Inputs({}, environment, {})) == []


@pytest.mark.parametrize(
    ("environment", "level"),
    [({}, "info"), ({"V": "3"}, "info"), ({"V": "4"}, "debug"), ({"V": "5", "LOG_LEVEL": "warn"}, "warn")],
)
def test_the_log_level_is_its_own_setting_or_follows_the_verbosity(environment, level):
    """LOG_LEVEL has precedence, and V from 4 on means debug, as in the original."""
    assert loaded(environment=environment).settings.effective_log_level == level


FATAL = [
    ("GLOBAL_OPT_INTERVAL", "0s", "1m"),
    ("GLOBAL_OPT_INTERVAL", "-5s", "1m"),
    ("POOL_GROUP", "x", POOL_GROUPS[0]),
    ("WVA_TARGET_KINDS", "DaemonSet", TARGET_KINDS[0]),
]


@pytest.mark.parametrize(("key", "bad", "good"), FATAL)
def test_a_value_that_must_not_give_way_to_a_default_is_fatal(key, bad, good):
    """It is fatal even if a lower source has a good value, and not fatal if a higher source has one."""
    url = {"PROMETHEUS_BASE_URL": "https://prometheus"}
    for environment, config_map in (({key: bad}, {}), ({}, {key: bad}), ({key: bad}, {key: good})):
        sources = Inputs({}, url | environment, config_map)
        (line,) = fatal_problems(load(sources), sources)
        assert line.startswith(f"{key}={bad!r} ")
        assert line.endswith("; the process does not start with it")
    sources = Inputs({}, url | {key: good}, {key: bad})
    assert fatal_problems(load(sources), sources) == []
    assert len(load(sources).problems) == 1


def test_spaces_in_the_list_of_target_kinds_mean_nothing():
    """The list may have spaces around its items."""
    assert loaded(environment={"WVA_TARGET_KINDS": " StatefulSet, LeaderWorkerSet "}).settings.target_kinds == (
        "StatefulSet,LeaderWorkerSet"
    )


def test_an_interval_that_is_no_duration_is_not_fatal():
    """The default is in force then, as in the original."""
    sources = Inputs({}, {"PROMETHEUS_BASE_URL": "https://prometheus", "GLOBAL_OPT_INTERVAL": "soon"}, {})
    assert fatal_problems(load(sources), sources) == []
