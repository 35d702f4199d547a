"""The scorecard as Markdown: the runs, how to read them, where WVA wins and loses, and a table per scenario."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from wva.sim.scorecard import earlier, shown
from wva.sim.scorecard.card import CLOSE, FINALISTS, FIXED, GOAL, REFERENCE, Card, Cell, best, in_hindsight, limit_of
from wva.sim.scorecard.verdicts import (
    COST_TOLERANCE,
    SUBJECT,
    PairVerdict,
    PolicyComparison,
    compare,
    comparisons,
    in_short,
    policies,
    setting,
    why,
)
from wva.sim.stage.late import CAUSES

_RESULTS: Final = f"""\
*85.2% at 1.82* means: 85.2% of the requests were in time, at 1.82 times the cost of the ideal fleet.

- **In time**: the first token, and the mean time between tokens, came within the objectives of the scenario. A request
  that failed was not in time. This share is also called *attainment*.
- **Cost 1.00** is the price of the ideal fleet: at each instant the cheapest one that carries the load. It starts
  replicas in no time, so no real policy has it. A policy that costs less has had too few replicas for a while.
- **best** is the best policy that does not know the traffic beforehand: the cheapest with at least {GOAL:.0%} in time.
  If none has that, it is the cheapest of those within {CLOSE * 100:g} points of the highest share.
- **best, with hindsight** is the best of all but the clairvoyant, by the same rule. `{FIXED}` takes part: a fleet
  fixed at the size for the peak, which one has to know. So do policies whose target was chosen when the traffic was
  known: their names end in `-tuned`. What costs more than `{FIXED}` does not count.
"""
_COUNTS: Final = f"""\
The next table counts the scenarios in which {SUBJECT} wins against a policy, is level with it, or loses to it. If one
of the two has less than {GOAL:.0%} in time, the one with the higher share wins. If both have that, or if the shares are
level, the cheaper one wins. Shares are level within {CLOSE * 100:g} points, and costs within {COST_TOLERANCE:g}. A
larger difference is *uncertain* if its 95% confidence interval contains zero; with one seed there is no interval. If
it is uncertain who has the higher share, the cheaper one wins only if its share is not the lower one.
"""
_EACH: Final = """\
Each line names the policies, and says why for the best of them that does not know the traffic beforehand. The shares
in parentheses are of all requests. The causes are explained [below](#columns).
"""
_FIGURES: Final = """\
The first five minutes of a scenario do not count (with `--requests` less, if the time is short). A figure is the mean
over the seeds. Behind ± is half of its 95% confidence interval, by Student's t; in shares it is in percentage points.
`-` means that there is no such figure. Percent are of all requests.
"""
_BACKGROUND: Final = f"""\
## Policies

[Their own page](rivals.md) says what each policy is and where its rules come from. The name of a policy that is tuned
in hindsight ends in `-tuned`. The target that was best in the scenario follows in parentheses. All targets run with
the first seed, the best {FINALISTS} of them with all seeds, and the best of these is shown. The rule is that for *best,
with hindsight*.

## What the simulation leaves out

- The engine is a model of vLLM, not vLLM. Its speeds come from data sheets and published measurements.
  [Its own page](physics.md) has the error of each.
- One model is served, in one cluster. A GPU is free whenever a pod needs one, so no request is late because of
  *scheduling*.
- Policies that are tuned in hindsight know the traffic that they are judged on. They show what is possible, and not
  what to expect of a target that is set beforehand.
- The traffic has plain shapes, or is made after published traces. [Its own page](traffic.md) has the kinds. Yours is
  different: try your own with `--requests`, or with a [backtest](backtest.md).

## Run it yourself

*Not run: it takes about an hour.*

```sh
wva bench quality --suite full --out scorecard
```

This writes `scorecard/scorecard.html` with plots, `scorecard.md` and `scorecard.json`, and a file for each run in
`scorecard/runs`. A run that is there is not made again, so an interrupted command continues. `--suite quick` takes a
few minutes. The same seeds give the same files.
"""


def markdown(card: Card) -> str:
    """Return the whole page."""
    return "\n".join(
        (*_head(card), *_results(card), *_differences(card), *_scenarios(card), *_earlier(card), *background())
    )


def _head(card: Card) -> Iterator[str]:
    seeds = "1 seed" if len(card.seeds) == 1 else f"{len(card.seeds)} seeds"
    scenarios = "1 scenario" if len(card.parts) == 1 else f"{len(card.parts)} scenarios"
    others = [policy for policy in policies(card) if policy != SUBJECT]
    own = ", among them other settings of WVA," if any(policy.startswith(f"{SUBJECT}-") for policy in others) else ""
    yield from (f"# {card.title}", "")
    yield f"How well does WVA decide, beside other autoscalers? `{SUBJECT}` is WVA with its default policy and a"
    yield f"decision every 15 s; `{SUBJECT}-chart` has the slower settings of the former Helm chart. This page"
    yield f"compares `{SUBJECT}` with {len(others)} other [policies](rivals.md){own} in {scenarios}"
    yield f"with {seeds} each. In a scenario all policies get the same [requests](traffic.md), on the same simulated"
    yield from ("[vLLM engines](physics.md). The command `wva bench quality` writes this page.", "")
    if len(card.seeds) == 1:
        yield from ("One seed has no confidence interval: small differences may be chance.", "")
    for note in card.notes:
        yield from (note, "")
    if lines := [f"- **{question}:** {answer}" for question, answer in in_short(card)]:
        yield from ("## In short", "")
        yield "Numbers in parentheses are scenarios. Policies that know the traffic beforehand are left out here, but"
        yield from ("for the clairvoyant, which shows what is possible.", "")
        yield from (*lines, "")


def _results(card: Card) -> Iterator[str]:
    yield from ("## Results", "", _RESULTS)
    rows: list[tuple[str, ...]] = []
    for part in card.parts:
        subject, unaided = part.cell(SUBJECT), part.cell(part.unaided or "")
        against = "" if subject is None or unaided is None else standing(compare(subject, unaided))
        link = f"[{part.scenario.name}](#{part.scenario.name})"
        rows.append((link, result(subject), named(unaided), against, named(part.cell(part.winner))))
    yield from _table(("scenario", SUBJECT, "best", f"{SUBJECT} against it", "best, with hindsight"), rows)
    rivals = [policy for policy in policies(card) if policy not in {SUBJECT, REFERENCE}]
    found = {rival: comparisons(card, rival) for rival in rivals}
    rows = [
        (rival, *(str(sum(each.verdict is verdict for _, each in pairs)) for verdict in PairVerdict))
        for rival, pairs in found.items()
        if pairs
    ]
    if rows:
        yield _COUNTS
        yield from _table(("against", *(verdict.value for verdict in PairVerdict)), rows)


def _differences(card: Card) -> Iterator[str]:
    """Yield where the subject loses and wins, to whom and why."""
    for verdict, title, preposition in ((PairVerdict.LOSES, "loses", "to"), (PairVerdict.WINS, "wins", "against")):
        lines = []
        for part in card.parts:
            subject = part.cell(SUBJECT)
            others = [cell for cell in part.cells if cell.policy not in {SUBJECT, REFERENCE}]
            found = [] if subject is None else [compare(subject, other) for other in others]
            chosen = {each.second.policy: each for each in found if each.verdict is verdict}
            if not chosen:
                continue
            names = "; ".join(
                f"by {by} {preposition} {', '.join(alike)}"
                for by in ("attainment", "cost")
                if (alike := [shown.name(each.second) for each in chosen.values() if each.by == by])
            )
            cells = [each.second for each in chosen.values()]
            unaided = [cell for cell in cells if not in_hindsight(cell.policy)]
            strongest = chosen[(best(unaided) if unaided else best(cells, limit=limit_of(part.cells))).policy]
            link = f"[{part.scenario.name}](#{part.scenario.name})"
            lines.append(f"- {link}: {names}. The best of them is {strongest.second.policy}: {why(strongest)}.")
        yield from (f"## Where {SUBJECT} {title}", "")
        if lines:
            yield _EACH
        yield from (*(lines or ["In no scenario."]), "")


def _scenarios(card: Card) -> Iterator[str]:
    yield from ("## Scenarios", "", "The columns are explained [below](#columns).", "")
    headings = ("policy", *(column.heading for column in shown.COLUMNS), "late by cause")
    for part in card.parts:
        yield from (f"### {part.scenario.name}", "", f"{shown.plain(part.scenario.title)}. {setting(part)}", "")
        rows = [
            (_bold(shown.name(cell), cell), *(shown.figure(cell, column) for column in shown.COLUMNS), _causes(cell))
            for cell in part.cells
        ]
        yield from _table(headings, rows)


def _earlier(card: Card) -> Iterator[str]:
    """Yield the first comparison beside this one, as far as the same kinds of scenarios ran."""
    rows = list(earlier.rows(card))
    if rows:
        yield from (
            "## Beside the first comparison",
            "",
            "Before this scorecard there was a comparison on five scenarios of the same kinds. A figure is the share",
            "of requests with their first token within 1 s, and the cost. *Now, its engines and users* is of the",
            "scenarios named `first-...`, and *now, ours* of those named as the kind.",
            "",
            *_table(("kind", "policy", "then", "now, its engines and users", "now, ours"), rows),
            earlier.DIFFERENCES,
        )


def background() -> Iterator[str]:
    """Yield the part that does not depend on the results."""
    yield from ("## Columns", "")
    meanings = [(column.heading, column.meaning) for column in shown.COLUMNS]
    late = "share of requests whose first token was late or that failed, by cause"
    yield from _table(("column", "meaning"), [*meanings, ("late by cause", late)])
    yield _FIGURES
    yield "The cause of a late request is the first of these that holds when it arrives:"
    yield ""
    yield from _table(("cause", "meaning"), list(shown.CAUSES.items()))
    yield "Pods take equally long to start with every policy. Less *warm-up* means that a policy asks earlier, or keeps"
    yield from ("more replicas than the load needs.", "")
    yield _BACKGROUND.rstrip()
    yield ""


def result(cell: Cell | None) -> str:
    """Return how a policy did, in short."""
    return shown.NONE if cell is None else f"{shown.share(cell.attainment)} at {cell.cost_ratio:.2f}"


def named(cell: Cell | None) -> str:
    """Return a policy and how it did, in short."""
    return shown.NONE if cell is None else f"{shown.name(cell)}: {result(cell)}"


def standing(found: PolicyComparison) -> str:
    """Return how the first of two policies stands against the second."""
    if found.first is found.second:
        return "is it"
    return found.verdict.value + (f" by {found.by}" if found.by else "")


def _bold(text: str, cell: Cell) -> str:
    return f"**{text}**" if cell.policy == SUBJECT else text


def _causes(cell: Cell) -> str:
    causes = [(cell.late_by_cause[cause], cause) for cause in CAUSES if cell.late_by_cause[cause] >= 0.0005]  # noqa: PLR2004 - 0.1% when shown
    return ", ".join(f"{cause} {share:.1%}" for share, cause in sorted(causes, reverse=True)) or shown.NONE


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |"
    yield f"|{'|'.join('---' for _ in headings)}|"
    for row in rows:
        yield f"| {' | '.join(text.replace('|', '&#124;') for text in row)} |"
    yield ""
