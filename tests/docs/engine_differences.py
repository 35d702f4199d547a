"""The tables of docs/design/engine-differences.md.

``python -m tests.docs.engine_differences FOLDER...`` prints the first table for folders of recordings.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import cache

from tests.docs.markdown import table
from tests.hindsight import samples
from wva.hindsight.differences import WHY, Kind
from wva.hindsight.recordings import read_all
from wva.hindsight.replay import repeat, under
from wva.model.optimizers import Analyzer
from wva.model.records import replace


def same_policy(policy):
    """Return the recorded policy."""
    return policy


def by_demand(policy):
    """Return the policy with the demand analyzer for all models."""
    entry = replace(policy.saturation, analyzer_name=Analyzer.DEMAND)
    return replace(policy, saturation=entry, queueing=type(policy.queueing)())


def compared(recordings, other=same_policy):
    """Yield kind, recorded decision, present decision and rule for each decision of recordings."""
    for pair in under(repeat(recordings), other):
        then = {decision.key: decision for decision in pair.then}
        for now in pair.other:
            yield pair.kind(then[now.key], now), then[now.key], now, pair.rules.get(now.key)


@cache
def _of_sample(name, other):
    return list(compared(samples.recordings(name), other))


def counts_table(other=same_policy):
    """Return the number of decisions by sample and kind."""
    found = {name: Counter(kind for kind, *_ in _of_sample(name, other)) for name in samples.NAMES}
    kinds = [kind for kind in Kind if any(kind in each for each in found.values())]
    rows = [(kind.value, *(str(found[name][kind] or "-") for name in samples.NAMES)) for kind in kinds]
    return table(("Kind", *samples.NAMES), rows)


def demand_table():
    """Return the same numbers, with the demand analyzer for all present decisions."""
    return counts_table(by_demand)


def examples_table():
    """Return each kind of difference with its reason and one decision as an example."""
    first = {}
    for name in samples.NAMES:
        for kind, then, now, rule in _of_sample(name, same_policy):
            first.setdefault(kind, (name, then, now, rule))
    rows = []
    for kind in Kind:
        if kind in first and kind is not Kind.SAME:
            name, then, now, rule = first[kind]
            before, after = f"{then.desired} `{then.reason.value}`", f"{now.desired} `{now.reason.value}`"
            rows.append((kind.value, WHY[kind], f"{name}, {now.key.name}", before, after, "" if rule is None else rule))
    return table(("Kind", "Why", "Example", "Then", "Now", "Rule"), rows)


TABLES = {"counts": counts_table, "demand": demand_table, "examples": examples_table}


def main(folders):
    """Print the number of decisions by kind, and by the reasons and rules behind it."""
    kinds, reasons = Counter(), {}
    for folder in folders:
        for kind, then, now, rule in compared(read_all(folder)):
            kinds[kind] += 1
            words = f"{then.reason.value} -> {now.reason.value}{'' if rule is None else f' ({rule})'}"
            reasons.setdefault(kind, Counter())[words] += 1
    rows = [(kind.value, str(kinds[kind]), reasons[kind].most_common(1)[0][0]) for kind in Kind if kind in kinds]
    sys.stdout.write(table(("Kind", "Decisions", "Most often"), rows) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
