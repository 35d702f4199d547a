"""The output of the demo: a live view while it runs, and a summary at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from textwrap import shorten, wrap
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from wva.model.decision import Source
from wva.sim.stage.result import Figures
from wva.sim.world.baseline import COMPARED
from wva.sim.world.timeline import DecisionEntry, Point, VariantTimeline
from wva.sim.world.world import EmbeddedWorld

_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_WIDEST: Final = 118
_FRAME: Final = 4
"""Columns of the border with its padding; it takes two lines."""
_ROOMY_LINES: Final = 20
"""From so many lines on there is room for a bar and empty lines."""
_CHART: Final = (8, 40)
"""The least and the most columns of a chart."""
_DECISIONS: Final = 6
_HOT: Final = 0.7
_CHART_HEADING: Final = ("replicas over time", "replicas")
_DROPPED: Final = ("cost", "queue", "KV")
"""The columns that a narrow terminal does without, the first one first."""

NEXT: Final = (
    "next: `wva demo --web` explains each number in a browser. docs/day-two.md has `wva explain`, `wva doctor` and the "
    "shadow mode, in which WVA runs beside what you have and changes nothing."
)

_Row = Mapping[str, Text]


def clock_text(seconds: float) -> str:
    """Return virtual time as h:mm:ss."""
    whole_seconds = int(seconds)
    return f"{whole_seconds // 3600}:{whole_seconds // 60 % 60:02d}:{whole_seconds % 60:02d}"


def sparkline(values: Sequence[float], *, top: float, columns: int) -> str:
    """Return the values as at most ``columns`` blocks (2 or more), the newest last; the highest block means ``top``."""
    step = max(1, ceil((len(values) - 1) / (columns - 1)))
    shown = [*values[:-1:step], values[-1]]  # counted from the oldest, so that the blocks drawn so far do not change
    steps = len(_BLOCKS) - 1
    return "".join(_BLOCKS[min(steps, round(value / top * steps))] if top else _BLOCKS[0] for value in shown)


def render(world: EmbeddedWorld, duration_seconds: float, *, columns: int, lines: int) -> RenderableType:
    """Return the whole view for a terminal of this size, with as many whole reasons as there is room for."""
    width = min(columns, _WIDEST)
    inner_width = max(1, width - _FRAME)
    table, height = _variants_table(world, inner_width)
    load = _load_lines(world, inner_width)
    parts: list[RenderableType] = [*load]
    free = lines - 2 - len(load) - height
    if lines >= _ROOMY_LINES:
        bar = ProgressBar(total=duration_seconds, completed=world.clock.elapsed_seconds, width=min(60, inner_width))
        heading = Text("last decisions: time, variant, desired number, reason", style="italic")
        parts += [bar, Text(), table, Text(), heading]  # a bar does not end its line
        free -= 3
    else:
        parts.append(table)
    parts += _decision_lines(world, inner_width, free)
    title = f"wva demo: {world.scenario.name}"
    return Panel(Group(*parts), title=title, subtitle=_subtitle(world.scenario.title, inner_width), width=width)


def _subtitle(title: str, width: int) -> str:
    """Return the title of a scenario; where it is too long its first half, which says what happens."""
    text = title if len(title) + 2 <= width else title.partition(":")[0]
    return shorten(text, max(3, width - 2), placeholder=" …")


def _load_lines(world: EmbeddedWorld, width: int) -> list[Text]:
    model = world.model_now
    load = f"{clock_text(world.clock.elapsed_seconds)}  load {world.offered_per_second:5.1f} requests/s"
    waiting, served = f"waiting {model.waiting + model.queued:4d}", f"served {model.served_total:,}"
    cost = f"{world.timeline.total_cost:,.1f}"
    words = "   ".join((load, waiting, served, f"cost so far {cost}"))
    if len(words) > width:
        words = "  ".join((load, waiting, served, f"cost {cost}"))
    return [Text(line) for line in wrap(words, width)]


def _variants_table(world: EmbeddedWorld, width: int) -> tuple[Table, int]:
    """Return the table of the variants, and its lines. What a narrow terminal has no room for is left out."""
    variants = [world.timeline.variants[name] for name in sorted(world.timeline.variants)]
    variants = [variant for variant in variants if variant.points]
    rows = [_variant_row(variant, variant.points[-1]) for variant in variants]
    headings = ["variant", "cost", "ready/exist", "desired", "KV", "queue"]
    dropped = list(_DROPPED)
    while (room := width - _columns(headings, rows)) < _CHART[0] and dropped:
        headings.remove(dropped.pop(0))
    spare = min(max(0, room - _CHART[1]), len(headings))
    table = Table(box=None, pad_edge=False, padding=(0, 1 + spare // len(headings), 0, 0))
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "variant" else "right", no_wrap=True)
    table.add_column(_CHART_HEADING[room < len(_CHART_HEADING[0])], no_wrap=True)
    for variant, row in zip(variants, rows, strict=True):
        replicas = [float(entry.current) for entry in variant.points]
        chart = sparkline(replicas, top=max([*replicas, 4.0]), columns=max(2, min(room, _CHART[1])))
        table.add_row(*(row[heading] for heading in headings), chart)
    return table, 1 + len(rows)


def _columns(headings: Sequence[str], rows: Sequence[_Row]) -> int:
    """Return the width of a table of these columns, with a space behind each."""
    return sum(1 + max([len(heading), *(row[heading].cell_len for row in rows)]) for heading in headings)


def _variant_row(variant: VariantTimeline, point: Point) -> _Row:
    usage = point.kv_cache_usage
    heat = "" if usage is None else "red" if usage >= _HOT else "green"
    moved = "bold yellow" if point.desired != point.current else ""
    return {
        "variant": Text(f"{variant.name} ({variant.accelerator})"),
        "cost": Text(f"{variant.cost_per_replica_hour:g}/h"),
        "ready/exist": Text(f"{point.ready}/{point.current}"),
        "desired": Text("-" if point.desired is None else str(point.desired), style=moved),
        "KV": Text("no data" if usage is None else f"{usage:4.0%}", style=heat),
        "queue": Text(str(point.waiting)),
    }


def _decision_lines(world: EmbeddedWorld, width: int, lines: int) -> list[Text]:
    """Return the last decisions that changed a number or kept it without evidence, newest first, in ``lines`` lines.

    Only the newest is cut, if it alone is longer.
    """
    notable = [entry for entry in world.timeline.decisions if _changed(entry) or entry.source != Source.MEASURED.value]
    shown: list[Text] = []
    names = max(len(name) for name in world.timeline.variants)
    for entry in reversed(notable[-_DECISIONS:]):
        change = f"{entry.previous} -> {entry.desired}" if _changed(entry) else str(entry.desired)
        words = f"{clock_text(entry.at_seconds)}  {entry.variant:{names}}  {change:6}  {entry.message}"
        style = "bold" if _changed(entry) else "yellow"
        room = max(0, lines - len(shown))
        wrapped = wrap(words, width, subsequent_indent="  ")
        if len(wrapped) > room:
            if shown or not room:
                break
            wrapped = wrap(words, width, subsequent_indent="  ", max_lines=room, placeholder=" …")
        shown += [Text(line, style=style) for line in wrapped]
    return shown


def _changed(entry: DecisionEntry) -> bool:
    return entry.previous is not None and entry.previous != entry.desired


class LiveView:
    """The view on the terminal while a block runs."""

    def __init__(self, world: EmbeddedWorld, duration_seconds: float) -> None:
        """Show ``world``."""
        self._world = world
        self._duration = duration_seconds
        self._console = Console()
        self._live = Live(console=self._console, get_renderable=self._render, auto_refresh=False, transient=False)

    def refresh(self) -> None:
        """Draw the present state."""
        self._live.refresh()

    def _render(self) -> RenderableType:
        size = self._console.size  # Live asks for the first picture while it is being constructed
        return render(self._world, self._duration, columns=size.width, lines=size.height)

    def __enter__(self) -> Self:
        """Start drawing."""
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Draw the last state and leave it on the screen."""
        self.refresh()
        self._live.stop()


def print_summary(world: EmbeddedWorld, *, wall_seconds: float, others: Mapping[str, Figures] | None = None) -> None:
    """Print the figures of the run, beside those of ``others`` on the same traffic, and what to do next."""
    summary = world.timeline.summary(world.model)
    console = Console(highlight=False)
    console.print(f"\n{world.scenario.name}: {world.scenario.title}", style="bold")
    ran = f"{clock_text(world.clock.elapsed_seconds)} of virtual time in {wall_seconds:.0f} s"
    lines = [
        ("ran", ran),
        ("requests served", f"{summary['requests_served']:,} of {summary['requests_arrived']:,}"),
        ("dropped", f"{summary['requests_dropped']:,}"),
        ("first token within 1 s", _share(summary["ttft_attainment"])),
        ("50 ms between tokens", _share(summary["itl_attainment"])),
        ("replica cost", f"{summary['replica_cost']:,.1f}"),
    ]
    for name, cost in summary["replica_cost_by_variant"].items():
        changes = summary["changes_of_desired"][name]
        points = world.timeline.variants[name].points
        low, high = min(point.current for point in points), max(point.current for point in points)
        lines.append((f"  {name}", f"cost {cost:,.1f}, {low} to {high} replicas, desired changed {changes} times"))
    for label, value in lines:
        console.print(f"  {label:24} {value}")
    if others is not None:
        console.print("\non the same traffic          first token in time      cost", style="bold")
        rows = [("WVA", summary["ttft_attainment"], summary["replica_cost"], "")]
        rows += [(name, figures.ttft_attainment, figures.cost, COMPARED[name]) for name, figures in others.items()]
        for name, share, cost, words in rows:
            console.print(f"  {name:24} {'-' if share is None else f'{share:.1%}':>20} {cost:9,.1f}", soft_wrap=True)
            if words:
                console.print(Padding(words, (0, 0, 0, 4)))
    console.print(f"\n{NEXT}")


def _share(value: float | None) -> str:
    return "no request was served" if value is None else f"{value:.1%} of requests"
