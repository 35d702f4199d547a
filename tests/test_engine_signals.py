"""All places through which a signal or a counter of the engines goes: it is in each of them, or a test here fails.

A signal begins as a value of ``wva.collect.queries.EngineSignal``. Then it has an expression in the query, a range, a
field of ``wva.model.metrics.EngineSignals``, an effect of the load in what would have been, and a place that decides
with it. A counter, which the demand analyzer reads, begins as a value of ``CounterSignal`` and has a field of
``wva.model.metrics.EngineCounters``. Recordings, explanations and the documentation follow from the records.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from wva.collect import queries, samples
from wva.collect.queries import CounterSignal, EngineSignal
from wva.hindsight import flips
from wva.model.metrics import EngineCounters, EngineSignals, Sample, SampleState
from wva.prometheus.answers import InstantSeries, Labels

NOW = 1_767_225_600.0
DECIDE = Path(__file__).parents[1] / "wva" / "decide"
FIELDS = frozenset(EngineSignals.__struct_fields__)
COUNTERS = frozenset(EngineCounters.__struct_fields__)
FIELD_OF = {signal: signal.value for signal in EngineSignal} | {EngineSignal.CACHE_CONFIG: "kv_capacity_tokens"}
"""The size of the cache is computed from labels, so its field has a name of its own."""
EXPLAINED_ONLY = {"time_to_first_token"}
"""People compare it with the objective; no analyzer decides with a mean over a minute."""


@pytest.mark.parametrize("signal", EngineSignal)
def test_the_query_asks_for_it(signal):
    """``queries.engine_signals`` has an expression with its label."""
    assert f'"signal", "{signal}"' in queries.engine_signals(["ns"]).text


def test_each_has_a_range():
    """``samples`` says which values can be believed; the size of the cache is judged by its two factors."""
    assert {*samples._SIGNALS, EngineSignal.CACHE_CONFIG} == set(EngineSignal)


def test_each_has_its_field():
    """``model.metrics.EngineSignals`` has it with its unit, and no field that nobody fills."""
    assert set(FIELD_OF.values()) == FIELDS


def test_what_more_load_does_to_each_is_known():
    """``hindsight.flips`` lets it grow with the load or leaves it."""
    assert set(flips.OF_LOAD) | flips.OF_A_REQUEST == FIELDS
    assert not set(flips.OF_LOAD) & flips.OF_A_REQUEST


def test_each_is_decided_with():
    """``decide`` reads its field, or it is one of those that only explanations show."""
    trees = [ast.parse(path.read_bytes()) for path in DECIDE.rglob("*.py")]
    read = {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert FIELDS - read == EXPLAINED_ONLY
    assert read >= COUNTERS


@pytest.mark.parametrize("signal", CounterSignal)
def test_the_query_asks_for_the_counter(signal):
    """``queries.engine_counters`` has an expression with its label."""
    assert f'"signal", "{signal}"' in queries.engine_counters(["ns"]).text


@pytest.mark.parametrize("signal", samples._COUNTERS)
def test_a_counter_changes_the_record(signal):
    """``samples.engine_counters`` brings each into ``model.metrics.EngineCounters``."""
    scrape = samples.ScrapeTime(SampleState.FRESH, NOW, "")
    gauges = EngineSignals(running=Sample(SampleState.FRESH, 1.0, NOW))

    def read(value):
        page = {name: [InstantSeries(Labels(), (NOW, "10"))] for name in samples._COUNTERS}
        page[signal] = [InstantSeries(Labels(), (NOW, value))]
        counters, why = samples.engine_counters(page, scrape, gauges)
        assert not why
        return counters

    assert read("10") != read("12")
