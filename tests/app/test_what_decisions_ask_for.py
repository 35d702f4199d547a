"""What is collected follows the configuration: requests for scaling to zero, GPUs for the limiter, engines for V2."""

from __future__ import annotations

from tests.app.stage import SATURATION, until

TO_ZERO = "wva-model-scale-to-zero-config"


def queries(stage, name):
    """Return how many queries of a name were answered."""
    return stage.metric("wva_prometheus_queries_total", query=name, result="success")


async def test_nothing_more_is_asked_by_default(stage):
    """Four queries: the two signals and their times."""
    stage.deployment()
    stage.va()
    await stage.scrape()
    async with stage.controller(interval="20ms"):
        await stage.cycles(3)
        for name in ("request_counts", "engine_signals", "scheduler_queue"):
            assert queries(stage, name) == 0


async def test_requests_are_counted_once_a_model_may_go_to_zero(stage):
    """From the next cycle on, without a restart."""
    stage.deployment()
    stage.va()
    await stage.scrape()
    async with stage.controller(interval="20ms"):
        await stage.cycles(1)
        stage.config_map(TO_ZERO, {"default": "enable_scale_to_zero: true\nretention_period: 5m"})
        await until(lambda: queries(stage, "request_counts") > 0)


async def test_engines_are_asked_once_the_token_analyzer_is_chosen(stage):
    """Both of its queries."""
    stage.deployment()
    stage.va()
    await stage.scrape()
    async with stage.controller(interval="20ms"):
        await stage.cycles(1)
        stage.config_map(SATURATION, {"default": "analyzerName: saturation"})
        await until(lambda: queries(stage, "engine_signals") > 0)
        await until(lambda: queries(stage, "scheduler_queue") > 0)
