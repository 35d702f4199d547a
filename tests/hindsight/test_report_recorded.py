"""A report from recordings counts as the controller counts in shadow mode."""

from __future__ import annotations

import pytest

from tests.builders import policy, replica, variant
from wva.decide.pipeline import conclude
from wva.hindsight.cycle import Recording
from wva.hindsight.report.days import DAY_SECONDS
from wva.hindsight.report.recorded import from_recordings
from wva.hindsight.shadow import RealAndShadow, ShadowAccounts
from wva.model.memory import Memory
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.variant import VariantKey

MIDNIGHT = 20_000 * DAY_SECONDS
A, B = VariantKey("ns", "a"), VariantKey("ns", "b")
BUSY = Snapshot.of([variant(gpus_per_replica=4, cost=10.0, maximum=3)], [replica(kv=0.95, queue=9)])


def recording(now, snapshot=BUSY):
    """Return a recorded cycle without a past."""
    decisions = conclude(snapshot, Memory(), policy(), now).decisions
    return Recording(float(now), policy(), Memory(), snapshot, decisions)


def report(*recordings, days=7, takes=lambda _: True):
    """Return the report on recordings."""
    return from_recordings(recordings, days=days, source="a test", takes=takes)


def by_name(found, key=A):
    """Return the figures of a variant by the name of the day."""
    return {day.name: figures for day, figures in found.figures[key].items()}


def test_the_numbers_are_those_of_the_accounts():
    """The sum over all days is the account of the same cycles in one process."""
    times = [MIDNIGHT - 120 + 60 * index for index in range(6)]
    found = report(*map(recording, times)).sum
    accounts = ShadowAccounts(lambda _: True)
    for now in times:
        accounts.add(recording(now).again())
    account = accounts[A]
    assert account.gpu_hours.shadow > account.gpu_hours.real > 0
    assert found.hours == pytest.approx(account.hours)
    assert found.gpu_hours == RealAndShadow(
        pytest.approx(account.gpu_hours.real), pytest.approx(account.gpu_hours.shadow)
    )
    assert found.cost == RealAndShadow(pytest.approx(account.cost.real), pytest.approx(account.cost.shadow))


def test_time_belongs_to_the_day_in_which_it_ends():
    """The minute up to midnight is of the day before, the first minute after it of the new day."""
    found = report(*[recording(MIDNIGHT + 60 * minute) for minute in (-2, -1, 0, 1)])
    first, second = found.days
    assert (first.end, second.start, second.end) == (MIDNIGHT, MIDNIGHT, MIDNIGHT + 60)
    assert found.figures[A][first].hours == pytest.approx(2 / 60)
    assert found.figures[A][second].hours == pytest.approx(1 / 60)
    assert second.name == "2024-10-04 until 00:01"


def test_a_day_without_cycles_has_no_numbers():
    """It is there, and it is not zero."""
    found = report(*[recording(MIDNIGHT + at) for at in (60, 120, 2 * DAY_SECONDS + 60, 2 * DAY_SECONDS + 120)])
    assert [line.figures is None for line in found.overall.lines] == [False, True, False]
    assert any("1 of 3 days of variants have no samples" in remark for remark in found.remarks())


def test_no_day_is_before_the_first_recording_or_more_than_asked_for():
    """A short recording does not get a week of empty days."""
    cycles = [recording(MIDNIGHT + at) for at in (0, 60, DAY_SECONDS + 60, DAY_SECONDS + 120)]
    assert [day.start for day in report(*cycles).days] == [MIDNIGHT, MIDNIGHT + DAY_SECONDS]
    assert [day.start for day in report(*cycles, days=1).days] == [MIDNIGHT + DAY_SECONDS]


def test_a_variant_that_comes_back_begins_anew():
    """Its account ended in the cycle without it, and what it had before is not lost."""
    both = Snapshot.of([*BUSY.variants, variant("b")], BUSY.replicas)
    found = report(*[recording(MIDNIGHT + 60 * at, BUSY if at == 3 else both) for at in range(1, 6)])
    assert by_name(found)["2024-10-04 until 00:05"].hours == pytest.approx(4 / 60)
    # Each cycle counts the time before it.
    assert by_name(found, B)["2024-10-04 until 00:05"].hours == pytest.approx(3 / 60)
    assert found.sum.hours == pytest.approx(4 / 60)  # of the one that was seen longest
    assert found.sum.gpu_hours.real == pytest.approx((4 * 4 + 3) / 60)


def test_only_the_variants_that_are_asked_for_are_in_it():
    """The others have neither numbers nor days."""
    both = Snapshot.of([*BUSY.variants, variant("b")], BUSY.replicas)
    found = report(recording(MIDNIGHT + 60, both), recording(MIDNIGHT + 120, both), takes=lambda key: key == B)
    assert found.figures.keys() == {B}
    assert found.models[B] == "m"


def test_the_role_of_a_variant_is_beside_its_model():
    """Prefill and decode of one model are told apart."""
    pair = [replace(variant(), role="prefill"), replace(variant("b"), role="decode"), variant("c")]
    snapshot = Snapshot.of(pair, BUSY.replicas)
    found = report(recording(MIDNIGHT + 60, snapshot), recording(MIDNIGHT + 120, snapshot))
    titles = {table.title for table in found.tables()}
    assert {"ns/a (model m, prefill)", "ns/b (model m, decode)", "ns/c (model m)"} <= titles
    roles = {each["name"]: each["role"] for each in found.document()["variants"]}
    assert roles == {"a": "prefill", "b": "decode", "c": None}


def test_one_cycle_has_no_time():
    """Nobody knows how long its replicas were there."""
    assert report(recording(MIDNIGHT + 60)).figures == {}
