"""Pods that are slower than others of their variant are named, and pods that have more to do are not."""

from __future__ import annotations

from collections.abc import Sequence
from math import sin

import pytest

from tests.decide.measure.pods import PROMPT, PodsOfModel, ReportingPod
from tests.decide.measure.test_demand import NOTHING_REMEMBERED, A, looked
from wva.decide.measure.need import Need
from wva.model.memory import DemandMemory

MINUTE = 4
"""Cycles."""


def fleet(speeds: Sequence[float]) -> PodsOfModel:
    """Return a variant whose pods have these speeds."""
    return PodsOfModel([ReportingPod(f"a-{number}", speed=speed) for number, speed in enumerate(speeds)])


def served(
    model: PodsOfModel,
    rates: Sequence[float],
    cycles: int,
    memory: DemandMemory = NOTHING_REMEMBERED,
    *,
    varying: float = 0.5,
) -> tuple[Need, DemandMemory]:
    """Serve a varying rate at each pod for some cycles of 15 s; return the last measurement."""
    for cycle in range(cycles):
        model.now += 15.0
        now = 1.0 + varying * sin(cycle / 3.0)
        for pod, rate in zip(model.pods, rates, strict=True):
            pod.serve(rate * now, 15.0)
        need, memory = looked(model, memory)
    return need, memory


def slow(need: Need) -> list[str]:
    """Return the pods that are named, each with how many times as long its steps take."""
    names = need.slow[A].split(": ")[1].split("; ")[0] if A in need.slow else ""
    return names.replace(" as long for a token", "").split(", ") if names else []


def test_a_pod_at_half_speed_is_named() -> None:
    """The message says of how many pods it is one, and what is in force."""
    need, _ = served(fleet([1.0, 1.0, 0.5, 1.0, 1.0, 1.0]), [2.0] * 6, 6 * MINUTE)
    assert need.slow == {
        A: "1 of 6 pods is slower than others with as many requests: a-2 (2 times as long for a token); "
        "WVA plans with the mean of all pods"
    }


@pytest.mark.parametrize(
    ("speeds", "names"),
    [
        ([0.5, 1.0], ["a-0 (2 times)"]),
        ([1.0, 0.5, 0.5, 1.0], ["a-2 (2 times)", "a-1 (2 times)"]),
        ([0.5, 0.5, 0.5, 0.5, 1.0, 1.0], ["a-3 (2 times)", "a-2 (2 times)", "a-1 (2 times) and 1 more"]),
        ([0.9, 1.0, 0.8, 1.0], []),
        ([0.5], []),
        ([0.5] * 5, []),
    ],
    ids=["of two", "half", "most", "hardly", "alone", "all"],
)
def test_slower_means_than_the_faster_ones(speeds: list[float], names: list[str]) -> None:
    """Of two pods the faster one is the measure, and all pods of one speed are as they should be."""
    need, _ = served(fleet(speeds), [1.5] * len(speeds), 6 * MINUTE)
    assert slow(need) == names


@pytest.mark.parametrize("varying", [0.0, 0.5])
def test_a_pod_with_more_to_do_is_not_slow(varying: float) -> None:
    """Its steps take twice as long, because it has more requests in progress, or longer prompts."""
    model = fleet([1.0] * 5)
    model.pods[0].prompt, model.pods[1].prompt = 12.0 * PROMPT, 4.0 * PROMPT
    need, _ = served(model, [2.0, 4.0, 11.0, 2.0, 2.0], 20 * MINUTE, varying=varying)
    steps = [pod.counters.gap_seconds / pod.counters.gaps for pod in model.pods]
    assert max(steps) > 1.7 * min(steps)
    assert need.slow == {}


@pytest.mark.parametrize(("rates", "names"), [([2.0, 0.9, 2.0], ["a-1 (2 times)"]), ([2.0, 2.0, 2.0], [])])
def test_under_a_load_that_never_changes_only_what_is_sure_is_told(rates: list[float], names: list[str]) -> None:
    """A gateway that gives it fewer requests shows it; one that gives it as many lets them pile up there."""
    need, _ = served(fleet([1.0, 0.5, 1.0]), rates, 20 * MINUTE, varying=0.0)
    assert slow(need) == names


def test_it_is_not_told_before_five_minutes() -> None:
    """A few busy moments of a new pod say little. What it did before WVA saw it does not count."""
    model = fleet([1.0, 1.0, 1.0, 0.5])
    need, memory = served(model, [2.0] * 4, 5 * MINUTE, NOTHING_REMEMBERED)
    assert need.slow == {}
    need, memory = served(model, [2.0] * 4, 2 * MINUTE, memory)
    assert slow(need) == ["a-3 (2 times)"]


def test_a_pod_with_hardly_a_request_is_not_named() -> None:
    """A thousand tokens are the least."""
    need, _ = served(fleet([1.0, 0.5, 1.0]), [2.0, 0.01, 2.0], 6 * MINUTE)
    assert need.slow == {}


def test_a_pod_that_is_mended_is_not_named_any_more() -> None:
    """And one that becomes slow is named within half an hour."""
    model = fleet([1.0, 1.0, 0.5, 1.0])
    need, memory = served(model, [2.0] * 4, 60 * MINUTE)
    assert slow(need) == ["a-2 (2 times)"]
    model.pods[2].speed, model.pods[3].speed = 1.0, 0.5
    need, _ = served(model, [2.0] * 4, 30 * MINUTE, memory)
    (name,) = slow(need)
    assert name.startswith("a-3 (1.")


def test_the_words_change_no_number() -> None:
    """With one pod at half speed each pod counts like all others, with less than before."""
    sound, _ = served(fleet([1.0] * 4), [2.0] * 4, 60 * MINUTE)
    one, _ = served(fleet([1.0, 0.5, 1.0, 1.0]), [2.0] * 4, 60 * MINUTE)
    assert one.demand == pytest.approx(sound.demand)
    assert one.of(A) < sound.of(A)
