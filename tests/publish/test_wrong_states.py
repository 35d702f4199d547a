"""What a person calls wrong is called wrong in every place where people look, or the list says why not."""

from __future__ import annotations

import pytest

from tests.publish.wrong_states import GOOD_WHEN_TRUE, REFUSED, STATES, UNSHOWN, Place, rows, shown
from wva.api.variantautoscaling import ConditionType
from wva.publish.obstacles import OBSTACLES

REASONS = [reason for state in STATES for reason in state.reasons]


def test_the_list_has_every_obstacle_once():
    """An obstacle that is new must be given to a state, and so to the table."""
    assert sorted(REASONS) == sorted([*(obstacle.reason for obstacle in OBSTACLES), REFUSED])


@pytest.mark.parametrize("reason", REASONS)
def test_each_place_shows_the_state_or_the_list_says_why_not(reason):
    """Never both: a reason that was given for a gap goes with the gap."""
    told = {place for place in Place if shown(reason, place)}
    assert told == {place for place in Place if (reason, place) not in UNSHOWN}


def test_no_place_is_silent_without_a_reason_of_the_list():
    """Each reason why not belongs to a state."""
    assert {reason for reason, _ in UNSHOWN} <= set(REASONS)


def test_no_place_accuses_a_sound_variant():
    """Otherwise the table would say that a place shows a state which it shows of everything."""
    assert {place: shown("", place) for place in Place} == dict.fromkeys(Place, ())


def test_the_console_knows_every_condition():
    """A condition that its script does not know is never red."""
    others = {ConditionType.PROGRESSING, ConditionType.LIMITED, ConditionType.CLAIMED, ConditionType.SHADOW}
    assert {type_.value for type_ in ConditionType} - {type_.value for type_ in others} == GOOD_WHEN_TRUE


def test_the_table_has_a_cell_for_each_place():
    """No cell is empty."""
    assert all(len(row) == 2 + len(Place) and all(row) for row in rows())
