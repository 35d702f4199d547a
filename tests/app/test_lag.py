"""How late the event loop is, as the metric shows it."""

from __future__ import annotations

import asyncio
import time

from prometheus_client import CollectorRegistry

from wva.app.application import LoopLag
from wva.instruments import Instruments


async def measured(*, hold_seconds):
    """Hold the loop for so long, and return the meter and its registry."""
    registry = CollectorRegistry()
    lag = LoopLag(Instruments(registry), period_seconds=0.005)
    task = asyncio.create_task(lag.run())
    await asyncio.sleep(0.02)
    time.sleep(hold_seconds)  # noqa: ASYNC251 - what is measured
    await asyncio.sleep(0.02)
    task.cancel()
    return lag, registry


async def test_work_that_holds_the_loop_is_seen():
    """The longest wait is that of the work, less at most one period, and the histogram has it."""
    lag, registry = await measured(hold_seconds=0.3)
    assert lag.longest_seconds >= 0.29
    count = registry.get_sample_value("wva_event_loop_lag_seconds_count")
    assert registry.get_sample_value("wva_event_loop_lag_seconds_bucket", {"le": "0.25"}) < count


async def test_a_boundary_of_the_histogram_is_what_is_promised():
    """A quarter of a second."""
    _, registry = await measured(hold_seconds=0)
    assert registry.get_sample_value("wva_event_loop_lag_seconds_bucket", {"le": "0.25"}) > 0


async def test_every_process_measures(stage):
    """From its start on, leader or not."""
    async with stage.controller():
        await asyncio.sleep(0.25)
        assert stage.metric("wva_event_loop_lag_seconds_count") > 0
