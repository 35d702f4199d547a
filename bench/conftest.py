"""Settings of all benchmarks."""

from __future__ import annotations

import asyncio


def pytest_configure() -> None:
    """Unset the event loop: looptime asks for one even before sync tests, which would create a loop that leaks."""
    asyncio.set_event_loop(None)
