"""The planner of ai-dynamo 1.6.1, without a cluster: its own predictors and its own sizing, one JSON line per tick.

Runs with the Python of the environment that ``bench.rivals`` makes, which has none of WVA. A line on stdin with the
engine, the objectives and the bounds begins anew; each further line has what the planner's providers would have
collected. Each answer has the replicas that it sets, or null where it changes nothing.

What the planner asks its performance model, the time of a forward pass, is computed here by the formula of the
simulated engine: a profile without an error. That model is a part of ``aisimulate``, which has no wheel, so this stands
in for it.
"""
# ruff: noqa: PLC0415 - the planner can be imported only once the stand-in is there

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

ENGINE: dict[str, float] = {}


class EngineProfile:
    """The performance model that the planner asks. It knows the engine, so that it has nothing to learn."""

    @classmethod
    def best_available(cls, config: dict[str, Any]) -> EngineProfile:
        """Return the model of the engine that was told last."""
        del config
        return cls()

    def tune_with_fpms(self, iterations: list[Any]) -> None:
        """Learn nothing."""

    def diagnostics(self) -> dict[str, Any]:
        """Tell that it can be asked."""
        return {"source": "simulated engine", "readiness": "ready", "retained_observations": 0}

    def estimate_forward_pass_time_ms(self, by_rank: list[dict[str, Any]]) -> float:
        """Return how long a step takes: the slowest rank's."""
        return max(1000.0 * self._seconds(rank["scheduled_requests"]) for rank in by_rank)

    @staticmethod
    def _seconds(scheduled: dict[str, Any]) -> float:
        prompts, decoding = scheduled["sum_prefill_tokens"], scheduled["num_decode_requests"]
        if not prompts and not decoding:
            return 0.0
        requests = max(1, scheduled["num_prefill_requests"])
        pairs = prompts * (prompts / requests / 2)  # each token attends to half of its prompt on average
        return (
            ENGINE["alpha_seconds"]
            + ENGINE["beta_seconds_per_sequence"] * (decoding + scheduled["num_prefill_requests"])
            + ENGINE["prefill_seconds_per_token"] * prompts
            + ENGINE["kv_read_seconds_per_token"] * scheduled["sum_decode_kv_tokens"]
            + ENGINE["attention_seconds_per_token_pair"] * pairs
        )


@dataclass
class ForwardPassPerfModelConfig:
    """The configuration of that model, with the fields that the planner sets."""

    model: str
    system: str
    backend: str
    worker_type: str
    estimation_mode: str
    tp: int = 1
    pp: int = 1
    estimator_config: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_legacy_engine_config(cls, *_: Any) -> SimpleNamespace:
        """Return an empty set of controls: the model has none."""
        return SimpleNamespace(estimator_config={})


def main() -> None:
    """Answer every line."""
    sdk = ModuleType("aisimulate_core.sdk")
    sdk.RustForwardPassPerfModel = EngineProfile
    sdk.ForwardPassPerfModelConfig = ForwardPassPerfModelConfig
    sys.modules |= {"aisimulate_core": ModuleType("aisimulate_core"), "aisimulate_core.sdk": sdk}
    answers, sys.stdout = sys.stdout, sys.stderr  # what the planner prints is no answer
    planner, replicas = None, None
    for line in sys.stdin:
        seen = json.loads(line)
        if planner is None or "engine" in seen:
            ENGINE.update(seen["engine"])
            planner, replicas = Planner(seen), None
        else:
            replicas = asyncio.run(planner.tick(seen))
        print(json.dumps({"replicas": replicas}), file=answers, flush=True)


class Planner:
    """The two built-in plugins of the planner that size by throughput, in their order."""

    def __init__(self, about: dict[str, Any]) -> None:
        """Build them from the planner's defaults, for one pool of whole replicas and these objectives."""
        from dynamo.planner.config.planner_config import PlannerConfig
        from dynamo.planner.core.state_machine import PlannerScalingState
        from dynamo.planner.core.types import EngineCapabilities, WorkerCapabilities
        from dynamo.planner.plugins.builtins.local_planner import BuiltinLoadPredict, BuiltinThroughputPropose

        engine = about["engine"]
        config = PlannerConfig(
            mode="agg",
            optimization_target="sla",
            environment="virtual",
            enable_throughput_scaling=True,
            enable_load_scaling=False,
            ttft_ms=about["ttft_ms"],
            itl_ms=about["itl_ms"],
            max_gpu_budget=-1,
            min_endpoint=about["minimum"],
            model_name="simulated",
        )
        capabilities = WorkerCapabilities(
            decode=EngineCapabilities(
                num_gpu=about["gpus"],
                max_num_batched_tokens=engine["max_num_batched_tokens"],
                max_num_seqs=engine["max_num_seqs"],
                max_kv_tokens=engine["num_gpu_blocks"] * engine["block_size"],
                context_length=engine["max_model_len"],
            )
        )
        self._state = PlannerScalingState(config, capabilities)
        self._predict = BuiltinLoadPredict(config, capabilities)
        self._propose = BuiltinThroughputPropose(config, self._state)

    async def tick(self, seen: dict[str, Any]) -> int | None:
        """Return the replicas that the planner sets now."""
        from dynamo.planner.core.types import WorkerCounts
        from dynamo.planner.plugins import types

        self._state.begin_tick()
        ready, expected = seen["ready"], seen["expected"]
        self._state.observe_worker_counts(
            WorkerCounts(
                ready_num_decode=ready,
                expected_num_decode=expected,
                decode_scaling_in_progress=ready != expected,
                pending_num_decode=max(0, expected - ready),
            )
        )
        traffic = types.TrafficMetrics(**seen["traffic"])
        context = types.PipelineContext(observations=types.ObservationData(traffic=traffic))
        predicted = await self._predict.Predict(types.PredictStageRequest(context=context))
        context = types.PipelineContext(
            observations=types.ObservationData(traffic=traffic), predictions=predicted.predictions
        )
        proposed = await self._propose.Propose(types.ProposeStageRequest(context=context))
        targets = [] if proposed.override is None else proposed.override.targets
        return targets[0].replicas if targets else None


if __name__ == "__main__":
    main()
