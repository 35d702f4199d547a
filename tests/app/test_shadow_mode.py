"""Shadow mode of a whole process: its counters grow, and a variant leaves it without a jump."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from tests.app.stage import MAIN, until

SHADOW = {"metadata": {"annotations": {"wva.llmd.ai/mode": "shadow"}}}
ACT = {"metadata": {"annotations": {"wva.llmd.ai/mode": None}}}


async def scraped(stage):
    """Return the values of the page that Prometheus scrapes, by the name of the series."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{stage.app.metrics_port}/metrics") as response,
    ):
        lines = (await response.text()).splitlines()
    return {line.partition("{")[0]: float(line.rpartition(" ")[2]) for line in lines if 'variant_name="va"' in line}


async def test_the_counters_grow_while_no_decision_changes(stage):
    """The page keeps the text of a variant until something changes, and time passes without any change."""
    stage.deployment()
    stage.va()
    stage.patch_va(SHADOW)
    async with stage.controller(interval="20ms"):
        await until(lambda: stage.told("Shadow") == ("True", "ShadowMode"))
        await stage.cycles(3)
        first, before = await scraped(stage), stage.decision()
        await stage.cycles(10)
        second = await scraped(stage)
        assert stage.decision() == before
        assert "wva_desired_replicas" not in second
        assert second["wva_shadow_hours_total"] > first["wva_shadow_hours_total"]


@pytest.mark.parametrize("exist", [1, 4])
async def test_a_variant_leaves_with_a_number_for_the_replicas_that_exist(stage, exist):
    """What scaled the target meanwhile is not taken back: the last number of the shadow is never published."""
    stage.config_map(MAIN, {"GLOBAL_OPT_INTERVAL": "1h"})
    stage.deployment(replicas=1)
    stage.va()
    stage.patch_va(SHADOW)
    async with stage.controller(interval=None, config_map={"GLOBAL_OPT_INTERVAL": "1h"}):
        await until(lambda: stage.told("Shadow") == ("True", "ShadowMode"))
        await until(lambda: stage.series("wva_shadow_hours_total"))
        stage.scale("d", exist)
        await until(lambda: stage.series("wva_current_replicas") == {"va": exist})
        stage.patch_va(ACT)
        await asyncio.sleep(0.3)
        assert (stage.series(), stage.number()) == ({}, None)
        assert stage.series("wva_shadow_desired_replicas") == {"va": 1}
        stage.config_map(MAIN, {"GLOBAL_OPT_INTERVAL": "1s"})
        numbers = []
        await until(lambda: numbers.append(stage.series()) or stage.told("Shadow") == ("False", "Acting"))
        assert [each for each in numbers if each not in ({}, {"va": exist})] == []
        assert (stage.series(), stage.number()) == ({"va": exist}, exist)
        assert stage.series("wva_shadow_hours_total") == {}
