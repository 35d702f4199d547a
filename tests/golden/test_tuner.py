"""The original's Kalman filter, rebuilt in Python, takes the recorded steps, alone and in sequences of cycles."""

from __future__ import annotations

import math

import pytest

from tests.golden.original.kalman import DEFAULT_STATE, KalmanState, guess, update
from tests.golden.original.observed import ObservedReplica
from tests.golden.original.queues import BoundedQueue
from tests.golden.original.service import IterationTime, RequestSize
from tests.golden.original.sizing import size
from tests.golden.original.targets import OriginalTarget, ServedTraffic, derived_target
from tests.golden.queueing import within
from tests.golden.vectors import Case, parameters, tally

NAME = "tuner"


def observation(env: Case) -> ObservedReplica:
    """Return the observation of a recorded environment."""
    return ObservedReplica(
        0.0,
        env["lambda_rpm"] / 60,
        env["avg_input_tokens"],
        env["avg_output_tokens"],
        env["avg_ttft_ms"],
        env["avg_itl_ms"],
        env["max_batch_size"],
    )


@pytest.mark.parametrize("case", parameters(NAME, section="steps"))
def test_recorded_step(case):
    """One update gives the recorded state; where the original fails, the state is finite and positive."""
    tally(NAME, "steps").run += 1
    seen = observation(case["env"])
    start = IterationTime(*case["init_state"])
    if case["init_source"] == "guess":
        found_guess = guess(seen)
        assert (found_guess.alpha, found_guess.beta, found_guess.gamma) == within(tuple(case["init_state"]), rel=1e-3)
    if case["init_source"] == "default":
        assert as_tuple(start) == within(as_tuple(DEFAULT_STATE), rel=1e-6)
    found = update(KalmanState(start), [seen], bounds_from=start)
    if case.get("error"):
        assert all(math.isfinite(value) and value > 0 for value in as_tuple(found.parameters))
        return
    assert found.rejected == case["rejected"]
    assert as_tuple(found.parameters) == within(tuple(case["state"]), rel=1e-4)
    assert found.nis == within(case["nis"], rel=3e-3)
    scale = [math.sqrt(case["covariance"][i][i]) for i in range(3)]
    for i in range(3):
        for j in range(3):
            room = 2e-3 * scale[i] * scale[j]
            assert found.covariance[3 * i + j] == within(case["covariance"][i][j], rel=2e-3, extra=room)


def as_tuple(state: IterationTime) -> tuple[float, float, float]:
    """Return the parameters in order."""
    return state.alpha, state.beta, state.gamma


@pytest.mark.parametrize("case", parameters(NAME, section="sequences"))
def test_recorded_sequence(case):
    """Parameters, derived targets and capacities follow the original from cycle to cycle, until it panics."""
    tally(NAME, "sequences").run += 1
    config = case["config"]
    preset = config.get("preset")
    states: dict[str, KalmanState | None] = {}
    for cycle in case["cycles"]:
        groups = by_variant(cycle["replicas"])
        if config.get("tuningEnabled", True):
            for name, seen in groups.items():
                states[name] = next_state(states.get(name), seen, preset)
        if str(cycle.get("error", "")).startswith("panic"):
            return
        found = {name: state for name, state in states.items() if state is not None}
        assert set(found) == set(cycle["params_after"])
        for name, row in cycle["params_after"].items():
            assert as_tuple(found[name].parameters) == within((row["alpha"], row["beta"], row["gamma"]), rel=5e-3)
            assert found[name].nis == within(row["nis"], rel=2e-2, extra=1e-3)
        check_capacities(config, cycle, found)


def by_variant(rows: list[Case]) -> dict[str, list[ObservedReplica]]:
    """Return the busy replicas of every variant; all of them get the first known batch size."""
    groups: dict[str, list[ObservedReplica]] = {}
    for row in rows or []:
        batches = [each["max_batch_size"] for each in rows if each["variant"] == row["variant"]]
        batch = next((size for size in batches if size > 0), 256)
        if row["arrival_rate_rps"] > 0:
            seen = ObservedReplica(
                0.0,
                row["arrival_rate_rps"],
                row["avg_input_tokens"],
                row["avg_output_tokens"],
                row["avg_ttft_s"] * 1000,
                row["avg_itl_s"] * 1000,
                batch,
            )
            groups.setdefault(row["variant"], []).append(seen)
    return groups


def next_state(
    state: KalmanState | None, seen: list[ObservedReplica], preset: list[float] | None
) -> KalmanState | None:
    """Return a variant's state after a cycle: known parameters have the default bounds, a guess has its own.

    If the original's state cannot serve the load of the first replica, the original keeps its old state. The filter
    here evaluates such a load. To compare the later cycles, the test also keeps the old state, after it has checked
    that the new one is finite.
    """
    if state is None and preset is not None:
        state = KalmanState(IterationTime(*preset))
    start = state or KalmanState(guess(seen[0]) or DEFAULT_STATE)
    found = update(start, seen, bounds_from=DEFAULT_STATE if state else start.parameters)
    assert all(math.isfinite(value) and value > 0 for value in as_tuple(found.parameters))
    return found if sustained(seen[0], start.parameters) else state


def sustained(seen: ObservedReplica, state: IterationTime) -> bool:
    """Tell whether the original could evaluate a load: it fails above its highest rate."""
    queue = BoundedQueue(state, RequestSize(seen.input_tokens, seen.output_tokens), seen.batch, 10 * seen.batch)
    (sizing,) = size([queue], [OriginalTarget()])
    return seen.rate <= sizing.highest_rate


def check_capacities(config: Case, cycle: Case, states: dict[str, KalmanState]) -> None:
    """Compare the targets in force and the capacity of one replica within them."""
    groups = by_variant(cycle["replicas"])
    traffic = ServedTraffic.mean(
        [
            ServedTraffic(s.rate, s.input_tokens, s.output_tokens, s.ttft, s.itl)
            for seen in groups.values()
            for s in seen
        ]
    )
    recorded = cycle.get("slo_ttft_itl_ms")
    if recorded is None or traffic is None:
        return
    target = derived_target(config["sloMultiplier"] or 3.0, [state.parameters for state in states.values()], traffic)
    if recorded not in EXPLICIT:
        assert (target.ttft, target.itl) == within(tuple(recorded), rel=2e-3)
    for row in cycle["variant_capacities"]:
        if row["per_replica_capacity"]:
            mean = ServedTraffic.mean(
                [ServedTraffic(s.rate, s.input_tokens, s.output_tokens, s.ttft, s.itl) for s in groups[row["variant"]]]
            )
            queue = BoundedQueue(
                states[row["variant"]].parameters,
                RequestSize(mean.input_tokens, mean.output_tokens),
                groups[row["variant"]][0].batch,
                100,
            )
            (sizing,) = size([queue], [OriginalTarget(*recorded)])
            assert sizing.rate == within(row["per_replica_capacity"], rel=1e-2)


EXPLICIT = ([800, 40], [200, 12])
"""Targets that the recorded configurations contain."""
