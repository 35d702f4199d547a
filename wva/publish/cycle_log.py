"""Logs at level debug what a cycle read, believed, foresaw, allocated and settled, with one line for each model.

The lines are bounded: ``MOST_MODELS`` models, first those whose numbers change, and ``MOST_OF_A_MODEL`` pods and
variants of each.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Final

from structlog.typing import FilteringBoundLogger

from wva.decide.failed import Outcome
from wva.hindsight.cycle import Cycle
from wva.model.decision import Decision
from wva.model.memory import Foresight
from wva.model.metrics import ReplicaMetrics, Sample
from wva.model.variant import ModelKey, VariantKey
from wva.publish.solution import solution

MOST_MODELS: Final = 50
MOST_OF_A_MODEL: Final = 8
"""Pods that are read, and variants."""


def log_models(logger: FilteringBoundLogger, cycle: Cycle) -> None:
    """Write a line for each model that the cycle decided on, at debug.

    One more line has the solution of the queueing formulas, where a model was sized by them.
    """
    if not logger.is_enabled_for(logging.DEBUG):
        return
    snapshot, outcome, now = cycle.recording.snapshot, cycle.outcome, cycle.recording.now
    decided: dict[ModelKey, list[Decision]] = {}
    for decision in outcome.decisions:
        decided.setdefault(decision.model, []).append(decision)
    pods: dict[VariantKey, list[ReplicaMetrics]] = {}
    for replica in snapshot.replicas:
        pods.setdefault(replica.variant, []).append(replica)
    foreseen: dict[ModelKey, list[Foresight]] = {}
    for entry in outcome.memory.foreseen:
        foreseen.setdefault(entry.key.whole, []).append(entry)
    order = sorted(decided, key=lambda model: (not _changes(decided[model]), model))
    for model in order[:MOST_MODELS]:
        decisions = decided[model]
        logger.debug(
            "model_decided",
            model=model.model_id,
            namespace=model.namespace,
            read=_few([_read(pod, now) for decision in decisions for pod in pods.get(decision.key, ())]),
            believed=_few([f"{decision.key.name}: {decision.metrics.message}" for decision in decisions]),
            foresaw=[*_foresaw(model, outcome, foreseen.get(model, ()), now)],
            allocated=_few([f"{decision.key.name}: {decision.way or decision.message}" for decision in decisions]),
            settled=_few([_settled(decision, outcome) for decision in decisions]),
        )
    if lines := solution(cycle):
        logger.debug("optimization_solution", solution=lines)
    if order[MOST_MODELS:]:
        logger.debug("models_left_out", count=len(order) - MOST_MODELS)


def _changes(decisions: Sequence[Decision]) -> bool:
    return any(decision.previous is not None and decision.desired != decision.previous for decision in decisions)


def _few(lines: list[str]) -> list[str]:
    left_out = len(lines) - MOST_OF_A_MODEL
    return lines if left_out <= 0 else [*lines[:MOST_OF_A_MODEL], f"and {left_out} more"]


def _read(pod: ReplicaMetrics, now: float) -> str:
    signals = [f"KV {_shown(pod.kv_usage, now)}", f"queue {_shown(pod.queue_length, now)}"]
    if pod.counters is not None:
        signals.append(f"{pod.counters.finished:g} requests finished ({now - pod.counters.at:.0f} s old)")
    elif pod.counters_detail:
        signals.append(pod.counters_detail)
    return f"{pod.pod}: {', '.join([*signals, *(['asleep'] if pod.dormant else [])])}"


def _shown(sample: Sample, now: float) -> str:
    if sample.value is None:
        return f"{sample.state.value}{f' ({sample.detail})' if sample.detail else ''}"
    age = "" if sample.timestamp is None else f", {now - sample.timestamp:.0f} s old"
    return f"{sample.value:.4g} ({sample.state.value}{age})"


def _foresaw(model: ModelKey, outcome: Outcome, foreseen: Sequence[Foresight], now: float) -> Iterator[str]:
    load, ceiling = outcome.loads.get(model), outcome.ceilings.get(model)
    if load is not None:
        yield (
            f"{load.demand:.4g} requests/s needed (standard error {load.error:.2g}); replicas carry {load.serving:.4g} "
            f"now, {load.desired:.4g} with the new numbers"
        )
    if ceiling is not None:
        yield f"more than {ceiling:.4g} requests in progress begin the next cycle at once"
    for entry in foreseen:
        for at, demand in entry.reserved[-1:]:
            yield entry.key.with_role(f"{demand:.4g} requests/s to be ready for, of {now - at:.0f} s ago")


def _settled(decision: Decision, outcome: Outcome) -> str:
    rule = outcome.rules.get(decision.key)
    by = f" by the rule {rule.name.lower()}" if rule is not None else ""
    return f"{decision.key.name}: {decision.previous} -> {decision.desired} ({decision.reason.value}){by}"
