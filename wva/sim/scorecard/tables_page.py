"""The tables of a scorecard as one HTML file without plots: every figure, and why the subject wins and loses.

It is small enough to lie beside the documentation. Its own security policy forbids it to load anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from wva.sim.scorecard import earlier, shown
from wva.sim.scorecard.card import SUBJECT
from wva.sim.scorecard.tables import DecidedPairs, ScenarioTable, ScorecardTables

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_LATE: Final = "share of requests whose first token was late or that failed, by cause"
_LATE_TOKENS: Final = "share of requests whose time between tokens alone was late, by cause"
_FIGURES: Final = (
    "The first five minutes of a scenario do not count (with --requests less, if the time is short). A figure is the "
    "mean over the seeds. Behind ± is half of its 95% confidence interval, by Student's t; in shares it is in "
    "percentage points. A - means that there is no such figure. Percent are of all requests."
)
_EARLIER: Final = (
    "Before this scorecard there was a comparison on five scenarios of the same kinds. A figure is the share of "
    'requests with their first token within 1 s, and the cost. "Now, its engines and users" is of the scenarios named '
    'first-..., and "now, ours" of those named as the kind.'
)


def tables_page(tables: ScorecardTables) -> str:
    """Return the whole page."""
    body = "\n".join((*_head(tables), *_counts(tables), *_scenarios(tables), *_earlier(tables), *_meanings()))
    return shown.document(f"{tables.title}: tables", body, policy=_POLICY)


def _head(tables: ScorecardTables) -> Iterator[str]:
    yield f"<h1>{escape(tables.title)}: tables</h1>"
    yield f'<p class="quiet">{tables.seed_words} each. The columns are explained <a href="#columns">below</a>.</p>'
    yield from (f"<p>{escape(note)}</p>" for note in tables.notes)
    links = (f'<a href="#{escape(part.name)}">{escape(part.name)}</a>' for part in tables.scenarios)
    yield f"<p>{' · '.join(links)}</p>"


def _counts(tables: ScorecardTables) -> Iterator[str]:
    if not tables.counts:
        return
    yield f"<h2>{SUBJECT} against each other policy</h2>"
    yield "<p>Numbers of scenarios.</p>"
    rows = [
        (count.against, str(count.wins), str(count.level), str(count.uncertain), str(count.loses))
        for count in tables.counts
    ]
    yield from _table(("against", "wins", "level", "uncertain", "loses"), rows)


def _scenarios(tables: ScorecardTables) -> Iterator[str]:
    for part in tables.scenarios:
        yield f'<section id="{escape(part.name)}"><h2>{escape(part.name)}</h2>'
        yield f'<p>{escape(part.title)}. <span class="quiet">{escape(part.setting)}</span></p>'
        yield f"<p>In time at most without foresight or spare replicas: {escape(part.bound)}.</p>"
        yield f"<p>Seeds: {part.seeds or tables.seeds}.</p>"
        yield from _decided(part.loses, f"{SUBJECT} loses", "to")
        yield from _decided(part.wins, f"{SUBJECT} wins", "against")
        yield from _figures(part, tables.headings)
        yield "</section>"


def _decided(pairs: DecidedPairs, begin: str, preposition: str) -> Iterator[str]:
    names_by = {by: [pair.name for pair in pairs.against if pair.by == by] for by in ("attainment", "cost")}
    text = "; ".join(f"by {by} {preposition} {', '.join(names)}" for by, names in names_by.items() if names)
    if text:
        yield f"<p><b>{begin}</b> {escape(text)}. {escape(pairs.why)}</p>"


def _figures(part: ScenarioTable, headings: Sequence[str]) -> Iterator[str]:
    yield '<div class="wide"><table class="figures"><thead><tr><th scope="col">policy</th>'
    yield "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    yield "</tr></thead><tbody>"
    for row in part.rows:
        own = ' class="subject"' if row.policy == SUBJECT else ""
        yield f"<tr{own}><td>{escape(row.name)}</td>{''.join(f'<td>{escape(value)}</td>' for value in row.values)}</tr>"
    yield "</tbody></table></div>"


def _earlier(tables: ScorecardTables) -> Iterator[str]:
    """Yield the first comparison beside this one, as far as the same kinds of scenarios ran."""
    if tables.earlier:
        yield f"<h2>Beside the first comparison</h2>\n<p>{escape(_EARLIER)}</p>"
        yield from _table(("kind", "policy", "then", "now, its engines and users", "now, ours"), tables.earlier)
        yield f"<p>{escape(earlier.DIFFERENCES)}</p>"


def _meanings() -> Iterator[str]:
    yield '<h2 id="columns">Columns</h2>'
    yield f"<p>{escape(_FIGURES)}</p>"
    yield from _table(
        ("column", "meaning"),
        [
            *((column.heading, column.meaning) for column in shown.COLUMNS),
            ("late by cause", _LATE),
            ("tokens late by cause", _LATE_TOKENS),
        ],
    )
    yield (
        "<p>The cause of a late request is the first of these that holds when it arrives, or, if only the time between "
        "its tokens was too long, in the middle of its answer. A pod that is slower than others of its type is the "
        "cause, too, of what would have been in time on one of them:</p>"
    )
    yield from _table(("cause", "meaning"), list(shown.CAUSES.items()))
    yield (
        "<p>Pods take equally long to start with every policy. Less warm-up means that a policy asks earlier, or keeps "
        "more replicas than the load needs.</p>"
    )


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield '<div class="wide"><table><thead><tr>'
    yield "".join(f'<th scope="col" class="left">{escape(heading)}</th>' for heading in headings)
    yield "</tr></thead><tbody>"
    for row in rows:
        cells = "".join(f'<td class="left">{escape(text)}</td>' for text in row)
        yield f"<tr>{cells}</tr>"
    yield "</tbody></table></div>"
