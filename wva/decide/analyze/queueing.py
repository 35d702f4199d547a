"""The queueing analyzer: what arrives at a model, against what its replicas take within the targets.

``analyze_queueing`` judges all models at once, because numpy evaluates all their replicas at once: one opinion per
model and what was learned for the next cycle. It is the door to the model-based optimizer; importing it imports numpy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from wva.decide.amounts import bounded_policy
from wva.decide.analyze.queueing_case import ModelCase
from wva.decide.analyze.queueing_opinion import opinion_of
from wva.decide.analyze.queueing_parameters import learn
from wva.decide.analyze.queueing_readings import ModelReading, QueueingInputs, read_model
from wva.decide.queueing.fleet import UNLIMITED, Fleet, plan
from wva.decide.queueing.service import Queue
from wva.decide.queueing.sizing import perform, size
from wva.model.policy import Policy, QueueingPolicy
from wva.model.queueing import ModelOpinion, Plan, QueueingMemory

__all__ = ["QueueingInputs", "analyze_queueing"]


def analyze_queueing(
    models: Sequence[QueueingInputs],
    *,
    policy: Policy,
    memory: QueueingMemory,
    now: float,
    fleet: Fleet = UNLIMITED,
) -> tuple[tuple[ModelOpinion, ...], QueueingMemory]:
    """Return an opinion per model, in their order, and what the next cycle must know.

    ``now`` is in seconds since the epoch; ``fleet`` says which GPUs count.
    """
    readings = [_read(inputs, memory, now) for inputs in models]
    settings = [bounded_policy(policy.queueing_for(inputs.key) or QueueingPolicy()) for inputs in models]
    learned = learn(readings, settings, policy=policy, memory=memory, now=now)
    backlogs = [reading.backlog for reading in readings if reading.backlog is not None]
    kept = memory.updated(backlogs, learned, now=now)
    cases = [
        ModelCase.of(inputs, reading, settings=setting, policy=policy, memory=kept)
        for inputs, reading, setting in zip(models, readings, settings, strict=True)
    ]
    queues = [queue for case in cases for queue in case.queues]
    sizings = iter(size(queues, [case.target for case in cases for _ in case.queues]))
    verdicts = [case.judge([next(sizings) for _ in case.queues]) for case in cases]
    needs = [case.need(verdict) for case, verdict in zip(cases, verdicts, strict=True)]
    drafts = [
        opinion_of(case, verdict, need=need, grant=grant)
        for case, verdict, need, grant in zip(cases, verdicts, needs, plan(needs, fleet), strict=True)
    ]
    return _planned(cases, drafts), kept


def _read(inputs: QueueingInputs, memory: QueueingMemory, now: float) -> ModelReading:
    reports = sorted(inputs.reports, key=lambda report: report.progress.variant.key)
    return read_model(inputs.key, reports, queue=inputs.queue, before=memory.backlog(inputs.key), now=now)


def _planned(cases: Sequence[ModelCase], drafts: Sequence[ModelOpinion]) -> tuple[ModelOpinion, ...]:
    """Add to every number what its replicas would do at the present load, all evaluated together."""
    rows = [
        (row, position, queue, _share(draft, position))
        for row, (case, draft) in enumerate(zip(cases, drafts, strict=True))
        for position, queue in _positions(case, draft)
    ]
    done = perform([queue for _, _, queue, _ in rows], [share / replicas for _, _, _, (share, replicas) in rows])
    variants = [list(draft.variants) for draft in drafts]
    for (row, position, queue, (share, replicas)), performance in zip(rows, done, strict=True):
        if performance is None:
            continue
        opinion, capacity = variants[row][position], drafts[row].capacity.variants[position]
        variants[row][position] = replace(
            opinion,
            plan=Plan(
                replicas,
                queue.max_batch,
                cost=capacity.cost * replicas,
                value=capacity.cost * (replicas - capacity.ready - capacity.pending),
                itl=performance.itl,
                wait=performance.wait,
                ttft=performance.ttft,
                busy=performance.busy,
                max_rpm=(opinion.rate or 0.0) * 60,
                per_minute=share * 60,
            ),
        )
    return tuple(replace(draft, variants=tuple(own)) for draft, own in zip(drafts, variants, strict=True))


def _positions(case: ModelCase, draft: ModelOpinion) -> list[tuple[int, Queue]]:
    queues = dict(zip(case.known, case.queues, strict=True))
    return [(at, queues[each.key]) for at, each in enumerate(draft.variants) if each.desired and each.key in queues]


def _share(draft: ModelOpinion, position: int) -> tuple[float, int]:
    """Return the requests per second that a variant would carry, as its share of the capacity, and its replicas."""
    wanted = {each.key: (each.desired or 0) * (each.rate or 0.0) for each in draft.variants}
    total = math.fsum(wanted.values())
    own = draft.variants[position]
    return draft.capacity.demand * wanted[own.key] / total if total else 0.0, own.desired or 0
