"""Agents call in sessions, with pauses; each prompt has all of the one before."""

from __future__ import annotations

import numpy as np
import pytest

from wva.sim.traffic.agents import agents


@pytest.fixture(scope="module")
def calls():
    """Return the calls of half an hour."""
    return agents(1, duration_seconds=1800.0, rate=6.0)


def sessions(traffic):
    """Return the rows of each session, in order of arrival."""
    return [np.flatnonzero(traffic.group == group) for group in range(traffic.groups)]


def test_calls_come_at_the_rate_from_the_start_on(calls):
    """The rate is that of calls, and sessions that began before the first call make it so from the start."""
    per_third = np.bincount((calls.arrival_seconds // 600.0).astype(int), minlength=3) / 600.0
    assert per_third == pytest.approx([6.0] * 3, rel=0.25)


def test_sessions_are_as_long_as_asked_for():
    """Sessions that begin and end within the time have 15 to 60 calls."""
    traffic = agents(2, duration_seconds=7200.0, rate=2.0)
    whole = [rows for rows in sessions(traffic) if 1800 < traffic.arrival_seconds[rows[0]] < 3600]
    sizes = [len(rows) for rows in whole if traffic.prefix_tokens[rows[0]] == 0]
    assert min(sizes) >= 15
    assert max(sizes) <= 60
    assert np.mean(sizes) == pytest.approx(37.5, rel=0.15)


def test_a_prompt_begins_with_the_whole_prompt_before(calls):
    """A prompt has that of the call before and its answer in it, and is longer by what a tool said."""
    for rows in sessions(calls):
        before, after = rows[:-1], rows[1:]
        assert (calls.prefix_tokens[after] == calls.prompt_tokens[before]).all()
        assert (calls.shared_tokens[rows] == calls.prompt_tokens[rows]).all()
        longer = calls.prompt_tokens[after] - calls.prompt_tokens[before] - calls.output_tokens[before]
        assert ((longer >= 1) | (calls.prompt_tokens[after] == 120_000)).all()


def test_pauses_have_their_median(calls):
    """Between two calls are the answer and a pause whose median is the one that was asked for."""
    gaps = [
        np.diff(calls.arrival_seconds[rows]) - 0.3 - 0.02 * calls.output_tokens[rows[1:]] for rows in sessions(calls)
    ]
    assert np.median(np.concatenate(gaps)) == pytest.approx(6.0, rel=0.1)


def test_a_seed_gives_the_same_calls():
    """Equal seeds give equal calls, other seeds others."""
    one, same, other = agents(3, duration_seconds=300.0), agents(3, duration_seconds=300.0), agents(4)
    assert np.array_equal(one.prompt_tokens, same.prompt_tokens)
    assert np.array_equal(one.arrival_seconds, same.arrival_seconds)
    assert not set(one.arrival_seconds) & set(other.arrival_seconds)
