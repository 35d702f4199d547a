"""The output of the demo: a live view while it runs, and a summary at the end."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from wva.model.decision import Source
from wva.sim.world.timeline import DecisionEntry, Point, VariantTimeline
from wva.sim.world.world import EmbeddedWorld

_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_HISTORY: Final = 40
_DECISIONS: Final = 6
_HOT: Final = 0.7


def clock_text(seconds: float) -> str:
    """Return virtual time as h:mm:ss."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def sparkline(values: list[float], *, top: float) -> str:
    """Return the newest values as blocks; the highest block means ``top``."""
    shown = values[-_HISTORY:]
    steps = len(_BLOCKS) - 1
    return "".join(_BLOCKS[min(steps, round(value / top * steps))] if top else _BLOCKS[0] for value in shown)


def render(world: EmbeddedWorld, duration_seconds: float) -> RenderableType:
    """Return the whole view."""
    return Panel(
        Group(
            _load_line(world),
            ProgressBar(total=duration_seconds, completed=world.clock.elapsed_seconds, width=60),
            Text(),
            _variants_table(world),
            Text(),
            _decisions_table(world),
        ),
        title=f"wva demo: {world.scenario.name}",
        subtitle=world.scenario.title,
        width=118,
    )


def _load_line(world: EmbeddedWorld) -> Text:
    model = world.model_now
    line = Text()
    line.append(f"{clock_text(world.clock.elapsed_seconds)}  ", style="bold")
    line.append(f"load {world.offered_per_second:5.1f} requests/s   waiting {model.waiting + model.queued:4d}   ")
    line.append(f"served {model.served_total:,}   cost so far {world.timeline.total_cost:,.1f}")
    return line


def _variants_table(world: EmbeddedWorld) -> Table:
    table = Table(box=None, pad_edge=False, expand=True)
    for heading in ("variant", "cost", "ready/exist", "desired", "KV", "queue", "replicas over time"):
        table.add_column(heading, justify="left" if heading in {"variant", "replicas over time"} else "right")
    for name in sorted(world.timeline.variants):
        variant = world.timeline.variants[name]
        if variant.points:
            table.add_row(*_variant_row(variant, variant.points[-1]))
    return table


def _variant_row(variant: VariantTimeline, point: Point) -> list[RenderableType]:
    usage = point.kv_cache_usage
    heat = "" if usage is None else "red" if usage >= _HOT else "green"
    replicas = [float(entry.current) for entry in variant.points[:: max(1, len(variant.points) // _HISTORY)]]
    moved = "bold yellow" if point.desired != point.current else ""
    return [
        f"{variant.name} ({variant.accelerator})",
        f"{variant.cost_per_replica_hour:g}/h",
        f"{point.ready}/{point.current}",
        Text("-" if point.desired is None else str(point.desired), style=moved),
        Text("no data" if usage is None else f"{usage:4.0%}", style=heat),
        str(point.waiting),
        sparkline(replicas, top=max([*replicas, 4.0])),
    ]


def _decisions_table(world: EmbeddedWorld) -> Table:
    """Return the last decisions that changed a number or kept it without evidence, newest first."""
    table = Table(box=None, pad_edge=False, expand=True, title="last decisions", title_justify="left")
    table.add_column("time", min_width=7)
    table.add_column("variant", min_width=max(len(name) for name in world.timeline.variants))
    table.add_column("desired", min_width=7)
    table.add_column("why", ratio=1, overflow="ellipsis", no_wrap=True)
    telling = [entry for entry in world.timeline.decisions if _changed(entry) or entry.source != Source.MEASURED.value]
    for entry in reversed(telling[-_DECISIONS:]):
        change = f"{entry.previous} -> {entry.desired}" if _changed(entry) else str(entry.desired)
        style = "bold" if _changed(entry) else "yellow"
        table.add_row(clock_text(entry.at_seconds), entry.variant, change, entry.message, style=style)
    return table


def _changed(entry: DecisionEntry) -> bool:
    return entry.previous is not None and entry.previous != entry.desired


class LiveView:
    """The view on the terminal while a block runs."""

    def __init__(self, world: EmbeddedWorld, duration_seconds: float) -> None:
        """Show ``world``."""
        self._world = world
        self._duration = duration_seconds
        self._live = Live(render(world, duration_seconds), auto_refresh=False, transient=False)

    def refresh(self) -> None:
        """Draw the present state."""
        self._live.update(render(self._world, self._duration), refresh=True)

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


def print_summary(world: EmbeddedWorld, *, wall_seconds: float) -> None:
    """Print the figures of the run."""
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


def _share(value: float | None) -> str:
    return "no request was served" if value is None else f"{value:.1%} of requests"
