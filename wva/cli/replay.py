"""``wva replay DIR|FILE``: decide on recorded cycles again, with the same inputs or under another policy.

With the same inputs the decisions must equal the recorded ones bit for bit, else the status is 1. For cycles of an
older engine the command prints what this engine decides, the kind of each difference, and its cause.
"""

from __future__ import annotations

import argparse
from typing import Final

from wva import log
from wva.command_line import add_output, print_json
from wva.hindsight.comparison import (
    comparison_document,
    comparison_lines,
    older_notes,
    repetition_document,
    repetition_lines,
    span_of,
    unknown_notes,
)
from wva.hindsight.recordings import read_all
from wva.hindsight.replay import repeat, under
from wva.policy_file import read_policy

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
    namespaces = {variant.key.namespace for recording in recordings for variant in recording.snapshot.variants}
    policy_file = None if arguments.policy is None else read_policy(arguments.policy, namespaces)
    cycles = list(repeat(recordings))
    as_json = arguments.output == "json"
    if policy_file is not None:
        pairs = list(under(cycles, policy_file.over))
        notes = [
            *unknown_notes(recordings, pairs),
            *older_notes(cycles, pairs),
            *map(log.printable, policy_file.remarks),
        ]
        if as_json:
            print_json(comparison_document(pairs, notes, replaces=policy_file.title))
        else:
            _print(span_of([pair.now for pair in pairs]), f"the other policy replaces: {policy_file.title}")
            _print(*comparison_lines(pairs, notes))
        return 0

    # Cycles of this engine must give the same decisions; those of an older engine are only compared.
    older = [repeated for repeated in cycles if repeated.recording.of_before]
    own = [repeated for repeated in cycles if not repeated.recording.of_before]
    same = not any(repeated.differing or repeated.link.torn for repeated in own)
    pairs = [pair for pair in under(older, lambda recorded: recorded) if pair.engines]
    notes = list(older_notes(older, pairs))
    if as_json:
        document = {"same": same if own else None, "cycles": repetition_document(own)}
        print_json(document | ({"before": comparison_document(pairs, notes)} if older else {}))
        return 0 if same else 1
    if own:
        _print(*repetition_lines(own))
    if older:
        formats = ", ".join(str(version) for version in sorted({repeated.recording.version for repeated in older}))
        _print(
            span_of([repeated.recording.now for repeated in older]),
            f"format {formats}: an older version has decided, and this one need not decide the same",
            *comparison_lines(pairs, notes),
        )
    return 0 if same else 1


def _print(*lines: str) -> None:
    for line in lines:
        print(log.printable(line))
