"""A history in an embedded Prometheus, and the client to ask it."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry

from tests.collect.doubles import RecordingClock
from tests.sim.backtest.engines import START, write
from wva.instruments import Instruments
from wva.prometheus.client import PrometheusClient
from wva.prometheus.settings import PrometheusSettings
from wva.sim.fleet.parameters import EngineParameters
from wva.sim.prometheus import EmbeddedPrometheus

MINUTES = 40
ODD = EngineParameters(
    alpha_seconds=0.022,
    beta_seconds_per_sequence=0.00015,
    prefill_seconds_per_token=0.00012,
    num_gpu_blocks=6000,
)
"""An engine that differs from all presets."""


@pytest.fixture
def clock():
    """Return a clock that notes pauses instead of making them."""
    return RecordingClock()


@asynccontextmanager
async def recorded():
    """Yield a Prometheus with forty minutes of two pods of a variant, and of the controller."""
    async with EmbeddedPrometheus(now=lambda: START + 60 * MINUTES, retention_seconds=86400) as running:
        write(running.tsdb, {"chat-5d9f-aa": ODD, "chat-5d9f-bb": ODD}, minutes=MINUTES)
        yield running


@asynccontextmanager
async def asking(prometheus, clock):
    """Yield a client of a Prometheus."""
    settings = PrometheusSettings(prometheus.url, allow_http=True)
    instruments = Instruments(CollectorRegistry())
    async with PrometheusClient(settings, clock=clock, instruments=instruments) as opened:
        yield opened


@pytest.fixture
async def prometheus():
    """Return the Prometheus of ``recorded``."""
    async with recorded() as running:
        yield running


@pytest.fixture
async def client(prometheus, clock):
    """Return a client of the Prometheus."""
    async with asking(prometheus, clock) as opened:
        yield opened
