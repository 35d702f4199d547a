"""What is the same on every page: the frame of a page in HTML, and the format of figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from importlib.resources import files
from types import MappingProxyType
from typing import Final, NamedTuple

from wva.sim.scorecard.card import Cell
from wva.sim.scorecard.statistics import Estimate
from wva.sim.stage.late import ACTUATION, BACKLOG, BATCH, DECISION, SCHEDULING, SERVICE, SLOW_POD, TRIGGER, WARM_UP

NONE: Final = "-"
NOT_RECORDED: Final = "not recorded"
"""What stands for a figure that runs of an earlier version did not have."""
_NEARLY_ALL: Final = 0.999


def document(title: str, body: str, *, policy: str) -> str:
    """Return a whole page in HTML, with the style of the scorecard and a security policy of its own."""
    style = files("wva.sim.scorecard").joinpath("page.css").read_text(encoding="utf-8")
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def share(value: float) -> str:
    """Return a share as percent. A share just below 100 % is not rounded to 100 %."""
    if value >= 1.0:
        return "100%"
    if value > _NEARLY_ALL:
        return f"{min(value, 0.9999):.2%}"
    return f"{value:.1%}"


def seconds(value: float) -> str:
    """Return a duration with three digits at most."""
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s" if value < 100 else f"{value:.0f} s"  # noqa: PLR2004


def number(value: float) -> str:
    """Return a number with its significant digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"  # noqa: PLR2004


def hours(value: float) -> str:
    """Return hours with one digit."""
    return f"{value:,.1f}"


class Column(NamedTuple):
    """A column of a table of figures: its heading, its figure, and the figure's format and meaning."""

    heading: str
    figure: str
    show: Callable[[float], str]
    meaning: str
    interval: bool = False


COLUMNS: Final = (
    Column(
        "in time",
        "attainment",
        share,
        "attainment: share of requests with the first token and the mean time between tokens within the objectives; "
        "failed requests are not",
        interval=True,
    ),
    Column(
        "cost",
        "cost_ratio",
        number,
        "price of the fleet over that of the ideal fleet: the cheapest sufficient one at each instant",
        interval=True,
    ),
    Column("of clairvoyant", "reference_ratio", number, "price of the fleet over that of the policy clairvoyant"),
    Column("TTFT ok", "ttft_attainment", share, "share of requests with the first token within the objective"),
    Column("ITL ok", "itl_attainment", share, "share of requests with a mean time between tokens within the objective"),
    Column(
        "failed",
        "failed_share",
        share,
        "share of requests that got no answer: the user gave up, the gateway was full, or the replica ended",
    ),
    Column(
        "TTFT p99",
        "ttft_p99_seconds",
        seconds,
        "99 of 100 requests that were answered had their first token within this time",
    ),
    Column("goodput/s", "goodput_per_second", number, "requests in time, per second"),
    Column("GPU h", "gpu_hours", hours, "GPU-hours, from the creation of each pod to its end"),
    Column("price", "cost", number, "replica-hours times their price per hour; the unit of prices does not matter"),
    Column("mean", "mean_replicas", hours, "replicas on average"),
    Column("peak", "peak_replicas", lambda value: f"{value:.0f}", "most replicas at once"),
    Column(
        "most asked",
        "peak_ratio",
        number,
        "the most that was asked for at once over the most that the ideal fleet has at once, replicas at their price: "
        "nodes are bought by what is asked for",
    ),
    Column(
        "reaches capacity",
        "seconds_to_capacity",
        seconds,
        "mean time from when the demand outgrows the Ready replicas until they carry it",
    ),
    Column(
        "turns",
        "reversals",
        lambda value: f"{value:.0f}",
        "how often the number of replicas asked for turned from rising to falling or back",
    ),
)
"""The figures of a policy, in order of importance."""

CAUSES: Final[Mapping[str, str]] = MappingProxyType(
    {
        TRIGGER: "the policy had not looked since the demand grew",
        DECISION: "the policy had looked, and asked for too little",
        ACTUATION: "the policy had asked for enough, but spec.replicas had not followed",
        SCHEDULING: "the pods had no node yet",
        WARM_UP: "the pods had a node, but were not Ready yet",
        SLOW_POD: "enough pods were Ready, but some were slower than others of their type",
        BACKLOG: "enough pods were Ready, but the queue from a shortage before had not drained",
        SERVICE: "enough pods were Ready all the time: long prompts, uneven routing, or a pod that ended",
        BATCH: "the same, and the first token was in time: the batch was too large, or had long prompts",
    }
)
"""Why a request was late, in words."""


def figure(cell: Cell, column: Column) -> str:
    """Return the figure of a policy, with its interval where the column has one."""
    estimate = cell.figures.get(column.figure)
    if estimate is None:
        return NONE
    return column.show(estimate.mean) + (interval(estimate, column) if column.interval else "")


def interval(estimate: Estimate, column: Column) -> str:
    """Return half of the interval behind a plus-minus sign; nothing where there is none."""
    if estimate.half_width is None:
        return ""
    if column.show is share:
        return f" ±{estimate.half_width * 100:.1f}"
    return f" ±{column.show(estimate.half_width)}"


def name(cell: Cell) -> str:
    """Return the name of a policy, with the tuned member that it stands for."""
    if cell.policy == cell.member:
        return cell.policy
    return f"{cell.policy} ({cell.member.partition('@')[2] or cell.member})"


def plain(text: str) -> str:
    """Return a text of others so that it can stand in Markdown: on one line, no element, no link, no end of a cell."""
    printable = "".join(char if char.isprintable() else " " for char in text)
    return escape(printable, quote=False).replace("|", "&#124;").replace("[", "&#91;").replace("`", "&#96;")
