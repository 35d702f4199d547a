"""``wva replay DIR|FILE``: decide on recorded cycles again, with the same inputs or under another policy.

With the same inputs the decisions must equal the recorded ones bit for bit, else the status is 1. For cycles of an
older engine the command prints what this engine decides, the kind of each difference, and its cause.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from wva import log
from wva.api.meta import format_time
from wva.cli.decide import read_all
from wva.command_line import add_output, print_json
from wva.policy_file import PolicyFile, read_policy
from wva.publish.recordings import Recording
from wva.publish.replay import Cycle, Difference, Pair, differences, kinds, repeat, under

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
EXAMPLES: Final = (
    "wva replay cycles",
    "wva replay cycles --policy configmaps.yaml",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the recordings, the other policy and the form of the report."""
    parser.description = (
        "Decide again on cycles that `wva run` or `wva demo` recorded with --record-dir. Without --policy the "
        "decisions are compared with the recorded ones, bit for bit; those of an older version need not be the same, "
        "and the report says what differs and why. With --policy the report says what the ConfigMaps of a file would "
        "have decided."
    )
    parser.epilog = "Exit status: 0, 1 when something cannot be read or a decision differs, 2 on a wrong flag."
    parser.add_argument("path", metavar="DIR|FILE", help="a folder of recordings, or one; - reads standard input")
    parser.add_argument("--policy", metavar="FILE", help="ConfigMaps in YAML, as in a cluster")
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the report; status 1 when a decision differs. Raises CommandError when something cannot be read."""
    log.configure(level="error", encoding="console")  # the command already reports problems of the other policy
    recordings = read_all(arguments.path)
    spaces = {variant.key.namespace for recording in recordings for variant in recording.snapshot.variants}
    other = None if arguments.policy is None else read_policy(arguments.policy, spaces)
    cycles = list(repeat(recordings))
    as_json = arguments.output == "json"
    if other is not None:
        pairs = list(under(cycles, other.over))
        notes = [*_unknown_notes(recordings, pairs), *_older_notes(cycles, pairs), *map(log.printable, other.remarks)]
        if as_json:
            print_json(_comparison(pairs, notes, other))
        else:
            print(_title([pair.now for pair in pairs]))
            print(log.printable(f"the other policy replaces: {other.title}"))
            _print_comparison(pairs, notes)
        return 0

    # Cycles of this engine must give the same decisions; those of an older engine are only compared.
    before = [cycle for cycle in cycles if cycle.recording.of_before]
    own = [cycle for cycle in cycles if not cycle.recording.of_before]
    same = not any(cycle.differing or cycle.link.torn for cycle in own)
    pairs = [pair for pair in under(before, lambda recorded: recorded) if pair.engines]
    notes = list(_older_notes(before, pairs))
    if as_json:
        rows = [
            {
                "now": cycle.recording.now,
                "decisions": len(cycle.outcome.decisions),
                "differing": [str(key) for key in cycle.differing],
                "started": cycle.link.started,
                "overtaken": [str(key) for key in cycle.link.overtaken],
                "torn": cycle.link.torn,
            }
            for cycle in own
        ]
        document = {"same": same if own else None, "cycles": rows}
        print_json(document | ({"before": _comparison(pairs, notes)} if before else {}))
        return 0 if same else 1
    if own:
        _print_repetition(own)
    if before:
        print(_title([cycle.recording.now for cycle in before]))
        formats = ", ".join(str(each) for each in sorted({cycle.recording.version for cycle in before}))
        print(f"format {formats}: an older version has decided, and this one need not decide the same")
        _print_comparison(pairs, notes)
    return 0 if same else 1


def _print_repetition(cycles: Sequence[Cycle]) -> None:
    """Print whether the decisions are the same, whether each memory follows from the cycle before, and what differs."""
    differing = [cycle for cycle in cycles if cycle.differing]
    print(_title([cycle.recording.now for cycle in cycles]))
    count = sum(len(cycle.outcome.decisions) for cycle in cycles)
    same = "are not all the same" if differing else "are the same, bit for bit"
    print(f"{_counted(count, 'decision')} of {_counted(len(cycles), 'cycle')} {same}")
    followed = sum(not (cycle.link.started or cycle.link.torn) for cycle in cycles[1:])
    if followed:
        print(f"{_counted(followed, 'memory', 'memories')} followed from the cycle before")
    for cycle in cycles:
        link, at = cycle.link, _time(cycle.recording.now)
        if link.started:
            print(f"{at}: a controller started here, without memory")
        if link.torn:
            parts = ", ".join(link.torn)
            line = (
                f"{at}: the memory ({parts}) does not follow from the cycle before: is a recording missing between? Or "
                "has the folder recordings of two runs?"
            )
            print(log.printable(line))
        elif link.overtaken:
            keys = ", ".join(str(key) for key in link.overtaken)
            line = f"{at}: changed between the cycles (deleted, new, started from zero, or not published): {keys}"
            print(log.printable(line))
    for cycle in differing:
        for key in cycle.differing:
            recorded, again = (
                next(
                    (f"{each.desired} {each.reason.value}: {each.message}" for each in found if each.key == key),
                    "nothing",
                )
                for found in (cycle.recording.decisions, cycle.outcome.decisions)
            )
            at = _time(cycle.recording.now)
            print(log.printable(f"{at} {key}: recorded {recorded}; decided again {again}"))


def _unknown_notes(recordings: Sequence[Recording], pairs: Sequence[Pair]) -> Iterator[str]:
    """Yield what the recording does not show about the other policy."""
    if not all(pair.engines for pair in pairs):
        yield _OPEN_LOOP
    asked = set()
    for recording, pair in zip(recordings, pairs, strict=True):
        snapshot, old, new = recording.snapshot, recording.policy, pair.policy
        models = sorted({variant.model for variant in snapshot.variants})
        counted = {counts.model for counts in snapshot.request_counts}
        if new.counts_gpus and snapshot.inventory is None and not old.counts_gpus:
            asked.add("inventory")
        if any(new.analyzer_for(model) is not old.analyzer_for(model) for model in models):
            asked.add("engines")
        if any(new.scale_to_zero_for(model).enabled and model not in counted for model in models):
            asked.add("requests")
    yield from (text for name, text in _NOT_ASKED.items() if name in asked)


def _older_notes(cycles: Sequence[Cycle], pairs: Sequence[Pair]) -> Iterator[str]:
    """Yield what recordings of older formats lack, and what replaces it."""
    before = [cycle.recording for cycle in cycles if cycle.recording.of_before]
    silent = sum(not recording.has_decisions for recording in before)
    if silent:
        yield f"{_counted(silent, 'cycle')} of an older format without decisions: there is nothing to compare with"
    if silent < len(before):
        yield _STEP_BY_STEP
        yield _NO_MEMORY
    for recording, pair in zip(before, pairs, strict=False):
        if any(pair.policy.asks_counters(variant.model) for variant in recording.snapshot.variants):
            yield _NO_COUNTERS
            break


def _comparison(pairs: Sequence[Pair], notes: Sequence[str], other: PolicyFile | None = None) -> dict[str, Any]:
    found = differences(pairs)
    document: dict[str, Any] = {"cycles": len(pairs)}
    if pairs:
        document |= {"from": pairs[0].now, "to": pairs[-1].now}
    if other is not None:
        document["replaces"] = other.title
    counted = kinds(pairs)
    if counted:
        document["kinds"] = [{**msgspec.to_builtins(each), "reasons": dict(each.reasons)} for each in counted]
    return document | {
        "variants": [{**msgspec.to_builtins(each), "key": str(each.key)} for each in found],
        "totals": _totals(found),
        "notes": notes,
    }


def _totals(found: Sequence[Difference]) -> dict[str, float]:
    names = ("replica_hours_then", "replica_hours_now", "cost_then", "cost_now")
    return {name: sum(getattr(each, name) for each in found) for name in names}


def _print_comparison(pairs: Sequence[Pair], notes: Sequence[str]) -> None:
    for entry in kinds(pairs):
        print(f"{_counted(entry.decisions, 'decision')}: {entry.kind} ({entry.why})")
    found = differences(pairs)
    for each in found:
        print(log.printable(f"{each.key}: another number in {each.differing} of {_counted(each.cycles, 'cycle')}"))
        for span in each.spans[:_SHOWN]:
            period = f"{_time(span.start)} ({_counted(span.cycles, 'cycle')})"
            kind = f" ({span.kind})" if span.kind else ""
            print(f"  {period}: {span.then} {span.reason_then} -> {span.now} {span.reason_now}{kind}")
            print(log.printable(f"    then: {span.message_then}"))
            print(log.printable(f"    now:  {span.message_now}"))
        if len(each.spans) > _SHOWN:
            print(f"  and {len(each.spans) - _SHOWN} more: --output json has all")
        print(f"  replica hours {_change(each.replica_hours_then, each.replica_hours_now)}")
    totals = _totals(found)
    if found:
        print(f"total: replica hours {_change(totals['replica_hours_then'], totals['replica_hours_now'])}, ", end="")
        print(f"cost {_change(totals['cost_then'], totals['cost_now'])}")
    for note in notes:
        print(f"note: {note}")


def _change(then: float, now: float) -> str:
    return f"{then:.2f} -> {now:.2f} ({now - then:+.2f})"


def _title(times: Sequence[float]) -> str:
    first, last = _time(times[0]), _time(times[-1])
    return f"{_counted(len(times), 'cycle')}, {first} to {last}"


def _counted(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def _time(seconds: float) -> str:
    try:
        return format_time(seconds)
    except (OverflowError, OSError, ValueError):
        return f"{seconds:g} s"
