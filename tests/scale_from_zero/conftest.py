"""The fixtures that tests of scale from zero share with tests of collecting."""

from __future__ import annotations

from tests.collect.conftest import instruments, metric, output, server

__all__ = ["instruments", "metric", "output", "server"]
