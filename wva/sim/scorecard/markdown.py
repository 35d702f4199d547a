"""The scorecard as Markdown, two pages to read: what it comes to, a line per scenario, and what is measured.

Every figure behind it is on another page; the caller gives the name of that page and of its data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from wva.sim.scorecard import shown
from wva.sim.scorecard.card import CLOSE, FINALISTS, FIXED, GOAL, SUBJECT, in_hindsight
from wva.sim.scorecard.suites import DEVELOPMENT_SEEDS, without_results
from wva.sim.scorecard.tables import PolicyRow, ScorecardTables
from wva.sim.scorecard.verdicts import COST_TOLERANCE

_NAMED: Final = 3
"""Of many scenarios so many are named."""
_MEASURED: Final = f"""\
*85.2% at 1.82* means: 85.2% of the requests were in time, at 1.82 times the cost of the ideal fleet.

- **In time**: the first token, and the mean time between tokens, came within the objectives of the scenario. A request
  that failed was not in time. This share is also called *attainment*.
- **Cost 1.00** is the price of the ideal fleet: at each instant the cheapest one that carries the load. It starts
  replicas in no time, so no real policy has it. A policy that costs less has had too few replicas for a while.
  A prompt that is late on an idle replica, too, is served in it, and not counted.
- **best** is the best policy that does not know the traffic beforehand: the cheapest with at least {GOAL:.0%} in time.
  If none has that, it is the cheapest of those within {CLOSE * 100:g} points of the highest share.
- **best, with hindsight** is the best of all but the clairvoyant, by the same rule. `{FIXED}` takes part: a fleet
  fixed at the size for the peak, which one has to know. So do policies whose target was chosen when the traffic was
  known: their names end in `-tuned`, and the target follows in parentheses. A few targets run with the first seed,
  then those beside the best, and the best {FINALISTS} with all seeds. What costs more than `{FIXED}` does not count.
- **bound** is the most in time without spare replicas for a policy that knows all about the load but when it jumps.
  It orders at once. Where the load is a trace, there is none.
- **wins, loses**: if one of two policies has less than {GOAL:.0%} in time, the one with the higher share wins. If both
  have that, or if the shares are level, the cheaper one wins. Shares are level within {CLOSE * 100:g} points, and costs
  within {COST_TOLERANCE:g}. A larger difference may be *uncertain*. If it is uncertain who has the higher share, the
  cheaper one wins only if its share is not the lower one.
"""
_BACKGROUND: Final = """\
## What the simulation leaves out

- The engine is a model of vLLM, not vLLM. Its speeds come from data sheets and measurements.
  [Its own page](physics.md) has the error of each.
- One model is served in one cluster. A GPU is free whenever a pod needs one, so no request is late because of
  *scheduling*. Scenarios of two models have too few GPUs for both at their peak.
- Policies tuned in hindsight know the traffic that they are judged on. They show what is possible, not what to expect
  of a target set beforehand.
- The traffic has plain shapes, or is made after published traces. [Its own page](traffic.md) has the kinds. Yours is
  different: try your own with `--requests`, or with a [backtest](backtest.md).

## Run it yourself

*Not run: it takes two hours on two cores.*

```sh
wva bench quality --suite full --out scorecard
```

This writes `scorecard/scorecard.html` with plots, `scorecard.md` and `scorecard.json`, and a file for each run in
`scorecard/runs`. A run is made again only if its code changed, so an interrupted command continues.
`--suite quick` and `--suite roles` take minutes, `--suite learning` half an hour. The same seeds give the same files.
"""


@dataclass(frozen=True, slots=True)
class FiguresBeside:
    """The names of the files beside the Markdown that have every figure: a page for people, and data."""

    page: str
    data: str


def markdown(tables: ScorecardTables, beside: FiguresBeside) -> str:
    """Return the whole page."""
    return "\n".join((*_head(tables, beside), *_conclusions(tables), *_results(tables), *background(tables, beside)))


def _head(tables: ScorecardTables, beside: FiguresBeside) -> Iterator[str]:
    scenarios = "1 scenario" if len(tables.scenarios) == 1 else f"{len(tables.scenarios)} scenarios"
    others = [policy for policy in tables.policies if policy != SUBJECT]
    own = ", among them other settings of WVA," if any(policy.startswith(f"{SUBJECT}-") for policy in others) else ""
    yield from (f"# {tables.title}", "")
    yield f"How well does WVA decide, beside other autoscalers? `{SUBJECT}` is WVA with its default policy and a"
    yield f"decision every 15 s; `{SUBJECT}-chart` has the slower settings of the former Helm chart. This page"
    yield f"compares `{SUBJECT}` with {len(others)} other [policies](rivals.md){own} in {scenarios}"
    seeds = tables.seed_words
    yield f"with {seeds} each. In a scenario all policies get the same [requests](traffic.md), on the same simulated"
    yield f"[vLLM engines](physics.md). Every figure is in the [tables of each scenario]({beside.page}), with the"
    yield from (f"reasons why {SUBJECT} wins and loses, and in [the data]({beside.data}).", "")
    if tables.seeds == 1:
        yield from ("One seed has no confidence interval: small differences may be chance.", "")
    for note in tables.notes:
        yield from (note, "")
    if lines := [f"- **{question}:** {answer}" for question, answer in tables.in_short]:
        yield from ("## In short", "")
        yield "Numbers in parentheses are scenarios. Policies that know the traffic beforehand are left out here, but"
        yield from ("for the clairvoyant, which shows what is possible.", "")
        yield from (*lines, "")


def _conclusions(tables: ScorecardTables) -> Iterator[str]:
    """Yield what somebody who chooses an autoscaler may conclude, as far as the results say it."""
    lines = [line for conclusion in (_enough, _nobody, _other_settings, _others) if (line := conclusion(tables))]
    if lines:
        yield from ("## What to conclude", "", *(f"- {line}" for line in lines), "")


def _enough(tables: ScorecardTables) -> str:
    """Say where the default does what is asked of it, and what that costs."""
    rows = [(part, row) for part in tables.scenarios if (row := part.row(SUBJECT)) is not None and row.in_time >= GOAL]
    if not rows:
        return ""
    dear = max(rows, key=lambda pair: pair[1].cost)
    names = ", ".join(part.name for part, _ in rows)
    median = sorted(row.cost for _, row in rows)[len(rows) // 2]
    return (
        f"**Where the default is enough.** It has at least {GOAL:.0%} in time in {names}. "
        f"The median cost there is {median:.2f}, the highest {dear[1].cost:.2f} ({dear[0].name})."
    )


def _nobody(tables: ScorecardTables) -> str:
    """Say where no policy has the goal without knowing the traffic, and what a fixed fleet costs there."""
    parts = [part for part in tables.scenarios if part.best is not None and not part.goal]
    if not parts:
        return ""
    fixed = [row for part in parts if (row := part.row(FIXED)) is not None and row.in_time >= GOAL]
    text = (
        f"**Where no autoscaler is enough.** In {len(parts)} of {len(tables.scenarios)} scenarios no policy that does "
        f"not know the traffic has {GOAL:.0%} in time. What helps there is replicas that run before the load comes: a "
        "higher minimum of the HPA or ScaledObject."
    )
    if fixed:
        costs = [row.cost for row in fixed]
        text += (
            f" A fleet fixed at the size for the peak has the goal in {len(fixed)} of these {len(parts)}, "
            f"at {min(costs):.2f} to {max(costs):.2f} of the ideal cost."
        )
    return text


def _other_settings(tables: ScorecardTables) -> str:
    """Say which other setting of WVA has more requests in time, where, and at which price."""
    gains: dict[str, list[tuple[float, str, float]]] = {}
    for part in tables.scenarios:
        own = part.row(SUBJECT)
        for pair in part.loses.against:
            row = next(row for row in part.rows if row.name == pair.name)
            if own is not None and pair.by == "attainment" and row.policy.startswith(f"{SUBJECT}-"):
                gains.setdefault(row.policy, []).append((own.in_time - row.in_time, part.name, row.cost / own.cost))
    if not gains:
        return ""
    policy, won = max(gains.items(), key=lambda item: len(item[1]))
    ratios = [ratio for _, _, ratio in won]
    names = ", ".join(name for _, name, _ in sorted(won)[:_NAMED])
    where = names if len(won) <= _NAMED else f"{len(won)} scenarios, most of all {names}"
    return (
        f"**Where late requests cost more than GPUs**, look at `{policy}`. It has more requests in time in "
        f"{where}, at {min(ratios):.1f} to {max(ratios):.1f} times the cost of "
        f"{SUBJECT}. [The policies](rivals.md) says how it is set."
    )


def _others(tables: ScorecardTables) -> str:
    """Say how the subject does against autoscalers that are not WVA and do not know the traffic."""
    rivals = [
        count
        for count in tables.counts
        if not count.against.startswith(f"{SUBJECT}-") and not in_hindsight(count.against)
    ]
    if not rivals:
        return ""
    wins, loses = ([getattr(count, name) for count in rivals] for name in ("wins", "loses"))
    return (
        f"**Beside autoscalers of other kinds** (HPA, KEDA, Knative; targets set beforehand) {SUBJECT} wins in "
        f"{_range(wins)} of the {len(tables.scenarios)} scenarios, and loses in {_range(loses)}."
    )


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"


def _results(tables: ScorecardTables) -> Iterator[str]:
    yield from ("## Results", "")
    yield "What the figures mean stands [below](#what-is-measured). `wva bench quality --list` says what the scenarios"
    yield from ("are.", "")
    rows = [
        (
            part.name,
            result(part.row(SUBJECT)),
            named(part.row(part.best)),
            part.verdict,
            named(part.row(part.with_hindsight)),
            part.bound,
            str(part.seeds or tables.seeds),
        )
        for part in tables.scenarios
    ]
    headings = ("scenario", SUBJECT, "best", f"{SUBJECT} against it", "best, with hindsight", "bound", "seeds")
    yield from _table(headings, rows)
    if missing := without_results(tables.title, [part.name for part in tables.scenarios]):
        yield f"No results yet: {', '.join(missing)}."
        yield ""


def background(tables: ScorecardTables, beside: FiguresBeside) -> Iterator[str]:
    """Yield the part that depends on how the results were made, and not on what they are."""
    yield from ("## What is measured", "", f"{_MEASURED}- {_certain(tables)}", "", _seeds(tables), "")
    yield f"[The tables]({beside.page}#columns) say why requests were late."
    yield from ("", _BACKGROUND.rstrip(), "")


def _certain(tables: ScorecardTables) -> str:
    """Say when a difference is certain."""
    if tables.seeds == 1:
        return "**uncertain**: with one seed nobody knows how large chance is, so a larger difference counts."
    if tables.tests:
        return (
            f"**uncertain** is a difference that may be chance. {tables.tests:,} differences were tested; of those "
            "that count, at most 5% are expected to be chance (Student's t, Benjamini and Hochberg)."
        )
    return (
        "**uncertain** is a difference whose 95% confidence interval contains zero. These results were made before "
        "the number of comparisons was corrected for: some of those that count are chance."
    )


def _seeds(tables: ScorecardTables) -> str:
    """Say which seeds these are, and whether development has seen them."""
    if not tables.seed_numbers:
        return "Which seeds these are was not recorded."
    numbers = ", ".join(map(str, tables.seed_numbers))
    sentence = f"The seeds are {numbers}." if len(tables.seed_numbers) > 1 else f"The seed is {numbers}."
    if set(tables.seed_numbers) & set(DEVELOPMENT_SEEDS):
        return f"{sentence} Development uses these too, so what was chosen with them may look better here than it is."
    return f"{sentence} Development uses others, so nothing was chosen by what it does here."


def result(row: PolicyRow | None) -> str:
    """Return how a policy did, in short."""
    return shown.NONE if row is None else f"{row.values[0].partition(' ±')[0]} at {row.cost:.2f}"


def named(row: PolicyRow | None) -> str:
    """Return a policy and how it did, in short."""
    return shown.NONE if row is None else f"{row.name}: {result(row)}"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |"
    yield f"|{'|'.join('---' for _ in headings)}|"
    for row in rows:
        yield f"| {' | '.join(text.replace('|', '&#124;') for text in row)} |"
    yield ""
