"""What a policy sees of the stage, and what it may do there.

A policy is a list of controllers. Each is called at its own period, out of step with the scrapes and with each other,
as in a cluster. It sees what Prometheus has scraped and what the API server says about pods, never the requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from wva.sim.stage.gpus import GpuPools


class ScrapedSignal(IntEnum):
    """The values of a scrape of a replica: gauges first, then counters, which start at 0 with the pod."""

    RUNNING = 0
    """vllm:num_requests_running"""
    WAITING = 1
    """vllm:num_requests_waiting"""
    KV_USAGE = 2
    """vllm:kv_cache_usage_perc, 0 to 1."""
    SUCCESS = 3
    """vllm:request_success_total, of all reasons."""
    PROMPT_TOKENS = 4
    GENERATION_TOKENS = 5
    PREFIX_QUERIES = 6
    PREFIX_HITS = 7
    PREEMPTIONS = 8
    TTFT_SUM = 9
    TTFT_COUNT = 10
    ITL_SUM = 11
    ITL_COUNT = 12
    REQUEST_PROMPT_SUM = 13
    """vllm:request_prompt_tokens_sum: prompt tokens of finished requests."""
    REQUEST_PROMPT_COUNT = 14
    REQUEST_GENERATION_SUM = 15
    REQUEST_GENERATION_COUNT = 16
    PREFILL_SECONDS = 17
    """vllm:request_prefill_time_seconds_sum"""
    TRANSFERRED = 18
    """vllm:prompt_tokens_by_source_total of the source external_kv_transfer."""
    FIRST_IN_TIME = 19
    """vllm:time_to_first_token_seconds_bucket, at the bound that the objective is judged at."""
    BETWEEN_IN_TIME = 20
    """vllm:request_time_per_output_token_seconds_bucket, in the same way."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """One scrape of one replica: its time in virtual seconds, and a value for each ``ScrapedSignal``.

    A scrape without values has failed. Then Prometheus shows no series of the pod until the next scrape succeeds;
    functions over a time range skip the failed one.
    """

    at_seconds: float
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class StagePodView:
    """A pod as the API server shows it. ``ready_since`` is None until it is Ready; ``placed``: it has a node."""

    name: str
    created_seconds: float
    ready_since: float | None
    placed: bool = True

    @property
    def ready(self) -> bool:
        """Whether it serves."""
        return self.ready_since is not None


@dataclass(frozen=True, slots=True)
class VariantView:
    """A variant as its objects describe it. ``price`` is per replica and hour; ``maximum`` bounds ``replicas``."""

    name: str
    accelerator: str
    price: float
    minimum: int
    maximum: int
    max_num_seqs: int
    kv_cache_tokens: int
    replicas: int
    """spec.replicas: what was asked for last."""
    pods: tuple[StagePodView, ...]
    """Those that exist and are not being terminated, oldest first."""
    gpus: int = 1
    """GPUs of each replica."""
    role: str = ""
    """What its pods compute of a request: the label of their template."""


class StageView(Protocol):
    """The world as a controller sees it: one model, and beside it the others of its cluster."""

    @property
    def models(self) -> Sequence[StageView]:
        """The models of the cluster, this one first."""
        ...

    @property
    def pools(self) -> GpuPools:
        """The GPUs of the cluster."""
        ...

    @property
    def variants(self) -> Mapping[str, VariantView]:
        """The variants by name, in the scenario's order."""
        ...

    def scrapes(self, pod: str) -> Sequence[Scrape]:
        """Return what was scraped of a pod in the last ten minutes, oldest first.

        For a pod that has ended it is the last ten minutes of its life.
        """
        ...

    def in_flight(self, pod: str) -> int:
        """Return the requests in a Ready pod at this moment, as a proxy beside it counts them."""
        ...

    def backlog(self, pod: str) -> int:
        """Return the tokens of prompts that the picker has sent to a Ready pod for prefill, and that wait there."""
        ...

    def gateway_queue(self) -> float | None:
        """Return the requests that wait at the gateway, as scraped last; None when no scrape has succeeded."""
        ...

    def gateway_waiting(self) -> int:
        """Return the requests that wait at the gateway at this moment, as its own page says."""
        ...

    def ask(self, variant: str, replicas: int) -> None:
        """Note that a policy asks for so many replicas, which another controller will set."""
        ...

    def scale(self, variant: str, replicas: int) -> None:
        """Set spec.replicas of a variant. Takes any number of at least 0; bounds are the caller's business."""
        ...


def stage_of(stage: StageView, variant: str) -> StageView:
    """Return the stage of the model that a variant serves."""
    return next(model for model in stage.models if variant in model.variants)


class StageController(Protocol):
    """Something that looks at the stage now and then, and acts.

    A controller that only carries out what another one asks for has ``decides = False``. One that looks at all models
    of the cluster has ``joint = True``.
    """

    @property
    def period_seconds(self) -> float:
        """Time between two calls."""
        ...

    def act(self, stage: StageView, now_seconds: float) -> None:
        """Look and act, at ``now_seconds`` of virtual time."""
        ...
