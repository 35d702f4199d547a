"""The lines of the console are bounded, and a quiet fleet keeps few points."""

from __future__ import annotations

import pytest

from tests.builders import NOW, policy, replica, variant
from wva.decide.failed import Load
from wva.hindsight import timeline as module
from wva.hindsight.cycle import Recording
from wva.hindsight.timeline import ALL_NAMESPACES, CostPoint, ModelPoint, Timeline
from wva.model.memory import Memory
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.variant import ModelKey, VariantKey

A, MODEL = VariantKey("ns", "a"), ModelKey("ns", "m")


def cycle(lines, second, kv=0.2, demand=None, names=("a",)):
    """Add a cycle."""
    variants = [variant(name) for name in names]
    snapshot = Snapshot.of(variants, [replica(f"{name}-0", variant=name, kv=kv) for name in names])
    decided = Recording(NOW + second, policy(), Memory(), snapshot).again()
    loads = {} if demand is None else {MODEL: Load(demand, 0.1, 5.0, 6.0)}
    lines.add(replace(decided, outcome=replace(decided.outcome, loads=loads)))


def test_a_point_that_repeats_the_last_one_is_left_out():
    """A change is a new point, and so is the fifth minute without one."""
    lines = Timeline()
    for second in (0, 15, 30, 299, 300):
        cycle(lines, second)
    cycle(lines, 315, kv=0.79)
    assert [(point.at - NOW, point.desired) for point in lines.variant(A)] == [(0, 1), (300, 1), (315, 2)]


def test_a_clock_that_is_set_back_does_not_end_a_line():
    """The next points are those of the new time."""
    lines = Timeline()
    for second in (3600, 0, 15):
        cycle(lines, second)
    assert [point.at - NOW for point in lines.variant(A)] == [3600, 0]


def test_a_model_has_a_line_of_its_load():
    """What the replicas report is in it, and the demand where it is known as a rate."""
    lines = Timeline()
    assert lines.newest(MODEL) is None
    cycle(lines, 0)
    cycle(lines, 15, demand=4.0)
    assert lines.model(MODEL) == (
        ModelPoint(NOW, 0.2, 0.0, cost=10.0),
        ModelPoint(NOW + 15, 0.2, 0.0, demand=4.0, serving=5.0, desired=6.0, cost=10.0),
    )
    assert lines.newest(MODEL) == lines.model(MODEL)[-1]


def test_the_load_is_that_of_fresh_samples():
    """Shares of KV caches have a mean, waiting requests a sum; where no sample is fresh, nothing is known."""
    lines, names = Timeline(), ("a", "b")
    variants = [variant(name) for name in names]
    pods = [replica("a-0", kv=0.2, queue=3), replica("b-0", variant="b", kv=0.6, queue=4)]
    pods += [replica("b-1", variant="b", kv=None, queue=None)]
    for second, found in ((0, pods), (15, pods[2:])):
        snapshot = Snapshot.of(variants, found)
        lines.add(Recording(NOW + second, policy(), Memory(), snapshot).again())
    assert lines.model(MODEL) == (
        ModelPoint(NOW, pytest.approx(0.4), 7.0, cost=20.0),
        ModelPoint(NOW + 15, None, None, cost=20.0),
    )


def test_a_namespace_and_all_of_them_have_lines_of_their_cost_until_nothing_is_there():
    """The cost of what exists, at the cost that a replica has then."""
    lines = Timeline()
    for second, price in ((0, 10.0), (15, 10.0), (30, 2.5)):
        found = [variant("a", replicas=3, cost=price), variant("b", namespace="two", cost=7.0)]
        snapshot = Snapshot.of(found, [])
        lines.add(Recording(NOW + second, policy(), Memory(), snapshot).again())
    assert lines.costs(A.namespace) == (CostPoint(NOW, 30.0), CostPoint(NOW + 30, 7.5))
    assert lines.costs(ALL_NAMESPACES) == (CostPoint(NOW, 37.0), CostPoint(NOW + 30, 14.5))
    snapshot = Snapshot.of([], [])
    lines.add(Recording(NOW + 45, policy(), Memory(), snapshot).again())
    assert lines.costs(A.namespace) == ()
    assert lines.costs(ALL_NAMESPACES)[-1] == CostPoint(NOW + 45, 0.0)


def test_a_variant_that_goes_takes_its_line_with_it():
    """A new one of its name begins anew."""
    lines = Timeline()
    cycle(lines, 0, names=("a", "b"))
    cycle(lines, 15, names=("b",))
    assert lines.variant(A) == ()
    assert len(lines.variant(VariantKey("ns", "b"))) == 1


@pytest.mark.parametrize(("bound", "most"), [("POINTS_OF_A_LINE", 3), ("POINTS_OF_ALL", 4)])
def test_points_are_bounded(monkeypatch, bound, most):
    """The oldest go first."""
    monkeypatch.setattr(module, bound, most)
    lines = Timeline()
    for number in range(20):
        cycle(lines, 15 * number, kv=(0.2, 0.79)[number % 2])
    points = lines.variant(A)
    assert len(points) == most
    assert points[-1].at == NOW + 15 * 19


def test_many_lines_share_the_points(monkeypatch):
    """Each has its share, and at least its newest point."""
    monkeypatch.setattr(module, "POINTS_OF_ALL", 7)
    lines, names = Timeline(), ("a", "b", "c")
    for number in range(20):
        cycle(lines, 15 * number, kv=(0.2, 0.79)[number % 2], names=names)
    assert [len(lines.variant(VariantKey("ns", name))) for name in names] == [2, 2, 2]
    monkeypatch.setattr(module, "POINTS_OF_ALL", 1)
    cycle(lines, 300, names=names)
    assert [point.at for name in names for point in lines.variant(VariantKey("ns", name))] == [NOW + 300] * 3
