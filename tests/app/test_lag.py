"""How late the event loop is, as the metric shows it."""

from __future__ import annotations

import asyncio
import time

from prometheus_client import CollectorRegistry

from wva.app import application
from wva.instruments import Instruments


async def measured(monkeypatch, *, hold_seconds):
    """Hold the loop for so long, and return the registry."""
    registry = CollectorRegistry()
    monkeypatch.setattr(application, "LAG_PERIOD_SECONDS", 0.005)
    task = asyncio.create_task(application.measure_lag(Instruments(registry)))
    await asyncio.sleep(0.02)
    time.sleep(hold_seconds)  # noqa: ASYNC251 - what is measured
    await asyncio.sleep(0.02)
    task.cancel()
    return registry


async def test_work_that_holds_the_loop_is_seen(monkeypatch):
    """The longest wait is that of the work, less at most one period, and the histogram has it."""
    registry = await measured(monkeypatch, hold_seconds=0.3)
    assert registry.get_sample_value("wva_event_loop_lag_seconds_sum") >= 0.29
    count = registry.get_sample_value("wva_event_loop_lag_seconds_count")
    assert registry.get_sample_value("wva_event_loop_lag_seconds_bucket", {"le": "0.25"}) < count


async def test_a_boundary_of_the_histogram_is_what_is_promised(monkeypatch):
    """A quarter of a second."""
    registry = await measured(monkeypatch, hold_seconds=0)
    assert registry.get_sample_value("wva_event_loop_lag_seconds_bucket", {"le": "0.25"}) > 0


async def test_every_process_measures(stage):
    """From its start on, leader or not."""
    async with stage.controller():
        await asyncio.sleep(0.25)
        assert stage.metric("wva_event_loop_lag_seconds_count") > 0
