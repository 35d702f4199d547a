"""The ledger: the last decision of each variant, and its listeners."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import variant
from tests.publish.decisions import KEY, decision
from wva.model.decision import Reason, Source
from wva.model.variant import Bounds, VariantKey
from wva.publish.ledger import Ledger


@pytest.fixture
def heard():
    """Return the list of the listener's calls."""
    return []


@pytest.fixture
def ledger(heard):
    """Return a ledger with one listener."""
    made = Ledger()
    made.subscribe(lambda *call: heard.append(call))
    return made


def test_what_was_recorded_is_there_in_the_order_of_the_variants(ledger):
    """The ledger returns decisions sorted by namespace and name, in whatever order they came."""
    keys = [VariantKey("b", "a"), VariantKey("a", "z"), VariantKey("a", "b")]
    ledger.record(decision(key=key) for key in keys)
    assert [entry.key for entry in ledger.decisions()] == sorted(keys)
    assert ledger.get(keys[0]) == decision(key=keys[0])
    assert ledger.get(KEY) is None


def test_listeners_hear_of_the_old_and_the_new_decision(ledger, heard):
    """Listeners get None as the old decision with the first one, and the previous decision later."""
    first, second = decision(3), decision(4)
    ledger.record([first])
    ledger.record([second])
    assert heard == [(KEY, None, first), (KEY, first, second)]


def test_the_same_decision_again_is_no_news(ledger, heard):
    """The ledger does not call the listeners for an equal decision."""
    ledger.record([decision(3)])
    ledger.record([decision(3)])
    assert len(heard) == 1


def test_every_listener_hears_everything(ledger, heard):
    """The ledger calls every listener for each change."""
    others = []
    ledger.subscribe(lambda key, *_: others.append(key))
    ledger.record([decision()])
    assert len(heard) == len(others) == 1


def test_dropping_forgets_and_tells(ledger, heard):
    """After a drop the ledger does not know the variant, and listeners get None as the new decision."""
    ledger.record([decision()])
    ledger.drop(KEY)
    assert ledger.get(KEY) is None
    assert ledger.decisions() == []
    assert heard[-1] == (KEY, decision(), None)


def test_dropping_an_unknown_variant_calls_no_listener(ledger, heard):
    """Dropping a variant that the ledger does not know calls no listener."""
    ledger.drop(KEY)
    assert heard == []


def test_hold_keeps_the_number_of_the_status(ledger):
    """A variant that another process decided on keeps the number of its status."""
    made = ledger.hold(variant("a", replicas=2, desired=7))
    assert (made.desired, made.previous, made.source) == (7, 7, Source.PREVIOUS_DESIRED)
    assert made.reason is Reason.NOT_DECIDED
    assert ledger.get(made.key) == made


def test_hold_without_a_status_keeps_the_replicas_that_exist(ledger):
    """A variant without a number in its status gets its current replicas."""
    made = ledger.hold(variant("a", replicas=4))
    assert (made.desired, made.previous, made.source) == (4, None, Source.CURRENT_REPLICAS)


def test_hold_of_a_variant_at_zero_stays_at_zero(ledger):
    """A workload at zero stays there, also if its status has a number."""
    made = ledger.hold(variant("a", replicas=0, desired=5))
    assert (made.desired, made.current) == (0, 0)


def test_hold_without_an_accelerator_names_it_unknown(ledger):
    """The accelerator is that of the label, else of the status, else ``unknown``."""
    assert ledger.hold(variant("a", accelerator="H100", status_accelerator="A100")).accelerator == "H100"
    assert ledger.hold(variant("b", accelerator="", status_accelerator="A100")).accelerator == "A100"
    assert ledger.hold(variant("c", accelerator="")).accelerator == "unknown"


def test_hold_respects_the_bounds(ledger):
    """The number stays within the bounds of the scaler."""
    assert ledger.hold(variant("a", replicas=2, desired=9, maximum=5)).desired == 5


@given(
    replicas=st.integers(1, 40),
    status=st.none() | st.integers(0, 40),
    minimum=st.none() | st.integers(0, 10),
    maximum=st.none() | st.integers(1, 60),
)
def test_hold_is_never_zero_for_a_running_workload(replicas, status, minimum, maximum):
    """Without a decision WVA does not scale a running workload to zero."""
    made = Ledger().hold(variant("a", replicas=replicas, desired=status, bounds=Bounds(minimum, maximum)))
    assert made.desired >= 1
    assert made.held


def test_a_variant_enters_shadow_mode_at_once_and_leaves_it_with_the_next_cycle(heard):
    """Its last number as a shadow must not act, and whoever follows the number hears that the next one does."""
    asked = {KEY}
    ledger = Ledger(asked_for_shadow=asked.__contains__)
    ledger.record([decision(3)])
    assert ledger.shadow(KEY)
    ledger.settle_shadows(asked)
    ledger.subscribe(lambda *call: heard.append(call))
    asked.clear()
    assert ledger.shadow(KEY)
    assert heard == []
    ledger.settle_shadows(asked)
    assert not ledger.shadow(KEY)
    assert heard == [(KEY, decision(3), decision(3))]


def test_a_variant_that_is_gone_is_no_shadow():
    """One of the same name that comes later acts at once."""
    ledger = Ledger()
    ledger.record([decision(3)])
    ledger.settle_shadows({KEY})
    ledger.drop(KEY)
    assert not ledger.shadow(KEY)
