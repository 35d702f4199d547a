"""A whole replay as text and as JSON: whether decisions are the same, what differs, and what nobody can know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from wva.api.meta import format_time
from wva.hindsight.cycle import Recording, decision_on
from wva.hindsight.differences import Difference, Pair, differences, kinds
from wva.hindsight.replay import RepeatedCycle
from wva.model.decision import Decision

_SHOWN: Final = 20
"""Spans per variant in the text report; JSON has all."""

_OPEN_LOOP: Final = (
    "Each cycle saw the world as it was. Other numbers would have changed the load of each replica, so read the first "
    "difference of a variant as certain and what follows as an estimate."
)
_STEP_BY_STEP: Final = (
    "Each cycle saw the world and the published numbers as they were, so each difference is one of a single decision: "
    "the cycles after it show the world that the older numbers made."
)
_NO_MEMORY: Final = (
    "An older format has no memory of demand, and not what a shrink had carried before: this version has learned it "
    "from the first cycle on, and takes any demand for higher than that before an older shrink."
)
_NO_COUNTERS: Final = (
    "An older format has no counters of engines: the demand analyzer counts from the means that the recording has, and "
    "falls back to the percentage rule where it has none."
)
_NOT_ASKED: Final = {
    "inventory": "the other policy counts GPUs, and the recording has none: growth is as if they were unknown",
    "engines": "the other policy asks for signals of engines that the recording may not have",
    "requests": "the other policy lets a model go to zero, and the recording did not count its requests",
}


def repetition_document(cycles: Sequence[RepeatedCycle]) -> list[dict[str, Any]]:
    """Return for each cycle what differs, and whether its memory follows from the cycle before."""
    return [
        {
            "now": repeated.recording.now,
            "decisions": len(repeated.cycle.outcome.decisions),
            "differing": [str(key) for key in repeated.differing],
            "started": repeated.link.started,
            "overtaken": [str(key) for key in repeated.link.overtaken],
            "torn": repeated.link.torn,
        }
        for repeated in cycles
    ]


def repetition_lines(cycles: Sequence[RepeatedCycle]) -> Iterator[str]:
    """Yield whether the decisions are the same, whether each memory follows from the cycle before, and what differs."""
    differing = [repeated for repeated in cycles if repeated.differing]
    yield span_of([repeated.recording.now for repeated in cycles])
    count = sum(len(repeated.cycle.outcome.decisions) for repeated in cycles)
    same = "are not all the same" if differing else "are the same, bit for bit"
    yield f"{_counted(count, 'decision')} of {_counted(len(cycles), 'cycle')} {same}"
    followed = sum(not (repeated.link.started or repeated.link.torn) for repeated in cycles[1:])
    if followed:
        yield f"{_counted(followed, 'memory', 'memories')} followed from the cycle before"
    for repeated in cycles:
        link, at = repeated.link, _time(repeated.recording.now)
        if link.started:
            yield f"{at}: a controller started here, without memory"
        if link.torn:
            parts = ", ".join(link.torn)
            yield (
                f"{at}: the memory ({parts}) does not follow from the cycle before: is a recording missing between? Or "
                "has the folder recordings of two runs?"
            )
        elif link.overtaken:
            keys = ", ".join(str(key) for key in link.overtaken)
            yield f"{at}: changed between the cycles (deleted, new, started from zero, or not published): {keys}"
    for repeated in differing:
        at = _time(repeated.recording.now)
        for key in repeated.differing:
            recorded, decided_again = decision_on(repeated.recording.decisions, key), repeated.cycle.decision(key)
            yield f"{at} {key}: recorded {_in_words(recorded)}; decided again {_in_words(decided_again)}"


def _in_words(decision: Decision | None) -> str:
    return "nothing" if decision is None else f"{decision.desired} {decision.reason.value}: {decision.message}"


def unknown_notes(recordings: Sequence[Recording], pairs: Sequence[Pair]) -> Iterator[str]:
    """Yield what the recording does not show about the other policy."""
    if not all(pair.engines for pair in pairs):
        yield _OPEN_LOOP
    unknown = set()
    for recording, pair in zip(recordings, pairs, strict=True):
        snapshot, old, new = recording.snapshot, recording.policy, pair.policy
        models = sorted({variant.model for variant in snapshot.variants})
        counted = {counts.model for counts in snapshot.request_counts}
        if new.counts_gpus and snapshot.inventory is None and not old.counts_gpus:
            unknown.add("inventory")
        if any(new.analyzer_for(model) is not old.analyzer_for(model) for model in models):
            unknown.add("engines")
        if any(new.scale_to_zero_for(model).enabled and model not in counted for model in models):
            unknown.add("requests")
    yield from (text for name, text in _NOT_ASKED.items() if name in unknown)


def older_notes(cycles: Sequence[RepeatedCycle], pairs: Sequence[Pair]) -> Iterator[str]:
    """Yield what recordings of older formats lack, and what replaces it."""
    older = [repeated.recording for repeated in cycles if repeated.recording.of_before]
    silent = sum(not recording.has_decisions for recording in older)
    if silent:
        yield f"{_counted(silent, 'cycle')} of an older format without decisions: there is nothing to compare with"
    if silent < len(older):
        yield _STEP_BY_STEP
        yield _NO_MEMORY
    for recording, pair in zip(older, pairs, strict=False):
        if any(pair.policy.asks_counters(variant.model) for variant in recording.snapshot.variants):
            yield _NO_COUNTERS
            break


def comparison_document(pairs: Sequence[Pair], notes: Sequence[str], *, replaces: str | None = None) -> dict[str, Any]:
    """Return what differs in all cycles, for programs. ``replaces`` says in words what the other policy replaces."""
    document: dict[str, Any] = {"cycles": len(pairs)}
    if pairs:
        document |= {"from": pairs[0].now, "to": pairs[-1].now}
    if replaces is not None:
        document["replaces"] = replaces
    if counts := kinds(pairs):
        document["kinds"] = [{**msgspec.to_builtins(count), "reasons": dict(count.reasons)} for count in counts]
    by_variant = differences(pairs)
    return document | {
        "variants": [{**msgspec.to_builtins(difference), "key": str(difference.key)} for difference in by_variant],
        "totals": _totals(by_variant),
        "notes": notes,
    }


def comparison_lines(pairs: Sequence[Pair], notes: Sequence[str]) -> Iterator[str]:
    """Yield what differs in all cycles, for people; the lines may have any characters of recorded texts."""
    for count in kinds(pairs):
        yield f"{_counted(count.decisions, 'decision')}: {count.kind} ({count.why})"
    by_variant = differences(pairs)
    for difference in by_variant:
        cycles = _counted(difference.cycles, "cycle")
        yield f"{difference.key}: another number in {difference.differing} of {cycles}"
        for span in difference.spans[:_SHOWN]:
            period = f"{_time(span.start)} ({_counted(span.cycles, 'cycle')})"
            kind = f" ({span.kind})" if span.kind else ""
            yield f"  {period}: {span.then} {span.reason_then} -> {span.now} {span.reason_now}{kind}"
            yield f"    then: {span.message_then}"
            yield f"    now:  {span.message_now}"
        if len(difference.spans) > _SHOWN:
            yield f"  and {len(difference.spans) - _SHOWN} more: --output json has all"
        yield f"  replica hours {_change(difference.replica_hours_then, difference.replica_hours_now)}"
    if by_variant:
        totals = _totals(by_variant)
        hours = _change(totals["replica_hours_then"], totals["replica_hours_now"])
        yield f"total: replica hours {hours}, cost {_change(totals['cost_then'], totals['cost_now'])}"
    yield from (f"note: {note}" for note in notes)


def _totals(by_variant: Sequence[Difference]) -> dict[str, float]:
    names = ("replica_hours_then", "replica_hours_now", "cost_then", "cost_now")
    return {name: sum(getattr(difference, name) for difference in by_variant) for name in names}


def _change(then: float, now: float) -> str:
    return f"{then:.2f} -> {now:.2f} ({now - then:+.2f})"


def span_of(times: Sequence[float]) -> str:
    """Return how many cycles there are, and from when to when, in words."""
    first, last = _time(times[0]), _time(times[-1])
    return f"{_counted(len(times), 'cycle')}, {first} to {last}"


def _counted(count: int, singular: str, plural: str = "") -> str:
    return f"{count} {singular if count == 1 else plural or f'{singular}s'}"


def _time(seconds: float) -> str:
    try:
        return format_time(seconds)
    except (OverflowError, OSError, ValueError):
        return f"{seconds:g} s"
