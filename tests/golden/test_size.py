"""Sizing equals an independent float64 search to 1e-9, and the original wherever its answer is no float32 noise."""

from __future__ import annotations

import pytest

from tests.golden.queueing import decode_only, not_numbers, queue, within
from tests.golden.vectors import Case, parameters, tally
from wva.decide.queueing.results import Sizing
from wva.decide.queueing.sizing import size
from wva.decide.queueing.targets import Target

NAME = "size"
TIGHT = 1e-9
LOOSE = 1e-4


def left_out(case: Case) -> str | None:
    """Leave out what has no recorded numbers that could be true."""
    return decode_only(case) or not_numbers(case)


@pytest.mark.parametrize("case", parameters(NAME, section="v051", left_out=left_out))
def test_known_parameters(case):
    """Highest rate with alpha, beta, gamma and delta."""
    tally(NAME, "v051").run += 1
    check(case)


@pytest.mark.parametrize("case", parameters(NAME, section="v080", left_out=left_out))
def test_estimated_parameters(case):
    """Highest rate with alpha, beta and gamma."""
    tally(NAME, "v080").run += 1
    check(case)


def check(case: Case) -> None:
    """Compare one case with the reference, and with the original if it answered from more than noise."""
    (found,) = size([queue(case)], [Target(**case["target"])])
    reference = case.get("ref64")
    if reference is None:
        capacity_one = case["instance"]["max_batch_size"] + case["instance"]["max_queue_size"] == 1
        assert (found.rate is not None) == capacity_one
        return
    limits = {"ttft": found.ttft, "itl": found.itl}
    assert {name: limit.where.value for name, limit in limits.items()} == reference["where"]
    assert limits["ttft"].rate == within(reference["rate_ttft"], rel=TIGHT)
    assert limits["itl"].rate == within(reference["rate_itl"], rel=TIGHT)
    assert (found.rate is not None) == reference["feasible"]
    assert bool(found.problem) != reference["feasible"]
    if found.rate is not None:
        assert found.rate == within(reference["rate_star"], rel=TIGHT)
        check_original(case, found)


def check_original(case: Case, found: Sizing) -> None:
    """Compare with the original: its rate, or where the latency hardly depends on the rate, whether ours meets it."""
    if case["class"] == "match":
        assert found.rate == within(case["rate_star"], rel=LOOSE)
        assert found.tps_rate == within(case["rate_tps"], rel=LOOSE)
    elif case["class"] == "ill_conditioned":
        performance, target = found.performance, case["target"]
        assert performance.ttft <= (target["ttft"] or float("inf")) * (1 + LOOSE)
        assert performance.itl <= (target["itl"] or float("inf")) * (1 + LOOSE)
