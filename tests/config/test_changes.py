"""Which changes of the main ConfigMap need a restart, and how WVA reports them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from tests.config.samples import FIELDS, samples
from wva.config.load import NOT_SET, static_changes, summary

STATIC = [name for name, field in FIELDS.items() if not field.live and "configmap" in field.places]
DYNAMIC = [name for name, field in FIELDS.items() if field.live]
KEYS = [key for name in STATIC for key in FIELDS[name].keys]


def key(name):
    """Return the canonical key of a field."""
    return FIELDS[name].keys[0]


@pytest.mark.parametrize("name", STATIC)
def test_every_static_setting_is_watched_over(name):
    """WVA notices when a static setting is set, changed or removed. It reports both values, and masks secrets."""
    (first, _), (second, _) = samples(name)
    secret = isinstance(samples(name)[0][1], SecretStr)
    for before, now in (({}, first), (first, second), (first, None)):
        old = {} if before == {} else {key(name): before}
        new = {} if now is None else {key(name): now}
        (change,) = static_changes(old, new)
        assert change.parameter == key(name)
        assert change.old == (NOT_SET if not old else "***" if secret else change.old)
        assert change.new == (NOT_SET if not new else "***" if secret else change.new)
        assert (change.old, change.new) != (NOT_SET, NOT_SET)


@pytest.mark.parametrize("name", DYNAMIC)
def test_a_dynamic_setting_needs_no_restart(name):
    """A change of a dynamic setting is not in the list of changes that need a restart."""
    (first, _), (second, _) = samples(name)
    assert static_changes({key(name): first}, {key(name): second}) == []


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({"REST_CLIENT_TIMEOUT": "60s"}, {"REST_CLIENT_TIMEOUT": "1m"}),
        ({"LEADER_ELECT": "true"}, {"LEADER_ELECT": "1"}),
        ({"METRICS_ADDR": ":8443"}, {"METRICS_BIND_ADDRESS": ":8443"}),
        ({}, {"WATCH_NAMESPACE": ""}),
        ({"EPP_METRIC_READER_BEARER_TOKEN": "a"}, {"EPP_METRIC_READER_BEARER_TOKEN": "Bearer a"}),
        ({"UNKNOWN": "a"}, {"UNKNOWN": "b"}),
        ({"CONTROLLER_INSTANCE": "a"}, {"CONTROLLER_INSTANCE": "b"}),
    ],
)
def test_what_means_the_same_is_no_change(before, now):
    """Another spelling, an empty new key and a key that the ConfigMap cannot give are no changes."""
    assert static_changes(before, now) == []


def test_a_value_that_cannot_be_used_is_a_change_too():
    """WVA reports it, because the next start would not have the old value."""
    (change,) = static_changes({"LEADER_ELECT": "true"}, {"LEADER_ELECT": "maybe"})
    assert change == ("LEADER_ELECT", "true", "maybe")


def test_a_user_in_a_url_is_masked():
    """WVA masks the user and the password of a URL, because many people can read an event."""
    url = "https://user:hunter2@prometheus"
    (change,) = static_changes({"PROMETHEUS_BASE_URL": "https://prometheus"}, {"PROMETHEUS_BASE_URL": url})
    assert change.new == "https://***@prometheus"


def test_the_summary_names_each_parameter_with_both_values():
    """The summary has the words that the configuration guide tells its readers to grep for."""
    text = summary(static_changes({"METRICS_ADDR": ":8443", "PROBE_ADDR": ":1"}, {"METRICS_ADDR": ":9443"}))
    assert text.startswith("Attempted to change immutable parameters: METRICS_ADDR: :8443 -> :9443; ")
    assert "PROBE_ADDR: :1 -> (not set)" in text
    assert "restarted" in text


@settings(max_examples=settings().max_examples // 4)
@given(st.dictionaries(st.sampled_from(KEYS), st.text(max_size=3000) | st.just("x" * 100_000), max_size=60))
def test_the_summary_is_short_whatever_was_written(data):
    """The summary fits into the 1024 bytes of an event message."""
    changes = static_changes({}, data)
    text = summary(changes)
    assert len(text) < 1000
    if changes:
        assert changes[0].parameter in text
