"""Lengths have the given distribution, and are whole numbers of at least 1."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wva.sim.traffic.lengths import TokenLengths, fixed, lognormal, quantiles, zipf
from wva.sim.traffic.streams import stream


@st.composite
def tables(draw):
    """Return quantiles from share 0 to share 1."""
    inner = sorted(draw(st.sets(st.floats(0.01, 0.99).map(lambda share: round(share, 3)), max_size=5)))
    tokens = sorted(draw(st.lists(st.integers(1, 50_000), min_size=len(inner) + 2, max_size=len(inner) + 2)))
    return tuple(zip((0.0, *inner, 1.0), map(float, tokens), strict=True))


@given(table=tables(), seed=st.integers(0, 2**40))
def test_lengths_of_quantiles_stay_between_the_ends(table, seed):
    """Lengths stay between the ends, and the share below each point is at most the point's."""
    lengths = quantiles(table)(stream(seed, "a"), 400)
    assert lengths.dtype == np.int64
    assert max(table[0][1], 1) <= lengths.min()
    assert lengths.max() <= table[-1][1]
    for share, tokens in table:
        assert np.mean(lengths < tokens) <= share + 0.15


def test_quantiles_are_met_and_scaled():
    """Equal lengths at two shares are a point mass, and a scale multiplies all lengths."""
    table = ((0.0, 10.0), (0.25, 100.0), (0.5, 1000.0), (0.6, 1000.0), (1.0, 4000.0))
    lengths = quantiles(table)(stream(1, "a"), 200_000)
    assert np.quantile(lengths, [0.25, 0.55]) == pytest.approx([100, 1000], rel=0.03)
    assert np.mean(lengths == 1000) == pytest.approx(0.1, abs=0.01)
    assert quantiles(table, scale=2.0)(stream(1, "a"), 1000) == pytest.approx(2 * lengths[:1000], abs=1)


@pytest.mark.parametrize(
    "points", [((0.0, 1.0), (0.9, 5.0)), ((0.1, 1.0), (1.0, 5.0)), ((0.0, 9.0), (1.0, 5.0)), ((0.0, 0.5), (1.0, 5.0))]
)
def test_tables_that_are_no_distribution_are_refused(points):
    """A table needs shares from 0 to 1 and lengths from 1 on, and neither may fall."""
    with pytest.raises(ValueError, match="must"):
        quantiles(points)


def test_lognormals_have_the_mean_and_the_bounds():
    """Lengths have the mean and the bounds of the fleet's lengths, and sigma 0 makes them constant."""
    lengths = lognormal(TokenLengths(256, sigma=0.5, maximum_tokens=100_000))(stream(3, "a"), 100_000)
    assert lengths.mean() == pytest.approx(256, rel=0.02)
    cut = lognormal(TokenLengths(256, sigma=2.0, minimum_tokens=20, maximum_tokens=900))(stream(3, "a"), 2_000)
    assert (cut.min(), cut.max()) == (20, 900)
    assert set(lognormal(TokenLengths(77, sigma=0))(stream(3, "a"), 9)) == {77}
    assert set(fixed(12)(stream(3, "a"), 9)) == {12}


@pytest.mark.parametrize(
    ("lengths", "words"),
    [
        ({"mean_tokens": 0}, "mean_tokens"),
        ({"mean_tokens": float("nan")}, "mean_tokens"),
        ({"mean_tokens": 10, "sigma": -1}, "sigma"),
        ({"mean_tokens": 10, "sigma": 6}, "sigma"),
        ({"mean_tokens": 10, "minimum_tokens": 0}, "minimum_tokens"),
        ({"mean_tokens": 10, "minimum_tokens": 5, "maximum_tokens": 4}, "minimum_tokens"),
    ],
)
def test_lengths_that_cannot_be_drawn_are_refused(lengths, words):
    """Impossible lengths are refused when they are given, not at the first draw."""
    with pytest.raises(ValueError, match=words):
        TokenLengths(**lengths)


def test_zipf_lengths_fall_with_their_exponent():
    """A length is 2^-exponent as likely as half of it."""
    lengths = zipf(exponent=1.1, maximum_tokens=4096)(stream(4, "a"), 400_000)
    seen = np.bincount(lengths, minlength=4097)
    assert seen[2] / seen[1] == pytest.approx(2**-1.1, rel=0.03)
    assert seen[8] / seen[4] == pytest.approx(2**-1.1, rel=0.06)
    assert (lengths.min(), len(seen)) == (1, 4097)
