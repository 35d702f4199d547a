"""What holds for every benchmark."""

from __future__ import annotations

import asyncio


def pytest_configure() -> None:
    """Make sure that no event loop leaks: looptime asks for one even before sync tests, which would create it."""
    asyncio.set_event_loop(None)
