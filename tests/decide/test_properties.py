"""What is true of every decision, whatever the inputs.

Each property is one of every drawn cycle: drawing one takes longer than deciding on it.
"""

from __future__ import annotations

from hypothesis import event, given
from hypothesis import strategies as st

from tests.decide.strategies import cycles
from wva.decide.pipeline import decide
from wva.hindsight.cycle import Recording
from wva.model.decision import Decision, Reason
from wva.model.memory import Memory
from wva.model.metrics import ReplicaMetrics
from wva.model.policy import Compatibility, SaturationPolicy
from wva.model.snapshot import Snapshot
from wva.model.variant import ModelKey, Variant

any_cycles = cycles() | cycles(compatibility=Compatibility.V0_5)
shuffles = st.randoms(use_true_random=False)


def decided(recording: Recording) -> tuple[tuple[Decision, ...], Memory]:
    """Decide on a drawn cycle."""
    return decide(recording.snapshot, recording.memory, recording.policy, recording.now)


def outcomes(recording: Recording) -> list[tuple[Variant, Decision, int]]:
    """Return active variants with their decisions and the number each had before, as far as its bounds allow."""
    remembered = recording.memory.by_key()
    found = []
    for variant, decision in zip(recording.snapshot.variants, decided(recording)[0], strict=True):
        if variant.active:
            memory = remembered.get(variant.key)
            before = (memory.desired if memory else 0) or variant.status_desired or max(1, variant.current_replicas)
            found.append((variant, decision, variant.bounds.clamp(before)))
    return found


def pods(recording: Recording, model: ModelKey) -> list[ReplicaMetrics]:
    """Return the Ready pods of a model's active variants."""
    keys = {variant.key for variant in recording.snapshot.variants if variant.active and variant.model == model}
    return [replica for replica in recording.snapshot.replicas if replica.variant in keys]


def saturated(replica: ReplicaMetrics, policy: SaturationPolicy) -> bool:
    """Tell whether a fresh signal reaches its threshold."""
    kv, queue = replica.kv_usage.fresh_value, replica.queue_length.fresh_value
    return (kv or 0.0) >= policy.kv_cache_threshold or (queue or 0.0) >= policy.queue_length_threshold


def nothing_shrinks_except_on_fresh_complete_evidence(recording):
    """Check that a number falls below the present one only if every replica of the model reports and has room."""
    for variant, decision, before in outcomes(recording):
        if decision.desired >= min(before, variant.bounds.clamp(variant.current_replicas)):
            continue
        event("shrinks")
        replicas = pods(recording, variant.model)
        policy = recording.policy.saturation_for(variant.model)
        assert len(replicas) >= 2
        assert all(replica.complete for replica in replicas)
        assert not any(saturated(replica, policy) for replica in replicas)
        assert not recording.snapshot.failures or all(
            variant.key.namespace not in failure.namespaces for failure in recording.snapshot.failures
        )


def a_shrunk_model_has_enough_spare_left(recording):
    """Check that if the replicas that stay carry the load of all, both spares stay above their triggers."""
    for variant, decision, _ in outcomes(recording):
        if decision.reason is not Reason.SCALE_DOWN:
            continue
        replicas = pods(recording, variant.model)
        policy = recording.policy.saturation_for(variant.model)
        left = len(replicas) - 1
        kv = sum(replica.kv_usage.value for replica in replicas) / left
        queue = sum(replica.queue_length.value for replica in replicas) / left
        assert policy.kv_cache_threshold - kv >= policy.kv_spare_trigger - 1e-9
        assert policy.queue_length_threshold - queue >= policy.queue_spare_trigger - 1e-9


def numbers_are_within_bounds(recording):
    """Check that the numbers keep the bounds in both modes, also if WVA holds them."""
    for variant, decision, _ in outcomes(recording):
        assert variant.bounds.clamp(decision.desired) == decision.desired


def an_active_variant_never_gets_zero(recording):
    """Check that only scale-to-zero goes to zero, and that a variant starts again only if its scaler can go there."""
    for variant, decision in zip(recording.snapshot.variants, decided(recording)[0], strict=True):
        if variant.bounds.minimum == 0 and not variant.active:
            event("may come back")
            continue
        assert (decision.desired > 0) == variant.active


def listing_order_never_matters(recording, shuffle):
    """Check that the order does not matter with the constructor of Snapshot, nor without it."""
    variants, replicas = list(recording.snapshot.variants), list(recording.snapshot.replicas)
    failures, entries = list(recording.snapshot.failures), list(recording.memory.variants)
    for things in (variants, replicas, failures, entries):
        shuffle.shuffle(things)
    memory = Memory(tuple(entries))
    expected = decided(recording)
    for snapshot in (
        Snapshot.of(variants, replicas, failures),
        Snapshot(tuple(variants), tuple(replicas), tuple(failures)),
    ):
        assert decide(snapshot, memory, recording.policy, recording.now) == expected


def one_decision_and_one_memory_per_variant(recording):
    """Check that decisions are sorted by key, and WVA forgets variants that are gone."""
    decisions, memory = decided(recording)
    keys = sorted(variant.key for variant in recording.snapshot.variants)
    assert [decision.key for decision in decisions] == keys
    assert [(entry.key, entry.desired, entry.settling_since) for entry in memory.variants] == [
        (decision.key, decision.desired, decision.settling_since) for decision in decisions
    ]


def the_steps_lead_from_the_number_before_to_the_decision(recording):
    """Check that each step begins with the number at which the step before ended."""
    for decision in decided(recording)[0]:
        assert decision.steps
        assert decision.steps[-1].after == decision.desired
        for earlier, later in zip(decision.steps, decision.steps[1:], strict=False):
            assert earlier.after == later.before
        assert decision.message


def a_model_shrinks_by_one_and_at_most_doubles(recording):
    """Check that a model shrinks by one replica of one variant; it grows by no more replicas than it has."""
    changes: dict[ModelKey, list[int]] = {}
    levels: dict[ModelKey, int] = {}
    for variant, decision, before in outcomes(recording):
        current = variant.bounds.clamp(max(1, variant.current_replicas))
        low, high = min(before, current), max(before, current)
        change = max(0, decision.desired - high) + min(0, decision.desired - low)
        changes.setdefault(variant.model, []).extend([change] if change else [])
        levels[variant.model] = levels.get(variant.model, 0) + max(before, variant.current_replicas)
    for model, found in changes.items():
        event(f"changes {found}")
        assert found == [-1] or all(change > 0 for change in found)
        assert sum(found) <= levels[model]


def growth_has_a_fresh_cause(recording):
    """Check that some replica reports, and the number is above the replicas that exist."""
    for variant, decision, _ in outcomes(recording):
        if decision.reason is Reason.SCALE_UP:
            assert any(replica.reports for replica in pods(recording, variant.model))
            assert decision.desired > variant.current_replicas


def without_fresh_samples_numbers_are_kept(recording):
    """Check that without fresh samples the number does not change, and the decision says that WVA holds it."""
    for variant, decision, before in outcomes(recording):
        if not any(replica.reports for replica in pods(recording, variant.model)):
            assert (decision.desired, decision.held) == (before, True)


def deciding_again_at_once_changes_nothing_more(recording):
    """Check that in the same world, with the memory of the first pass, WVA takes no second step, or withdraws one."""
    if recording.snapshot.failures:
        return
    first, memory = decided(recording)
    second, _ = decide(recording.snapshot, memory, recording.policy, recording.now)
    for before, after in zip(first, second, strict=True):
        if before.reason in {Reason.SCALE_UP, Reason.SCALE_DOWN, Reason.STEADY, Reason.METRICS_INCOMPLETE}:
            assert after.desired == before.desired


def the_clock_runs_exactly_while_something_is_unfinished(recording):
    """Check that a variant is settled if its number, its replicas and its Ready pods agree."""
    for variant, decision, _ in outcomes(recording):
        own = [replica for replica in recording.snapshot.replicas if replica.variant == variant.key]
        if decision.desired != variant.current_replicas or variant.current_replicas > len(own):
            assert decision.settling_since is not None
        elif all(replica.reports for replica in own):
            assert decision.settling_since is None


@given(any_cycles, shuffles)
def test_what_holds_in_every_cycle(recording, shuffle):
    """In compatibility mode, too."""
    numbers_are_within_bounds(recording)
    listing_order_never_matters(recording, shuffle)
    one_decision_and_one_memory_per_variant(recording)
    the_steps_lead_from_the_number_before_to_the_decision(recording)
    the_clock_runs_exactly_while_something_is_unfinished(recording)


@given(cycles())
def test_what_holds_in_every_cycle_of_the_default_mode(recording):
    """The engine of v0.5.1 has none of these."""
    nothing_shrinks_except_on_fresh_complete_evidence(recording)
    a_shrunk_model_has_enough_spare_left(recording)
    an_active_variant_never_gets_zero(recording)
    a_model_shrinks_by_one_and_at_most_doubles(recording)
    growth_has_a_fresh_cause(recording)
    without_fresh_samples_numbers_are_kept(recording)
    deciding_again_at_once_changes_nothing_more(recording)
