"""The configuration decides which queries a cycle sends."""

from __future__ import annotations

import re

import pytest

from tests.app.stage import SATURATION, until
from tests.docs.rendering import DOCS

BESIDE_CYCLES = {"in_progress", "in_time", "past_pods", "stray_series"}
"""Queries of the fast lane and of others that ask at times of their own; on a busy machine such a time may come."""
TO_ZERO = "wva-model-scale-to-zero-config"
PAGE = (DOCS / "prometheus-integration.md").read_text(encoding="utf-8")
COUNTS = re.findall(r"^\| ([^|]+) \| (on|off) \| (\d) \|$", PAGE, re.MULTILINE)
ANALYZERS = {
    "percentage": ("", "false"),
    "token": ("saturation", "false"),
    "queueing model": ("queueing", "false"),
    "demand (default)": ("demand", "false"),
    "any other, in HYBRID mode": ("", "true"),
    "demand, in HYBRID mode": ("demand", "true"),
}


def queries(stage, name):
    """Return how many queries with this name succeeded."""
    return stage.metric("wva_prometheus_queries_total", query=name, result="success")


async def test_nothing_more_is_asked_for_the_percentage_analyzer(stage):
    """The percentage analyzer needs neither the request counts nor the queries for the other analyzers."""
    stage.config_map(SATURATION, {"default": "analyzerName: percentage"})
    stage.deployment()
    stage.va()
    await stage.scrape()
    async with stage.controller(interval="20ms"):
        await stage.cycles(3)
        for name in ("request_counts", "engine_signals", "engine_counters", "scheduler_queue"):
            assert queries(stage, name) == 0


async def test_requests_are_counted_once_a_model_may_go_to_zero(stage):
    """When scale to zero is switched on, the next cycle queries the request counts."""
    stage.deployment()
    stage.va()
    await stage.scrape()
    async with stage.controller(interval="20ms"):
        await stage.cycles(1)
        stage.config_map(TO_ZERO, {"default": "enable_scale_to_zero: true\nretention_period: 5m"})
        await until(lambda: queries(stage, "request_counts") > 0)


async def test_engines_are_asked_once_the_token_analyzer_is_chosen(stage):
    """When the token analyzer is chosen, the next cycle sends its two queries."""
    stage.deployment()
    stage.va()
    await stage.scrape()
    async with stage.controller(interval="20ms"):
        await stage.cycles(1)
        stage.config_map(SATURATION, {"default": "analyzerName: saturation"})
        await until(lambda: queries(stage, "engine_signals") > 0)
        await until(lambda: queries(stage, "scheduler_queue") > 0)


async def test_engines_are_asked_what_they_counted_by_default(stage):
    """The demand analyzer queries the engine counters and the scheduler's queue, and not the engine signals."""
    stage.deployment()
    stage.va()
    await stage.scrape()
    async with stage.controller(interval="20ms"):
        await stage.cycles(1)
        await until(lambda: queries(stage, "engine_counters") > 0)
        await until(lambda: queries(stage, "scheduler_queue") > 0)
        assert queries(stage, "engine_signals") == 0


def test_the_page_counts_the_queries_of_each_analyzer():
    """The table has each analyzer with and without scale to zero."""
    assert sorted((analyzer, to_zero) for analyzer, to_zero, _ in COUNTS) == sorted(
        (analyzer, to_zero) for analyzer in ANALYZERS for to_zero in ("on", "off")
    )


def test_the_formula_is_that_of_the_table():
    """The page has the numbers of the table: the base, the addition for engines and the one for scale to zero."""
    count = {(analyzer, to_zero): int(text) for analyzer, to_zero, text in COUNTS}
    base = count["percentage", "off"]
    engines, zero = count["token", "off"] - base, count["percentage", "on"] - base
    assert tuple(map(int, re.findall(r"^- (\d) (?:queries|more)", PAGE, re.MULTILINE))) == (base, engines, zero)


@pytest.mark.parametrize(("analyzer", "to_zero", "count"), COUNTS)
async def test_a_cycle_sends_as_many_queries_as_the_page_says(stage, analyzer, to_zero, count):
    """Two models in one namespace need as many queries as one."""
    name, hybrid = ANALYZERS[analyzer]
    for variant in ("one", "two"):
        stage.deployment(variant)
        stage.va(variant, target=variant)
    stage.patch_va({"spec": {"modelID": "acme/another"}}, "two")
    await stage.scrape()
    stage.config_map(SATURATION, {"default": f'analyzerName: "{name}"'})
    stage.config_map(TO_ZERO, {"default": f"enable_scale_to_zero: {to_zero == 'on'}".lower()})
    async with stage.controller(EXPERIMENTAL_PROACTIVE_MODEL=hybrid):
        await stage.cycles(1)
        families = stage.instruments.registry.collect()
        (sent,) = [family for family in families if family.name == "wva_prometheus_queries"]
        totals = [sample for sample in sent.samples if sample.name.endswith("_total")]
        asked = sum(sample.value for sample in totals if sample.labels["query"] not in BESIDE_CYCLES)
        assert asked == int(count) * stage.metric("wva_cycles_total", result="success")
