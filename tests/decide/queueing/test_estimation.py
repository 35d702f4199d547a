"""Parameters from what replicas report: the fit finds what made the reports, whatever the reports are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wva.decide.queueing.estimation import estimate, little_guess
from wva.decide.queueing.kalman import DEFAULT_STATE, KalmanState, guess, update
from wva.decide.queueing.objectives import Traffic, derived_target
from wva.decide.queueing.observation import Reports, usable
from wva.decide.queueing.service import IterationTime, PrefillDecode, Queue, RequestSize
from wva.decide.queueing.sizing import size
from wva.decide.queueing.targets import Target
from wva.model.queueing import Estimate, Observation

TRUTH = IterationTime(8.0, 0.05, 2e-5)
BATCH = 64


def reports(shares: list[float], *, noise: float = 0.0, seed: int = 0) -> list[Observation]:
    """Return what a replica would report at shares of its highest rate, with relative noise on both latencies."""
    dice = np.random.default_rng(seed)
    (top,) = size([Queue(TRUTH, RequestSize(512, 128), BATCH, 10 * BATCH)], [Target()])
    blank = [Observation(0.0, share * top.highest_rate, 512, 128, 1.0, 1.0, BATCH) for share in shares]
    exact = Reports.of(blank).predicted(np.tile([TRUTH.alpha, TRUTH.beta, TRUTH.gamma], (len(blank), 1)))
    noisy = exact * np.exp(dice.normal(0, noise, exact.shape))
    return [
        Observation(seen.time, seen.rate, seen.input_tokens, seen.output_tokens, ttft, itl, seen.batch)
        for seen, (ttft, itl) in zip(blank, noisy.tolist(), strict=True)
    ]


def rate_within(estimated: Estimate | IterationTime) -> float:
    """Return what a replica with such parameters takes within twice the idle latencies."""
    queue = Queue(
        IterationTime(estimated.alpha, estimated.beta, estimated.gamma), RequestSize(512, 128), BATCH, 10 * BATCH
    )
    return size([queue], [Target(80, 20)])[0].rate or 0.0


def test_exact_reports_give_the_rate_exactly():
    """Without noise the prediction is right to a percent, and the error says so."""
    (found,) = estimate([reports([0.1, 0.3, 0.5, 0.7, 0.85])], [None])
    assert rate_within(found) == pytest.approx(rate_within(TRUTH), rel=0.01)
    assert found.error < 0.01
    assert found.identified >= 2


@pytest.mark.parametrize("seed", range(5))
def test_noisy_reports_give_the_rate_nearly(seed):
    """Eight samples with 3 % noise predict the rate within 10 %."""
    window = reports([0.1, 0.2, 0.3, 0.45, 0.6, 0.7, 0.8, 0.9], noise=0.03, seed=seed)
    (found,) = estimate([window], [None])
    assert rate_within(found) == pytest.approx(rate_within(TRUTH), rel=0.1)


def test_one_outlier_does_not_decide():
    """A latency six times too high among eight moves the rate by less than a thousandth; nothing locks it in."""
    window = reports([0.1, 0.2, 0.3, 0.45, 0.6, 0.7, 0.8, 0.9])
    bad = window[4]
    window[4] = Observation(bad.time, bad.rate, 512, 128, 6 * bad.ttft, bad.itl, BATCH)
    (found,) = estimate([window], [None])
    assert rate_within(found) == pytest.approx(rate_within(TRUTH), rel=1e-3)


def test_a_start_far_away_is_left_behind():
    """An earlier estimate is where the search begins, no evidence."""
    window = reports([0.2, 0.5, 0.8])
    (near,), (far,) = estimate([window], [None]), estimate([window], [Estimate(80.0, 0.5, 1e-3)])
    assert rate_within(far) == pytest.approx(rate_within(near), rel=1e-3)


def test_an_overload_is_evaluated():
    """Three times what a replica can serve is no error."""
    (found,) = estimate([reports([0.5, 3.0])], [None])
    assert rate_within(found) > 0


def test_windows_are_independent():
    """What is learned of one does not depend on the others, and an empty one keeps its estimate."""
    window = reports([0.2, 0.6])
    before = Estimate(1.0, 2.0, 3.0)
    (alone,) = estimate([window], [None])
    together = estimate([[], window, reports([0.9])], [before, None, None])
    assert together[0] == before
    assert together[1].alpha == pytest.approx(alone.alpha, rel=1e-3)
    assert estimate([[]], [None]) == (None,)
    assert estimate([], []) == ()


any_positive = st.floats(1e-3, 1e4)


@settings(max_examples=50)
@given(st.floats(1e-3, 100), st.floats(1, 1e5), st.floats(1, 1e4), any_positive, any_positive, st.integers(1, 256))
def test_any_report_gives_usable_parameters(rate, prompt, answer, ttft, itl, batch):
    """Finite and positive, also where no parameters explain it."""
    seen = Observation(0.0, rate, prompt, answer, ttft, itl, batch)
    first = little_guess(seen)
    assert min(first.alpha, first.beta, first.gamma) > 0
    (found,) = estimate([[seen]], [None])
    assert not IterationTime(found.alpha, found.beta, found.gamma).problem()
    assert found.alpha > 0


EXTREMES = [5e-324, 1e-300, 1e-9, 1e-6, 1.0, 1e3, 1e9, 1e12, 1e15, 1e300]


@given(
    windows=st.lists(
        st.lists(
            st.builds(
                Observation,
                st.just(0.0),
                *[st.sampled_from(EXTREMES)] * 5,
                st.sampled_from([1, 4, 64, 100_000]),
            ),
            min_size=1,
            max_size=3,
        ),
        min_size=1,
        max_size=3,
    )
)
@settings(deadline=None)
def test_the_most_extreme_reports_break_nothing(windows):
    """Warnings of the arithmetic are errors here; an estimate is finite or there is none."""
    for found in estimate(windows, [None] * len(windows)):
        assert found is None or np.isfinite([found.alpha, found.beta, found.gamma, found.error]).all()


@pytest.mark.parametrize(
    "broken",
    [
        Observation(0.0, 0.0, 100, 10, 1, 1, 4),
        Observation(0.0, 1.0, 0.0, 10, 1, 1, 4),
        Observation(0.0, 1.0, 100, 0.5, 1, 1, 4),
        Observation(0.0, 1.0, 100, 10, float("nan"), 1, 4),
        Observation(0.0, 1.0, 100, 10, 1, 1, 0),
    ],
)
def test_what_cannot_be_explained_is_left_out(broken):
    """Neither estimator looks at it."""
    assert not usable(broken)
    assert estimate([[broken]], [None]) == (None,)
    assert update(KalmanState(DEFAULT_STATE), [broken], bounds_from=DEFAULT_STATE) == KalmanState(DEFAULT_STATE)


def test_the_filter_rejects_what_it_cannot_explain():
    """A state that leaves the positive numbers or cannot be evaluated is not taken."""
    zero = IterationTime(5.0, 0.0, 0.0)
    found = update(KalmanState(zero), reports([0.5]), bounds_from=zero)
    assert (found.rejected, found.nis, found.parameters) == (True, -1.0, zero)
    huge = KalmanState(TRUTH, covariance=(float("inf"),) * 9)
    assert update(huge, reports([0.5]), bounds_from=TRUTH).nis == -1.0


def test_the_original_s_guess_refuses_nonsense():
    """A time to first token below the decode time, or no tokens to divide by, is no guess."""
    assert guess(Observation(0.0, 1.0, 100, 10, ttft=1.0, itl=10.0, batch=4)) is None
    assert guess(Observation(0.0, 1.0, 0.1, 0.1, ttft=50.0, itl=10.0, batch=4)) is None


def test_targets_from_parameters_of_both_kinds():
    """Three times an idle iteration, plus the prompt."""
    traffic = Traffic(1.0, 512, 128, 60, 9)
    found = derived_target(3.0, [IterationTime(8.1, 0.09997947, 0.00138772)], traffic)
    assert (found.ttft, found.itl) == (pytest.approx(76.20, abs=0.01), pytest.approx(25.20, abs=0.01))
    known = derived_target(3.0, [PrefillDecode(8.0, 0.1, 10.0, 0.01)], traffic)
    assert (known.ttft, known.itl) == (pytest.approx(59.12), pytest.approx(24.1))


def test_targets_from_observed_latencies():
    """Half as much again, within bounds; nothing from nothing."""
    assert derived_target(3.0, [], Traffic(1.0, 512, 128, 60, 9)) == Target(90, 13.5)
    assert derived_target(3.0, [], Traffic(1.0, 512, 128, 60_000, 9000)) == Target(10_000, 500)
    assert derived_target(3.0, [], Traffic(1.0, 512, 128, 0, 9)) is None
    assert Traffic.mean([Traffic(0.0, 1, 1, 1, 1)]) is None
