"""Samples of a replica, with their state: no data is not zero. Times are in seconds since the epoch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from msgspec import Struct

from wva.model.variant import VariantKey


class SampleState(StrEnum):
    """How far a sample can be believed; the value of an invalid one cannot be true."""

    FRESH = "fresh"
    STALE = "stale"
    MISSING = "missing"
    INVALID = "invalid"


_INTERVALS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Freshness:
    """Age limits of a sample in seconds: below ``fresh_seconds`` fresh, below ``unavailable_seconds`` stale.

    A sample is also fresh when it is younger than two scrape intervals of its pod: where scrapes are far apart, the
    newest sample is old just before the next scrape, and one scrape may be lost.
    """

    fresh_seconds: float = 60.0
    unavailable_seconds: float = 300.0

    def classify(self, age_seconds: float, scrape_seconds: float | None = None) -> SampleState:
        """Return FRESH, STALE or MISSING for an age; the limits are exclusive.

        ``scrape_seconds`` is the time between two scrapes of the pod, None if it is not known.
        """
        if age_seconds < self.fresh_seconds:
            return SampleState.FRESH
        if age_seconds >= self.unavailable_seconds:
            return SampleState.MISSING
        return SampleState.FRESH if age_seconds < _INTERVALS * (scrape_seconds or 0.0) else SampleState.STALE


class Sample(Struct, frozen=True, gc=False):
    """A value with its time and state. ``value`` is a number exactly when the state is fresh or stale."""

    state: SampleState
    value: float | None = None
    timestamp: float | None = None
    detail: str = ""

    def __post_init__(self) -> None:
        """Hold the invariant between state and value."""
        has_value = self.value is not None and math.isfinite(self.value)
        if has_value != (self.state is SampleState.FRESH or self.state is SampleState.STALE):
            raise ValueError(f"a {self.state} sample cannot have the value {self.value!r}")

    @property
    def fresh_value(self) -> float | None:
        """The value if it is fresh, else None."""
        return self.value if self.state is SampleState.FRESH else None


MISSING: Final = Sample(SampleState.MISSING)

SAMPLE_WINDOW_SECONDS: Final = 60.0
"""How far the samples of KV usage and queue length look back."""

_HALF: Final = 0.5


class EngineSignals(Struct, frozen=True, gc=False):
    """What the token analyzer and the queueing analyzer read of a pod beside its KV usage and its queue length.

    All are of the pod's last scrape. Counts and sizes are sums over its engines, ``kv_usage`` is their mean.
    ``kv_capacity_tokens`` is the size of the KV cache in tokens, ``waiting`` the requests waiting, ``running`` those
    being computed. ``input_tokens`` and ``output_tokens`` are means per request that finished within the last five
    minutes, and ``prefix_hit_rate`` (0 to 1) the share of prompt tokens found in the prefix cache in that time.
    ``success_rate`` (requests per second), ``time_to_first_token`` and ``inter_token_latency`` (mean seconds) look back
    one minute. A mean over nothing is missing. To add a signal, begin in ``collect.queries``.
    """

    kv_capacity_tokens: Sample = MISSING
    kv_usage: Sample = MISSING
    input_tokens: Sample = MISSING
    output_tokens: Sample = MISSING
    prefix_hit_rate: Sample = MISSING
    waiting: Sample = MISSING
    running: Sample = MISSING
    success_rate: Sample = MISSING
    time_to_first_token: Sample = MISSING
    inter_token_latency: Sample = MISSING


class EngineCounters(Struct, frozen=True, gc=False):
    """What the engines of a pod have counted since they started, as of the pod's last scrape ``at``; sums over engines.

    ``finished`` are requests that ended for any reason that vLLM counts, ``aborted`` those of them with the reason
    ``abort``. ``refused`` are requests that were not let in because too much waited already; no other counter has
    them. ``prompt_tokens`` were computed for ``prompts`` prompts, without tokens found in the prefix cache;
    ``answer_tokens`` are those of ``answers`` finished requests. ``gap_seconds`` is the sum of the times between tokens
    of all answers, ``gaps`` their number. ``prefill_seconds`` is the sum of the times that prompts took from their
    first step to their first token, ``first_seconds`` the sum of the times from their arrival at the engine to their
    first token. Both are 0 where they were not asked for. ``at`` is in seconds since the epoch.

    All numbers but ``prompt_tokens`` only grow, until the engine starts anew. Versions of vLLM that do not have
    ``prompt_tokens_cached`` yet count a cache hit when the prompt begins, and the prompt when it ends. There
    ``prompt_tokens`` may fall a little, and below zero. vLLM (0.10.1 and 0.28.0 were measured) counts a request whose
    client went away neither in ``finished`` nor in ``aborted`` nor in ``answers``, but in ``prompts`` and
    ``prompt_tokens`` if its first token came. docs/metrics.md has the sources.
    """

    at: float
    finished: float
    aborted: float
    prompt_tokens: float
    prompts: float
    answer_tokens: float
    answers: float
    gap_seconds: float
    gaps: float
    refused: float = 0.0
    prefill_seconds: float = 0.0
    first_seconds: float = 0.0


class ReplicaMetrics(Struct, frozen=True, gc=False):
    """What one Ready pod reports.

    ``kv_usage`` is the used share of the KV cache (0 to 1, vllm:kv_cache_usage_perc), ``queue_length`` the requests
    waiting (vllm:num_requests_waiting); both are the highest value of the last minute over the pod's engines.
    ``engine`` is None when no analyzer of its model asks for more, ``ready_since`` when it is not known. ``counters``
    are None when no analyzer of its model asks for them, and when they cannot be believed: ``counters_detail`` says
    why. With them come ``created``, when the pod was created, and at least those fields of ``engine`` that tell the KV
    cache and the running and waiting requests, of the same scrape. ``scrape_seconds`` is the time between two scrapes
    of the pod, None if it is not known.
    ``dormant``: all its engines sleep (vllm:engine_sleep_state), so it serves nothing. ``namesakes`` says in words why
    its model may get the load of another one, empty if nothing shows that.
    """

    pod: str
    variant: VariantKey
    kv_usage: Sample = MISSING
    queue_length: Sample = MISSING
    engine: EngineSignals | None = None
    ready_since: float | None = None
    counters: EngineCounters | None = None
    created: float | None = None
    counters_detail: str = ""
    scrape_seconds: float | None = None
    dormant: bool = False
    namesakes: str = ""

    @property
    def tokens_in_use(self) -> Sample:
        """Tokens in the KV cache: the used share of its size, rounded half up, in the poorer state of the two."""
        size = MISSING if self.engine is None else self.engine.kv_capacity_tokens
        for part in (self.kv_usage, size):
            if part.value is None:
                return part
        product = (self.kv_usage.value or 0.0) * (size.value or 0.0)
        older = self.kv_usage if self.kv_usage.state is SampleState.STALE else size
        whole = math.floor(product)
        return Sample(older.state, float(whole + (product - whole >= _HALF)), older.timestamp, older.detail)

    @property
    def start_seconds(self) -> float | None:
        """How long the pod took to become Ready; None if that is not known.

        Kubernetes gives times in whole seconds. No engine starts within one second, so if a pod seems to have done so,
        its time is not known.
        """
        if self.ready_since is None or self.created is None or self.ready_since <= self.created:
            return None
        return self.ready_since - self.created

    @property
    def complete(self) -> bool:
        """Whether both signals are fresh."""
        return self.kv_usage.state is SampleState.FRESH and self.queue_length.state is SampleState.FRESH

    @property
    def reports(self) -> bool:
        """Whether at least one signal is fresh."""
        return SampleState.FRESH in {self.kv_usage.state, self.queue_length.state}


class Coverage(Struct, frozen=True, gc=False):
    """Replicas with fresh samples of both signals, and replicas expected to report."""

    fresh: int
    expected: int

    @property
    def complete(self) -> bool:
        """Whether every replica that should report does; never true without replicas."""
        return self.expected > 0 and self.fresh >= self.expected
