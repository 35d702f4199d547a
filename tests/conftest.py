"""What holds for every test."""

from __future__ import annotations

import asyncio
import os

import pytest
from hypothesis import HealthCheck, settings

from tests.golden.summary import pytest_sessionfinish, pytest_terminal_summary, pytest_testnodedown

__all__ = ["pytest_sessionfinish", "pytest_terminal_summary", "pytest_testnodedown"]

ANY_SPEED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A loaded machine is no reason to fail."""

settings.register_profile("default", ANY_SPEED)
settings.register_profile("nightly", ANY_SPEED, max_examples=10_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


NIGHTLY = "nightly"
_NIGHTLY_SECONDS = 7200


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests the time that a hundred times as many examples take."""
    if os.environ.get("HYPOTHESIS_PROFILE") == NIGHTLY:
        for item in items:
            item.add_marker(pytest.mark.timeout(_NIGHTLY_SECONDS))


def pytest_configure() -> None:
    """Make sure that no event loop leaks: looptime asks for one even before sync tests, which would create it."""
    asyncio.set_event_loop(None)
