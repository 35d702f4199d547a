"""What comes each day at the same time is read from a real Prometheus that has three days of an engine."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from e2e.dashboards import SampledPrometheus, filled_prometheus
from wva.clock import SystemClock
from wva.collect.days import EarlierDays
from wva.instruments import Instruments
from wva.model.variant import ModelKey
from wva.prometheus.client import PrometheusClient
from wva.prometheus.settings import PrometheusSettings

pytestmark = pytest.mark.timeout(600)

MODEL = ModelKey("office", "org/model")
DAY, SCRAPE = 86_400.0, 15.0
NIGHT, WORK = 1.0, 8.0
"""Requests per second."""
OPENS_IN, OPEN = 1800.0, 4 * 3600.0
"""Seconds from now, on each day."""


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SampledPrometheus, float]]:
    """Fill a real Prometheus with the counters of an office, until now; it opens in half an hour."""
    folder = tmp_path_factory.mktemp("office")
    now = time.time()
    labels = f'namespace="{MODEL.namespace}",model_name="{MODEL.model_id}",pod="p-0",engine="0"'
    times = [now - SCRAPE * count for count in range(round(3.2 * DAY / SCRAPE), -1, -1)]
    finished, lines = 0.0, ["# TYPE vllm:request_success counter"]
    for at in times:
        finished += SCRAPE * (WORK if OPENS_IN <= (at - now) % DAY < OPENS_IN + OPEN else NIGHT)
        lines.append(f'vllm:request_success_total{{{labels},finished_reason="stop"}} {finished} {at:.3f}')
    for gauge in ("vllm:num_requests_running", "vllm:num_requests_waiting"):
        lines += [f"# TYPE {gauge} gauge", *(f"{gauge}{{{labels}}} 2 {at:.3f}" for at in times)]
    samples = folder / "office.om"
    samples.write_text("\n".join([*lines, "# EOF", ""]), encoding="utf-8")
    with filled_prometheus(samples, folder) as history:
        yield history, now


async def test_the_days_are_read_and_say_what_comes(office: tuple[SampledPrometheus, float]):
    """In blocks, each of which is a range query; then the peak of each day is known, and when it comes."""
    history, now = office
    settings, failures = PrometheusSettings(history.url, allow_http=True), dict[str, str]()
    async with PrometheusClient(settings, clock=SystemClock(), instruments=Instruments(CollectorRegistry())) as client:
        days = EarlierDays(
            prometheus=client,
            models=lambda: [MODEL],
            clock=SystemClock(),
            note=lambda _, __, failed: failures.update(failed),
        )
        for _ in range(40):
            assert await days.look()
    assert failures == {}
    (usual,) = days.usual()
    assert (usual.model, usual.days) == (MODEL, 3)
    assert usual.lately == pytest.approx(NIGHT, rel=0.01)
    assert usual.within(20 * 60.0, now=now) == pytest.approx(NIGHT, rel=0.01)
    assert usual.within(40 * 60.0, now=now) == pytest.approx(WORK, rel=0.01)
