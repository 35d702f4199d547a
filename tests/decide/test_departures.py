"""What v0.5.1 did and what WVA does instead, in the rows of docs/decisions.md#departures-from-v051.

Each test gives the same inputs to both modes and expects different numbers.
"""

from __future__ import annotations

from tests.builders import NOW, policy, replica, standing, variant
from tests.decide.story import BUSY, FULL, HOT, IDLE, SILENT, Story, numbers, snapshot
from tests.decide.test_replacements import MEASURED, POLICY, A, SteadyAnalyzer
from wva.decide.measure import ANALYZERS
from wva.decide.measure.need import Capacity
from wva.decide.pipeline import decide
from wva.decide.v05 import analyze, targets
from wva.model.inventory import AcceleratorPool, Inventory
from wva.model.memory import Memory
from wva.model.optimizers import Analyzer
from wva.model.policy import (
    Compatibility,
    Policy,
    SaturationOverride,
    SaturationPolicy,
    ScaleToZeroEntry,
    ScaleToZeroRules,
)
from wva.model.snapshot import RequestCounts
from wva.model.variant import ModelKey


def both(*variants, failure=None, settings=None, **loads):
    """Return the numbers of v0.5.1 and of today's engine for the same cycle."""
    settings = settings or {}
    old = Story(policy(compatibility=Compatibility.V0_5, **settings)).cycle(*variants, failure=failure, **loads)
    ours = Story(policy(**settings)).cycle(*variants, failure=failure, **loads)
    return numbers(old), numbers(ours)


def test_row_1_a_number_out_of_reach():
    """The original stays at 12 with a maximum of 10 and idle replicas; WVA comes down. Bounds hold in both modes."""
    free = variant(replicas=10, desired=12)
    assert Story(policy(compatibility=Compatibility.V0_5)).cycle(free, a=[IDLE] * 10)["a"].desired == 12
    assert Story().cycle(variant(replicas=10, desired=12, maximum=10), a=[IDLE] * 10)["a"].desired == 8


def test_row_2_a_step_within_the_tolerance_of_the_scaler():
    """Twelve replicas want one more: an HPA ignores 13 and acts on 14."""
    assert both(variant(replicas=12, desired=12), a=[(0.72, 0)] * 12) == ({"a": 13}, {"a": 14})


def test_row_4_one_replica_at_a_time():
    """Four replicas are full: the original adds one, WVA doubles."""
    assert both(variant(replicas=4, desired=4), a=[FULL] * 4) == ({"a": 5}, {"a": 8})


def test_row_8_no_finished_request_is_not_idle():
    """A model is busy with its first long request: the original takes it to zero."""
    rules = ScaleToZeroRules(ScaleToZeroEntry("default", "", enabled=True, retention_seconds=600.0))
    requests = RequestCounts(ModelKey("ns", "m"), 600.0, finished=0.0, in_progress=1.0, covered_seconds=600.0)
    for compatibility, expected in ((Compatibility.V0_5, 0), (None, 1)):
        story = Story(Policy(compatibility=compatibility, scale_to_zero=rules), requests=requests)
        assert story.cycle(variant(desired=1), a=[BUSY])["a"].desired == expected


def test_row_15_variants_at_zero_replicas():
    """The cheap variant is at zero and its scaler can start it: the original adds a dear replica."""
    asleep, dear = variant("a", replicas=0, minimum=0, cost=5), variant("b", desired=1, cost=50)
    assert both(asleep, dear, b=[HOT]) == ({"a": 0, "b": 2}, {"a": 1, "b": 1})


def test_row_16_gpus_that_others_use():
    """Pods use all ten GPUs, two of them pods of WVA's variants: the original sees eight free ones."""
    inventory = Inventory.of([AcceleratorPool("A100", 10, 10)])
    for compatibility, expected in ((Compatibility.V0_5, 3), (None, 2)):
        story = Story(Policy(compatibility=compatibility, enable_limiter=True), inventory=inventory)
        assert story.cycle(variant(replicas=2, desired=2), a=[FULL] * 2)["a"].desired == expected


def test_row_3_a_surge_during_an_unfinished_shrink():
    """The original keeps the lower number; WVA grows from the replicas that exist."""
    assert both(variant(replicas=3, desired=2), a=[FULL] * 3) == ({"a": 2}, {"a": 6})


def test_row_3_an_unfinished_growth_nobody_needs():
    """WVA also withdraws growth that the model no longer needs."""
    assert both(variant(replicas=3, desired=4), a=[IDLE] * 3) == ({"a": 4}, {"a": 3})


def test_row_5_a_stuck_replica():
    """One pod of the cheap variant does not start: the original stops, WVA grows the sibling."""
    old, ours = Story(policy(compatibility=Compatibility.V0_5)), Story()
    stuck, sibling = variant("a", replicas=2, ready_replicas=1, desired=2), variant("b", desired=1, cost=50)
    for story in (old, ours):
        story.cycle(stuck, sibling, a=[HOT], b=[HOT])
        story.cycle(stuck, sibling, after=600, a=[HOT], b=[HOT])
    assert numbers(old.decisions) == {"a": 2, "b": 1}
    assert numbers(ours.decisions) == {"a": 2, "b": 2}


def test_row_6_saturated_replicas_in_the_mean():
    """Nine of ten replicas are full: in the original the mean of one idle replica hid that."""
    assert both(variant(replicas=10, desired=10), a=[*[FULL] * 9, IDLE]) == ({"a": 10}, {"a": 20})


def test_row_6_saturated_replicas_and_shrinking():
    """Eight of ten replicas are full: the original took a shrink for safe."""
    config = {"queue_spare_trigger": 0.5, "kv_spare_trigger": 0.1}
    old, ours = both(variant(replicas=10, desired=10), settings=config, a=[*[FULL] * 8, IDLE, IDLE])
    assert old == {"a": 9}
    assert ours == {"a": 10}


def test_row_7_a_missing_sample():
    """The original counted a missing sample as idle and allowed a shrink; WVA does not."""
    assert both(variant(replicas=2, desired=2), a=[IDLE, (None, 0)]) == ({"a": 1}, {"a": 2})


def test_row_9_no_decision_and_no_number():
    """The original's 0 tells the HPA to stop a running workload; WVA keeps the replicas that exist."""
    woken = variant(replicas=2, desired=0, status_accelerator="A100")
    assert both(woken, a=[SILENT] * 2) == ({"a": 0}, {"a": 2})
    assert both(woken, failure="refused", a=[SILENT] * 2) == ({"a": 0}, {"a": 2})


def test_row_10_no_accelerator_label():
    """Published as unknown, and the metrics are what they are, in both modes."""
    for compatibility in (None, Compatibility.V0_5):
        decision = Story(policy(compatibility=compatibility)).cycle(variant(accelerator=""), a=[FULL])["a"]
        assert (decision.accelerator, decision.desired, decision.metrics.available) == ("unknown", 2, True)


def test_row_12_overrides_count():
    """The Policy has a complete policy per model, not only the default."""
    careful = SaturationPolicy(kv_spare_trigger=0.5)
    override = SaturationOverride("careful", "m", None, careful)
    decisions = Story(Policy(overrides=(override,))).cycle(
        variant("a", model="m"), variant("b", model="other"), a=[BUSY], b=[BUSY]
    )
    assert numbers(decisions) == {"a": 2, "b": 1}


def test_row_14_variants_without_samples_belong_to_the_model():
    """The cheap variant starts from zero: the original adds a dear replica meanwhile, WVA waits."""
    starting, dear = variant("a", replicas=1, ready_replicas=0, desired=1), variant("b", desired=1, cost=50)
    assert both(starting, dear, b=[HOT]) == ({"a": 1, "b": 2}, {"a": 1, "b": 1})


def test_row_14_variants_without_samples_prevent_shrinking():
    """WVA does not remove supply of which it has no samples."""
    silent, idle = variant("a", desired=1), variant("b", replicas=3, desired=3)
    assert both(silent, idle, a=[SILENT], b=[IDLE] * 3) == ({"a": 1, "b": 2}, {"a": 1, "b": 3})


def test_row_20_samples_without_a_variant():
    """The original gave a variant without state the target 0; WVA decides only on variants of the snapshot."""
    ghost = standing(variant("ghost", replicas=0), (replica("ghost-0", variant="ghost", kv=0.5, queue=1),))
    assert targets(analyze([ghost], SaturationPolicy())) == {"ghost": 0}
    assert numbers(Story().cycle(variant("a"), a=[BUSY], ghost=[FULL])) == {"a": 1}


def test_row_23_all_saturated_with_triggers_of_zero():
    """With triggers of zero no mean is below them, but the model has no room either."""
    zero = {"kv_spare_trigger": 0.0, "queue_spare_trigger": 0.0}
    assert both(variant(replicas=2, desired=2), settings=zero, a=[FULL] * 2) == ({"a": 2}, {"a": 4})


def test_row_24_a_variant_with_pending_replicas(monkeypatch):
    """One of two replicas is pending and at least four are needed: the original waits for it, WVA orders more."""
    pending = variant("a", replicas=2, ready_replicas=1, desired=2)
    old = Story(policy(compatibility=Compatibility.V0_5)).cycle(pending, a=[FULL])
    monkeypatch.setitem(ANALYZERS, Analyzer.DEMAND, SteadyAnalyzer(12.0, {A: Capacity(3.0, MEASURED)}))
    (ours,), _ = decide(snapshot(pending, a=[BUSY]), Memory(), POLICY, NOW)
    assert old["a"].desired == 2
    assert ours.desired >= 4
