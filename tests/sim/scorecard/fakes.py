"""Runs that a formula makes up quickly, for tests of sums and plots. Other processes import this module by its name."""

from __future__ import annotations

import os
from functools import partial
from math import pi, sin

import numpy as np

from wva.sim.fleet.parameters import PRESETS
from wva.sim.stage.late import CAUSES
from wva.sim.stage.result import Figures, RunResult, StageTimeline, TimelineOfVariant
from wva.sim.stage.scenario import Scenario, VariantSetup
from wva.sim.traffic.requests import Traffic

SKILL = {"wva": 0.02, "hpa-kv": 0.05, "static-peak": 0.0, "keda-prometheus": 0.2, "clairvoyant": 0.0}
"""Share of late requests of a policy."""
COST = {"wva": 1.1, "hpa-kv": 1.25, "static-peak": 1.6, "keda-prometheus": 0.95, "clairvoyant": 1.02}
"""Cost of a policy relative to the ideal."""
MEMBERS = {f"hpa-inflight@{target}": target for target in (4, 8, 16)}
"""The members of a family. A higher target costs less, and more requests are late."""


def requests_of(seed, *, count=40, seconds=600.0):
    """Return traffic that differs by seed."""
    rng = np.random.default_rng(seed)
    whole = np.full(count, 10, dtype=np.int64)
    return Traffic(
        duration_seconds=seconds,
        arrival_seconds=np.sort(rng.uniform(0, seconds, count)),
        prompt_tokens=whole,
        output_tokens=whole,
        group=whole * 0 - 1,
        prefix_tokens=whole * 0,
        shared_tokens=whole * 0,
        draw=rng.uniform(0, 1, count),
    )


def scenario(name="waves", *, count=40, title="Load that comes in waves"):
    """Return a scenario of two variants."""
    variants = (
        VariantSetup("llama-a100", "A100", PRESETS["A100"], 20.0),
        VariantSetup("llama-h100", "H100", PRESETS["H100"], 40.0),
    )
    return Scenario(name, title, "waves", variants, partial(requests_of, count=count))


def run(of, policy, seed):
    """Return a run that a formula makes up for a policy and a seed."""
    rng = np.random.default_rng(abs(seed) * 1000 + sum(policy.encode()) + sum(of.name.encode()))
    noise = float(rng.uniform(-0.005, 0.005))
    target = MEMBERS.get(policy)
    late = SKILL.get(policy, 0.0 if target is None else target / 200) + max(0.0, noise)
    ratio = COST.get(policy, 1.0) if target is None else 1.5 - target / 40
    ratio += noise
    requests = 10_000
    missed = round(late * requests)
    traffic = of.traffic(seed)
    ideal = 100.0 * traffic.duration_seconds / 600.0
    shares = dict(zip(CAUSES, (0.1, 0.4, 0.1, 0.0, 0.2, 0.0, 0.1, 0.0, 0.0), strict=True))
    figures = Figures(
        requests=requests,
        served=requests - missed // 10,
        timed_out=missed // 10,
        refused=0,
        broken=0,
        retried=missed // 5,
        ttft_attainment=1 - 0.9 * missed / requests,
        itl_attainment=1 - 0.2 * missed / requests,
        attainment=1 - missed / requests,
        ttft_p50_seconds=0.2,
        ttft_p99_seconds=0.9 + 10 * late,
        itl_p50_seconds=0.03,
        goodput_per_second=(requests - missed) / traffic.duration_seconds,
        replica_hours={"llama-a100": 3.0 * ratio, "llama-h100": ratio},
        gpu_hours=4.0 * ratio,
        cost=ideal * ratio,
        ideal_cost=ideal,
        most_asked=300.0 * ratio,
        most_needed=200.0,
        causal_bound=0.97,
        mean_replicas=6.0 * ratio,
        peak_replicas=round(10 * ratio),
        reversals=round(6 * ratio),
        scale_ups=12,
        scale_downs=11,
        late_by_cause={cause: round(missed * share) for cause, share in shares.items()},
        late_tokens_by_cause={"slow pod": round(missed * 0.1)},
        seconds_to_capacity=(120.0 + 1000 * late, 140.0),
    )
    return RunResult(of.name, policy, seed, figures, _timeline(traffic.duration_seconds, ratio, late))


def _timeline(seconds, ratio, late):
    step = 10.0
    times = [step * index for index in range(int(seconds / step) + 1)]
    wave = [1 + 0.8 * sin(2 * pi * at / seconds * 2) for at in times]
    ideal = [5 * value for value in wave]
    cheap = [max(1, round(3 * value * ratio)) for value in wave]
    dear = [max(0, round(2 * value * ratio - 1)) for value in wave]
    variants = tuple(
        TimelineOfVariant(
            name, price, asked=tuple(counts), existing=tuple(counts), ready=(*counts[:1] * 3, *counts[:-3])
        )
        for name, price, counts in (("llama-a100", 20.0, cheap), ("llama-h100", 40.0, dear))
    )
    return StageTimeline(
        step_seconds=step,
        offered_per_second=tuple(14 * value for value in wave),
        late_share=tuple(None if index == 0 else min(1.0, late * value) for index, value in enumerate(wave)),
        waiting=tuple(round(20 * late * value) for value in wave),
        ideal_replicas=tuple(ideal),
        variants=variants,
    )


def broken_run(of, policy, seed):
    """Return a run, or fail as a policy with a bug would."""
    if policy == "hpa-kv" and seed == 1:
        raise RuntimeError("a bug")
    return run(of, policy, seed)


def killed_run(of, policy, seed):
    """Return a run, or end the process that makes it."""
    if policy == "hpa-kv" and seed == 1:
        os._exit(9)
    return run(of, policy, seed)


def no_run(of, policy, seed):
    """Fail: a test calls this only if a result that should exist is missing."""
    raise AssertionError(f"made again: {of.name} {policy} {seed}")


def interrupted_run(of, policy, seed):
    """Return a run, or raise KeyboardInterrupt, as if a person had interrupted the command."""
    if policy == "hpa-kv":
        raise KeyboardInterrupt
    return run(of, policy, seed)
