"""The command, called as the tests of the controller's commands call it."""

from __future__ import annotations

from tests.cli.conftest import environment, free_port, log_as_before, run, start, wva

__all__ = ["environment", "free_port", "log_as_before", "run", "start", "wva"]
