"""The ``inferno_*`` aliases for older HPA manifests. Environment and ConfigMap can switch them on."""

from __future__ import annotations

import pytest

from tests.app.stage import MAIN, until

KEY = "WVA_INFERNO_METRIC_ALIASES"


@pytest.mark.parametrize("source", ["environment", "configmap"])
async def test_the_aliases_stand_on_the_page_of_a_whole_controller(stage, source):
    """The aliases have the same values as the originals."""
    stage.deployment(replicas=2)
    stage.va()
    given = {KEY: "true"}
    if source == "configmap":
        stage.config_map(MAIN, given)
        given = {"config_map": given}
    async with stage.controller(**given):
        await until(lambda: stage.series("inferno_desired_replicas") == {"va": 2})
        assert stage.series() == {"va": 2}
        assert stage.series("inferno_current_replicas") == stage.series("wva_current_replicas")


async def test_without_the_switch_there_are_none(stage):
    """By default there are no aliases."""
    stage.deployment()
    stage.va()
    async with stage.controller():
        await until(stage.series)
        assert "inferno" not in stage.page()
