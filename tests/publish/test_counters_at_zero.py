"""Counters with known label values have their series from the start."""

from __future__ import annotations

import re

import pytest
from prometheus_client import CollectorRegistry, Counter

from wva.instruments import Instruments

COMPLETE = (
    "cycles",
    "status_patches",
    "events_recorded",
    "prometheus_cache_lookups",
    "gateway_reads",
    "activations",
    "certificate_reloads",
    "samples_ignored",
)


@pytest.fixture
def instruments():
    """Return fresh instruments."""
    return Instruments(CollectorRegistry())


def labels(counter):
    """Return the label values of every series, and check that each is 0."""
    samples = [sample for family in counter.collect() for sample in family.samples]
    assert {sample.value for sample in samples} <= {0}
    return {tuple(sample.labels.values()) for sample in samples}


@pytest.mark.parametrize("name", COMPLETE)
def test_the_values_that_the_help_names_are_there(instruments, name):
    """The label values of the series are those that the help text lists."""
    counter = getattr(instruments, name)
    text = re.sub(r"\(.*?\)", "", counter._documentation)
    words = text.partition(": ")[2]
    assert {value for (value,) in labels(counter)} == set(re.findall(r"[a-z_]+", words))


def test_pairs_of_labels_are_there(instruments):
    """Counters with two labels have a series for each pair."""
    assert len(labels(instruments.samples)) == 8
    assert len(labels(instruments.endpoint_reviews)) == 10


def test_a_counter_of_unknown_labels_has_none(instruments):
    """The counter of API requests has no series before the first request."""
    assert isinstance(instruments.api_requests, Counter)
    assert labels(instruments.api_requests) == set()
