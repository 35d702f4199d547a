"""Why a variant has its number: one document about one decision, from the recording of its cycle.

It has the steps from the demand to the limits, the samples with their age and state, what was ignored and why, who
limited the number, what the other variants of the model got, and the nearest flips. ``wva explain`` prints it, and the
controller serves it as JSON. Everything in it comes from the recording, so it can be made again later and elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from wva.api.meta import format_time
from wva.decide.amounts import replicas
from wva.hindsight.cycle import Recording, decision_on
from wva.hindsight.flips import INTERVAL_SECONDS, Search, search
from wva.model.decision import Step
from wva.model.metrics import Sample, SampleState
from wva.model.optimizers import Analyzer
from wva.model.snapshot import Snapshot
from wva.model.variant import ModelKey, VariantKey

_SIGNALS: Final = ("kv_usage", "queue_length")
"""The samples of every replica; those of ``engine`` follow."""
_DEFAULT_ANALYZER_NAME: Final = "percentage"
SHOWN: Final = 40
"""Samples that are shown to people; JSON has all."""


class ShownSample(Struct, frozen=True):
    """A sample that the decision used, or could not use.

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
    """One decision and its evidence.

    ``at`` is the time of the cycle in seconds since the epoch. ``steps`` lead from the number before to the number;
    those with ``limited_by`` name who limited it. ``samples`` are fresh, ``ignored`` are all others, each with the
    reason in ``detail``. ``notes`` say what could not be read at all. ``changes`` are the smallest changes of an
    input that give another number; None if nobody asked for them. ``objectives`` say what the analyzer plans for and
    who asked for it; empty if the analyzer has none. ``served`` says what the users of the model get now; no recording
    has it, so it is empty except for the last cycle of a controller. ``role`` is what its pods compute of a request,
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
    decisions = recording.decisions or recording.again().outcome.decisions
    decision = decision_on(decisions, key)
    if decision is None:
        return None
    snapshot, model = recording.snapshot, decision.model
    samples = list(_samples(snapshot, model, recording.now))
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
        samples=tuple([sample for sample in samples if sample.state is SampleState.FRESH]),
        ignored=tuple([sample for sample in samples if sample.state is not SampleState.FRESH]),
        notes=tuple(notes),
        siblings=tuple(
            [
                Sibling(
                    str(sibling.key),
                    sibling.accelerator,
                    sibling.cost,
                    sibling.current,
                    sibling.desired,
                    sibling.reason.value,
                    roles.get(sibling.key, ""),
                )
                for sibling in decisions
                if sibling.model == model and sibling.key != key
            ]
        ),
        changes=search(recording, key, interval_seconds=interval_seconds) if with_changes else None,
        objectives=""
        if decision.aim is None
        else decision.aim.summary or f"{decision.aim.objectives.in_words()} (built in)",
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


def lines(document: Explanation) -> Iterator[str]:
    """Yield an explanation as lines for people."""
    previous = "nothing published before" if document.previous is None else f"{document.previous} before"
    yield f"{document.variant}: {replicas(document.desired)} ({document.reason}) at {format_time(document.at)}"
    yield f"  {document.message}"
    yield f"  {previous}; {document.current} exist, {document.ready} Ready; the number is {document.source}"
    yield f"  model {document.model}{_role(document.role)}, analyzer {document.analyzer}"
    if document.objectives:
        yield f"  objectives: {document.objectives}"
    if document.served:
        yield f"  {document.served}"
    yield f"  accelerator {document.accelerator}, cost {document.cost:g} per replica"
    yield ""
    yield "steps"
    yield from step_lines(document.steps)
    yield ""
    yield "samples"
    yield from _sample_lines(document.samples)
    if document.ignored:
        yield ""
        yield "ignored samples"
        yield from _sample_lines(document.ignored)
    if document.notes:
        yield ""
        yield "not read"
        yield from (f"  {note}" for note in document.notes)
    if document.siblings:
        yield ""
        yield "other variants of the model"
        for sibling in document.siblings:
            number = f"{replicas(sibling.desired)}, {sibling.current} exist ({sibling.reason})"
            yield f"  {sibling.variant}: {number}, {sibling.accelerator}, cost {sibling.cost:g}{_role(sibling.role)}"
    if document.changes is not None:
        yield ""
        yield "smallest changes that give another number"
        for flip in document.changes.flips:
            yield f"  {flip.change.words:40} {document.desired} -> {flip.number} ({flip.reason})"
        if not document.changes.flips:
            yield "  none"
        if document.changes.in_vain:
            yield "tried up to here, with the same number"
            yield from (f"  {change.words}" for change in document.changes.in_vain)


def step_lines(steps: Iterable[Step], *, repeats: bool = False) -> Iterator[str]:
    """Yield steps as lines for people; with ``repeats`` they also repeat the reason of the step before."""
    last_reason = ""
    for step in steps:
        limit = f" [{step.limit}]" if step.limit else ""
        reason = "the same reason" if step.reason == last_reason and not repeats else step.reason
        yield f"  {step.stage:10}{step.change:10}{reason}{limit}"
        last_reason = step.reason


def _role(role: str) -> str:
    return f", role {role}" if role else ""


def _sample_lines(samples: Sequence[ShownSample]) -> Iterator[str]:
    if not samples:
        yield "  none"
    width = max([len(sample.of) for sample in samples[:SHOWN]], default=0)
    for sample in samples[:SHOWN]:
        value = "-" if sample.value is None else f"{sample.value:.6g}"
        age = "no time" if sample.age_seconds is None else f"{sample.age_seconds:.0f} s old"
        detail = f" {sample.detail}" if sample.detail else ""
        yield f"  {sample.of:{width}}  {sample.signal:20} {value:>12}  {age:10} {sample.state.value}{detail}"
    if len(samples) > SHOWN:
        yield f"  and {len(samples) - SHOWN} more (--output json has all)"
