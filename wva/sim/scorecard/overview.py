"""The scorecard on a terminal: the policies of one scenario, or how WVA stands in each of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wva.sim.scorecard import shown
from wva.sim.scorecard.card import SUBJECT
from wva.sim.scorecard.markdown import named, result
from wva.sim.scorecard.tables import ScenarioTable, ScorecardTables

_FIGURES: Final = ("attainment", "cost_ratio", "failed_share", "ttft_p99_seconds", "mean_replicas", "peak_replicas")
_COLUMNS: Final = tuple(column for column in shown.COLUMNS if column.figure in _FIGURES)
_MEANING: Final = (
    "in time: first token and mean time between tokens within the objectives\n"
    "cost: 1.00 is the ideal fleet, the cheapest one that carries the load at each instant"
)


def overview(tables: ScorecardTables) -> str:
    """Return the table as lines, and what its columns mean."""
    if len(tables.scenarios) == 1:
        (part,) = tables.scenarios
        chosen = [index for index, column in enumerate(shown.COLUMNS) if column in _COLUMNS]
        headings: tuple[str, ...] = ("policy", *(tables.headings[index] for index in chosen))
        rows = [(row.name, *(row.values[index] for index in chosen)) for row in part.rows]
        return f"{part.title}\n\n{_aligned(headings, rows, left=1)}\n\n{_MEANING}"
    headings = ("scenario", SUBJECT, "best", f"{SUBJECT} against it")
    return f"{_aligned(headings, [_row(part) for part in tables.scenarios], left=len(headings))}\n\n{_MEANING}"


def _row(part: ScenarioTable) -> tuple[str, ...]:
    return part.name, result(part.row(SUBJECT)), named(part.row(part.best)), part.verdict


def _aligned(headings: Sequence[str], rows: Sequence[Sequence[str]], *, left: int) -> str:
    """Return lines whose cells stand below each other; the first ``left`` columns begin below each other."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    lines = (
        "  ".join(
            cell.ljust(width) if index < left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (headings, *rows)
    )
    return "\n".join(line.rstrip() for line in lines)
