"""Demand from odd sources: clocks, pairs of Prometheus, engines that count all requests as aborted."""

from __future__ import annotations

import pytest

from tests.builders import NOW
from tests.decide.measure.pods import NONE, PodsOfModel, ReportingPod, kind, readings
from tests.decide.measure.test_demand import measured
from wva.decide.measure.demand import observed
from wva.decide.measure.need import Need
from wva.model.memory import DemandMemory
from wva.model.metrics import EngineCounters, ReplicaMetrics
from wva.model.records import replace
from wva.model.variant import ModelKey, VariantKey

MODEL = ModelKey("ns", "m")
NOTHING_REMEMBERED = DemandMemory(MODEL)
A = VariantKey("ns", "a")


def looked(model: PodsOfModel, memory: DemandMemory, now: float | None = None) -> tuple[Need, DemandMemory]:
    """Measure a model of one variant as it is now."""
    at = model.now if now is None else now
    return measured([kind(replicas=len(model.pods))], model.told(), 0.0, memory, now=at)


def served(model: PodsOfModel, rate: float, cycles: int, memory: DemandMemory) -> tuple[Need, DemandMemory]:
    """Serve a rate for some cycles and return the last measurement."""
    need = None
    for _ in range(cycles):
        model.serve(rate)
        need, memory = looked(model, memory)
    assert need is not None
    return need, memory


def test_requests_that_were_answered_are_demand_even_if_all_count_as_aborted() -> None:
    """A client that hangs up after the last token was served; only a client that leaves before the first gave up."""
    model = PodsOfModel()
    _, memory = served(model, 4.0, 3, NOTHING_REMEMBERED)
    for _ in range(3):
        model.serve(4.0)
        for pod in model.pods:
            pod.counters = replace(pod.counters, aborted=pod.counters.finished)
        need, memory = looked(model, memory)
        assert need.demand == pytest.approx(4.0)


def test_a_clock_that_jumps_back_begins_anew_and_forgets_no_engine() -> None:
    """One cycle has no answer, as the first one; the next cycle has one."""
    model = PodsOfModel()
    before, memory = served(model, 4.0, 10, NOTHING_REMEMBERED)
    hour = 3600.0
    model.serve(4.0)
    model.now -= hour
    for pod in model.pods:
        pod.counters = replace(pod.counters, at=pod.counters.at - hour)
        pod.ready_since = NOW - hour
    need, memory = looked(model, memory)
    assert need.hold is not None
    after, memory = served(model, 4.0, 1, memory)
    assert after.hold is None
    assert after.demand == pytest.approx(4.0)
    assert after.objection == ""
    assert after.capacities[A].per_replica == pytest.approx(before.capacities[A].per_replica, rel=0.02)


def scraped(pod: ReportingPod, rate: float, at: float, label: float | None = None) -> ReplicaMetrics:
    """Return a pod as of a scrape at a time; the sample may carry another time."""
    lasted = at - NOW
    other = ReportingPod(pod.name, NOW - 7200.0, NONE)
    other.serve(rate, 7200.0 + lasted)
    return replace(other, counters=replace(other.counters, at=at if label is None else label)).told()


def paired(ages: list[float], skew: float = 0.0, cycles: int = 40) -> list[float]:
    """Return the demands of cycles with scrapes of these ages; every other sample has a time later by ``skew``."""
    memory, found = NOTHING_REMEMBERED, []
    pods = [ReportingPod("a-0"), ReportingPod("a-1")]
    for turn in range(cycles):
        now = NOW + 15.0 * turn
        at = now - ages[turn % len(ages)]
        told = [scraped(pod, 4.0, at, at + skew * (turn % 2)) for pod in pods]
        need, memory = measured([kind(replicas=2)], {A: told}, 0.0, memory, now=now)
        found.append(need.demand)
    return found[4:]


@pytest.mark.parametrize("ages", [[1.0, 8.5], [0.5, 14.0], [5.0, 0.0], [10.0, 5.0, 0.0], [1.0, 25.0]], ids=str)
def test_scrapes_of_different_ages_are_no_change_of_demand(ages: list[float]) -> None:
    """Two Prometheus servers answer in turn, or scrapes and cycles are not in step."""
    found = paired(ages)
    assert sum(found) / len(found) == pytest.approx(8.0, rel=0.02)
    assert found == pytest.approx([8.0] * len(found), rel=0.05)


def test_counters_of_a_slow_twin_are_no_restart() -> None:
    """The second Prometheus is a scrape behind and its clock is fast: values go back, times do not."""
    found = paired([0.0, 20.0], skew=10.0)
    assert sum(found) / len(found) == pytest.approx(8.0, rel=0.02)
    assert max(found) < 12.0


def test_an_engine_that_is_missing_for_a_scrape_has_not_served_all_its_requests_now() -> None:
    """Prometheus may scrape each engine of a pod alone, so a sum may lack one engine for a scrape."""
    memory, found = NOTHING_REMEMBERED, []
    for turn in range(30):
        now = NOW + 15.0 * turn
        pod = scraped(ReportingPod("a-0"), 4.0, now)
        if turn in {10, 11, 20}:
            assert pod.counters is not None
            pod = replace(pod, counters=halved(pod.counters))
        need, memory = measured([kind()], {A: [pod]}, 0.0, memory, now=now)
        found.append(need.demand)
    assert found[1:] == pytest.approx([4.0] * 29, rel=0.05)


def halved(counters: EngineCounters) -> EngineCounters:
    """Return what one of two engines has counted."""
    halves = {name: getattr(counters, name) / 2.0 for name in EngineCounters.__struct_fields__}
    return EngineCounters(**(halves | {"at": counters.at}))


def test_a_restart_counts_from_zero_after_two_minutes() -> None:
    """For two minutes WVA credits the pod what it had; after that the pod does not object to a shrink."""
    model = PodsOfModel()
    _, memory = served(model, 4.0, 10, NOTHING_REMEMBERED)
    pod = model.pods[0]
    pod.counters = replace(NONE, at=model.now)
    needs = []
    for _ in range(12):
        need, memory = served(model, 4.0, 1, memory)
        needs.append(need)
    assert [need.demand for need in needs] == pytest.approx([4.0] * 12, rel=0.05)
    assert needs[-1].objection == ""
    assert memory.variants[0].pods[-1].counters.at == model.now


def test_nothing_is_measured_of_what_could_not_be_collected_whole() -> None:
    """Some samples of the model have come, but not all."""
    model = PodsOfModel()
    _, memory = served(model, 4.0, 3, NOTHING_REMEMBERED)
    model.serve(4.0)
    seen = readings([kind(replicas=len(model.pods))], model.told(), 0.0, now=model.now)
    found = observed(replace(seen, failure="timed out"), memory, model.now)
    assert found.need.hold is not None
    assert found.need.hold.message == "timed out"
    assert found.after is memory
