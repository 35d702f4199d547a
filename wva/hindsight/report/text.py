"""A report as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from wva.hindsight.report.days import ShadowReport, TableLine, number, signed
from wva.hindsight.shadow import RealAndShadow, ShadowFigures

NO_SAMPLES: Final = "no samples on this day"
_COLUMNS: Final = (
    "seen",
    "real",
    "WVA",
    "difference",
    "real",
    "WVA",
    "difference",
    "real",
    "WVA",
    "difference",
    "error",
)
_GROUPS: Final = (("hours", 1), ("GPU-hours", 3), ("cost", 3), ("late requests", 4))
_CELL: Final = 11


def lines(report: ShadowReport) -> Iterator[str]:
    """Yield the lines of the report; they may have any characters of labels."""
    yield "What really ran, and what WVA would have run"
    yield f"{report.span} (days of UTC), from {report.source}"
    yield ""
    yield report.headline()
    for table in report.tables():
        yield ""
        rows = (*table.lines, TableLine("sum", table.sum))
        width = max(len(line.name) for line in rows) + 2
        yield table.title
        yield (" " * (width + 2) + "".join(name.rjust(_CELL * count) for name, count in _GROUPS)).rstrip()
        yield (" " * (width + 2) + "".join(name.rjust(_CELL) for name in _COLUMNS)).rstrip()
        for line in rows:
            cells = f"  {NO_SAMPLES}"
            if line.figures is not None:
                cells = "".join(cell.rjust(_CELL) for cell in cells_of(line.figures))
            yield f"  {line.name:{width}}{cells}".rstrip()
    yield ""
    yield from (f"note: {remark}" for remark in report.remarks())


def cells_of(figures: ShadowFigures) -> Iterator[str]:
    """Yield the numbers of a line for people; a - stands for an unknown number."""
    yield number(figures.hours)
    yield from _three(figures.gpu_hours)
    yield from _three(figures.cost)
    if figures.late is None:
        yield from ("-",) * 4
    else:
        yield from _three(figures.late.requests)
        yield number(figures.late.error)


def _three(pair: RealAndShadow) -> Iterator[str]:
    yield number(pair.real)
    yield number(pair.shadow)
    yield signed(pair.difference)
