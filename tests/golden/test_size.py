"""Sizing equals an independent float64 search to 1e-9, and the original where float32 errors do not decide."""

from __future__ import annotations

import pytest

from tests.golden.original.results import Performance, Sizing
from tests.golden.original.sizing import perform, size
from tests.golden.original.targets import OriginalTarget
from tests.golden.queueing import better, queue, within
from tests.golden.vectors import Case, parameters, tally

NAME = "size"
TIGHT = 1e-9
LOOSE = 1e-4
ASPECT = "v051 better here"
BETTER = better("golden/test_size.py::test_what_is_better_here_meets_its_targets_and_no_higher_rate_does")


@pytest.mark.parametrize("case", parameters(NAME, section="v051", better=BETTER))
def test_known_parameters(case):
    """The highest rate with alpha, beta, gamma and delta is as recorded."""
    tally(NAME, "v051").run += 1
    check(case)


@pytest.mark.parametrize("case", parameters(NAME, section="v080", better=BETTER))
def test_estimated_parameters(case):
    """The highest rate with alpha, beta and gamma is as recorded."""
    tally(NAME, "v080").run += 1
    check(case)


@pytest.mark.parametrize("case", parameters(NAME, section="v051", better=BETTER, aspect=ASPECT, recorded=False))
def test_what_is_better_here_meets_its_targets_and_no_higher_rate_does(case):
    """Where the recorded latencies cannot be true, WVA's rate meets the targets and a higher rate does not."""
    tally(NAME, ASPECT).run += 1
    one, target = queue(case), case["target"]
    (found,) = size([one], [OriginalTarget(**target)])
    if found.rate is None:
        (lowest,) = perform([one], [found.lowest_rate])
        assert not within_targets(lowest, target)
        return
    limit = min(found.ttft.rate, found.itl.rate, found.tps_rate)
    at, above = perform([one, one], [limit, limit * (1 + 1e-3)])
    assert within_targets(at, target)
    assert found.rate == within(at.throughput, rel=TIGHT)
    assert limit in {found.tps_rate, found.highest_rate} or not within_targets(above, target)


def within_targets(performance: Performance, target: Case) -> bool:
    """Tell whether latencies are within the targets that are given, up to rounding."""
    latencies = {"ttft": performance.ttft, "itl": performance.itl}
    return all(found <= target[name] * (1 + 1e-8) for name, found in latencies.items() if target[name] > 0)


def check(case: Case) -> None:
    """Compare one case with the reference, and with the original if that found a rate."""
    (found,) = size([queue(case)], [OriginalTarget(**case["target"])])
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
    """Compare with the original's rate; if that is ill-conditioned, check that WVA's rate meets the targets."""
    if case["class"] == "match":
        assert found.rate == within(case["rate_star"], rel=LOOSE)
        assert found.tps_rate == within(case["rate_tps"], rel=LOOSE)
    elif case["class"] == "ill_conditioned":
        performance, target = found.performance, case["target"]
        assert performance.ttft <= (target["ttft"] or float("inf")) * (1 + LOOSE)
        assert performance.itl <= (target["itl"] or float("inf")) * (1 + LOOSE)
