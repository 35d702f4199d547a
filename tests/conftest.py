"""What holds for every test."""

from __future__ import annotations

import asyncio
import os

from hypothesis import settings

settings.register_profile("default", deadline=None)
settings.register_profile("nightly", deadline=None, max_examples=10_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_configure() -> None:
    """Make sure that no event loop leaks: looptime asks for one even before sync tests, which would create it."""
    asyncio.set_event_loop(None)
