"""A request as its user sees it: what is asked for, and the result."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UserRequest:
    """What a user asks for. Times are virtual seconds.

    Attributes:
        number: identity within its model's load.
        arrival_seconds: when the gateway received it; latencies that the user sees count from here.
        prompt_tokens: length of the prompt, at least 1.
        output_tokens: length of the answer, at least 1.
        limited: the answer would be longer: ``output_tokens`` is where its user has it cut.
        group: prompts of one group begin alike; None for a prompt like no other.
        prefix_tokens: leading tokens of the prompt that earlier ones of the group may have left in a cache.
        shared_tokens: leading tokens that later ones of the group begin with; None: as many as ``prefix_tokens``.
        draw: a random number in [0, 1), for a router that chooses by chance.

    """

    number: int
    arrival_seconds: float
    prompt_tokens: int
    output_tokens: int
    limited: bool = False
    group: int | None = None
    prefix_tokens: int = 0
    shared_tokens: int | None = None
    draw: float = 0.0


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """What the user of one served request experienced. Seconds."""

    request: UserRequest
    finish_seconds: float
    time_to_first_token_seconds: float
    """From the arrival at the gateway."""
    inter_token_latency_seconds: float | None
    """Mean gap between tokens; None for an answer of one token, which has no gap."""
    output_tokens: int
