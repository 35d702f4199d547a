"""Any text as flag, duration, boolean or setting gives a value or a problem, never an exception. No secret is shown."""

from __future__ import annotations

import contextlib
import io
import math

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.config.samples import FIELDS
from wva.cli.flags import expand_booleans, given_flags
from wva.cli.parser import build_parser
from wva.config import Inputs, fatal_problems, load
from wva.config.load import describe, static_changes, summary, unknown_keys
from wva.godurations import parse_bool, parse_duration

FLAGS = sorted(f"-{flag}" if len(flag) == 1 else f"--{flag}" for field in FIELDS.values() for flag in field.flags)
KEYS = sorted({key for field in FIELDS.values() for key in field.keys})
BOOLEANS = {"1", "t", "T", "TRUE", "true", "True", "yes", "Yes", "YES"}
DURATION = st.from_regex(r"[-+]?([0-9]{0,25}\.?[0-9]{0,25}(ns|us|\u00b5s|ms|s|m|h|d|)){0,4}", fullmatch=True)
TEXTS = (
    st.text(max_size=60) | DURATION | st.sampled_from(["", "0", "true", "maybe", "debug", "9" * 5000, "\x00", "\udcff"])
)
WORDS = (
    st.sampled_from(FLAGS)
    | st.tuples(st.sampled_from(FLAGS), TEXTS).map("=".join)
    | st.text(max_size=20)
    | st.sampled_from(["--", "-", "---", "-v", "-vv", "--=", "--json"])
)
SECRET = "hunter2"


@given(DURATION | st.text(max_size=40))
def test_a_duration_is_a_finite_number_or_refused(text):
    """Like in Go, no duration is longer than 292 years."""
    seconds = 0.0
    with contextlib.suppress(ValueError):
        seconds = parse_duration(text)
    assert math.isfinite(seconds)
    assert abs(seconds) < 293 * 366 * 86_400


@given(st.text(max_size=12) | st.sampled_from(sorted(BOOLEANS)))
def test_a_boolean_is_true_false_or_refused(text):
    """Unknown words are refused."""
    try:
        value = parse_bool(text)
    except ValueError:
        assert text not in BOOLEANS
    else:
        assert value == (text in BOOLEANS)


@given(st.lists(WORDS, max_size=6))
def test_a_command_line_is_flags_or_a_usage_error(words):
    """A usage error has status 2 and one line. Accepted flags are texts for settings."""
    assume(not {"-h", "--help"} & set(words))
    errors, flags, status = io.StringIO(), {}, 0
    with contextlib.redirect_stderr(errors):
        try:
            flags = given_flags(build_parser().parse_args(expand_booleans(["run", *words])))
        except SystemExit as ended:
            status = ended.code
    assert flags.keys() <= FIELDS.keys()
    assert all(isinstance(text, str) for text in flags.values())
    told = errors.getvalue()
    assert (status, told.count("\n")) in {(0, 0), (2, 1)}
    assert told.removesuffix("\n").isprintable()


@given(
    st.dictionaries(st.sampled_from(sorted(FIELDS)), TEXTS, max_size=6),
    st.dictionaries(st.sampled_from(KEYS), TEXTS, max_size=6),
    st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=8), TEXTS, max_size=6),
)
def test_any_sources_give_usable_settings(flags, environment, config_map):
    """Every value is valid, every problem is one short line, and the age limits are in order."""
    flags = {name: text for name, text in flags.items() if FIELDS[name].flags}
    sources = Inputs(flags, environment, config_map)
    result = load(sources)
    settings = result.settings
    assert settings.global_opt_interval > 0
    assert settings.fresh_threshold <= settings.unavailable_threshold
    assert settings.scale_from_zero_max_concurrency >= 0
    assert settings.pod_namespace
    assert len(describe(result)) == len(FIELDS)
    lines = [str(problem) for problem in result.problems] + fatal_problems(result, sources)
    assert all(len(line) < 2000 for line in lines)  # an escaped character can have ten characters
    assert len(unknown_keys(config_map)) <= 10
    assert len(summary(static_changes({}, config_map))) < 1000


@given(
    st.sampled_from(["PROMETHEUS_BEARER_TOKEN", "EPP_METRIC_READER_BEARER_TOKEN"]), st.text(max_size=10), st.booleans()
)
def test_a_token_is_told_nowhere(key, around, in_environment):
    """No output contains the token, whether it is valid or not, and wherever it is set."""
    text = f"{around}{SECRET}{around}"
    given_ = {key: text}
    sources = Inputs({}, given_ if in_environment else {}, {} if in_environment else given_)
    result = load(sources)
    told = [result, result.problems, describe(result), fatal_problems(result, sources), static_changes({}, given_)]
    assert SECRET not in repr(told) + " ".join(map(str, result.problems))
