"""Block arithmetic against counting each sequence."""

from hypothesis import given
from hypothesis import strategies as st

from wva.sim.fleet.kv_blocks import KvBlocks

sequences = st.lists(st.integers(1, 200), max_size=12)


def pool(tokens, *, size, step, total=100_000):
    """Return blocks with decoding sequences of these sizes at this step."""
    blocks = KvBlocks(total, block_size=size)
    for count in tokens:
        blocks.reserve(count)
        blocks.start_decoding(count - step)
    return blocks


@given(tokens=sequences, size=st.integers(1, 32), step=st.integers(0, 10_000), steps=st.integers(0, 300))
def test_growth_equals_the_sum_over_sequences(tokens, size, step, steps):
    """The blocks taken by some steps are those each sequence takes for its new tokens."""
    blocks = pool(tokens, size=size, step=step)
    expected = sum(-(-(count + steps) // size) for count in tokens) - sum(-(-count // size) for count in tokens)
    assert blocks.growth(step, steps=steps) == expected


@given(
    tokens=sequences,
    size=st.integers(1, 32),
    step=st.integers(0, 10_000),
    free=st.integers(0, 60),
    limit=st.integers(1, 300),
)
def test_steps_within_is_the_last_that_fits(tokens, size, step, free, limit):
    """One step more would not fit, unless the limit ends the run."""
    blocks = pool(tokens, size=size, step=step)
    blocks.total = blocks.used + free
    steps = blocks.steps_within(step, limit=limit)
    assert 0 <= steps <= limit
    assert blocks.growth(step, steps=steps) <= free
    if steps < limit:
        assert blocks.growth(step, steps=steps + 1) > free


def test_release_gives_back_what_was_taken():
    """After growth and release nothing is in use."""
    blocks = pool([30], size=16, step=7)
    blocks.used += blocks.growth(7, steps=10)
    assert blocks.used == 3
    blocks.stop_decoding(30 - 7)
    blocks.release(40)
    assert (blocks.used, blocks.decoding, blocks.growth(17, steps=100)) == (0, 0, 0)
