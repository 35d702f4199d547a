"""The metric of the event loop's lag."""

from __future__ import annotations

import asyncio
import time

from prometheus_client import CollectorRegistry

from wva.app import application
from wva.instruments import Instruments


async def measured(monkeypatch, *, hold_seconds):
    """Block the loop for this time, and return the registry."""
    registry = CollectorRegistry()
    monkeypatch.setattr(application, "LAG_PERIOD_SECONDS", 0.005)
    task = asyncio.create_task(application.measure_lag(Instruments(registry)))
    await asyncio.sleep(0.02)
    time.sleep(hold_seconds)  # noqa: ASYNC251 - this blocks the loop on purpose
    await asyncio.sleep(0.02)
    task.cancel()
    return registry


async def test_work_that_holds_the_loop_is_seen(monkeypatch):
    """The longest lag is the time of the blocking work, less at most one period."""
    registry = await measured(monkeypatch, hold_seconds=0.3)
    assert registry.get_sample_value("wva_event_loop_lag_seconds_sum") >= 0.29
    count = registry.get_sample_value("wva_event_loop_lag_seconds_count")
    assert registry.get_sample_value("wva_event_loop_lag_seconds_bucket", {"le": "0.25"}) < count


async def test_a_boundary_of_the_histogram_is_what_is_promised(monkeypatch):
    """The histogram has a bucket for a quarter of a second."""
    registry = await measured(monkeypatch, hold_seconds=0)
    assert registry.get_sample_value("wva_event_loop_lag_seconds_bucket", {"le": "0.25"}) > 0


async def test_every_process_measures(stage):
    """The process measures the lag from its start on."""
    async with stage.controller():
        await asyncio.sleep(0.25)
        assert stage.metric("wva_event_loop_lag_seconds_count") > 0
