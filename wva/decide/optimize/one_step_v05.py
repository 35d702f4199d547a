"""The target arithmetic of v0.5 with its transition rule (docs/design/compatibility-v05.md#target-numbers)."""

from __future__ import annotations

from collections.abc import Sequence

from wva.decide.assessment_v05 import ModelLoad, Target, VariantLoad, VariantState
from wva.model.decision import Action


def targets(analysis: ModelLoad, states: Sequence[VariantState]) -> tuple[Target, ...]:
    """Return the targets of one model, sorted by variant.

    Variants without reporting pods get none, unless no variant has any: then each keeps its replicas.
    """
    by_name = {state.variant: state for state in states}
    loads = {load.variant: load for load in analysis.variants}
    numbers = _numbers(analysis, by_name) if loads else {state.variant: state.current for state in states}
    return tuple(
        _target(by_name.get(name, VariantState(name)), loads.get(name), numbers[name]) for name in sorted(numbers)
    )


def _numbers(analysis: ModelLoad, by_name: dict[str, VariantState]) -> dict[str, int]:
    states = {load.variant: by_name.get(load.variant, VariantState(load.variant)) for load in analysis.variants}
    if any(states[load.variant].unreached or _uncounted(load, states) for load in analysis.variants):
        return {name: state.desired if state.unreached else state.current for name, state in states.items()}
    numbers = {load.variant: load.replica_count for load in analysis.variants}
    if analysis.should_scale_up:
        growing = [load for load in analysis.variants if states[load.variant].pending <= 0]
        if growing:
            numbers[min(growing, key=_by_cost).variant] += 1
    elif analysis.scale_down_safe:
        shrinking = [load for load in analysis.variants if load.replica_count > 1]
        if shrinking:
            numbers[max(shrinking, key=_by_cost).variant] -= 1
    return numbers


def _uncounted(load: VariantLoad, states: dict[str, VariantState]) -> bool:
    return load.replica_count != states[load.variant].current


def _by_cost(load: VariantLoad) -> tuple[float, str]:
    return load.cost, load.variant


def _target(state: VariantState, load: VariantLoad | None, number: int) -> Target:
    action = Action.NO_CHANGE
    if number != state.current:
        action = Action.SCALE_UP if number > state.current else Action.SCALE_DOWN
    return Target(
        variant=state.variant,
        action=action.value,
        current=state.current,
        target=number,
        desired=state.desired,
        accelerator="" if load is None else load.accelerator,
        cost=0.0 if load is None else load.cost,
        spare_capacity=0.0 if load is None else load.mean_spare_kv,
        gpus_per_replica=state.gpus_per_replica if state.gpus_per_replica > 0 else 1,
        reason=f"saturation-only mode: {action.value}",
    )
