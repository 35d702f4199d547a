"""Agents: sessions of many calls, each with a longer prompt than the one before, and pauses in which a tool runs.

A prompt is the prompt of the call before, its answer, and the output of the tool. So nearly all of it may be in the
prefix cache of the replica that had the call before. The calls of a session do not wait for slow answers: each comes
one pause after the answer before would have ended on an engine that is not busy.
"""

from __future__ import annotations

from math import log
from typing import Final

import numpy as np

from wva.sim.traffic.lengths import TokenLengths, lognormal
from wva.sim.traffic.requests import Traffic
from wva.sim.traffic.streams import stream

_INSTRUCTIONS: Final = lognormal(TokenLengths(1200, maximum_tokens=8192))
"""What a session begins with: how to use the tools, and the task."""
_TOOL: Final = lognormal(TokenLengths(200, sigma=1.0))
_ANSWER: Final = lognormal(TokenLengths(170, sigma=0.7, maximum_tokens=1024))
_LONGEST_PROMPT: Final = 120_000
"""At this length an agent leaves out what its tools say."""
_PAUSE_SIGMA: Final = 1.0
_FIRST_TOKEN_SECONDS: Final = 0.3
_TOKEN_SECONDS: Final = 0.02
"""The times of an engine that is not busy."""
_LONGEST_SESSION_SECONDS: Final = 3600.0
"""So long before the first request, the first sessions begin."""


def agents(
    seed: int,
    *,
    duration_seconds: float = 7200.0,
    rate: float = 8.0,
    fewest_calls: int = 15,
    most_calls: int = 60,
    pause_seconds: float = 6.0,
) -> Traffic:
    """Return calls of agents: long sessions with tool pauses, whose prompts grow with each call.

    Sessions of ``fewest_calls`` to ``most_calls``, all numbers equally likely, begin at random. ``rate`` is that of
    calls, per second; ``pause_seconds`` is the median of log-normal pauses.
    """
    source = stream(seed, "sessions")
    span = _LONGEST_SESSION_SECONDS + duration_seconds
    sessions = int(source.poisson(rate * span / ((fewest_calls + most_calls) / 2)))
    begins = source.random(sessions) * span - _LONGEST_SESSION_SECONDS
    calls = source.integers(fewest_calls, most_calls, sessions, endpoint=True)
    count, first_calls = int(calls.sum()), np.cumsum(calls) - calls
    session = np.repeat(np.arange(sessions), calls)

    answers = _ANSWER(stream(seed, "outputs"), count)
    added = _TOOL(stream(seed, "prompts"), count)
    added[first_calls] = _INSTRUCTIONS(stream(seed, "instructions"), sessions)
    # The tokens of the session so far: a running sum over all calls, less that at the session's first call.
    tokens = np.cumsum(added) + np.cumsum(answers) - answers
    prompts = np.minimum(tokens - (tokens - added)[first_calls][session], _LONGEST_PROMPT)
    prefixes = np.concatenate(([0], prompts[:-1])) if count else prompts
    prefixes[first_calls] = 0

    pauses = np.exp(log(pause_seconds) + _PAUSE_SIGMA * stream(seed, "pauses").standard_normal(count))
    elapsed = np.cumsum(pauses + _FIRST_TOKEN_SECONDS + answers * _TOKEN_SECONDS)
    arrivals = begins[session] + elapsed - elapsed[first_calls][session]

    order = np.argsort(arrivals, kind="stable")
    order = order[(arrivals[order] >= 0.0) & (arrivals[order] < duration_seconds)]
    _, group = np.unique(session[order], return_inverse=True)
    return Traffic(
        duration_seconds=duration_seconds,
        arrival_seconds=arrivals[order],
        prompt_tokens=prompts[order],
        output_tokens=answers[order],
        group=group.astype(np.int64),
        prefix_tokens=prefixes[order],
        shared_tokens=prompts[order],
        draw=stream(seed, "draws").random(len(order)),
    )
