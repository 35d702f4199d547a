"""The order of the sources of every setting: flag, environment, ConfigMap, default."""

from __future__ import annotations

from itertools import combinations

import pytest

from tests.config.samples import FIELDS, given, loaded, samples, sources

SINGLE = [(name, source) for name in FIELDS for source in sources(name)]
PAIRS = [(name, *pair) for name in FIELDS for pair in combinations(sources(name), 2)]
NOWHERE = [(name, source) for name in FIELDS for source in ("environment", "configmap") if source not in sources(name)]
ALIASES = [(name, key) for name, field in FIELDS.items() for key in field.keys[1:]]


@pytest.mark.parametrize("name", FIELDS)
def test_nothing_given_means_the_default(name):
    """WVA names ``default`` as the source."""
    result = loaded()
    assert getattr(result.settings, name) == FIELDS[name].default
    assert result.sources[name] == "default"


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(("name", "source"), SINGLE)
def test_each_source_gives_the_setting(name, source, order):
    """WVA parses the value and names its source."""
    text, value = samples(name)[order]
    result = given(name, {source: text})
    assert getattr(result.settings, name) == value
    assert result.sources[name] == source
    assert result.problems == ()


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(("name", "higher", "lower"), PAIRS)
def test_the_higher_source_wins(name, higher, lower, order):
    """The test swaps the two values, so that a default cannot pass for the higher one."""
    first, second = samples(name)[order], samples(name)[1 - order]
    result = given(name, {higher: first[0], lower: second[0]})
    assert getattr(result.settings, name) == first[1]
    assert result.sources[name] == higher


@pytest.mark.parametrize(("name", "source"), NOWHERE)
def test_a_source_that_does_not_apply_is_not_read(name, source):
    """For example, all instances share the ConfigMap, so it cannot give the name of an instance."""
    result = given(name, {source: samples(name)[0][0]})
    assert getattr(result.settings, name) == FIELDS[name].default


@pytest.mark.parametrize(("name", "key"), ALIASES)
@pytest.mark.parametrize("source", ["environment", "config_map"])
def test_other_spellings_of_a_key_are_accepted(name, key, source):
    """METRICS_ADDR for METRICS_BIND_ADDRESS, PROBE_ADDR for HEALTH_PROBE_BIND_ADDRESS; the canonical one wins."""
    canonical = FIELDS[name].keys[0]
    assert getattr(loaded(**{source: {key: ":1"}}).settings, name) == ":1"
    assert getattr(loaded(**{source: {key: ":1", canonical: ":2"}}).settings, name) == ":2"


def test_the_other_spellings_are_those_of_the_configuration_guide():
    """The test lists the other spellings of keys and flags."""
    assert {key for _, key in ALIASES} == {"METRICS_ADDR", "PROBE_ADDR"}
    flags = {flag for field in FIELDS.values() for flag in field.flags[1:]}
    assert flags == {"metrics-addr", "probe-addr", "enable-leader-election"}


@pytest.mark.parametrize("source", ["environment", "configmap"])
@pytest.mark.parametrize("name", FIELDS)
def test_an_empty_text_means_unset(name, source):
    """WVA ignores an empty text in environment and ConfigMap, because charts render empty values."""
    if source in sources(name):
        assert given(name, {source: ""}).sources[name] == "default"


def test_no_two_settings_share_a_key_or_a_flag():
    """A shared key or flag would set both settings at once."""
    keys = [key for field in FIELDS.values() if field.places for key in field.keys]
    flags = [flag for field in FIELDS.values() for flag in field.flags]
    assert len(keys) == len(set(keys))
    assert len(flags) == len(set(flags))


def test_the_environment_of_this_process_is_not_read(monkeypatch):
    """WVA reads only the environment that the caller hands in."""
    monkeypatch.setenv("WATCH_NAMESPACE", "leaked")
    monkeypatch.setenv("watch_namespace", "leaked")
    assert loaded().settings.watch_namespace == ""
