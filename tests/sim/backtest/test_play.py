"""The backtest plays policies by name, WVA with other ConfigMaps and the recorded replicas, and writes the results."""

from __future__ import annotations

import asyncio
import pickle
from textwrap import dedent

import pytest

from tests.builders import policy
from tests.collect.doubles import RecordingClock
from tests.config.parsing import parse_saturation
from tests.sim.backtest.conftest import MINUTES, asking, recorded
from tests.sim.backtest.engines import MODEL, NAMESPACE, START
from wva.model.objectives import Objectives
from wva.model.records import replace
from wva.sim.backtest.fetch import ModelSpan, fetch
from wva.sim.backtest.fit import fit
from wva.sim.backtest.history import history
from wva.sim.backtest.play import AS_RECORDED, AsRecorded, Play, digest
from wva.sim.backtest.report import keep, markdown, read, write
from wva.sim.backtest.scenario import Backtest, backtest
from wva.sim.backtest.tune import DEFAULT, frontier, only, pareto, proposal, thresholds, timings
from wva.sim.rivals.wva import WvaSetup
from wva.sim.scorecard.card import Card, card

SPAN = ModelSpan(NAMESPACE, MODEL, START, START + 60 * MINUTES - 30)
EAGER = WvaSetup(policy(kv_spare_trigger=0.6))


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> Backtest:
    """Return the backtest of a history in which the replicas changed once."""
    return asyncio.run(_found(tmp_path_factory.mktemp("chunks")))


async def _found(folder) -> Backtest:
    clock = RecordingClock()
    async with recorded() as prometheus, asking(prometheus, clock) as client:
        seen = history(SPAN, await fetch(client, SPAN, folder, clock=clock))
    made = backtest(seen, [fit(variant, seen) for variant in seen.variants], objectives=Objectives())
    half = SPAN.count // 2
    return replace(made, replicas={"chat": (2,) * half + (3,) * (SPAN.count - half)})


@pytest.fixture(scope="module")
def play(found) -> Play:
    """Return the function that plays policies on the backtest."""
    return Play({"eager": EAGER}, AsRecorded(found.step_seconds, found.replicas))


@pytest.fixture(scope="module")
def result(found, play) -> Card:
    """Return the scorecard of three policies."""
    runs = [play(found.scenario, name, 1) for name in (AS_RECORDED, "wva", "eager")]
    return card([found.scenario], runs, title="t", order=[AS_RECORDED, "wva", "eager"])


def test_the_recorded_replicas_are_played(found, play):
    """The policy of recorded replicas has as many replicas as ran at each time."""
    figures = play(found.scenario, AS_RECORDED, 1).figures
    half = found.traffic.duration_seconds / 7200
    assert figures.replica_hours["chat"] == pytest.approx(5 * half, rel=0.05)
    assert figures.requests == found.traffic(1).count


def test_another_configuration_is_another_policy(result):
    """A configuration with more spare capacity has more replicas."""
    (part,) = result.parts
    wva, eager = part.cell("wva"), part.cell("eager")
    assert wva is not None
    assert eager is not None
    assert eager.figures["cost"].mean > wva.figures["cost"].mean


def test_a_run_is_a_function_of_the_seed(found, play):
    """The run is the same in another process."""
    again = pickle.loads(pickle.dumps(play))  # noqa: S301 - our own
    assert again(found.scenario, "eager", 2) == play(found.scenario, "eager", 2)
    assert digest(again) == digest(play)
    assert digest(Play({"eager": WvaSetup()}, play.recorded)) != digest(play)


def test_an_unknown_policy_is_no_policy(found, play):
    """A policy with an unknown name raises KeyError."""
    with pytest.raises(KeyError):
        play(found.scenario, "nothing", 1)


def test_page_and_summary_tell_both_sides(found, result, tmp_path):
    """Page and summary have the recorded and the simulated runs, and the errors of the fit."""
    page, summary = write(found, result, tmp_path, name="backtest")
    text = summary.read_text()
    assert text == "\n".join(markdown(found, result))
    assert "- cost: " in text
    assert "as recorded" in text.partition("## What each policy would have run")[2].partition("The row")[0]
    assert "| time between tokens | " in text
    assert "the start of pods was not seen" in text
    html = page.read_text()
    assert "What really ran from 2026-01-01 00:00 UTC on: cost" in html
    assert "as recorded" in html


def test_names_of_others_are_text(found, result, tmp_path):
    """Names from outside are escaped: none of them begins an HTML element, a column or a line."""
    bad = "<script>alert(1)</script>|[x](y)\n# z\x1b[2J"
    fits = (replace(found.fits[0], variant=bad, notes=(bad,)),)
    reality = replace(found.reality, replica_hours={bad: 1.0})
    (part,) = result.parts
    cells = (replace(part.cells[0], policy=bad), *part.cells[1:])
    hostile = replace(result, title=bad, parts=(replace(part, cells=cells),))
    text = "\n".join(markdown(replace(found, fits=fits, reality=reality, notes=(bad,)), hostile))
    assert text.count("alert(1)") == 6
    assert not any(word in text for word in ("<script", "|[", "[x]", "\n# z", "\x1b"))
    write(replace(found, fits=fits, model_id=bad), replace(result, title=bad), tmp_path, name="backtest")
    assert "<script>alert" not in (tmp_path / "backtest.html").read_text()


def test_what_was_kept_is_played_again(found, play, tmp_path):
    """The kept file gives the same scenario."""
    keep(found, tmp_path)
    back = read(tmp_path)
    assert back == found
    assert play(back.scenario, "wva", 1) == play(found.scenario, "wva", 1)


def test_thresholds_are_tried_around_the_defaults():
    """The thresholds include the defaults, have distinct names, and each is a ConfigMap that the controller accepts."""
    base = WvaSetup(interval_seconds=30.0, down_seconds=60.0)
    choices = thresholds(base)
    assert len({choice.name for choice in choices}) == len(choices) == 24
    assert policy().saturation in [choice.saturation for choice in choices]
    for choice in choices:
        entry = choice.entry().partition("  default: |\n")[2]
        assert parse_saturation({"default": dedent(entry)}).policy == choice.setup.policy
    assert all(choice.saturation.contradiction() is None for choice in choices)
    more = timings(choices[:2])
    assert len({choice.name for choice in more}) == 24
    assert {choice.setup.interval_seconds for choice in more} == {15.0, 30.0, 60.0}


def test_the_frontier_has_no_choice_that_another_beats(result):
    """On the frontier each dearer choice serves more requests in time."""
    front = pareto(result)
    costs = [cell.figures["cost"].mean for cell in front]
    assert costs == sorted(costs)
    shares = [cell.attainment for cell in front]
    assert shares == sorted(set(shares))
    assert len(list(frontier(front))) == len(front) + 8


def test_a_page_shows_what_is_worth_choosing_from(result):
    """The page has only the chosen policies."""
    (part,) = only(result, {"wva", "nothing"}).parts
    assert [cell.policy for cell in part.cells] == list(part.timelines) == ["wva"]


def test_a_proposal_can_be_pasted(result):
    """A proposal has a ConfigMap, the interval, and its result beside that of the defaults."""
    (part,) = result.parts
    choice = thresholds(WvaSetup(interval_seconds=30.0, down_seconds=60.0))[0]
    lines = list(proposal(choice, part.cells[0], part.cell(DEFAULT)))
    assert "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: wva-saturation-scaling-config\n" in "\n".join(lines)
    assert any("GLOBAL_OPT_INTERVAL" in line for line in lines)
    assert any(line.startswith("- the defaults would have cost") for line in lines)
