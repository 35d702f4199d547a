"""Means over requests, and when a mean starts anew."""

from __future__ import annotations

from random import Random

import pytest

from wva.model.means import Mean


def seen(sizes: list[float], mean: Mean | None = None, together: int = 20) -> list[Mean]:
    """Return the mean after each cycle of ``together`` requests."""
    found = [mean or Mean()]
    for begin in range(0, len(sizes), together):
        found.append(found[-1].with_more(sum(sizes[begin : begin + together]), together))
    return found[1:]


@pytest.mark.parametrize("seed", range(5))
def test_sizes_that_vary_by_chance_do_not_begin_anew(seed: int) -> None:
    """The mean of sizes that vary like those of chats moves slowly."""
    random = Random(seed)
    after = seen([random.expovariate(1.0 / 1000.0) for _ in range(8000)])[100:]
    assert all(one.many >= 1000.0 for one in after)
    assert all(850.0 < one.usual < 1150.0 for one in after)


@pytest.mark.parametrize("factor", [0.3, 3.0, 8.0])
def test_a_shift_shows_within_a_few_cycles(factor: float) -> None:
    """When all sizes change, the mean follows most of the change within a hundred requests."""
    usual = seen([1000.0] * 2000)[-1]
    assert usual.varied < 0.05
    left = seen([1000.0 * factor] * 100, usual)[-1].usual - 1000.0 * factor
    assert abs(left) < 0.3 * abs(1000.0 - 1000.0 * factor)


def test_a_large_shift_shows_in_sizes_that_vary() -> None:
    """The mean follows a large change within 160 requests, even if the sizes vary."""
    random = Random(1)
    usual = seen([random.expovariate(1.0 / 1000.0) for _ in range(4000)])[-1]
    after = seen([random.expovariate(1.0 / 8000.0) for _ in range(160)], usual)[-1]
    assert after.usual > 5000.0


def test_sizes_next_to_nothing_are_sizes() -> None:
    """The variation stays a finite number even if the mean rounds to zero."""
    after = seen([5e-324] * 400, together=1)[-1]
    assert after.usual >= 0.0
    assert 0.0 <= after.varied <= 5.0
