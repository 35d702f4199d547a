"""Fixtures for the tests of bad input."""

from __future__ import annotations

import contextlib
import io
import logging

import pytest
import structlog

from tests.bad_input.hostile import HostileStage, ScriptedPrometheus
from wva import log


@pytest.fixture(autouse=True)
def logging_of_one_test():
    """Reset the logging after each test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
async def stage(tmp_path, monkeypatch):
    """Return a started stage on which a test can store invalid objects, with one variant of two replicas.

    The Deployment of ``proof`` is created before any invalid object, because the simulated Deployment controller trusts
    its input.
    """
    async with HostileStage(tmp_path, monkeypatch).open() as opened:
        opened.deployment(replicas=2)
        opened.deployment("proof", replicas=3)
        opened.va()
        yield opened


@pytest.fixture
async def prometheus():
    """Return a Prometheus whose answers the test sets."""
    async with ScriptedPrometheus() as running:
        yield running


@pytest.fixture
def output():
    """Return a function that returns all log lines so far."""
    lines = io.StringIO()
    with contextlib.redirect_stderr(lines):
        log.configure(level="debug", encoding="json")
    return lines.getvalue
