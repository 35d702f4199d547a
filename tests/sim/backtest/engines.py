"""The history of a model with known engines, in an embedded Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from wva.sim.fleet.parameters import EngineParameters
from wva.sim.prometheus.tsdb import NAME, Tsdb

START = 1_767_225_600.0
SCRAPE_SECONDS = 15
NAMESPACE = "prod"
MODEL = 'acme/chat "13b"'
PROMPT, ANSWER = 900.0, 300.0


@dataclass(frozen=True)
class EngineLoad:
    """What an engine does at one time: requests per second and running, step time, first token, KV usage."""

    rate: float
    running: float
    step: float
    first: float
    kv_usage: float


def load(parameters: EngineParameters, rate: float) -> EngineLoad:
    """Return the steady state of an engine under a rate, in which running requests and step time fit each other."""
    running, resident = 0.0, PROMPT + 0.75 * ANSWER
    for _ in range(200):
        kv = running * resident
        decode = (
            parameters.alpha_seconds
            + parameters.beta_seconds_per_sequence * running
            + parameters.kv_read_seconds_per_token * kv
        )
        step = decode / (1 - parameters.prefill_seconds_per_token * PROMPT * rate)
        running = rate * ANSWER * step
    prefill = decode + parameters.prefill_seconds_per_token * PROMPT
    share = min(rate * prefill, 1.0)
    first = (share * prefill + (1 - share) * decode) / 2 + prefill
    return EngineLoad(rate, running, step, first, running * resident / parameters.kv_cache_tokens)


def rates(minutes: int) -> np.ndarray:
    """Return requests per second of a pod, minute by minute: up and down again."""
    return 0.3 + 2.7 * np.sin(np.linspace(0, np.pi, minutes)) ** 2


def write(tsdb: Tsdb, engines: dict[str, EngineParameters], *, minutes: int) -> None:
    """Write the reports of these pods over so many minutes from START, and the metrics of the controller."""
    for number, (pod, parameters) in enumerate(engines.items()):
        counters: dict[str, float] = {}
        for minute, rate in enumerate(rates(minutes)):
            state = load(parameters, float(rate) * (1 + 0.3 * number))
            for second in range(0, 60, SCRAPE_SECONDS):
                at = START + 60 * minute + second
                for labels, value in _page(pod, parameters, state, counters):
                    tsdb.append(labels, at, value)
    for at in np.arange(START, START + 60 * minutes, SCRAPE_SECONDS):
        for pod in engines:
            variant = {"variant_name": pod.rsplit("-", 2)[0], "exported_namespace": NAMESPACE, "namespace": "wva"}
            for name, value in (
                ("wva_current_replicas", 1.0),
                ("wva_desired_replicas", 1.0),
                ("wva_variant_cost", 7.0),
                ("wva_maximum_replicas", 6.0),
            ):
                more = {"accelerator_type": "H100"} if name.endswith("rent_replicas") else {}
                tsdb.append({NAME: name, **variant, **more}, float(at), value)
        tsdb.append({NAME: "wva_cycle_interval_seconds"}, float(at), 45.0)


def _page(
    pod: str, parameters: EngineParameters, state: EngineLoad, counters: dict[str, float]
) -> Iterator[tuple[dict[str, str], float]]:
    own = {"namespace": NAMESPACE, "pod": pod, "engine": "0"}
    model = own | {"model_name": MODEL}
    requests = state.rate * SCRAPE_SECONDS
    tokens = requests * ANSWER
    growth = {
        "vllm:request_prompt_tokens_sum": requests * PROMPT,
        "vllm:request_prompt_tokens_count": requests,
        "vllm:request_generation_tokens_sum": tokens,
        "vllm:request_generation_tokens_count": requests,
        "vllm:time_to_first_token_seconds_sum": requests * state.first,
        "vllm:time_to_first_token_seconds_count": requests,
        "vllm:inter_token_latency_seconds_sum": tokens * state.step,
        "vllm:inter_token_latency_seconds_count": tokens,
        "vllm:generation_tokens_total": tokens,
    }
    for name, more in growth.items():
        counters[name] = counters.get(name, 0.0) + more
        yield {NAME: name, **model}, counters[name]
    for name, mean in (("request_prompt_tokens", PROMPT), ("request_generation_tokens", ANSWER)):
        for bound in (mean / 2, mean * 2, float("inf")):
            text = "+Inf" if bound == float("inf") else f"{bound:g}"
            share = 0.1 if bound < mean else 1.0
            yield (
                {NAME: f"vllm:{name}_bucket", "le": text, **model},
                counters[f"vllm:{name}_count"] * share,
            )
    for bound, share in (("0.05", 0.0), ("1.0", 0.9), ("+Inf", 1.0)):
        count = counters["vllm:time_to_first_token_seconds_count"]
        yield {NAME: "vllm:time_to_first_token_seconds_bucket", "le": bound, **model}, count * share
    counters["success"] = counters.get("success", 0.0) + requests
    yield {NAME: "vllm:request_success_total", "finished_reason": "stop", **model}, counters["success"]
    yield {NAME: "vllm:num_requests_running", **model}, state.running
    yield {NAME: "vllm:num_requests_waiting", **model}, 0.0
    yield {NAME: "vllm:kv_cache_usage_perc", **model}, state.kv_usage
    cache = {"num_gpu_blocks": str(parameters.num_gpu_blocks), "block_size": str(parameters.block_size)}
    yield {NAME: "vllm:cache_config_info", **own, **cache}, 1.0
