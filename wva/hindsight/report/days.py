"""The numbers of a report: those of each variant on each day, and their sums.

A day of a variant without samples has no numbers: it is never a zero, and sums do not have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from operator import add, or_
from typing import Any, Final

from wva.hindsight.shadow import RealAndShadow, ShadowFigures
from wva.model.variant import VariantKey

DAY_SECONDS: Final = 86400
MOST_DAYS: Final = 92
"""A quarter."""
_WHOLE: Final = 0.98
"""A day counts as seen in full from this share of its time on: a restart of the controller leaves a small gap."""
_HOUR_SECONDS: Final = 3600.0

CAVEAT: Final = (
    "Shadow mode does not change the world. Each number of WVA is its answer to the world as it was; other replicas "
    "would have changed it. So the first difference of a variant is certain, and a sum is an estimate."
)
LATE: Final = (
    "Late requests came while the load was above what the replicas carry within the targets. Fitted engines estimate "
    "them. The error is how many more one standard error more load would have made."
)


@dataclass(frozen=True, slots=True)
class Day:
    """A day: seconds since the epoch at its begin, and at its end. The end of today is now."""

    start: float
    end: float

    @property
    def name(self) -> str:
        """The date, and the end of a day that is not over."""
        try:
            date, until = (datetime.fromtimestamp(seconds, UTC) for seconds in (self.start, self.end))
        except (OverflowError, OSError, ValueError):  # a recording from elsewhere may be of any year
            return f"{self.start:.0f} s"
        return f"{date:%Y-%m-%d}" + (f" until {until:%H:%M}" if self.end - self.start < DAY_SECONDS else "")


def days_until(now: float, count: int) -> tuple[Day, ...]:
    """Return ``count`` days: the day of ``now`` (seconds since the epoch), which ends then, and the days before it.

    An instant at midnight belongs to the day before, as in a window of Prometheus.
    """
    last = start_of(now)
    starts = [last - DAY_SECONDS * back for back in reversed(range(count))]
    return tuple(Day(start, min(start + DAY_SECONDS, now)) for start in starts)


def start_of(now: float) -> float:
    """Return the begin of the day in which an instant is, in seconds since the epoch."""
    start = now // DAY_SECONDS * DAY_SECONDS
    return start if now > start else start - DAY_SECONDS


@dataclass(frozen=True, slots=True)
class TableLine:
    """A line of a table; ``figures`` is None without samples."""

    name: str
    figures: ShadowFigures | None


@dataclass(frozen=True, slots=True)
class Table:
    """Lines with a title and their sum."""

    title: str
    lines: tuple[TableLine, ...]

    @property
    def sum(self) -> ShadowFigures | None:
        """The sum of the lines with samples; None if there is none."""
        return total(line.figures for line in self.lines)


@dataclass(frozen=True, slots=True)
class ShadowReport:
    """The numbers of each variant on each day of which there are samples.

    ``source`` says where they come from, ``models`` which model a variant serves, if that is known, and ``roles`` what
    its pods compute of a request, if they say it.
    """

    source: str
    days: tuple[Day, ...]
    figures: Mapping[VariantKey, Mapping[Day, ShadowFigures]]
    models: Mapping[VariantKey, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    roles: Mapping[VariantKey, str] = field(default_factory=dict)

    @property
    def span(self) -> str:
        """The first and the last day."""
        names = [day.name for day in self.days]
        return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"

    @property
    def sum(self) -> ShadowFigures | None:
        """The sum of all."""
        return self.overall.sum

    @property
    def overall(self) -> Table:
        """All variants by day."""
        lines = [
            TableLine(day.name, together(by_day.get(day) for by_day in self.figures.values())) for day in self.days
        ]
        return Table("all variants", tuple(lines))

    def tables(self) -> Iterator[Table]:
        """Yield the sum of all variants by day, the sums by model, and each variant by day."""
        if len(self.figures) > 1:
            yield self.overall
        by_model = self._by_model()
        if 1 < len(by_model) < len(self.figures):
            yield Table("by model", tuple(TableLine(name, figures) for name, figures in by_model.items()))
        for key in sorted(self.figures):
            model, role = self.models.get(key), self.roles.get(key)
            of_model = f" (model {model}{f', {role}' if role else ''})" if model else ""
            lines = [TableLine(day.name, self.figures[key].get(day)) for day in self.days]
            yield Table(f"{key}{of_model}", tuple(lines))

    def _by_model(self) -> dict[str, ShadowFigures]:
        groups: dict[str, list[VariantKey]] = {}
        for key in sorted(self.figures):
            name = f"{self.models.get(key) or 'unknown model'} in {key.namespace}"
            groups.setdefault(name, []).append(key)
        sums = {}
        for name, keys in groups.items():
            figures = together(total(self.figures[key].values()) for key in keys)
            if figures is not None:
                sums[name] = figures
        return sums

    def remarks(self) -> Iterator[str]:
        """Yield what a reader has to know: what the numbers are not, and what is missing."""
        yield CAVEAT
        yield LATE
        cells = [(day, by_day.get(day)) for by_day in self.figures.values() for day in self.days]
        missing = sum(figures is None for _, figures in cells)
        if missing:
            yield f"{missing} of {len(cells)} days of variants have no samples, and the sums do not have these days."
        partly = sum(
            figures is not None and figures.hours < _WHOLE * (day.end - day.start) / _HOUR_SECONDS
            for day, figures in cells
        )
        if partly:
            yield (
                f"{partly} of {len(cells)} days of variants were seen in part. Their numbers are those of the hours "
                "seen."
            )
        if any(figures is not None and figures.late is None for _, figures in cells):
            yield (
                "A - among the late requests: there is no estimate. It needs the analyzer demand or queueing, and is "
                "with the first variant of a model."
            )
        yield from self.notes

    def headline(self) -> str:
        """Return the sum in one sentence."""
        figures = self.sum
        if figures is None:
            return "There are no samples of any variant in shadow mode."
        gpus, cost = figures.gpu_hours, figures.cost
        text = (
            f"WVA would have run {number(gpus.shadow)} GPU-hours; {number(gpus.real)} really ran{_share(gpus)}. "
            f"It would have cost {number(cost.shadow)}; the real cost was {number(cost.real)}{_share(cost)}."
        )
        if figures.late is not None:
            late = figures.late.requests
            error = number(figures.late.error)
            text += (
                f" {number(late.shadow)} ± {error} requests would have been late; really it was {number(late.real)} ± "
                f"{error}."
            )
        return text

    def document(self) -> dict[str, Any]:
        """Return the report for programs."""
        return {
            "source": self.source,
            "headline": self.headline(),
            "sum": _document(self.sum),
            "days": [
                {"day": line.name, "from": day.start, "to": day.end, "sum": _document(line.figures)}
                for day, line in zip(self.days, self.overall.lines, strict=True)
            ],
            "models": [{"model": name, "sum": _document(figures)} for name, figures in self._by_model().items()],
            "variants": [
                {
                    "namespace": key.namespace,
                    "name": key.name,
                    "model": self.models.get(key),
                    "role": self.roles.get(key),
                    "sum": _document(total(days.values())),
                    "days": [{"day": day.name, "sum": _document(days.get(day))} for day in self.days],
                }
                for key, days in sorted(self.figures.items(), key=lambda item: item[0])
            ],
            "notes": list(self.remarks()),
        }


def total(several: Iterable[ShadowFigures | None]) -> ShadowFigures | None:
    """Return the sum of the known figures of several times; None if none is known."""
    known = [figures for figures in several if figures is not None]
    return reduce(add, known) if known else None


def together(several: Iterable[ShadowFigures | None]) -> ShadowFigures | None:
    """Return the sum of the known figures of several variants; None if none is known."""
    known = [figures for figures in several if figures is not None]
    return reduce(or_, known) if known else None


def number(value: float) -> str:
    """Return a number for people: two digits after the point for small ones."""
    return f"{value:,.2f}" if abs(value) < 10 else f"{value:,.1f}"  # noqa: PLR2004 - one digit before the point


def signed(value: float) -> str:
    """Return a difference for people, with its sign; a difference that rounds to nothing has none."""
    text = number(abs(value))
    return text if float(text.replace(",", "")) == 0 else f"{'-' if value < 0 else '+'}{text}"


def _share(pair: RealAndShadow) -> str:
    if pair.real <= 0:
        return ""
    percent = round(100 * pair.difference / pair.real)
    return f" ({percent:+d} %)" if percent else " (the same)"


def _document(figures: ShadowFigures | None) -> dict[str, Any] | None:
    if figures is None:
        return None
    late = figures.late
    return {
        "hours": figures.hours,
        "gpu_hours": _both(figures.gpu_hours),
        "cost": _both(figures.cost),
        "late_requests": None if late is None else _both(late.requests) | {"error": late.error},
    }


def _both(pair: RealAndShadow) -> dict[str, float]:
    return {**pair.by_fleet(), "difference": pair.difference}
