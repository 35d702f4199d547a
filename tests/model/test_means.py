"""How many requests a mean needs after a change of sizes, and how quiet it is without one; the seeds are fixed."""

from __future__ import annotations

from functools import cache
from math import exp, log, sqrt
from random import Random
from statistics import median

import pytest

from wva.model.means import Mean

FACTORS = (1 / 8, 1 / 3, 1 / 2, 2 / 3, 1.5, 2, 3, 8)
SEEDS = range(15)
WIDE = sqrt(log(5.0))
"""Of a lognormal distribution whose coefficient of variation is 2."""
KINDS = {
    "constant": lambda _: 1.0,
    "exponential": lambda random: random.expovariate(1.0),
    "lognormal": lambda random: exp(random.gauss(-WIDE * WIDE / 2.0, WIDE)),
}


def sums(kind: str, random: Random, count: int, look: int) -> list[float]:
    """Return the sums of the sizes in each look; their mean is 1000."""
    draw = KINDS[kind]
    return [1000.0 * sum(draw(random) for _ in range(look)) for _ in range(count // look)]


@cache
def after_2000(kind: str, look: int, seed: int) -> Mean:
    """Return the mean of 2,000 requests."""
    mean = Mean()
    for total in sums(kind, Random(seed), 2000, look):
        mean = mean.with_more(total, look)
    return mean


def needed(kind: str, look: int, seed: int, factor: float, most: int = 300) -> tuple[int, int]:
    """Return the requests after which a mean, and the plain mean since the change, stay within 20 % of the truth."""
    mean, plain, far, far_plain = after_2000(kind, look, seed), 0.0, 0, 0
    for place, total in enumerate(sums(kind, Random(1000 + seed), most, look), 1):
        mean, plain = mean.with_more(factor * total, look), plain + total
        far = far if abs(mean.usual / (1000.0 * factor) - 1.0) <= 0.2 else place
        far_plain = far_plain if abs(plain / (1000.0 * place * look) - 1.0) <= 0.2 else place
    return (far + 1) * look, (far_plain + 1) * look


@pytest.mark.parametrize("look", [1, 15, 60])
@pytest.mark.parametrize(("kind", "seeds"), [("constant", range(1)), ("exponential", SEEDS)])
def test_a_mean_follows_a_change_within_200_requests(kind: str, seeds: range, look: int) -> None:
    """From a change by half as much again, and however many requests one look sees."""
    for factor in FACTORS:
        assert median(needed(kind, look, seed, factor)[0] for seed in seeds) <= 200, factor


@pytest.mark.parametrize("factor", [0.75, 1.3])
def test_a_change_that_is_hardly_beyond_the_border_takes_longer(factor: float) -> None:
    """One by a quarter differs from what chance does only after about 250 requests."""
    assert median(needed("exponential", 15, seed, factor)[0] for seed in SEEDS) <= 285


# With a coefficient of variation of 2, each request has a quarter of the evidence that one of exponential sizes has.
# A look tells the sum of its requests, in which a few giants hide all others. So smaller factors cannot be seen as soon
# as the plain mean since the change would be right, unless chance is called a change more often.
@pytest.mark.parametrize("look", [5, 15])
@pytest.mark.parametrize(("factors", "most"), [((1 / 8, 1 / 4, 1 / 3, 1 / 2, 2, 3, 4, 8), 3.6), ((2 / 3, 1.5), 9.0)])
def test_heavy_tails_are_followed_later(factors: tuple[float, ...], most: float, look: int) -> None:
    """The mean needs so many times the requests that the plain mean since the change needs."""
    for factor in factors:
        mine, plain = zip(*(needed("lognormal", look, seed, factor, 750) for seed in SEEDS), strict=True)
        assert median(mine) <= most * median(plain), factor


@pytest.mark.parametrize("look", [5, 15])
@pytest.mark.parametrize(("kind", "most"), [("exponential", 0.0159), ("lognormal", 0.0284)])
def test_a_mean_is_quiet_while_nothing_changes(kind: str, most: float, look: int) -> None:
    """The deviation is no more than that of a mean in which requests fade over 1,500 has with the same sizes."""
    squares = []
    for seed in range(6):
        mean = Mean()
        for place, total in enumerate(sums(kind, Random(seed), 9000, look)):
            mean = mean.with_more(total, look)
            if place * look >= 3000:
                squares.append((mean.usual / 1000.0 - 1.0) ** 2)
    assert sqrt(sum(squares) / len(squares)) <= most


def test_one_giant_request_is_no_change() -> None:
    """A request as large as five hundred others leaves the mean where it was, apart from its own part in it."""
    mean = after_2000("exponential", 15, 0)
    after = mean.with_more(500_000.0, 1.0)
    for total in sums("exponential", Random(7), 150, 15):
        after = after.with_more(total, 15.0)
    assert after.many > 2000.0


def test_parts_are_few_and_a_mean_of_older_recordings_goes_on() -> None:
    """Such a mean has no parts: it counts as one of them."""
    assert len(after_2000("constant", 1, 0).parts) < 25
    mean = Mean(1000.0, 1500.0, 1.0).with_more(20_000.0, 20.0)
    assert (mean.usual, mean.many) == (pytest.approx(1000.0), 1520.0)
    for _ in range(6):
        mean = mean.with_more(60_000.0, 20.0)
    assert mean.usual == pytest.approx(3000.0)


def test_parts_that_no_mean_has_are_left_out() -> None:
    """A recording may be forged."""
    hostile = ((-5.0, 1e18), (0.0, 7.0), (1e18, -1e18), (1e-300, 1e18), (1e18, 1e-300))
    after = Mean(1.0, 1.0, -7.0, hostile).with_more(5e-324, 1.0).with_more(100.0, 1.0)
    assert 0.0 <= after.usual < 1e19
    assert 0.0 < after.many <= 4201.0
