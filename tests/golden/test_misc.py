"""Small recorded behaviours of the original: texts, ages, ConfigMap entries.

Two rules for ConfigMap entries differ on purpose. The original judged an entry before it applied the defaults; the
tests compare WVA with the recorded column ``accepted_if_defaults_applied_first``. And WVA also refuses NaN.
"""

from __future__ import annotations

import math
import re

import pytest
import yaml

from tests.config.parsing import parse_saturation
from tests.golden.vectors import Better, close, parameters, tally, tally_of, worked_examples
from wva.collect.queries import ANALYZER_QUERIES, ESSENTIAL_QUERIES, quote
from wva.collect.request_counts import request_query
from wva.collect.retention import Window
from wva.godurations import format_promql_duration, parse_duration, parse_positive_duration
from wva.model.metrics import Freshness, SampleState
from wva.model.optimizers import Analyzer

ORIGINAL_FRESHNESS = {SampleState.FRESH: "fresh", SampleState.STALE: "stale", SampleState.MISSING: "unavailable"}
METRIC = r"(?:vllm:|inference_)\w+"
ENTRY_FIELDS = {
    "kvCacheThreshold": "kv_cache_threshold",
    "queueLengthThreshold": "queue_length_threshold",
    "kvSpareTrigger": "kv_spare_trigger",
    "queueSpareTrigger": "queue_spare_trigger",
}


def _rows(section, better=lambda _: None):
    """Return the rows of a section as parameters."""
    return parameters("misc", section=section, better=better)


@pytest.mark.parametrize("section", ["query_templates", "build_query"])
def test_no_series_of_the_original_is_left_unasked(section):
    """WVA's grouped queries read every metric that the original's queries for one model read."""
    made = [make(["ns"]) for make in (*ESSENTIAL_QUERIES.values(), *ANALYZER_QUERIES.values())]
    texts = [query.text for query in (*made, request_query(["ns"], Window(600)))]
    asked = set(re.findall(METRIC, " ".join(texts)))
    for param in _rows(section):
        (row,) = param.values
        tally("misc", section).run += 1
        assert set(re.findall(METRIC, row.get("template") or row["expected"])) <= asked, row["name"]


@pytest.mark.parametrize("example", worked_examples("promql"), ids=lambda example: example["id"])
def test_worked_example(example):
    """WVA escapes label values and writes PromQL durations as in the example."""
    tally_of("engine_vectors.json.gz promql").run += 1
    if "params" in example:
        assert f"model_name={quote(example['params']['modelID'])}" in example["expected"]
    else:
        assert format_promql_duration(parse_duration(example["go_duration"])) == example["expected"]


def test_answers_are_not_kept_by_model():
    """The original cached answers by model; WVA caches them by query and namespaces."""
    kept = Better("answers are kept by query", "collect/test_answer_cache.py::test_another_namespace_is_asked_for")
    assert parameters("misc", section="cache_key", better=lambda _: kept) == []


@pytest.mark.parametrize("row", _rows("escape_promql"))
def test_label_values_are_escaped_like_the_original(row):
    """WVA escapes backslashes and quotes like the original, and line ends, too, which PromQL refuses."""
    tally("misc", "escape_promql").run += 1
    assert quote(row["in"]) == f'"{row["expected"]}"'.replace("\n", "\\n")


@pytest.mark.parametrize("row", _rows("format_prometheus_duration"))
def test_durations_are_written_like_the_original(row):
    """WVA writes the same duration from nanoseconds and from a Go text."""
    tally("misc", "format_prometheus_duration").run += 1
    assert format_promql_duration(row["nanoseconds"] / 1e9) == row["expected"]
    assert format_promql_duration(parse_duration(row["go_duration"])) == row["expected"]


@pytest.mark.parametrize("row", _rows("freshness_status_default_thresholds"))
def test_ages_are_classified_like_the_original(row):
    """WVA calls an age fresh, stale or missing where the original did."""
    tally("misc", "freshness_status_default_thresholds").run += 1
    assert ORIGINAL_FRESHNESS[Freshness().classify(row["age_seconds"])] == row["expected"]


@pytest.mark.parametrize("row", _rows("validate_retention_period"))
def test_retention_periods_are_accepted_like_the_original(row):
    """WVA and the original accept positive Go durations only."""
    tally("misc", "validate_retention_period").run += 1
    if row["expected_error"]:
        with pytest.raises(ValueError, match=r"duration|unit|above zero"):
            parse_positive_duration(row["in"])
    else:
        assert close(parse_positive_duration(row["in"]), row["expected_seconds"])


def _refused_by_us_alone(row):
    """Tell which of WVA's own rules refuses an entry or a part of it."""
    parsed = yaml.safe_load(row["yaml"]) if row["parsed"] is not None else None
    if not isinstance(parsed, dict):
        return None
    if parsed.get("analyzerName", "") not in set(Analyzer):
        tested = "config/test_saturation_config.py::test_an_unknown_analyzer_is_the_percentage_analyzer"
        return Better("an analyzer that there is not is told", tested)
    numbers = [value for value in parsed.values() if isinstance(value, float)]
    tested = "config/test_saturation_config.py::test_a_value_outside_its_field_is_rejected"
    return Better("NaN is refused", tested) if any(math.isnan(value) for value in numbers) else None


@pytest.mark.parametrize("row", _rows("saturation_config_entry", _refused_by_us_alone))
def test_entries_are_accepted_like_the_original_with_defaults_first(row):
    """WVA accepts the same entries, and reads the same numbers from them."""
    tally("misc", "saturation_config_entry").run += 1
    is_override = row["parsed"] is not None and row["parsed"]["model_id"] != ""
    config = parse_saturation({"override" if is_override else "default": row["yaml"]})
    accepted = row["accepted_if_defaults_applied_first"]
    # What makes a model grow at any load is told, and in force as in the original.
    assert (not any(error.refused for error in config.errors)) == accepted
    if accepted:
        policy = config.policy.overrides[0].policy if is_override else config.policy.saturation
        for field in set(yaml.safe_load(row["yaml"]) or {}) & set(ENTRY_FIELDS):
            name = ENTRY_FIELDS[field]
            assert close(getattr(policy, name), float(row["parsed"][name]))
