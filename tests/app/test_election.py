"""The names of Leases, and settings with which no process could become leader."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wva.app.election import election_problems, lease_name
from wva.config import Inputs, load

INSTANCES = st.from_regex(r"\A([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?\Z")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def settings(**environment):
    """Return settings of an environment with leader election."""
    return load(Inputs({}, {"LEADER_ELECT": "true", **environment}, {})).settings


def test_without_an_instance_the_lease_has_the_name_of_the_original():
    """It is the Lease of v0.5.1, so old and new processes compete for it during a rolling update."""
    assert lease_name(settings()) == "72dd1cf1.llm-d.ai"


@pytest.mark.parametrize(
    ("instance", "name"),
    [
        ("blue", "blue.72dd1cf1.llm-d.ai"),
        ("llm-d-autoscaler-pr-123", "llm-d-autoscaler-pr-123.72dd1cf1.llm-d.ai"),
        ("Blue", "blue.ec7d56a01607001e.72dd1cf1.llm-d.ai"),
        ("a_b.c", "a-b-c.a3715283aee1d498.72dd1cf1.llm-d.ai"),
    ],
)
def test_an_instance_has_a_lease_of_its_own(instance, name):
    """The name begins with the instance. A hash is added if characters had to be replaced."""
    assert lease_name(settings(CONTROLLER_INSTANCE=instance)) == name


@given(st.tuples(INSTANCES, INSTANCES))
@example(("blue", "Blue"))
@example(("a.b", "a-b"))
@example(("blue", ""))
def test_two_instances_never_share_a_lease(instances):
    """Different instances have different names, and each name is valid in Kubernetes."""
    names = [lease_name(settings(CONTROLLER_INSTANCE=instance)) for instance in instances]
    assert (names[0] == names[1]) == (instances[0] == instances[1])
    for name in names:
        assert len(name) <= 253
        assert SUBDOMAIN.fullmatch(name)


@pytest.mark.parametrize("environment", [{}, {"CONTROLLER_INSTANCE": "blue"}, {"LEADER_ELECTION_ID": "a.b-c"}])
def test_settings_that_work_have_no_problems(environment):
    """Valid settings give no problem."""
    assert election_problems(settings(**environment)) == []


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"CONTROLLER_INSTANCE": "not a label"}, ["CONTROLLER_INSTANCE='not a label'", "expected at most 63 letters"]),
        ({"CONTROLLER_INSTANCE": "x" * 64}, ["CONTROLLER_INSTANCE='xxx"]),
        ({"LEADER_ELECTION_ID": "Big"}, ["--leader-election-id='Big'", "the name 'Big'", "lower-case"]),
        ({"LEADER_ELECTION_ID": "a..b"}, ["--leader-election-id='a..b'"]),
        ({"LEADER_ELECTION_ID": ".".join(["x" * 60] * 4), "CONTROLLER_INSTANCE": "blue-green"}, ["at most 253"]),
        ({"LEADER_ELECTION_RENEW_DEADLINE": "60s"}, ["--leader-election-renew-deadline=60s"]),
        ({"LEADER_ELECTION_RETRY_PERIOD": "45s"}, ["--leader-election-retry-period=45s"]),
    ],
)
def test_settings_that_cannot_work_are_named(environment, words):
    """The problem names the setting and its value."""
    (problem,) = election_problems(settings(**environment))
    assert all(word in problem for word in words)


def test_without_election_its_settings_do_not_matter():
    """Without election only the instance is checked, because it is also a label."""
    assert election_problems(settings(LEADER_ELECT="false", LEADER_ELECTION_ID="Big")) == []
    assert election_problems(settings(LEADER_ELECT="false", CONTROLLER_INSTANCE="no label")) != []
