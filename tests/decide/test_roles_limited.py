"""A model in roles of which one is limited: the others get what it can use, and the messages name it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import NOW, replica, variant
from tests.decide.roles_loop import DECODE, PREFILL, RolesLoop
from tests.decide.story import FULL, Story
from wva.decide.measure.need import REPLICAS, Capacity, DemandRate, Need
from wva.decide.trust import believe
from wva.decide.wants import parts_of, with_roles
from wva.model.decision import Decision, Reason
from wva.model.inventory import AcceleratorPool, Inventory
from wva.model.memory import CapacityBasis, Memory
from wva.model.policy import Policy
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.trouble import Absence
from wva.model.variant import ModelKey, VariantKey

LIMITED = Policy(enable_limiter=True)
RATE = 11.0
"""It takes 3 pods of prefill, each for 4.2 requests/s, and 5 of decode, each for 2.1 to 2.4."""


def last(loop: RolesLoop) -> dict[str, Decision]:
    """Return the newest decisions by role."""
    return {decision.key.name: decision for decision in loop.decisions[-2:]}


@pytest.mark.long_story
@pytest.mark.parametrize(
    ("gpus", "expected", "binding"),
    [
        ({PREFILL: 3}, (1, 2), PREFILL),
        ({PREFILL: 5}, (2, 3), DECODE),
        ({PREFILL: 6}, (2, 4), PREFILL),
        ({PREFILL: 9, DECODE: 2}, (2, 2), DECODE),
    ],
)
def test_scarce_gpus_are_shared_so_that_the_roles_fit_each_other(
    gpus: dict[str, int], expected: tuple[int, int], binding: str
) -> None:
    """In one pool, or with pools of their own; from the first growth on."""
    loop = RolesLoop(15.0, lambda _: RATE, policy=LIMITED, gpus=gpus).run(900.0)
    assert loop.pairs(300.0) == [expected]
    assert max(prefill for _, prefill, _ in loop.numbers) <= expected[0]
    assert last(loop)[binding].reason is Reason.GPU_LIMITED
    for decision in last(loop).values():
        assert decision.message.endswith(f"; {binding} keeps the model from serving more")


def test_a_role_whose_partner_is_at_its_maximum_says_so() -> None:
    """Two pods of decode carry 4.8 requests/s. Prefill gets what they can use, and names the role that binds."""
    loop = RolesLoop(15.0, lambda _: RATE, maxima={DECODE: 2}).run(900.0)
    assert loop.pairs(300.0) == [(2, 2)]
    found = last(loop)
    assert (found[PREFILL].reason, found[DECODE].reason) == (Reason.ROLE_LIMITED, Reason.NO_CANDIDATE)
    assert found[PREFILL].message.startswith("limited to 2: ")
    assert "(role decode); prefill: " in found[PREFILL].message
    assert "but decode can use no more" in found[PREFILL].message
    (step,) = found[PREFILL].limits
    assert step.limited_by == "role decode"
    assert step.fewer > 0


def test_the_message_on_the_page() -> None:
    """docs/roles.md has it."""
    loop = RolesLoop(15.0, lambda _: RATE, maxima={DECODE: 2}).run(900.0)
    page = Path(__file__).parents[2] / "docs" / "roles.md"
    assert f"```text\n{last(loop)[PREFILL].message}\n```" in page.read_text()


def test_what_has_passed_prefill_is_served() -> None:
    """One pod of prefill lets 6.25 requests/s through, late. Decode has what it needs for them, and grows for that."""
    loop = RolesLoop(15.0, lambda _: RATE, maxima={PREFILL: 1}).run(1200.0)
    assert loop.numbers[-1][1:] == (1, 3)
    found = last(loop)
    assert (found[PREFILL].reason, found[DECODE].reason) == (Reason.NO_CANDIDATE, Reason.STEADY)
    assert found[DECODE].message.endswith("; prefill keeps the model from serving more")
    decode = next(pod for pod in loop.pods if pod.role == DECODE)
    assert decode.inside < 2.0 * decode.running


def test_what_prefill_has_stays() -> None:
    """The maximum of decode is less than what prefill carries already."""
    loop = RolesLoop(15.0, lambda _: RATE, replicas=(3, 2), maxima={DECODE: 2}).run(600.0)
    assert {prefill for _, prefill, _ in loop.numbers} == {3}
    assert last(loop)[PREFILL].message.endswith("; decode keeps the model from serving more")


def test_roles_that_count_replicas_are_planned_alone() -> None:
    """Nobody knows what their replicas carry, so nobody knows which of them are too many."""
    pool = Inventory.of([AcceleratorPool("A100", 9, 2)], [])
    found = Story(LIMITED, inventory=pool).cycle(
        variant("p", role=PREFILL), variant("d", role=DECODE, maximum=1), p=[FULL], d=[FULL]
    )
    assert found["p"].desired == 2
    assert found["d"].reason is Reason.NO_CANDIDATE
    assert not found["p"].limits


def test_a_plain_model_names_no_role() -> None:
    """It has none."""
    found = Story().cycle(variant("a", maximum=1), a=[FULL])
    assert "serving more" not in found["a"].message


def parts(**demands: float | None) -> dict[str, float]:
    """Return the parts of requests by role: None is held, below 0 counts replicas. The first variant has each role."""
    variants = [variant(role, role=role.replace("_", "-")) for role in demands]
    models, _ = believe(Snapshot.of(variants, []), Memory(), Policy(), 0.0)
    needs = [
        Need(
            model.key,
            REPLICAS if (demand or 0.0) < 0.0 else "requests/s",
            demand or 0.0,
            demand or 0.0,
            demand or 0.0,
            {},
            hold=Absence(Reason.METRICS_MISSING, "nothing") if demand is None else None,
        )
        for model in models
        for demand in [demands[model.variants[0].key.name]]
    ]
    return {key.role: part for key, part in parts_of(models, needs).items()}


@pytest.mark.parametrize(
    ("demands", "expected"),
    [
        ({"prefill": 6.0, "decode": 6.0}, {"prefill": 1.0, "decode": 1.0}),
        ({"prefill": 3.0, "decode": 6.0}, {"prefill": 0.5, "decode": 1.0}),
        # Decode gets fewer requests than prefill because prefill is short of capacity.
        ({"prefill": 6.0, "decode": 3.0}, {"prefill": 1.0, "decode": 1.0}),
        ({"prefill": 0.0, "decode": 6.0}, {"prefill": 0.01, "decode": 1.0}),
        ({"prefill": 6.0, "decode": 0.0}, {"prefill": 1.0, "decode": 1.0}),
        ({"encode": 1.0, "prefill": 2.0, "decode": 4.0}, {"encode": 0.25, "prefill": 0.5, "decode": 1.0}),
        ({"prefill": 2.0, "prefill_decode": 4.0}, {"prefill": 1.0}),
        ({"prefill": 6.0, "decode": -1.0}, {"prefill": 1.0}),
        ({"prefill": -1.0, "decode": 6.0}, {"decode": 1.0}),
        ({"prefill": 6.0, "decode": None}, {"prefill": 1.0}),
        ({"prefill": 0.0, "decode": 0.0}, {"prefill": 1.0, "decode": 1.0}),
        ({"decode": 6.0}, {}),
    ],
)
def test_the_part_of_the_requests_that_comes_to_a_role(
    demands: dict[str, float | None], expected: dict[str, float]
) -> None:
    """It is measured by what comes to the last role; more than all of them is none."""
    assert parts(**demands) == expected


def test_several_models_have_parts_of_their_own() -> None:
    """A model without roles beside them has none."""
    variants = [
        variant("p", model="m", role=PREFILL),
        variant("d", model="m", role=DECODE),
        variant("q", model="n", role=PREFILL),
        variant("e", model="n", role=DECODE),
        variant("x", model="o"),
    ]
    models, _ = believe(Snapshot.of(variants, []), Memory(), Policy(), 0.0)
    demands = {"p": 1.0, "d": 2.0, "q": 3.0, "e": 3.0, "x": 5.0}
    needs = [
        Need(model.key, "requests/s", demand, demand, demand, {})
        for model in models
        for demand in [demands[model.variants[0].key.name]]
    ]
    found = parts_of(models, needs)
    assert found[replace(ModelKey("ns", "m"), role=PREFILL)] == 0.5
    assert found[replace(ModelKey("ns", "n"), role=PREFILL)] == 1.0
    assert {key.model_id for key in found} == {"m", "n"}


def with_needs(**needs: Need) -> dict[str, Need]:
    """Return the needs with what the roles say about each other, by role; one replica of each serves."""
    variants = [variant(name, role=role_of(name)) for name in needs]
    pods = [replica(f"{name}-0", variant=name) for name in needs]
    models, _ = believe(Snapshot.of(variants, pods), Memory(), Policy(), NOW)
    asked = [replace(needs[model.variants[0].key.name], key=model.key) for model in models]
    return {
        model.variants[0].key.name: need
        for model, need in zip(models, with_roles(models, asked, parts_of(models, asked)), strict=True)
    }


def role_of(name: str) -> str:
    """Return the role of a variant that has its name, and none of one with another name."""
    return name if name in {PREFILL, DECODE} else ""


def rated(name: str, demand: float, required: float, carries: float, **fields: object) -> Need:
    """Return a need in requests per second; a replica carries so much."""
    sizes = {VariantKey("ns", name): Capacity(carries, CapacityBasis.OBSERVED)}
    return replace(Need(ModelKey("ns", "m"), "requests/s", demand, required, required, sizes), **fields)


class TestShrinksOfDecode:
    """They leave what prefill will pass on."""

    def test_what_piles_up_in_front_of_prefill_comes(self) -> None:
        """Six arrive at prefill, and four pass it now. Its replicas carry eight, with those that start."""
        found = with_needs(prefill=rated(PREFILL, 6.0, 7.0, 8.0), decode=rated(DECODE, 4.0, 4.0, 9.0))
        assert (found[DECODE].sufficient, found[DECODE].required) == (7.0, 4.0)
        assert found[PREFILL].sufficient == 7.0

    def test_no_more_than_prefill_carries(self) -> None:
        """It is at its maximum."""
        found = with_needs(prefill=rated(PREFILL, 6.0, 7.0, 5.0), decode=rated(DECODE, 4.0, 4.0, 9.0))
        assert found[DECODE].sufficient == 5.0

    def test_what_prefill_lets_through_late(self) -> None:
        """With one prompt in progress a replica is busy half of the time. So it gets through twice as much."""
        rate = DemandRate(ceiling=1.0)
        short = rated(PREFILL, 20.0, 30.0, 5.0, rate=rate)
        assert with_needs(prefill=short, decode=rated(DECODE, 4.0, 4.0, 9.0))[DECODE].sufficient == 10.0
        nothing = rated(PREFILL, 20.0, 30.0, 5.0, rate=DemandRate(ceiling=0.0))
        assert with_needs(prefill=nothing, decode=rated(DECODE, 4.0, 4.0, 9.0))[DECODE].sufficient == 5.0

    def test_what_decode_needs_for_itself_may_be_more(self) -> None:
        """Then prefill changes nothing."""
        own = rated(DECODE, 6.0, 7.5, 9.0)
        assert with_needs(prefill=rated(PREFILL, 6.0, 7.0, 8.0), decode=own)[DECODE].sufficient == 7.5

    def test_only_a_part_comes_to_prefill(self) -> None:
        """Decode computes the other prompts itself. So of ten requests of decode, the four of prefill are a part."""
        found = with_needs(prefill=rated(PREFILL, 4.0, 5.0, 8.0), decode=rated(DECODE, 10.0, 10.0, 20.0))
        assert found[DECODE].sufficient == 12.5

    def test_the_message_says_so(self) -> None:
        """Beside the other reasons why replicas stay."""
        rate = DemandRate(stays=((4.0, ""),))
        found = with_needs(prefill=rated(PREFILL, 6.0, 7.0, 8.0), decode=rated(DECODE, 4.0, 4.0, 9.0, rate=rate))
        assert found[DECODE].rate == DemandRate(stays=((4.0, ""), (7.0, "prefill will pass on 7 requests/s")))

    def test_without_other_roles_nothing_changes(self) -> None:
        """Also if the model counts replicas."""
        own = replace(rated("a", 1.0, 1.0, 2.0), unit=REPLICAS)
        assert with_needs(a=own)["a"].sufficient == 1.0
        assert not with_needs(a=own)["a"].objection


@pytest.mark.parametrize(("objection", "told"), [("", "it is not known yet what its pods carry"), ("so", "so")])
def test_prefill_does_not_shrink_while_it_counts_replicas(objection: str, told: str) -> None:
    """Its pods hold few requests, however busy they are. Those of decode hold many."""
    counting = {"unit": REPLICAS, "objection": objection}
    needs = {role: rated(role, 1.0, 1.0, 2.0, **counting) for role in (PREFILL, DECODE)}
    found = with_needs(**needs)
    assert (found[PREFILL].objection, found[DECODE].objection) == (told, objection)
