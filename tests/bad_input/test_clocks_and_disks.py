"""Impossible times, and disks that cannot be written."""

from __future__ import annotations

import pytest

from tests.app.stage import VARIANTS, until
from tests.builders import NOW, variant
from wva.decide.progress import Moment, progress_of
from wva.model.memory import VariantMemory


@pytest.mark.parametrize("source", ["status", "pods", "memory"])
def test_a_change_that_started_in_the_future_ends_as_one_that_started_now(source):
    """Otherwise the missing replicas would count as starting for years."""
    later = NOW + 1e9
    unsettled = variant(
        replicas=2,
        settling_since=later if source == "status" else None,
        oldest_unready_since=later if source == "pods" else None,
    )
    entry = VariantMemory(unsettled.key, 2, later, 0) if source == "memory" else None
    progress = progress_of(unsettled, replicas=(), entry=entry, moment=Moment(NOW, 600.0))
    assert progress.since == NOW


@pytest.mark.parametrize("time", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00+23:59", "yesterday", "", "\uff11\uff19"])
async def test_times_of_a_status_that_cannot_be_move_nothing(stage, time):
    """An impossible time of a condition or of the last run does not change the number."""
    condition = {"type": "Progressing", "status": "True", "reason": "x", "message": "", "lastTransitionTime": time}
    allocation = {"accelerator": "H100", "numReplicas": 2, "lastRunTime": time}
    status = {"conditions": [condition], "desiredOptimizedAlloc": allocation}
    stage.force(VARIANTS, "va", lambda value: value.update(status=status))
    async with stage.controller(interval="100ms"):
        await until(lambda: stage.series() == {"va": 2})
        await stage.works()
    assert stage.metric("wva_cycles_total", result="error") == 0


async def test_recordings_that_cannot_be_written_stop_nothing(stage, output):
    """The recording directory cannot be created, because its parent is a file.

    WVA logs each failure, and goes on deciding.
    """
    place = stage.folder / "a-file"
    place.write_text("", encoding="utf-8")
    async with stage.controller(interval="100ms", RECORD_DIR=str(place / "recordings")):
        await until(lambda: stage.number() == 2)
        await stage.works()
    assert "recording_failed" in output()
    assert stage.metric("wva_cycles_total", result="error") == 0
