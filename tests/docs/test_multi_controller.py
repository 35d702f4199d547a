"""The page about several controllers agrees with the code."""

from __future__ import annotations

import re

from tests.docs.rendering import DOCS
from wva.api.variantautoscaling import CONTROLLER_INSTANCE_LABEL, ConditionType
from wva.app.election import lease_name
from wva.collect.variants import ALIVE_SECONDS
from wva.config import Inputs, Settings, load
from wva.config.declare import declarations
from wva.kube.leader_times import Durations
from wva.publish.announce import CLAIMED_TWICE_EVENT
from wva.publish.metrics import INSTANCE_LABEL
from wva.publish.status import HEARTBEAT_SECONDS

PAGE = (DOCS / "multi-controller.md").read_text()


def test_the_times_are_those_of_the_code():
    """The page has the right defaults, longest time without a leader, heartbeat and end of a claim."""
    defaults = Durations()
    values = (defaults.lease_seconds, defaults.renew_deadline_seconds, defaults.retry_period_seconds)
    rows = re.findall(r"`(--leader-election-[a-z-]+)` \| (\d+)s \|", PAGE)
    assert [float(seconds) for _, seconds in rows] == list(values)
    flags = {f"--{flag}" for field in declarations(Settings).values() for flag in field.flags}
    assert {flag for flag, _ in rows} <= flags
    assert f"at most the lease duration after the crash, with the defaults {defaults.lease_seconds:g} s:" in PAGE
    assert f"the defaults {1.2 * defaults.retry_period_seconds:g} s." in PAGE
    assert f"that is {60 / defaults.retry_period_seconds:g} requests a minute" in PAGE
    assert f"cannot renew the Lease for {defaults.renew_deadline_seconds:g} s ends" in PAGE
    assert f"at least every {HEARTBEAT_SECONDS / 60:g} minutes" in PAGE
    assert f"After {ALIVE_SECONDS / 60:g} minutes without" in " ".join(PAGE.split())


def test_the_leases_are_those_of_the_code():
    """The page has the names of the Leases with an instance and without."""
    for environment in ({}, {"CONTROLLER_INSTANCE": "blue"}):
        assert f"`{lease_name(load(Inputs({}, environment, {})).settings)}`" in PAGE


def test_the_names_are_those_of_the_code():
    """The page has the right names of label, series label, condition and event."""
    assert f"{CONTROLLER_INSTANCE_LABEL}: blue" in PAGE
    assert f'{INSTANCE_LABEL}="blue"' in PAGE
    assert f"`{ConditionType.CLAIMED.value}`" in PAGE
    assert f"`{CLAIMED_TWICE_EVENT}`" in PAGE
    assert {"wva_leader", "wva_variants_left"} == set(re.findall(r"`(wva_[a-z_]+)`", PAGE))
