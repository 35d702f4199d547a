"""How fast a target follows its number."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wva.actuation import ScaleHistory, ScalePace

NOW = 1000.0


def test_growth_is_written_at_once():
    """The first number of a new process may already be larger than what exists."""
    assert ScaleHistory().allowed(6, 2, ScalePace(), NOW) == (6, None)


def test_a_shrink_waits_for_its_window():
    """Replicas go when no number of the window has asked for them."""
    history = ScaleHistory()
    assert history.allowed(2, 6, ScalePace(60.0), NOW) == (6, 60.0)
    assert history.allowed(2, 6, ScalePace(60.0), NOW + 59) == (6, 1.0)
    assert history.allowed(2, 6, ScalePace(60.0), NOW + 60) == (2, None)


def test_the_highest_number_of_the_window_counts():
    """Numbers in between hold a part of the replicas."""
    history = ScaleHistory()
    history.allowed(6, 6, ScalePace(60.0), NOW)
    history.allowed(4, 6, ScalePace(60.0), NOW + 30)
    history.allowed(2, 6, ScalePace(60.0), NOW + 40)
    assert history.allowed(2, 6, ScalePace(60.0), NOW + 91)[0] == 4
    assert history.allowed(2, 4, ScalePace(60.0), NOW + 101)[0] == 2


def test_without_a_window_a_shrink_is_written_at_once():
    """A window of zero seconds leaves all to the decision."""
    assert ScaleHistory().allowed(2, 6, ScalePace(0.0), NOW) == (2, None)


def test_growth_within_a_minute_is_limited():
    """The rest comes when the first change is a minute old."""
    history, pace = ScaleHistory(), ScalePace(up_per_minute=3)
    assert history.allowed(9, 2, pace, NOW)[0] == 5
    history.wrote(3, NOW)
    assert history.allowed(9, 5, pace, NOW + 10) == (5, 50.0)
    assert history.allowed(9, 5, pace, NOW + 61)[0] == 8


def test_a_shrink_within_a_minute_is_limited():
    """The limit holds beside the window."""
    history, pace = ScaleHistory(), ScalePace(0.0, down_per_minute=2)
    assert history.allowed(1, 9, pace, NOW)[0] == 7
    history.wrote(-2, NOW)
    assert history.allowed(1, 7, pace, NOW + 10) == (7, 50.0)


@given(
    st.lists(st.tuples(st.floats(0.1, 120.0), st.integers(0, 40)), max_size=30),
    st.builds(ScalePace, st.floats(0.0, 300.0), st.none() | st.integers(1, 5), st.none() | st.integers(1, 5)),
)
def test_no_number_is_beyond_what_was_wanted(wanted, pace):
    """Each number lies between what exists and the highest number of the window; changes keep to their limits."""
    history, current, now, changes = ScaleHistory(), 5, NOW, []
    for seconds, desired in wanted:
        now += seconds
        number, again = history.allowed(desired, current, pace, now)
        assert min(desired, current) <= number <= max(desired, current)
        assert again is None or again >= 1.0
        if number != current:
            history.wrote(number - current, now)
            changes.append((now, number - current))
            current = number
        lately = [change for at, change in changes if at > now - 60.0]
        if pace.up_per_minute is not None:
            assert sum(change for change in lately if change > 0) <= pace.up_per_minute
        if pace.down_per_minute is not None:
            assert -sum(change for change in lately if change < 0) <= pace.down_per_minute
