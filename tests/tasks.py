"""Tasks that run during a test."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest


@asynccontextmanager
async def running(work):
    """Run a coroutine as a task around the body; afterwards cancel it. It must end by this, and not by an error."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
