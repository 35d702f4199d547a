"""Prints how long deciding takes: ``python -m bench.cycle 5000 2 10`` for 5,000 models of 2 variants of 10 replicas.

The numbers are CPU seconds of each cycle, garbage collection included as it comes. Samples change from cycle to cycle.
It uses nothing that 0.6.0 did not have, so that it can time that release, too.
"""

from __future__ import annotations

import sys
from random import Random

from bench.paired import cpu_seconds
from wva.decide.pipeline import decide
from wva.model.memory import Memory
from wva.model.metrics import ReplicaMetrics, Sample, SampleState
from wva.model.optimizers import Analyzer
from wva.model.policy import Policy, SaturationPolicy
from wva.model.snapshot import Snapshot
from wva.model.variant import ModelKey, Variant, VariantKey

NOW = 1_767_225_600.0
INTERVAL_SECONDS = 15.0
CYCLES = 4
POLICY = Policy(saturation=SaturationPolicy(analyzer_name=Analyzer.PERCENTAGE))
"""The analyzer that both releases have."""
ACCELERATORS = ("a100", "h100", "l40s", "mi300")


def fleet(models: int, kinds: int, replicas: int) -> list[Variant]:
    """Return the variants of models in fifty namespaces, each with as many replicas as it was asked for."""
    found = []
    for number in range(models):
        model = ModelKey(f"team-{number % 50:02}", f"org/model-{number:05}")
        for place, name in enumerate(ACCELERATORS[:kinds], start=1):
            key = VariantKey(model.namespace, f"model-{number:05}-{name}")
            variant = Variant(
                *(key, model, key.name, name, 20.0 * place, replicas),
                current_replicas=replicas,
                ready_replicas=replicas,
                status_desired=replicas,
            )
            found.append(variant)
    return found


def seen(variants: list[Variant], cycle: int) -> Snapshot:
    """Return the snapshot of a cycle: the replicas are busy, and none of them is saturated."""
    chance, now, pods = Random(cycle), NOW + INTERVAL_SECONDS * cycle, []  # noqa: S311 - no secret
    for variant in variants:
        for number in range(variant.current_replicas):
            at = now - 5.0 + chance.random()
            usage = Sample(SampleState.FRESH, 0.58 + 0.06 * chance.random(), at)
            queue = Sample(SampleState.FRESH, 1.0, at)
            name = f"{variant.key.name}-7f9c-{number}"
            pods.append(ReplicaMetrics(name, variant.key, usage, queue, ready_since=NOW - 4000.0))
    return Snapshot.of(variants, pods)


def seconds(models: int, kinds: int, replicas: int) -> list[float]:
    """Return the CPU seconds of each cycle."""
    variants, memory, found = fleet(models, kinds, replicas), [Memory()], []
    for cycle in range(CYCLES):
        snapshot, now = seen(variants, cycle), NOW + INTERVAL_SECONDS * cycle
        found.append(cpu_seconds(lambda: memory.append(decide(snapshot, memory.pop(), POLICY, now)[1])))  # noqa: B023
    return found


if __name__ == "__main__":
    print(*seconds(*map(int, sys.argv[1:])))
