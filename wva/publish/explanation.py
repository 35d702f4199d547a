"""Why a variant has its number: one document about one decision, from the recording of its cycle.

It has the steps from the demand to the limits, the samples with their age and state, what was ignored and why, who
limited the number, what the other variants of the model got, and the nearest flips. ``wva explain`` prints it, and the
controller serves it as JSON. Everything in it comes from the recording, so it can be made again later and elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from wva.decide.flips import INTERVAL_SECONDS, Search, Situation, search
from wva.model.decision import Step
from wva.model.metrics import Sample, SampleState
from wva.model.optimizers import Analyzer
from wva.model.snapshot import Snapshot
from wva.model.variant import ModelKey, VariantKey
from wva.publish.recordings import Recording

_SIGNALS: Final = ("kv_usage", "queue_length")
"""The samples of every replica; those of ``engine`` follow."""
_DEFAULT_ANALYZER_NAME: Final = "percentage"


class ShownSample(Struct, frozen=True):
    """A sample that the decision stood on, or could not stand on.

    ``of`` is a pod, or the gateway. ``age_seconds`` is its age when the cycle began, None where it has no time.
    """

    of: str
    signal: str
    state: SampleState
    value: float | None = None
    age_seconds: float | None = None
    detail: str = ""


class Sibling(Struct, frozen=True):
    """Another variant of the model, with its number."""

    variant: str
    accelerator: str
    cost: float
    current: int
    desired: int
    reason: str
    role: str = ""


class Explanation(Struct, frozen=True):
    """One decision and what it stands on.

    ``at`` is the time of the cycle in seconds since the epoch. ``steps`` lead from the number before to the number;
    those with ``limited_by`` name who limited it. ``samples`` are fresh, ``ignored`` are all others, each with the
    reason in ``detail``. ``notes`` say what could not be read at all. ``changes`` are the smallest changes of an
    input that give another number; None where they were not asked for. ``objectives`` say what is planned for and who
    asked for it; empty if the analyzer has none. ``served`` says what the users of the model get now; it is in no
    recording, so it is empty but for the last cycle of a controller. ``role`` is what its pods compute of a request,
    empty if they do not say it.
    """

    variant: str
    model: str
    accelerator: str
    cost: float
    at: float
    desired: int
    current: int
    ready: int
    previous: int | None
    reason: str
    message: str
    source: str
    analyzer: str
    steps: tuple[Step, ...]
    samples: tuple[ShownSample, ...]
    ignored: tuple[ShownSample, ...]
    notes: tuple[str, ...]
    siblings: tuple[Sibling, ...]
    changes: Search | None
    objectives: str = ""
    served: str = ""
    role: str = ""


def explanation(
    recording: Recording,
    key: VariantKey,
    *,
    with_changes: bool = True,
    interval_seconds: float = INTERVAL_SECONDS,
) -> Explanation | None:
    """Return why a variant has its number; None when the cycle did not decide on it.

    ``with_changes`` decides again many times, which can take seconds. ``interval_seconds`` is the time between two
    cycles. A recording without decisions is decided on anew.
    """
    snapshot = recording.snapshot
    situation = Situation(snapshot, recording.memory, recording.policy, recording.now, interval_seconds)
    decisions = recording.decisions or situation.decisions()
    decision = next((each for each in decisions if each.key == key), None)
    if decision is None:
        return None
    model = decision.model
    shown = list(_samples(snapshot, model, recording.now))
    roles = {variant.key: variant.role for variant in snapshot.variants}

    policy = recording.policy
    if policy.compatibility is not None:
        analyzer = policy.compatibility.value
    else:
        chosen = policy.analyzer_for(model)
        analyzer = _DEFAULT_ANALYZER_NAME if chosen is Analyzer.PERCENTAGE else chosen.value

    notes = [failure.message for failure in snapshot.failures if model.namespace in failure.namespaces]
    notes += [entry.message for entry in snapshot.unread if entry.model == model]
    notes += [counts.detail for counts in snapshot.request_counts if counts.model == model and counts.detail]
    if snapshot.inventory_detail:
        notes.append(snapshot.inventory_detail)

    return Explanation(
        variant=str(key),
        model=str(model),
        accelerator=decision.accelerator,
        cost=decision.cost,
        at=recording.now,
        desired=decision.desired,
        current=decision.current,
        ready=sum(replica.variant == key for replica in snapshot.replicas),
        previous=decision.previous,
        reason=decision.reason.value,
        message=decision.message,
        source=decision.source.value,
        analyzer=analyzer,
        steps=decision.steps,
        samples=tuple([each for each in shown if each.state is SampleState.FRESH]),
        ignored=tuple([each for each in shown if each.state is not SampleState.FRESH]),
        notes=tuple(notes),
        siblings=tuple(
            [
                Sibling(
                    str(each.key),
                    each.accelerator,
                    each.cost,
                    each.current,
                    each.desired,
                    each.reason.value,
                    roles.get(each.key, ""),
                )
                for each in decisions
                if each.model == model and each.key != key
            ]
        ),
        changes=search(situation, key) if with_changes else None,
        objectives=""
        if decision.aim is None
        else decision.aim.told or f"{decision.aim.objectives.in_words()} (built in)",
        role=roles.get(key, ""),
    )


def _samples(snapshot: Snapshot, model: ModelKey, now: float) -> Iterator[ShownSample]:
    """Yield every sample of the model's replicas and of its gateway queue."""
    keys = {variant.key for variant in snapshot.variants if variant.model == model}
    for replica in snapshot.replicas:
        if replica.variant not in keys:
            continue
        for name in _SIGNALS:
            yield _shown(replica.pod, name, getattr(replica, name), now)
        engine = replica.engine
        for name in () if engine is None else engine.__struct_fields__:
            sample = getattr(engine, name)
            # A mean over nothing is missing, and says nothing of the pod.
            if sample.state is not SampleState.MISSING or sample.detail:
                yield _shown(replica.pod, name, sample, now)
        if replica.counters is not None:
            age = now - replica.counters.at
            yield ShownSample(replica.pod, "finished", SampleState.FRESH, replica.counters.finished, age)
        elif replica.counters_detail:
            yield ShownSample(replica.pod, "finished", SampleState.INVALID, detail=replica.counters_detail)
    for queue in snapshot.queues:
        if queue.model == model:
            yield _shown("gateway", "size", queue.size, now)


def _shown(of: str, signal: str, sample: Sample, now: float) -> ShownSample:
    age = None if sample.timestamp is None else now - sample.timestamp
    return ShownSample(of, signal, sample.state, sample.value, age, sample.detail)
