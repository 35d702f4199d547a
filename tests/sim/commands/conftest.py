"""The fixtures with which the tests of the controller's commands call ``wva``."""

from __future__ import annotations

from tests.cli.conftest import environment, free_port, log_as_before, run, start, wva

__all__ = ["environment", "free_port", "log_as_before", "run", "start", "wva"]
