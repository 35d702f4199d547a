"""The live view of ``wva demo`` on terminals of several sizes."""

from __future__ import annotations

import io
import re
from types import SimpleNamespace

import pytest
from rich.console import Console

from wva.sim.commands.view import render, sparkline
from wva.sim.world.scenarios import SCENARIOS
from wva.sim.world.timeline import DecisionEntry, Point
from wva.sim.world.world import EmbeddedWorld

REASON = (
    "53.16 requests/s needed, 48.53 there (39.6 requests/s of 1025 + 516 tokens), so the model grows: 1 replica more, "
    "the cheapest numbers have more of llama-a100 (cost 20)"
)
SIZES = [(80, 24), (120, 40), (50, 12)]


def a_world(*, decisions=6, reason=REASON, scenario="quickstart"):
    """Return a world with 180 points of each variant, of which the last one alone has 8 replicas, and decisions."""
    world = EmbeddedWorld(SCENARIOS[scenario], seed=1)
    for number in range(180):
        for variant in world.timeline.variants.values():
            current = 8 if number == 179 else 1
            variant.points.append(Point(number * 15.0, current, current, current, 1.0, 0.55, 10))
    for number in range(decisions):
        message = f"number {number}: {reason}"
        entry = DecisionEntry(60.0 * number, "llama-a100", number, number + 1, number, "Grown", "measured", message)
        world.timeline.decisions.append(entry)
    world.clock.pass_to(2700.0)
    return world


def drawn(world, columns, lines):
    """Return the lines on a terminal of this size."""
    console = Console(file=io.StringIO(), width=columns, height=lines, force_terminal=False, color_system=None)
    console.print(render(world, 7200.0, columns=columns, lines=lines))
    return console.file.getvalue().rstrip("\n").split("\n")


def words(shown):
    """Return the text within the border, with single spaces."""
    return " ".join(" ".join(line.strip("│╭╮╰╯") for line in shown).split())


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize(("columns", "lines"), SIZES)
def test_the_view_fits(columns, lines, scenario):
    """No line is wider than the terminal, and none is cut off below: the border is closed."""
    shown = drawn(a_world(scenario=scenario), columns, lines)
    assert len(shown) <= lines
    assert {len(line) for line in shown} == {min(columns, 118)}
    assert shown[-1].startswith("╰")
    assert sum(line.startswith("│ variant ") for line in shown) == 1


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (120, 40)])
def test_what_happens_is_told_in_whole_words(columns, lines, scenario, monkeypatch):
    """The line below the border has all of a sentence, and that of the load stays one line over the whole run."""
    world = a_world(scenario=scenario)
    now = SimpleNamespace(waiting=900, queued=99, served_total=46_474)
    monkeypatch.setattr(EmbeddedWorld, "model_now", now)
    monkeypatch.setattr(type(world.timeline), "total_cost", 1234.5)
    shown = drawn(world, columns, lines)
    below = shown[-1].strip("╰╯─ ")
    told = below.removesuffix(" …")
    assert told != below or below in {world.scenario.title, world.scenario.title.partition(":")[0]}
    assert re.match(rf"{re.escape(told)}(?!\w)", world.scenario.title)
    assert "1,234.5" in shown[1]


@pytest.mark.parametrize(("columns", "lines"), SIZES)
def test_the_newest_replicas_are_on_the_chart(columns, lines):
    """The chart has the whole run, as far as there is room for; the newest point is its last one."""
    rows = [line for line in drawn(a_world(), columns, lines) if "llama-h100 (" in line]
    assert len(rows) == 1
    assert re.search(r" ▁{7,39}█ *│$", rows[0])


@pytest.mark.parametrize(("columns", "lines", "decisions"), [(80, 24, 5), (120, 40, 6), (50, 12, 1)])
def test_reasons_are_whole(columns, lines, decisions):
    """The newest decisions with all of their words: as many as there is room for."""
    text = words(drawn(a_world(), columns, lines))
    assert [f"number {number}: {REASON}" in text for number in range(6)] == [
        number >= 6 - decisions for number in range(6)
    ]
    assert "…" not in text


def test_a_reason_that_is_longer_than_the_terminal_is_cut_at_its_end():
    """There is always a decision."""
    shown = drawn(a_world(reason=REASON * 5), 50, 12)
    assert len(shown) == 12
    assert "number 5: 53.16 requests/s needed" in words(shown)
    assert shown[-2].rstrip("│ ").endswith("…")


@pytest.mark.parametrize(("columns", "lines"), [*SIZES, (20, 5), (1, 1)])
def test_nothing_has_happened_yet(columns, lines):
    """Before the first scrape there is a view, too, on the smallest terminal."""
    assert drawn(EmbeddedWorld(SCENARIOS["quickstart"], seed=1), columns, lines)


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 40, 481])
def test_a_chart_has_all_of_the_run(count):
    """It begins with the oldest value, ends with the newest, and is no longer than asked for."""
    chart = sparkline([8.0, *[4.0] * (count - 2), 2.0] if count > 1 else [2.0], top=8.0, columns=8)
    assert len(chart) <= 8
    assert chart[-1] == "▂"
    assert chart[0] == "█" or count == 1
