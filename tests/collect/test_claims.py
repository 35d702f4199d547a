"""Which controller decides on a variant: by its label, and between two candidates by its claim."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.collect.cluster import CachedCluster
from wva.api.meta import format_time
from wva.api.variantautoscaling import CONTROLLER_INSTANCE_LABEL, Claimant, claimant_of
from wva.collect.variants import ALIVE_SECONDS, Claims

NOW = 1_700_000_000.0
PLAIN, OTHER_PLAIN = Claimant("a/lease"), Claimant("b/lease")
BLUE, OTHER_BLUE, GREEN = (
    Claimant("a/blue.lease", "blue"),
    Claimant("b/blue.lease", "blue"),
    Claimant("a/green.l", "green"),
)
EVERYBODY = [PLAIN, OTHER_PLAIN, BLUE, OTHER_BLUE, GREEN]


def va(*, label=None, claimant=None, renewed=NOW, number=2):
    """Return a VA with a label; its status has the claim of a controller and its time."""
    status = {}
    if claimant is not None:
        claim = {"type": "Claimed", "status": "True", "reason": "ClaimedByController", "message": claimant.text}
        status["conditions"] = [claim]
    if number is not None:
        status["desiredOptimizedAlloc"] = {
            "accelerator": "H100",
            "numReplicas": number,
            "lastRunTime": format_time(renewed),
        }
    labels = {} if label is None else {CONTROLLER_INSTANCE_LABEL: label}
    return CachedCluster().va("va", target="d", labels=labels, status=status)


@pytest.mark.parametrize("me", EVERYBODY)
def test_who_decides_can_be_read_from_the_status(me):
    """The claim that a controller writes can be read back."""
    assert claimant_of(va(claimant=me)) == me


@pytest.mark.parametrize("text", ["", "decided by", "decided by controller", "decided by controller a b"])
def test_a_text_that_is_no_claim_claims_nothing(text):
    """Only the exact wording of the Claimed condition names a controller."""
    status = {"conditions": [{"type": "Claimed", "status": "True", "reason": "X", "message": text}]}
    assert claimant_of(CachedCluster().va("va", target="d", status=status)) is None


@pytest.mark.parametrize(
    ("label", "me", "mine"),
    [
        (None, PLAIN, True),
        ("blue", PLAIN, True),
        ("blue", BLUE, True),
        ("green", BLUE, False),
        (None, BLUE, False),
    ],
)
def test_the_label_says_who_takes_a_variant_that_nobody_has(label, me, mine):
    """An instance takes variants with its label; a controller without an instance takes every variant."""
    assert Claims(me).mine(va(label=label), NOW) is mine


@pytest.mark.parametrize(
    ("label", "has", "wants", "rival"),
    [
        ("blue", BLUE, PLAIN, BLUE),  # the instance goes first
        ("blue", PLAIN, BLUE, None),
        (None, PLAIN, OTHER_PLAIN, PLAIN),  # equal rank: the controller that decides on it keeps it
        ("blue", OTHER_PLAIN, PLAIN, OTHER_PLAIN),
        ("blue", BLUE, OTHER_BLUE, BLUE),
        ("blue", BLUE, BLUE, None),  # another process of the same controller
        ("green", BLUE, GREEN, None),  # relabelled: the new one takes it at once
        ("green", BLUE, PLAIN, BLUE),  # ... and no other controller takes it before
        (None, BLUE, PLAIN, None),  # the label was removed: blue has given it up
    ],
)
def test_where_two_would_take_it_one_leaves_it(label, has, wants, rival):
    """A controller with a rival leaves the variant to it; without a rival it takes the variant."""
    labelled = va(label=label, claimant=has)
    assert Claims(wants).rival(labelled, NOW) == rival
    assert Claims(wants).mine(labelled, NOW) is (rival is None)


@pytest.mark.parametrize(
    ("renewed", "number", "counts"),
    [
        (NOW - ALIVE_SECONDS + 1, 2, True),
        (NOW - ALIVE_SECONDS, 2, False),
        (NOW + 60, 2, True),  # clocks differ a little
        (NOW + 10 * ALIVE_SECONDS, 2, False),  # clocks do not differ that much
        (NOW, None, False),
    ],
)
def test_a_claim_counts_while_it_is_renewed(renewed, number, counts):
    """The claim of a controller that was uninstalled expires."""
    claimed = va(claimant=PLAIN, renewed=renewed, number=number)
    assert Claims(OTHER_PLAIN).mine(claimed, NOW) is not counts


def test_when_a_claim_ends_is_known():
    """Another controller can look again when the claim ends."""
    assert Claims(PLAIN).free_in_seconds(va(claimant=OTHER_PLAIN, renewed=NOW - 100), NOW) == ALIVE_SECONDS - 100
    assert Claims(PLAIN).free_in_seconds(va(claimant=OTHER_PLAIN, number=None), NOW) == 1.0


@given(
    label=st.sampled_from([None, "blue", "green", "red"]),
    has=st.sampled_from([None, *EVERYBODY]),
    alive=st.lists(st.sampled_from(EVERYBODY), min_size=1, unique=True),
)
def test_in_the_end_exactly_one_has_it(label, has, alive):
    """Controllers that look at a variant again and again agree on one of them, in whatever order they look."""
    renewed = NOW if has in alive else NOW - ALIVE_SECONDS
    for _ in range(4):
        for me in alive:
            if Claims(me).mine(va(label=label, claimant=has, renewed=renewed), NOW):
                has, renewed = me, NOW
    takers = [me for me in alive if Claims(me).mine(va(label=label, claimant=has, renewed=renewed), NOW)]
    wanting = [me for me in alive if Claims(me).wanted(va(label=label))]
    assert len(takers) == min(1, len(wanting)) or (takers == [] and has not in wanting)
    assert all(me == has for me in takers)
