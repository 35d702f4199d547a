"""Latencies and attainment in the log of a service."""

import pytest

from wva.sim.fleet.requests import FinishedRequest, UserRequest
from wva.sim.fleet.service_log import Latency, ServiceLevel, ServiceLog


def finished(at, ttft, gap, tokens=10):
    """Return a finished request."""
    return FinishedRequest(UserRequest(1, 0.0, 1, tokens), at, ttft, gap, tokens)


def test_nothing_served_is_absence_not_zero():
    """Without served requests, latencies and attainment are None."""
    served = ServiceLog().served(ServiceLevel())
    assert (served.requests, served.time_to_first_token, served.inter_token_latency) == (0, None, None)
    assert served.attainment is None


def test_percentiles_are_nearest_rank():
    """Of the numbers 1 to 100, the 90th percentile is 90."""
    latency = Latency.of(map(float, range(100, 0, -1)), objective_seconds=75.0)
    assert (latency.p50_seconds, latency.p90_seconds, latency.p99_seconds) == (50, 90, 99)
    assert latency.mean_seconds == 50.5
    assert latency.attainment == 0.75


def test_attainment_takes_both_objectives():
    """A request counts only if first token and gaps are within the objectives. Without gaps the first token decides."""
    log = ServiceLog()
    log.record(finished(1.0, 0.5, 0.04))
    log.record(finished(2.0, 1.5, 0.04))
    log.record(finished(3.0, 0.5, 0.06))
    log.record(finished(4.0, 1.0, None, tokens=1))
    served = log.served(ServiceLevel())
    assert served.attainment == pytest.approx(0.5)
    assert served.time_to_first_token.attainment == pytest.approx(0.75)
    assert served.inter_token_latency.attainment == pytest.approx(2 / 3)
    assert (served.requests, served.output_tokens) == (4, 31)


def test_span_chooses_by_finish_time():
    """Only requests that finished within the span count."""
    log = ServiceLog()
    for at in (1.0, 2.0, 3.0):
        log.record(finished(at, 0.1, 0.01))
    assert log.requests == 3
    assert log.served(ServiceLevel(), since_seconds=2.0).requests == 2


def test_requests_may_finish_out_of_order():
    """The log takes finished requests in any order, since it reads one engine after the other."""
    log = ServiceLog()
    for at in (3.0, 1.0):
        log.record(finished(at, 0.1, 0.01))
    assert [log.served(ServiceLevel(), since_seconds=at).requests for at in (1.0, 2.0, 3.0, 3.5)] == [2, 1, 1, 0]
