"""The scorecard as one HTML file with plots. Everything it needs is in it: it opens without a network.

Tables are written here; the plots are drawn by ``page.js`` with plotly from the data in the page. The page's own
security policy forbids it to load anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from itertools import pairwise
from typing import Final

from plotly.offline import get_plotlyjs

from wva.sim.scorecard import shown
from wva.sim.scorecard.card import GOAL, REFERENCE, SUBJECT, Card, Cell, ScenarioCard
from wva.sim.scorecard.verdicts import PairVerdict, compare, comparisons, policies, setting, why
from wva.sim.stage.late import CAUSES
from wva.sim.stage.result import StageTimeline

_GROUPS: Final = ("WVA", "HPA", "others", "fixed", "clairvoyant")
_POINTS: Final = 240
"""The most points of a line over time. A screen could not show more of them apart."""
_POLICY: Final = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
_FAIR: Final = 0.9


def html(card: Card) -> str:
    """Return the whole page."""
    numbers = _numbers(card)
    script = files("wva.sim.scorecard").joinpath("page.js").read_text(encoding="utf-8")
    body = "\n".join(
        (
            *(*_head(card), *_matrix(card), *_against(card), *_parts(card, numbers)),
            f"<script>{get_plotlyjs()}</script>",
            f'<script type="application/json" id="data">{_json(_data(card, numbers))}</script>',
            f"<script>\n{script}</script>",
        )
    )
    return shown.document(card.title, body, policy=_POLICY)


def _head(card: Card) -> Iterator[str]:
    seeds = "one seed, so no intervals" if len(card.seeds) == 1 else f"{len(card.seeds)} seeds, 95% intervals"
    yield f"<h1>{escape(card.title)}</h1>"
    scenarios = "1 scenario" if len(card.parts) == 1 else f"{len(card.parts)} scenarios"
    yield f'<p class="quiet">{scenarios}, {seeds}. Cost 1.00: the cheapest sufficient fleet at each instant.</p>'
    for note in card.notes:
        yield f"<p>{escape(note)}</p>"


def _matrix(card: Card) -> Iterator[str]:
    """All policies in all scenarios at a glance."""
    order = policies(card)
    yield "<h2>At a glance</h2>"
    yield (
        f"<p>Each square has the share of requests within all objectives in percent, and below it the cost. "
        f'<span class="key good">Green</span> is at least {GOAL:.0%}, <span class="key fair">yellow</span> at least '
        f'{_FAIR:.0%}, <span class="key bad">red</span> less. The <span class="key best">thick frame</span> is the '
        f"cheapest policy with {GOAL:.0%}. Where none has that, it is the one that comes closest and costs no more "
        'than a fleet fixed at the peak. The <span class="key unaided">thin frame</span> is the best of the policies '
        "that do not know the traffic beforehand.</p>"
    )
    yield '<div class="wide"><table class="matrix"><thead><tr><th scope="col">scenario</th>'
    for policy in order:
        subject = ' class="subject"' if policy == SUBJECT else ""
        yield f'<th scope="col"{subject}><span>{escape(policy)}</span></th>'
    yield "</tr></thead><tbody>"
    for part in card.parts:
        name = escape(part.scenario.name)
        yield f'<tr><th scope="row"><a href="#{name}" title="{escape(part.scenario.title)}">{name}</a></th>'
        yield from (_square(part, policy) for policy in order)
        yield "</tr>"
    yield "</tbody></table></div>"


def _square(part: ScenarioCard, policy: str) -> str:
    cell = part.cell(policy)
    if cell is None:
        return "<td></td>"
    kind = "good" if cell.attainment >= GOAL else "fair" if cell.attainment >= _FAIR else "bad"
    best = " best" if policy == part.winner else " unaided" if policy == part.unaided else ""
    value = f"{min(cell.attainment, 0.999) * 100:.1f}" if cell.attainment < 1 else "100"
    title = escape(f"{shown.name(cell)} in {part.scenario.name}")
    return f'<td class="{kind}{best}" title="{title}">{value}<small>{cell.cost_ratio:.2f}</small></td>'


def _against(card: Card) -> Iterator[str]:
    """Yield the subject's verdicts against each other policy, over all scenarios."""
    rivals = [policy for policy in policies(card) if policy not in {SUBJECT, REFERENCE}]
    if not any(part.cell(SUBJECT) for part in card.parts) or not rivals:
        return
    yield f"<h2>{SUBJECT} against each other policy</h2>"
    yield (
        f"<p>Number of scenarios. Attainment decides as long as one of both is below {GOAL:.0%}, and cost otherwise. "
        "A difference within noise is uncertain; the more is compared, the more it has to stand out.</p>"
    )
    yield '<div class="wide"><table><thead><tr><th scope="col">against</th>'
    yield "".join(f'<th scope="col">{verdict.value}</th>' for verdict in PairVerdict)
    yield '<th scope="col" class="left">loses in</th></tr></thead><tbody>'
    for rival in rivals:
        compared = comparisons(card, rival)
        yield f'<tr><th scope="row">{escape(rival)}</th>'
        for verdict in PairVerdict:
            yield f"<td>{sum(comparison.verdict is verdict for _, comparison in compared)}</td>"
        lost = [part.scenario.name for part, comparison in compared if comparison.verdict is PairVerdict.LOSES]
        yield '<td class="left" style="white-space: normal">'
        yield ", ".join(f'<a href="#{escape(name)}">{escape(name)}</a>' for name in lost)
        yield "</td></tr>"
    yield "</tbody></table></div>"


def _parts(card: Card, numbers: dict[str, int]) -> Iterator[str]:
    yield "<h2>Scenario by scenario</h2>"
    yield '<p class="keys quiet">Requests that were late or failed, by cause: '
    yield "".join(f'<span><i style="background: {_cause_color(cause)}"></i>{cause}</span>' for cause in CAUSES)
    yield "</p>"
    for index, part in enumerate(card.parts):
        yield from _part(part, index, numbers)


def _part(part: ScenarioCard, index: int, numbers: dict[str, int]) -> Iterator[str]:
    scenario = part.scenario
    names = [cell.policy for cell in part.cells if cell.policy in part.timelines]
    subject = SUBJECT if SUBJECT in names else names[0]
    best = part.unaided or part.winner
    other = best if best != subject and best in names else ""
    yield f'<section data-part="{index}" id="{escape(scenario.name)}"><h2>{escape(scenario.name)}</h2>'
    yield f"<p>{escape(scenario.title)}. <span class='quiet'>{escape(setting(part))}</span></p>"
    yield f"<p>{escape(_outcome(part))}</p>"
    yield '<div class="plots"><div><div class="choose">'
    yield f"<label>policy {_select(names, subject)}</label>"
    yield f"<label>against {_select(['', *names], other)}</label></div>"
    yield '<div class="over-time"></div></div>'
    yield '<div><div class="choose quiet">Up and left is better. Dashed: goal. Numbers: the table.</div>'
    yield '<div class="frontier"></div></div></div>'
    yield '<div class="wide"><table class="figures"><thead><tr><th scope="col">policy</th>'
    for column in shown.COLUMNS:
        yield f'<th scope="col" title="{escape(column.meaning)}">{escape(column.heading)}</th>'
    yield '<th scope="col" class="left" title="late or failed, as a share of all requests">'
    yield "late by cause</th></tr></thead><tbody>"
    most = max((sum(cell.missed_by_cause.values()) for cell in part.cells), default=0.0)
    for cell in part.cells:
        yield f"<tr{' class=subject' if cell.policy == SUBJECT else ''}><td>"
        yield f'<span class="dot" style="background: var(--c{_group(cell.policy)})">{numbers[cell.policy]}</span>'
        yield f"{escape(shown.name(cell))}</td>"
        yield "".join(f"<td>{escape(shown.figure(cell, column))}</td>" for column in shown.COLUMNS)
        yield f'<td class="left">{_bar(cell, most)}</td></tr>'
    yield "</tbody></table></div></section>"


def _outcome(part: ScenarioCard) -> str:
    """Return in a sentence or two the best policy, and the reason of the difference."""
    best, subject = part.cell(part.unaided or part.winner), part.cell(SUBJECT)
    if best is None or subject is None:
        return f"Best: {part.winner}."
    text = (
        f"Best without hindsight: {shown.name(best)}, {shown.share(best.attainment)} in time at {best.cost_ratio:.2f}."
    )
    if best is subject:
        return text
    comparison = compare(subject, best, part.cutoff)
    if comparison.verdict is PairVerdict.LEVEL:
        return f"{text} {SUBJECT} is level with it."
    if comparison.verdict is PairVerdict.UNCERTAIN:
        return f"{text} Whether {SUBJECT} is as good is uncertain."
    return f"{text} {SUBJECT} {comparison.verdict.value} by {comparison.by}: {why(comparison)}."


def _select(choices: Sequence[str], chosen: str) -> str:
    options = "".join(
        f'<option value="{escape(choice)}"{" selected" if choice == chosen else ""}>{escape(choice) or "none"}</option>'
        for choice in choices
    )
    return f"<select>{options}</select>"


def _bar(cell: Cell, most: float) -> str:
    """Return the late share by cause as a bar; the longest bar of the table has the full width."""
    causes = cell.missed_by_cause
    total = sum(causes.values())
    title = ", ".join(f"{cause} {share:.2%}" for cause, share in causes.items() if share)
    pieces = "".join(
        f'<i style="width: {share / most * 100:.1f}%; background: {_cause_color(cause)}"></i>'
        for cause, share in causes.items()
        if share
    )
    return f'<span class="bar" title="{escape(title)}">{pieces}</span> {shown.share(total)}'


def _cause_color(cause: str) -> str:
    colors = ("#d93025", "#f08a24", "#e3b505", "#7cb342", "#3f8fd2", "#c2548f", "#8e63ce", "#8a929c", "#5f6b4e")
    return colors[CAUSES.index(cause)]


def _numbers(card: Card) -> dict[str, int]:
    return {policy: number for number, policy in enumerate(policies(card), start=1)}


def _group(policy: str) -> int:
    """Return the number of the group whose color a policy has."""
    starts = (("wva",), ("hpa",), (), ("static",), (REFERENCE,))
    return next((index for index, names in enumerate(starts) if policy.startswith(names)), 2)


def _data(card: Card, numbers: dict[str, int]) -> object:
    return {
        "goal": GOAL,
        "subject": SUBJECT,
        "groups": _GROUPS,
        "parts": [_part_data(part, numbers) for part in card.parts],
    }


def _part_data(part: ScenarioCard, numbers: dict[str, int]) -> object:
    timeline = next(iter(part.timelines.values()))
    every = -(-len(timeline.offered_per_second) // _POINTS)
    return {
        "variants": [escape(variant.name, quote=False) for variant in timeline.variants],  # plotly takes some elements
        "end": timeline.step_seconds * (len(timeline.offered_per_second) - 1),
        "step": timeline.step_seconds * every,
        "load": _thinned((None, *timeline.offered_per_second[1:]), every),  # the first is of the time before the start
        "ideal": _thinned(timeline.ideal_replicas, every),
        "runs": {policy: _run_data(timeline, every) for policy, timeline in part.timelines.items()},
        "points": [
            {
                "policy": shown.name(cell),
                "number": numbers[cell.policy],
                "group": _group(cell.policy),
                "reference": cell.policy == REFERENCE,
                "named": cell.policy in {SUBJECT, REFERENCE, part.winner, part.unaided},
                "attainment": round(cell.attainment, 5),
                "cost": round(cell.cost_ratio, 4),
                "cost_half": round(cell.figures["cost_ratio"].half_width or 0.0, 4),
                "shown": f"{shown.figure(cell, shown.COLUMNS[0])} in time at {shown.figure(cell, shown.COLUMNS[1])}",
            }
            for cell in part.cells
        ],
    }


def _run_data(timeline: StageTimeline, every: int) -> object:
    return {
        "late": _thinned(timeline.late_share, every, digits=2),
        "asked": [_changes(variant.asked, timeline.step_seconds) for variant in timeline.variants],
        "ready": [_changes(variant.ready, timeline.step_seconds) for variant in timeline.variants],
    }


def _thinned(values: Sequence[float | None], every: int, *, digits: int = 1) -> list[float | None]:
    """Return the mean of every group of so many values; unknown values do not count."""
    pieces = [
        [value for value in values[start : start + every] if value is not None]
        for start in range(0, len(values), every)
    ]
    return [round(sum(piece) / len(piece), digits) if piece else None for piece in pieces]


def _changes(values: Sequence[int], step_seconds: float) -> list[float]:
    """Return time and value of each change, in one list. Times are whole seconds, which is less than a pixel."""
    changes = [
        (round(index * step_seconds), after)
        for index, (before, after) in enumerate(pairwise(values), start=1)
        if after != before
    ]
    return [number for change in ((0, values[0]), *changes) for number in change]


def _json(data: object) -> str:
    """Return JSON that cannot end a script element."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
