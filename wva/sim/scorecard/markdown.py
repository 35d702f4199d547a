"""The scorecard as Markdown: what was run, how to read it, where WVA wins and loses, and a table per scenario."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from wva.sim.scorecard import earlier, shown
from wva.sim.scorecard.card import CLOSE, FINALISTS, FIXED, GOAL, REFERENCE, Card, Cell, best, in_hindsight, limit_of
from wva.sim.scorecard.verdicts import SUBJECT, Comparison, Verdict, compare, comparisons, policies, setting, why
from wva.sim.stage.late import CAUSES

_RESULTS: Final = f"""\
A result is the share of requests within all objectives, and the cost. Cost 1.00 is that of the cheapest sufficient
fleet at each instant. **Best** is the cheapest policy with at least {GOAL:.0%} within the objectives. Where none has
that, it is the cheapest of those within {CLOSE * 100:g} points of the highest share. Policies that know the traffic in
hindsight (`{FIXED}`, and those that are tuned) have a column of their own. With hindsight one can also have a fleet
fixed at the peak, so that what costs more is neither the best in that column nor chosen as a target.
"""
_COUNTS: Final = f"""\
The next table counts the scenarios in which {SUBJECT} wins against each policy, is level with it, and loses. The share
decides as long as one of both is below {GOAL:.0%}, and the cost otherwise. A difference counts when it is larger than
half a point, or 1% of the cost, and its 95% interval does not contain zero.
"""
_CAUSES: Final = """\
A request is late because the policy had not seen the demand yet (trigger), had asked for too little (decision),
spec.replicas did not follow yet (actuation), pods had no node yet (scheduling) or were not Ready yet (warm-up). After
that a queue drains (backlog). What is late with enough replicas is late for another reason (service): long prompts,
uneven routing, or a replica that ended.
"""
_BACKGROUND: Final = f"""\
## Policies

[Their own page](rivals.md) says what each policy is and where its rules come from. The name of a policy that is tuned
in hindsight ends in `-tuned`, and the target that was best in the scenario follows in parentheses. Every target of the
policy runs with the first seed, and the best {FINALISTS} of them with all seeds. The best is the one that the rule for
the best policy chooses.

## What the simulation leaves out

- The engine is a model of vLLM, not vLLM. It batches, prefills in chunks, evicts and preempts, and its speeds come from
  published figures. [Its own page](physics.md) has the error of each.
- One model is served, in one cluster, and its GPUs are always free. No node has to be bought first.
- Policies that are tuned in hindsight know the traffic that they are judged on. They show what is possible, and not
  what to expect of a target that was set before.
- The cheapest sufficient fleet at each instant is a yardstick: it starts replicas in no time. The clairvoyant knows the
  traffic and waits for its replicas.
- The traffic is of plain shapes, or made by a generator after published traces. Yours is different.

## Run it yourself

*Not run: it takes more than an hour.*

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
    yield from (f"# {card.title}", "")
    yield f"How well WVA decides, beside other autoscalers: {len(card.parts)} scenarios, each with {seeds}."
    yield "`wva bench quality` writes this page. It runs every policy on the same simulated traffic and engines."
    yield ""
    if len(card.seeds) == 1:
        yield from ("One seed has no confidence interval: small differences may be chance.", "")
    for note in card.notes:
        yield from (note, "")


def _results(card: Card) -> Iterator[str]:
    yield from ("## Results", "", _RESULTS)
    rows: list[tuple[str, ...]] = []
    for part in card.parts:
        subject, unaided = part.cell(SUBJECT), part.cell(part.unaided or "")
        against = "" if subject is None or unaided is None else _verdict(compare(subject, unaided))
        link = f"[{part.scenario.name}](#{part.scenario.name})"
        rows.append((link, _result(subject), _named(unaided), against, _named(part.cell(part.winner))))
    yield from _table(("scenario", SUBJECT, "best", f"{SUBJECT} against it", "best, with hindsight"), rows)
    rivals = [policy for policy in policies(card) if policy not in {SUBJECT, REFERENCE}]
    found = {rival: comparisons(card, rival) for rival in rivals}
    rows = [
        (rival, *(str(sum(each.verdict is verdict for _, each in pairs)) for verdict in Verdict))
        for rival, pairs in found.items()
        if pairs
    ]
    if rows:
        yield _COUNTS
        yield from _table(("against", *(verdict.value for verdict in Verdict)), rows)


def _differences(card: Card) -> Iterator[str]:
    """Yield where the subject loses and wins, to whom and why."""
    for verdict, title, preposition in ((Verdict.LOSES, "loses", "to"), (Verdict.WINS, "wins", "against")):
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
            lines.append(f"- {link}: {names}. The strongest is {strongest.second.policy}: {why(strongest)}.")
        yield from (f"## Where {SUBJECT} {title}", "")
        if lines:
            yield from ("For each scenario, the strongest without hindsight has the reason, if there is one.", "")
        yield from (*(lines or ["In no scenario."]), "")


def _scenarios(card: Card) -> Iterator[str]:
    yield from ("## Scenarios", "", "The columns are explained [below](#columns).", "")
    headings = ("policy", *(column.heading for column in shown.COLUMNS), "late by cause")
    for part in card.parts:
        yield from (f"### {part.scenario.name}", "", f"{part.scenario.title}. {setting(part)}", "")
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
            "Before this scorecard there was a comparison on five scenarios of the same kinds. Its figures are the",
            "share of requests with their first token within 1 s, and the cost.",
            "",
            *_table(("kind", "policy", "then", "now, its engines and users", "now, ours"), rows),
            earlier.DIFFERENCES,
        )


def background() -> Iterator[str]:
    """Yield what does not depend on the results."""
    yield from ("## Columns", "")
    meanings = [(column.heading, column.meaning) for column in shown.COLUMNS]
    late = "share of all requests that were late or failed, by the first thing that was not done when they arrived"
    yield from _table(("column", "meaning"), [*meanings, ("late by cause", late)])
    yield _CAUSES
    yield _BACKGROUND.rstrip()
    yield ""


def _result(cell: Cell | None) -> str:
    return shown.NONE if cell is None else f"{shown.share(cell.attainment)} at {cell.cost_ratio:.2f}"


def _named(cell: Cell | None) -> str:
    return shown.NONE if cell is None else f"{shown.name(cell)}: {_result(cell)}"


def _verdict(found: Comparison) -> str:
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
