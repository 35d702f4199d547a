"""A text that WVA puts into PromQL does not change the meaning of the query."""

from __future__ import annotations

import re

import promql_parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wva.collect.queries import (
    ANALYZER_QUERIES,
    ESSENTIAL_QUERIES,
    MAX_NAMESPACES_PER_CHUNK,
    MAX_PODS_PER_CHUNK,
    Query,
    chunks,
    in_progress,
    quote,
    regex_literal,
    validate_namespace,
)
from wva.collect.request_counts import request_query
from wva.collect.retention import window_of
from wva.sim.prometheus.promql import EvaluationTime, evaluate, parse
from wva.sim.prometheus.tsdb import Tsdb

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NAMESPACE = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)


def _matchers(expression):
    """Return (label, operator, value) of every matcher of a query, at any depth."""
    selectors = re.findall(r"VectorSelector", repr(type(expression)))
    if selectors:
        return [(matcher.name, str(matcher.op), matcher.value) for matcher in expression.matchers.matchers]
    sides = [side for name in ("lhs", "rhs") if (side := getattr(expression, name, None)) is not None]
    if sides:
        return [found for side in sides for found in _matchers(side)]
    for attribute in ("expr", "vector_selector", "args"):
        inner = getattr(expression, attribute, None)
        if isinstance(inner, list):
            return [found for part in inner for found in _matchers(part)]
        if inner is not None:
            return _matchers(inner)
    return []


@settings(deadline=None)
@given(TEXT)
def test_a_quoted_text_is_exactly_the_value_of_its_matcher(text):
    """A query with any quoted text has one matcher with this value."""
    found = _matchers(promql_parser.parse(f"x{{label={quote(text)}}}"))
    assert [(name, value) for name, _, value in found] == [("label", text)]


ATTACK = st.text(st.sampled_from(list('"\\{}()[]|.*+?^$-,=~!#/ \n\r\t\x00\x1b\u202e\u2028\u00e9\U0001f4a5ab')))


@settings(max_examples=settings().max_examples)
@given(ATTACK | TEXT, ATTACK | TEXT)
def test_model_ids_namespaces_and_pod_names_find_themselves_only(text, other):
    """Both kinds of matchers find the series with this label value, and no other series."""
    tsdb = Tsdb()
    for value in {text, other} - {""}:
        tsdb.append({"__name__": "x", "label": value}, 10.0, 1.0)
    moment = EvaluationTime(tsdb, 10_000, 10_000, 10_000)
    for matcher in (f"={quote(text)}", f"=~{quote(regex_literal(text))}"):
        found = evaluate(parse(f"x{{label{matcher}}}"), moment)
        assert [element.labels.get("label", "") for element in found] == ([text] if text else [])


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_half_a_character_is_refused(text):
    """A lone surrogate cannot be sent; the message shows it as an escape."""
    with pytest.raises(ValueError, match=r"\\ud") as caught:
        quote(text)
    assert str(caught.value).isascii()


def test_a_megabyte_is_quoted_whole():
    """Quoting has no limit of length: it neither cuts a long text nor refuses it."""
    text = '"\\' * 500_000
    assert len(quote(text)) == 2 * len(text) + 2


def test_the_attack_of_the_changelog_stays_a_value():
    """A quote in a value does not open a second matcher."""
    attack = 'prod",malicious="attack'
    assert quote(attack) == '"prod\\",malicious=\\"attack"'
    ((name, _, value),) = _matchers(promql_parser.parse(f"x{{namespace={quote(attack)}}}"))
    assert (name, value) == ("namespace", attack)


def test_a_line_end_is_written_as_an_escape():
    """PromQL refuses a raw line end inside double quotes."""
    assert quote("a\nb\tc") == '"a\\nb\\x09c"'


@settings(deadline=None)
@given(TEXT, TEXT)
def test_a_regex_literal_matches_its_text_and_nothing_else(text, other):
    """Python's engine agrees with RE2 on escaped punctuation."""
    pattern = regex_literal(text)
    assert re.fullmatch(pattern, text, re.DOTALL)
    assert bool(re.fullmatch(pattern, other, re.DOTALL)) == (text == other)


@settings(deadline=None)
@given(NAMESPACE)
def test_namespaces_of_kubernetes_are_accepted(namespace):
    """A valid RFC 1123 label is returned unchanged."""
    assert validate_namespace(namespace) == namespace


@pytest.mark.parametrize(
    "text", ["", "A", "a_b", "-a", "a-", "a.b", "a|b", ".*", 'a"', "a\n", "a" * 64, "\u00e4", "x" * 10**6]
)
def test_anything_else_is_refused_and_shortened_in_the_message(text):
    """Kubernetes allows no such namespace, so the text may be an attempt to change the query."""
    with pytest.raises(ValueError, match="not a namespace") as caught:
        validate_namespace(text)
    assert len(str(caught.value)) < 500


@settings(deadline=None)
@given(st.lists(NAMESPACE, min_size=1, max_size=MAX_NAMESPACES_PER_CHUNK))
def test_every_query_parses_and_is_restricted_to_its_namespaces(namespaces):
    """Each query has one matcher, which matches the whole names."""
    for make in ESSENTIAL_QUERIES.values():
        query = make(namespaces)
        found = _matchers(promql_parser.parse(query.text))
        parts = query.text.count("max by (namespace, model_name, pod) (")
        assert parts == (3 if query.name == "kv_cache_usage" else 2)  # it also asks which engines are awake
        asked = [(name, value.split("|")) for name, _, value in found if name != "sleep_state"]
        assert asked == [("namespace", namespaces)] * parts


def test_the_essential_texts():
    """A stub of Prometheus or a dashboard may depend on the exact texts."""
    kv, queue = "vllm:kv_cache_usage_perc", "vllm:num_requests_waiting"
    group, where = "max by (namespace, model_name, pod)", '{namespace=~"a|b-1"}'
    awake = f'vllm:engine_sleep_state{where[:-1]},sleep_state="awake"}}'
    dormant = f'label_replace({group} ({awake}) == 0, "signal", "dormant", "", "")'
    assert tuple(make(["a", "b-1"]) for make in ESSENTIAL_QUERIES.values()) == tuple(
        Query(
            name,
            f'label_replace({group} (max_over_time({metric}{where}[1m])), "signal", "value", "", "") or '
            f'label_replace({group} (timestamp({metric}{where})), "signal", "timestamp", "", "")' + more,
        )
        for name, metric, more in (("kv_cache_usage", kv, f" or {dormant}"), ("queue_length", queue, ""))
    )


def test_a_query_needs_a_namespace():
    """An empty expression would match series without a namespace."""
    for make in ESSENTIAL_QUERIES.values():
        with pytest.raises(ValueError, match="without namespaces"):
            make([])


@settings(deadline=None)
@given(st.lists(NAMESPACE, max_size=350))
def test_chunks_hold_each_namespace_once(namespaces):
    """Chunks are sorted, have at most a hundred namespaces each, and leave none out."""
    made = chunks(namespaces)
    assert [namespace for chunk in made for namespace in chunk] == sorted(set(namespaces))
    assert all(0 < len(chunk) <= MAX_NAMESPACES_PER_CHUNK for chunk in made)
    assert len(made) == -(-len(set(namespaces)) // MAX_NAMESPACES_PER_CHUNK)


@settings(deadline=None)
@given(st.dictionaries(NAMESPACE, st.integers(0, 2 * MAX_PODS_PER_CHUNK), max_size=250))
def test_chunks_hold_as_many_pods_as_an_answer_has_room_for(pods):
    """Only a single namespace may exceed the limit of a chunk; no two neighbours would fit together."""
    made = chunks(pods, pods)
    counts = [sum(map(pods.__getitem__, chunk)) for chunk in made]
    assert [namespace for chunk in made for namespace in chunk] == sorted(pods)
    for chunk, count in zip(made, counts, strict=True):
        assert count <= MAX_PODS_PER_CHUNK or sum(pods[each] > 0 for each in chunk) == 1
    for chunk, count, after in zip(made, counts, made[1:], strict=False):
        assert len(chunk) == MAX_NAMESPACES_PER_CHUNK or count + pods[after[0]] > MAX_PODS_PER_CHUNK


@pytest.mark.parametrize(
    "make",
    [
        *ESSENTIAL_QUERIES.values(),
        *ANALYZER_QUERIES.values(),
        in_progress,
        lambda namespaces: request_query(namespaces, window_of(600.0)),
    ],
)
def test_no_query_matches_names_of_metrics_by_a_pattern(make):
    """Some stores allow only one exact name, written in front of the braces."""
    assert "__name__" not in make(["llm"]).text
