"""The fixtures of these tests are those of the collection tests."""

from tests.collect.conftest import clock, instruments, metric, output, server

__all__ = ["clock", "instruments", "metric", "output", "server"]
