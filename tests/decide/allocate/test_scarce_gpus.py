"""Which model gets GPUs when there are too few for all, and what each decision says about it."""

from __future__ import annotations

import random

import pytest

from tests.decide.allocate.cases import limits, missing, numbers, offer, on, shared, stock, want
from tests.decide.allocate.fleets import random_fleet
from wva.decide.allocate import AllocationPolicy, SharingRule, Stock, allocate
from wva.model.records import replace


def test_what_fits_stays_as_it_is():
    """If there are enough GPUs, the limit changes nothing."""
    plan = shared(stock(a=3), want("m", 3, on("a", "v")))
    assert (numbers(plan), limits(plan), missing(plan)) == ({"v": 3}, {}, {})


def test_whole_replicas_only():
    """Three GPUs are one replica of two."""
    plan = shared(stock(a=3), want("m", 3, on("a", "v", gpus=2)))
    assert (numbers(plan), limits(plan), missing(plan)) == ({"v": 1}, {"v": ("a", 2)}, {"m": 2})


def test_the_rest_goes_to_the_next_variant():
    """The next variant uses other GPUs, which are free."""
    plan = shared(stock(a=1, b=5), want("m", 3, on("a", "cheap"), on("b", "dear", 30)))
    assert (numbers(plan), limits(plan), missing(plan)) == ({"cheap": 1, "dear": 2}, {"cheap": ("a", 2)}, {})


def test_a_model_that_lacks_much_gets_what_the_gpus_carry_most_of():
    """Five variants share one pool whose GPUs carry only a part of the need."""
    wants, _ = random_fleet(47740)
    plan = allocate([replace(wants[0], need=113.0)], stock(**{"pool 0": 33}))
    assert (numbers(plan)["m0-v3"], numbers(plan)["m0-v4"]) == (7, 16)


def test_what_needs_no_scarce_gpus_is_used_as_far_as_it_goes():
    """Two variants draw from the pool, a third one does not, and all together carry less than is needed."""
    free = [on("a", "v"), on("a", "w", 20, capacity=1.5, gpus=2), offer("x", 90, ceiling=2)]
    plan = shared(stock(a=4), want("m", 9, *free))
    assert (numbers(plan), missing(plan)) == ({"v": 4, "w": 0, "x": 2}, {"m": 3})


def test_that_may_exceed_another_limit():
    """The next pool is shared as well, and the one after that."""
    plan = shared(stock(a=1, b=1), want("m", 4, on("a", "v"), on("b", "w", 20), offer("x", 90)))
    assert numbers(plan) == {"v": 1, "w": 1, "x": 2}


def test_priority_comes_before_price():
    """The more important model moves to dearer GPUs, so that the other one can be served too."""
    important = want("m", 2, on("a", "m-a"), on("b", "m-b", 50), priority=1)
    other = want("n", 2, on("a", "n-a"), priority=5)
    assert numbers(shared(stock(a=2, b=2), other, important)) == {"m-a": 0, "m-b": 2, "n-a": 2}


def test_the_more_important_model_is_served_first():
    """The other one gets what is left."""
    plan = shared(stock(a=3), want("n", 2, on("a", "n")), want("m", 2, on("a", "m"), priority=1))
    assert (numbers(plan), missing(plan)) == ({"m": 2, "n": 1}, {"n": 1})
    assert limits(plan) == {"n": ("a", 1)}


def test_within_a_priority_weight_and_name_decide():
    """The largest weight is first."""
    plan = shared(stock(a=2), want("m", 2, on("a", "m")), want("n", 2, on("a", "n"), weight=2))
    assert numbers(plan) == {"m": 0, "n": 2}
    plan = shared(stock(a=2), want("n", 2, on("a", "n")), want("m", 2, on("a", "m")))
    assert numbers(plan) == {"m": 2, "n": 0}


@pytest.mark.parametrize(("weight", "expected"), [(1.0, {"m": 7, "n": 1}), (3.0, {"m": 6, "n": 2})])
def test_what_a_model_was_promised_stays_with_it(weight, expected):
    """Its replicas do not exist yet. What nobody was promised goes to the first by weight and name."""
    first = want("m", 8, on("a", "m", present=6, existing=1))
    plan = shared(stock(a=6), first, want("n", 8, on("a", "n", present=1), weight=weight))
    assert numbers(plan) == expected


def test_a_promise_is_no_more_than_what_is_needed():
    """What the first model needs no longer is free for the other one."""
    first = want("m", 3, on("a", "m", present=6, existing=1))
    plan = shared(stock(a=6), first, want("n", 8, on("a", "n", present=1)))
    assert numbers(plan) == {"m": 3, "n": 5}


def test_a_promise_does_not_bind_a_more_important_model():
    """A model of higher priority takes what was promised to another one, and does not exist yet."""
    first = want("m", 8, on("a", "m", present=6, existing=1), priority=2)
    plan = shared(stock(a=6), first, want("n", 8, on("a", "n", present=1), priority=1))
    assert numbers(plan) == {"m": 1, "n": 7}


def test_the_page_s_example_of_the_limiter():
    """Five GPUs are free; what is too little for one model is enough for the next."""
    wants = (
        want("a", 3, on("A100", "a", present=1, gpus=2), weight=3),
        want("b", 2, on("A100", "b", present=1, gpus=2), weight=2),
        want("c", 3, on("A100", "c", present=1), weight=1),
    )
    plan = shared(stock(A100=5), *wants)
    assert (numbers(plan), limits(plan)) == ({"a": 3, "b": 1, "c": 2}, {"b": ("A100", 1), "c": ("A100", 1)})


def test_what_exists_is_never_cut():
    """The allocator keeps existing replicas even if they use more GPUs than there are."""
    plan = shared(stock(a=0), want("m", 5, on("a", "v", present=3)), want("n", 9, on("a", "w", present=4), priority=1))
    assert numbers(plan) == {"v": 3, "w": 4}


def test_what_is_asked_for_but_does_not_exist_needs_gpus():
    """Replicas that do not exist yet compete for GPUs with all others."""
    late = on("a", "late", present=3, existing=1)
    plan = shared(stock(a=1), want("m", 3, late), want("n", 1, on("a", "first"), priority=1))
    assert (numbers(plan), limits(plan)) == ({"first": 1, "late": 1}, {"late": ("a", 2)})


def test_a_shrink_frees_nothing_yet():
    """GPUs become free only when the pods are gone."""
    plan = shared(stock(a=0), want("m", 0, on("a", "v", present=3)), want("n", 2, on("a", "w")))
    assert numbers(plan) == {"v": 0, "w": 0}


def test_floors_come_without_us():
    """The scaler starts the replicas of the floor anyway, so the allocator counts their GPUs as taken."""
    plan = shared(stock(a=3), want("m", 0, on("a", "v", floor=2)), want("n", 2, on("a", "w")))
    assert numbers(plan) == {"v": 2, "w": 1}
    assert numbers(shared(stock(a=1), want("m", 4, on("a", "v", floor=2)))) == {"v": 2}


def test_every_limit_counts():
    """The plan names the tightest limit."""
    plan = shared(stock(a=9, quota=2), want("m", 5, on(("a", "quota"), "v")), want("n", 3, on("a", "w")))
    assert (numbers(plan), limits(plan)) == ({"v": 2, "w": 3}, {"v": ("quota", 3)})


def test_a_limit_that_nobody_knows_has_nothing():
    """A limit without a known number has no free GPUs."""
    plan = shared(stock(), want("m", 2, on("H900", "v", present=1)))
    assert (numbers(plan), limits(plan)) == ({"v": 1}, {"v": ("H900", 1)})


def test_a_number_that_is_kept_needs_gpus_too():
    """WVA does not know what the replicas carry, but each of them needs a GPU."""
    unknown = on("a", "u", 5, 0, 4, existing=2)
    plan = shared(stock(a=1), want("m", 1, unknown), want("n", 1, on("a", "w")))
    assert (numbers(plan), limits(plan)) == ({"u": 3, "w": 0}, {"u": ("a", 1), "w": ("a", 1)})
    plan = shared(stock(a=1), want("m", 1, unknown))
    assert (numbers(plan), limits(plan)) == ({"u": 3}, {"u": ("a", 1)})
    plan = shared(stock(a=2), want("m", 1, unknown, offer("free", 5, 0, 4, existing=2)))
    assert numbers(plan) == {"free": 4, "u": 4}
    plan = shared(stock(a=3), want("m", 1, unknown), want("n", 2, on("a", "w")))
    assert (numbers(plan), limits(plan)) == ({"u": 4, "w": 1}, {"w": ("a", 1)})


def test_a_step_that_the_gpus_do_not_suffice_for():
    """The scaler would act on two replicas more, but ignores one."""
    plan = shared(stock(a=1), want("m", 12, on("a", "v", present=10, step=2)))
    assert (numbers(plan), limits(plan)) == ({"v": 10}, {"v": ("a", 2)})


def test_the_last_replica_needs_gpus():
    """Without free GPUs, a model that should keep one replica gets none."""
    plan = shared(stock(), want("m", 0, on("a", "v"), keeps_one=True))
    assert (numbers(plan), limits(plan), missing(plan)) == ({"v": 0}, {"v": ("a", 1)}, {})


def test_a_model_with_enough_other_gpus_leaves_the_scarce_ones():
    """The model's own GPUs cost more, but the other models need the cheap ones."""
    plan = shared(stock(a=1), want("m", 2, on("a", "m-a"), offer("m-b", 90), priority=1), want("n", 1, on("a", "n")))
    assert (numbers(plan), missing(plan)) == ({"m-a": 0, "m-b": 2, "n": 1}, {})


@pytest.mark.long_story
def test_very_many_variants():
    """The allocator rounds the numbers and stays within the GPUs."""
    offers = [on("a", f"v{place:03}", 100 + place, 10 + place * 0.01, ceiling=2) for place in range(150)]
    plan = shared(stock(a=100), want("m", 3000, *offers), want("n", 50, on("a", "w"), priority=1))
    assert sum(numbers(plan).values()) <= 100
    assert numbers(plan)["w"] == 50
    assert missing(plan)["m"] > 0
    plan = shared(
        stock(a=300), want("m", 1500, *offers), want("n", 50, on("a", "w", gpus=7), offer("x", 41), priority=1)
    )
    assert numbers(plan)["w"] + numbers(plan)["x"] == 50
    assert missing(plan) == {}


def test_little_effort_is_reported():
    """Every plan keeps the limits, and says how far it may be from the best."""
    plans = [allocate(*random_fleet(seed), AllocationPolicy(effort=0)) for seed in range(40)]
    assert any(plan.gap for plan in plans)


def test_a_large_group():
    """A hundred models on three kinds of GPUs, far too few for all: the search ends, and what is there is used."""
    draw = random.Random(5)
    wants = [
        want(
            f"m{place:02}",
            draw.randint(1, 300) / 10,
            on(draw.choice("abc"), f"{place:02}-v", draw.randint(5, 60), draw.randint(10, 90) / 10, draw.randint(0, 2)),
            on(draw.choice("abc"), f"{place:02}-w", draw.randint(5, 60), draw.randint(10, 90) / 10, gpus=2),
            priority=draw.choice([1, 5]),
        )
        for place in range(100)
    ]
    plan = shared(stock(a=60, b=60, c=60), *wants, effort=20_000)
    used = sum(max(0, plan.numbers[offer.key] - offer.existing) * offer.gpus for each in wants for offer in each.offers)
    assert 170 <= used <= 180


class TestUnknownInventory:
    """WVA does not know the number of GPUs."""

    def test_nothing_grows_beyond_what_is_asked_for(self):
        """Replicas that WVA granted before stay granted."""
        plan = shared(Stock(), want("m", 5, on("gpu-limiter inventory", "v", present=3, existing=1)))
        assert numbers(plan) == {"v": 3}
        assert limits(plan) == {"v": ("gpu-limiter inventory", 2)}

    def test_a_number_that_is_kept_is_no_growth(self):
        """WVA granted the number before, so it is no growth."""
        plan = shared(Stock(), want("m", 5, on("gpu-limiter inventory", "u", 5, 0, 4, existing=2)))
        assert (numbers(plan), limits(plan)) == ({"u": 4}, {})

    def test_another_variant_does_not_grow_instead(self):
        """All variants of the model use GPUs whose number is unknown."""
        names = "gpu-limiter inventory"
        plan = shared(Stock(), want("m", 3, on(names, "v", present=1), on(names, "w", 20, present=1, floor=2)))
        assert numbers(plan) == {"v": 1, "w": 2}


A, H = "A100", "H100"


def chat_code_batch():
    """Return the models of the page's example: chat and code lack six each, batch lacks four."""
    return (
        want("chat", 8, on(A, "chat-a", 10, 2, 1), on(H, "chat-h", 25, 4), priority=1),
        want("code", 8, on(A, "code-a", 10, 2, 1), priority=1),
        want("batch", 6, on(A, "batch-a", 10, 2, 1), priority=2),
    )


class TestBestEffort:
    """First the models that can be served completely get their GPUs, then the policy shares the rest."""

    @pytest.mark.parametrize(
        ("sharing", "delayed", "expected"),
        [
            # chat fits on one GPU of each kind. One A100 is left, too few for code or batch.
            (SharingRule.NONE, False, {"chat-a": 2, "chat-h": 1, "code-a": 1, "batch-a": 1}),
            (SharingRule.PRIORITY_EXHAUSTIVE, False, {"chat-a": 2, "chat-h": 1, "code-a": 2, "batch-a": 1}),
            (SharingRule.PRIORITY_ROUND_ROBIN, False, {"chat-a": 2, "chat-h": 1, "code-a": 2, "batch-a": 1}),
            (SharingRule.ROUND_ROBIN, True, {"chat-a": 2, "chat-h": 1, "code-a": 2, "batch-a": 1}),
            (SharingRule.PRIORITY, False, {"chat-a": 2, "chat-h": 1, "code-a": 2, "batch-a": 1}),
        ],
    )
    def test_two_and_one(self, sharing, delayed, expected):
        """2 GPUs A100 and 1 H100 are free."""
        plan = shared(stock(A100=2, H100=1), *chat_code_batch(), sharing=sharing, delayed=delayed)
        assert numbers(plan) == expected

    @pytest.mark.parametrize(
        ("sharing", "delayed", "expected"),
        [
            (SharingRule.NONE, False, {"chat-a": 1, "chat-h": 0, "code-a": 1, "batch-a": 3}),
            (SharingRule.PRIORITY_EXHAUSTIVE, False, {"chat-a": 3, "chat-h": 0, "code-a": 1, "batch-a": 1}),
            (SharingRule.PRIORITY_ROUND_ROBIN, False, {"chat-a": 2, "chat-h": 0, "code-a": 2, "batch-a": 1}),
            (SharingRule.ROUND_ROBIN, False, {"chat-a": 2, "chat-h": 0, "code-a": 2, "batch-a": 1}),
            (SharingRule.PRIORITY_EXHAUSTIVE, True, {"chat-a": 1, "chat-h": 0, "code-a": 1, "batch-a": 3}),
            (SharingRule.PRIORITY_ROUND_ROBIN, True, {"chat-a": 1, "chat-h": 0, "code-a": 1, "batch-a": 3}),
            (SharingRule.PRIORITY, False, {"chat-a": 3, "chat-h": 0, "code-a": 1, "batch-a": 1}),
        ],
    )
    def test_two(self, sharing, delayed, expected):
        """2 GPUs A100 are free: too few for chat or code completely, enough for batch."""
        plan = shared(stock(A100=2), *chat_code_batch(), sharing=sharing, delayed=delayed)
        assert numbers(plan) == expected

    def test_turns_go_on_while_anyone_can_take_one(self):
        """A model that has all it can use takes no more turns, and neither does one that finds no GPUs of its own."""
        wants = (
            want("m", 50, on(A, "m"), priority=1),
            want("n", 2, on(A, "n"), priority=2),
            want("o", 50, on((A, "quota"), "o"), priority=3),
        )
        plan = shared(stock(A100=20, quota=3), *wants, sharing=SharingRule.ROUND_ROBIN, delayed=True)
        assert numbers(plan) == {"m": 15, "n": 2, "o": 3}

    @pytest.mark.parametrize("sharing", [SharingRule.NONE, SharingRule.ROUND_ROBIN])
    def test_a_model_that_has_what_it_needs_is_left_out(self, sharing):
        """The model has its replicas, and takes no turn."""
        wants = (want("m", 1, on(A, "m", present=1)), want("n", 3, on(A, "n")))
        plan = shared(stock(A100=2), *wants, sharing=sharing)
        assert numbers(plan) == {"m": 1, "n": 0 if sharing is SharingRule.NONE else 2}

    def test_turns_within_each_priority(self):
        """All models that fit completely come first, then the first class, then the second."""
        wants = [want(name, 5, on(A, name), priority=1 + place // 2) for place, name in enumerate("mnop")]
        plan = shared(stock(A100=4), *wants, sharing=SharingRule.PRIORITY_ROUND_ROBIN, delayed=True)
        assert numbers(plan) == {"m": 2, "n": 2, "o": 0, "p": 0}


class TestScore:
    """The policy makes the missing capacity times the weight equal."""

    def wants(self):
        """Return the models of the page's example."""
        return (
            want("chat", 400, on(A, "chat", 10, 100, 1), weight=1),
            want("code", 400, on(A, "code", 10, 100, 1), weight=2),
            want("batch", 200, on(A, "batch", 10, 100, 1), weight=1),
        )

    @pytest.mark.parametrize(
        ("free", "expected"),
        [
            (1, {"chat": 1, "code": 2, "batch": 1}),
            (2, {"chat": 1, "code": 3, "batch": 1}),
            (3, {"chat": 2, "code": 3, "batch": 1}),
            (5, {"chat": 3, "code": 4, "batch": 1}),
            (7, {"chat": 4, "code": 4, "batch": 2}),
        ],
    )
    def test_the_heaviest_first(self, free, expected):
        """600 for code, 300 for chat, 100 for batch."""
        assert numbers(shared(stock(A100=free), *self.wants(), sharing=SharingRule.SCORE)) == expected

    def test_a_model_without_weight_comes_last(self):
        """A model without weight gets what the others leave."""
        wants = (want("m", 3, on(A, "m"), weight=0.0), want("n", 3, on(A, "n")))
        assert numbers(shared(stock(A100=4), *wants, sharing=SharingRule.SCORE)) == {"m": 1, "n": 3}

    def test_very_many_replicas(self):
        """The allocator does not share very many replicas one by one."""
        wants = (want("m", 3e9, on(A, "m")), want("n", 3e9, on(A, "n")))
        plan = shared(stock(A100=2 * 10**9), *wants, sharing=SharingRule.SCORE)
        assert numbers(plan) == {"m": pytest.approx(10**9, rel=1e-5), "n": pytest.approx(10**9, rel=1e-5)}

    def test_without_effort(self):
        """The turns are the same without effort; each is smaller than the last, so there are not many."""
        wants = (want("m", 90, on(A, "m")), want("n", 90, on(A, "n")))
        plan = shared(stock(A100=100), *wants, sharing=SharingRule.SCORE, effort=0)
        assert numbers(plan) == {"m": 50, "n": 50}
