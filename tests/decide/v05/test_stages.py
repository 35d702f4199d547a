"""The enforcer and GPU limiter of ``compatibility: v0.5``, and what the mode shares with today's engine."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.builders import NOW, replica, variant
from tests.decide.story import BUSY, FULL, IDLE, Story, numbers, reasons
from wva.decide import v05
from wva.decide.pipeline import conclude
from wva.model.decision import Reason
from wva.model.inventory import AcceleratorPool, GpuQuota, Inventory
from wva.model.memory import Memory
from wva.model.policy import Compatibility, Policy, ScaleToZeroEntry, ScaleToZeroRules
from wva.model.records import replace
from wva.model.snapshot import RequestCounts, Snapshot
from wva.model.variant import ModelKey

MODEL = ModelKey("ns", "m")
BUSY_FOR_LONG = RequestCounts(MODEL, 600.0, finished=0.0, in_progress=5.0, covered_seconds=600.0)
OLD = Policy(compatibility=Compatibility.V0_5)
SHARED = {
    "wva.decide.failed",
    "wva.decide.progress",
    "wva.decide.trust",
}


def resting(*, enabled: bool) -> Story:
    """Return a story of a model that serves its first long request."""
    rules = ScaleToZeroRules(ScaleToZeroEntry("default", "", None, enabled, 600.0))
    return Story(replace(OLD, scale_to_zero=rules), requests=BUSY_FOR_LONG)


def limited(*pools: AcceleratorPool) -> Story:
    """Return a story with the limiter on."""
    return Story(replace(OLD, enable_limiter=True), inventory=Inventory.of(list(pools)))


def test_the_old_enforcer_knows_finished_requests_only():
    """The enforcer takes a model with its first long request for idle, and an unknown count for busy."""
    old = resting(enabled=True)
    decision = old.cycle(variant(replicas=2, desired=2), a=[FULL] * 2)["a"]
    assert (decision.desired, decision.reason) == (0, Reason.IDLE)
    for unknown in (None, replace(BUSY_FOR_LONG, covered_seconds=540.0)):
        old.requests = unknown
        assert old.cycle(variant(replicas=2, desired=2), a=[BUSY] * 2)["a"].desired == 2
    assert resting(enabled=False).cycle(variant(replicas=2, desired=2), a=[BUSY] * 2)["a"].desired == 2


def test_the_old_limiter_counts_only_the_replicas_it_decides_on():
    """GPUs of other pods do not count, and without an inventory or a target nothing is limited."""
    old = limited(AcceleratorPool("A100", 3, 3))
    grown = {"replicas": 2, "desired": 2}
    assert old.cycle(variant(**grown), a=[FULL] * 2)["a"].desired == 3
    assert old.cycle(variant(**grown, gpus_per_replica=2), a=[FULL] * 2)["a"].reason is Reason.GPU_LIMITED
    assert old.cycle(variant(replicas=1, desired=4), failure="refused", a=[FULL])["a"].desired == 4
    old.inventory = None
    assert old.cycle(variant(**grown), a=[FULL] * 2)["a"].desired == 3


def test_the_old_limiter_never_looked_further():
    """The denied replicas are lost, although the sibling has GPUs."""
    old = limited(AcceleratorPool("A100", 1, 0), AcceleratorPool("H100", 9, 0))
    cheap, dear = variant("cheap", desired=1, cost=1), variant("dear", desired=1, cost=50, accelerator="H100")
    decisions = old.cycle(cheap, dear, cheap=[FULL], dear=[FULL])
    assert numbers(decisions) == {"cheap": 1, "dear": 1}
    assert decisions["cheap"].reason is Reason.GPU_LIMITED


def test_a_model_that_raises_is_held_and_its_gpus_are_not_given_away(monkeypatch):
    """The model's replicas and the replicas that it was granted count; the rest that it asks for does not."""
    original = v05.decide_model

    def broken(model, *args):
        if model[0].key.name == "hostile":
            raise LookupError
        return original(model, *args)

    monkeypatch.setattr(v05, "decide_model", broken)
    hostile = variant("hostile", replicas=2, desired=3, model="hostile")
    snapshot = Snapshot.of([variant(desired=1), hostile], [replica(kv=0.95, queue=9)])
    for capacity, expected in ((4, 1), (5, 2)):
        pools = [AcceleratorPool("A100", capacity, 3)]
        inventory = Inventory.of(pools, [GpuQuota("ns", "nvidia.com/gpu", 4, 3, "q")])
        scarce = replace(snapshot, inventory=inventory)
        outcome = conclude(scarce, Memory(), replace(OLD, enable_limiter=True), NOW)
        assert numbers({each.key.name: each for each in outcome.decisions}) == {"a": expected, "hostile": 3}
        assert [failure.model.model_id for failure in outcome.failures] == ["hostile"]


def test_a_number_above_the_maximum_names_who_set_it():
    """The scaler has the bound, so the message names the scaler."""
    decision = Story(OLD).cycle(variant(desired=1, maximum=1), a=[FULL])["a"]
    assert (decision.desired, decision.reason, decision.limits[0].limited_by) == (1, Reason.BOUNDED, "the scaler")
    assert decision.message.startswith("2 is above the maximum 1 of the scaler; saturation-only mode: scale-up")


def test_a_silent_pod_of_an_unfinished_growth_keeps_the_clock():
    """The silent pod belongs to the unfinished growth until the deadline, as without the mode."""
    story = Story(OLD)
    story.cycle(variant(desired=1), a=[FULL])
    coming = variant(replicas=2, desired=2, ready_replicas=1)
    assert story.cycle(coming, after=30, a=[FULL])["a"].settling_since == NOW
    silent = story.cycle(variant(replicas=2, desired=2), after=60, a=[BUSY, (None, None)])["a"]
    assert silent.settling_since == NOW + 60
    assert story.cycle(variant(replicas=2, desired=2), after=90, a=[BUSY, BUSY])["a"].settling_since is None


@pytest.mark.parametrize(("load", "words"), [(BUSY, "0 saturated"), (FULL, "1 saturated"), (IDLE, "0 saturated")])
def test_the_first_step_says_what_was_measured(load, words):
    """The step uses the terms of the arithmetic that decided."""
    step = Story(OLD).cycle(variant(desired=1), a=[load])["a"].steps[0]
    assert (step.stage, words in step.reason) == ("analyze", True)


def test_without_samples_the_first_step_says_why():
    """The model was not analyzed."""
    decisions = Story(OLD).cycle(variant(desired=1), failure="refused")
    assert decisions["a"].steps[0].reason == "refused"
    assert reasons(decisions) == {"a": "PrometheusError"}


def test_it_shares_nothing_with_the_engine_of_today_that_makes_a_number():
    """But the values of the domain, conditions and clocks, the isolation of failing models and a few words."""
    nodes = list(ast.walk(ast.parse(Path(v05.__file__).read_text(encoding="utf-8"))))
    named = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    named |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    ours = {name for name in named if name.startswith("wva.")}
    assert {name for name in ours if not name.startswith("wva.model.")} == SHARED
