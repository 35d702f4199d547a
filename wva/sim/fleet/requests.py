"""A request on its way: offered to the gateway, a sequence inside an engine, finished."""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Request:
    """What a user asks for. Times are virtual seconds.

    Attributes:
        number: identity within its model's load.
        arrival_seconds: when the gateway received it; latencies the user sees count from here.
        prompt_tokens: length of the prompt, at least 1.
        output_tokens: length of the answer, at least 1.
        cached_prompt_tokens: leading part of the prompt the prefix cache holds: costs memory but no computing.
        retries: how often a vanishing replica sent it back to the gateway.
        limited: the answer would be longer: ``output_tokens`` is where its user has it cut.

    """

    number: int
    arrival_seconds: float
    prompt_tokens: int
    output_tokens: int
    cached_prompt_tokens: int = 0
    retries: int = 0
    limited: bool = False

    def retried(self) -> Request:
        """Return the same request on its next attempt."""
        return replace(self, retries=self.retries + 1)


@dataclass(slots=True)
class Sequence:
    """A request inside one engine. Mutable: the engine is its only owner.

    While it decodes, its number of tokens is not stored but follows from the engine's step count: that is what lets
    the engine jump over many steps without touching each sequence.
    """

    request: Request
    queued_seconds: float
    output_tokens: int
    """What will be generated: the wish, cut at ``max_model_len``."""
    generated: int = 0
    """Tokens generated up to ``start_step``."""
    prefill_tokens: int = 0
    """Tokens the current prefill has to leave in the KV cache: the prompt, after a preemption the answer so far too."""
    prefill_remaining: int = 0
    start_step: int = 0
    """Step whose end produced the token ``generated``; from the next one on each step adds a token."""
    finish_step: int = 0
    decoding: bool = False
    admitted_seconds: float | None = None
    first_token_seconds: float | None = None
    last_token_seconds: float = field(default=0.0)
    """When the last token before a preemption came: the gap to the next one is an inter-token gap."""


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """What the user of one served request experienced, and where the time went. Seconds."""

    request: Request
    finish_seconds: float
    time_to_first_token_seconds: float
    """From the arrival at the gateway."""
    inter_token_latency_seconds: float | None
    """Mean gap between tokens; None for an answer of one token, which has no gap."""
    output_tokens: int
