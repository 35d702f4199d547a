"""Settings and hooks for all tests."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import importlib
import os
import pkgutil
import secrets
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import structlog
from coverage import Coverage
from hypothesis import HealthCheck, is_hypothesis_test, settings

from tests.golden.summary import pytest_sessionfinish, pytest_terminal_summary, pytest_testnodedown

__all__ = ["pytest_sessionfinish", "pytest_terminal_summary", "pytest_testnodedown"]

os.environ["SSL_CERT_FILE"] = os.devnull
"""Tests trust their own authorities alone. Reading those of the machine takes 20 ms for each connection."""

for _processor in structlog.get_config()["processors"]:
    if isinstance(_processor, structlog.dev.ConsoleRenderer):
        # Where logging is not set up, as in most tests, structlog has rich draw each traceback: 0.14 s of CPU for each.
        _processor.exception_formatter = structlog.dev.plain_traceback

ANY_SPEED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A test must not fail because the machine is busy."""

NIGHTLY = "nightly"
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")

settings.register_profile("default", ANY_SPEED, derandomize=True, max_examples=50)
"""Every run draws the same examples, so that a change fails for everybody or for nobody. New ones are for the night."""
settings.register_profile(NIGHTLY, ANY_SPEED, derandomize=False, max_examples=10_000)
settings.load_profile(PROFILE)

_NIGHTLY_SECONDS = 7200
_TESTS_OF_DECISIONS = tuple(Path(__file__).parent / name for name in ("decide", "golden", "hindsight/test_flips.py"))


def covers_decisions(item: pytest.Item) -> bool:
    """Tell whether a test counts for the coverage of ``wva/decide`` and of the flips.

    Only the tests of decisions without drawn examples count, so that the figure is the same in every run; and long
    stories do not, which it would make twice as long.
    """
    if item.get_closest_marker("long_story") or is_hypothesis_test(getattr(item, "function", None)):
        return False
    return any(item.path.is_relative_to(place) for place in _TESTS_OF_DECISIONS)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Stop a measurement of coverage that nobody saves, and that would trace every test.

    In each process of xdist pytest-cov starts it when it reads its options. The one that counts begins after this.
    """
    if hasattr(session.config, "workerinput") and (coverage := Coverage.current()) is not None:
        coverage.stop()


@contextmanager
def _unmeasured() -> Iterator[None]:
    coverage = Coverage.current()
    if coverage is None:
        yield
        return
    coverage.stop()
    try:
        yield
    finally:
        coverage.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Measure coverage only during tests that count for it, because it doubles the time of a test."""
    if covers_decisions(item):
        return (yield)
    with _unmeasured():
        return (yield)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Reset the logging that a command has set up, so that later tests capture every level again."""
    if structlog.is_configured():
        structlog.reset_defaults()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give nightly tests more time, because they have many more examples."""
    if PROFILE == NIGHTLY:
        for item in items:
            item.add_marker(pytest.mark.timeout(_NIGHTLY_SECONDS))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without coverage and garbage collection, because each process takes twice as long with them.

    The lines of a module that run when it is imported count, too, so the measured modules are imported before.
    """
    if Coverage.current() is not None:
        for module in pkgutil.walk_packages(importlib.import_module("wva.decide").__path__, "wva.decide."):
            importlib.import_module(module.name)
        importlib.import_module("wva.hindsight.flips")
    gc.disable()
    try:
        with _unmeasured():
            return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Do slow work before the tests, so that it does not count as a test's time.

    One of the test processes compiles the simulated fleet. And garbage collection skips the objects of all tests:
    to look through them takes up to a second.
    """
    if "wva.sim.fleet.compiled" in sys.modules:
        from wva.sim.fleet.prepare import prepare  # noqa: PLC0415 - only where some test needs the fleet

        with (Path(tempfile.gettempdir()) / f"wva-tests-{os.getuid()}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            prepare()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed of a nightly run, which hypothesis and the processes of xdist take from the options.

    And prevent a leak: looptime asks for an event loop even before sync tests, and would create one.
    """
    if PROFILE == NIGHTLY and config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(secrets.randbelow(2**32))
    asyncio.set_event_loop(None)


def pytest_report_header(config: pytest.Config) -> str:
    """Say which examples this run draws."""
    seed = config.option.hypothesis_seed
    return f"hypothesis: profile {PROFILE}, {f'--hypothesis-seed={seed}' if seed else 'the same examples in every run'}"
