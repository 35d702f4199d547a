"""The pages about the demand analyzer have examples that the code computes, and the names of the code."""

from __future__ import annotations

import re

import pytest

from tests.config.parsing import parse_saturation
from tests.docs.rendering import DOCS
from wva.decide import warm
from wva.decide.foresee import MOST_TIMES
from wva.decide.measure.demand_arrivals import change, spread
from wva.decide.measure.demand_engine import EngineModel
from wva.model.memory import PodMemory
from wva.model.metrics import EngineCounters, EngineSignals, ReplicaMetrics, Sample, SampleState
from wva.model.objectives import DEFAULT_OBJECTIVES
from wva.model.policy import MAX_KEEP_WARM_SECONDS, SaturationPolicy
from wva.model.variant import VariantKey

USERS = (DOCS / "demand-analyzer.md").read_text(encoding="utf-8")
DESIGN = (DOCS / "design" / "demand-analyzer.md").read_text(encoding="utf-8")
PAGE = f"{USERS}\n{DESIGN}"


MOST_WORDS = 1400
"""About two pages."""


def marked(name):
    """Return the text between two marks."""
    return re.search(rf"<!-- {name} -->(.*?)<!-- /{name} -->", PAGE, re.DOTALL)[1]


def rows(first):
    """Return the cells of the table whose first column has this heading, without the heading."""
    table = re.search(rf"^\| {re.escape(first)} \|.*?\n\|[-|]+\n(.*?)\n\n", PAGE, re.DOTALL | re.MULTILINE)[1]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def counted(finished, at):
    """Return the counters of an engine, of which only the time and the finished requests are set."""
    return EngineCounters(
        **dict.fromkeys(EngineCounters.__struct_fields__, 0.0)
        | {
            "at": at,
            "finished": finished,
        }
    )


def test_the_arrivals_of_the_example():
    """Arrivals are the finished requests plus the change of the requests in the pod."""
    (_, *first), (_, *second) = rows("Scrape")
    finished, running, waiting = map(float, first)
    before = PodMemory("a-0", counted(finished, 0.0), running, waiting)
    finished, running, waiting = map(float, second)
    signals = dict.fromkeys(EngineSignals.__struct_fields__, Sample(SampleState.MISSING)) | {
        "running": Sample(SampleState.FRESH, running, 15.0),
        "waiting": Sample(SampleState.FRESH, waiting, 15.0),
    }
    sample = Sample(SampleState.FRESH, 0.0, 15.0)
    pod = ReplicaMetrics(
        "a-0",
        VariantKey("ns", "a"),
        sample,
        sample,
        engine=EngineSignals(**signals),
        counters=counted(finished, 15.0),
    )
    pods = {"a-0": before}
    (expected,) = spread([([pod], pods)], 0.0, 15.0)
    found = change([pod], pods, expected, 0.0, 0.0, 15.0)
    assert (
        marked("arrived")
        == f"{found.arrived:.0f} requests arrived in 15 s, which is {found.arrived / 15:.2g} requests/s"
    )


def test_the_rates_of_the_example():
    """The engine model gives the rates of the example."""
    engine = EngineModel(0.0199, 0.0001, 0.01, 200.0, 1.0, 256.0, 256.0, "sequences")
    told = [(float(batch), rate) for batch, rate in rows("Answers in progress")]
    assert [rate for _, rate in told] == [f"{engine.rate(batch):.3g}" for batch, _ in told]


def test_what_is_kept_in_the_example():
    """WVA keeps the example's demand after bursts of five minutes every 20 minutes, seen three times."""
    levels = ()
    for second in range(0, 2 * 1200 + 300, 15):
        levels = warm.updated_levels(levels, 20.0 if second % 1200 < 300 else 1.0, now=float(second), shortest=180.0)
    ended = 2 * 1200 + 300
    levels = warm.updated_levels(levels, 1.0, now=float(ended), shortest=180.0)
    for minutes, *told in rows("Minutes after the burst"):
        now = ended + 60.0 * float(minutes)
        kept = [
            warm.worth_keeping(levels, 0.0, now=now, seconds=180.0, longest=longest)
            for longest in (MAX_KEEP_WARM_SECONDS, 600.0, 0.0)
        ]
        assert [float(cell) for cell in told] == pytest.approx(kept, rel=0.05), minutes


def test_the_limits_and_targets_are_those_of_the_code():
    """The page names the limits as decisions do, and the targets of the code."""
    limits = {row[0].strip("`") for row in rows("Limit")}
    assert limits == {"KV cache", "sequences", "time between tokens", "time to first token"}
    assert float(marked("between")) == DEFAULT_OBJECTIVES.itl_seconds
    assert float(marked("first")) == DEFAULT_OBJECTIVES.ttft_seconds
    assert float(marked("times")) == MOST_TIMES
    assert {row[0]: row[1] for row in rows("Parameter")}["`surgeFactor`"] == f"{SaturationPolicy().surge_factor:g}"


def test_users_read_what_they_decide():
    """The page for users has each setting of the analyzer, and no more words than people read."""
    assert {row[0] for row in rows("Parameter")} == {"`keepWarm`", "`surgeFactor`", "`transitionDeadline`"}
    assert len(USERS.split()) <= MOST_WORDS


def test_the_config_map_of_the_page_is_valid():
    """The ConfigMap is valid and has the values that the text names."""
    entry = re.search(r"default: \|\n((?:    .*\n)+)", PAGE)[1]
    config = parse_saturation({"default": re.sub(r"^    ", "", entry, flags=re.MULTILINE)})
    assert (config.errors, config.policy.saturation.keep_warm) == ((), 1800.0)
