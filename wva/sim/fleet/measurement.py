"""One engine under a load of requests that are all alike, and what its users experience.

For comparing an engine with a published measurement, and for finding out how much one replica carries.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nextafter
from statistics import fmean

from wva.sim.fleet.engine import DrivenEngine
from wva.sim.fleet.parameters import EngineParameters
from wva.sim.fleet.requests import FinishedRequest, UserRequest


@dataclass(frozen=True, slots=True)
class OfferedLoad:
    """Requests of one length. By default all of them come at once.

    Attributes:
        prompt_tokens: length of each prompt.
        output_tokens: length of each answer.
        requests: how many there are.
        rate: requests per second, at equal distances; infinite: all at once.
        users: a fixed number of users, each of whom sends the next request when the last one is served; 0: ``rate``.
        seconds: when the measurement ends, with what is served by then; infinite: with the last request.
        prompts: how many different prompts there are, so that the prefix cache has most of them; 0: each is new.

    """

    prompt_tokens: int
    output_tokens: int
    requests: int = 1
    rate: float = inf
    users: int = 0
    seconds: float = inf
    prompts: int = 0

    def request(self, number: int, at_seconds: float) -> UserRequest:
        """Return the request with this number."""
        return UserRequest(
            number=number,
            arrival_seconds=at_seconds,
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            group=number % self.prompts if self.prompts else None,
            prefix_tokens=self.prompt_tokens if self.prompts else 0,
        )


@dataclass(frozen=True, slots=True)
class LoadOutcome:
    """The results of a load. Means and percentiles leave out the first quarter of a load that comes at a rate.

    Attributes:
        latency: seconds until the last request was served.
        requests_per_second: served, per second of the measurement.
        output_tokens_per_second: the same in tokens of answers.
        ttft: mean seconds from sending to the first token.
        ttft_p99: 99th percentile of it.
        tpot: mean seconds between the tokens of an answer.

    """

    latency: float
    requests_per_second: float
    output_tokens_per_second: float
    ttft: float
    ttft_p99: float
    tpot: float


def measure(parameters: EngineParameters, load: OfferedLoad) -> LoadOutcome:
    """Serve a load with an engine that was idle before.

    Raises:
        ValueError: no request of it is served by the end of the measurement.

    """
    engine = DrivenEngine(parameters, groups=load.prompts)
    served = _users(engine, load) if load.users else _rate(engine, load)
    if not served:
        msg = f"no request is served within {load.seconds:g} s"
        raise ValueError(msg)
    served.sort(key=lambda request: request.finish_seconds)
    last = served[-1].finish_seconds
    seconds = last if load.seconds == inf else load.seconds
    steady = [request for request in served if request.request.number >= load.requests // 4]
    if load.rate == inf or not steady:
        steady = served
    ttfts = sorted(request.time_to_first_token_seconds for request in steady)
    return LoadOutcome(
        latency=last,
        requests_per_second=len(served) / seconds,
        output_tokens_per_second=sum(request.output_tokens for request in served) / seconds,
        ttft=fmean(ttfts),
        ttft_p99=ttfts[int(0.99 * (len(ttfts) - 1))],
        tpot=fmean(request.inter_token_latency_seconds or 0.0 for request in steady),
    )


def _rate(engine: DrivenEngine, load: OfferedLoad) -> list[FinishedRequest]:
    for number in range(load.requests):
        at = number / load.rate
        if at >= load.seconds:
            break
        engine.submit(load.request(number, at), at_seconds=at)
    _finish(engine, load.seconds)
    return engine.finished


def _users(engine: DrivenEngine, load: OfferedLoad) -> list[FinishedRequest]:
    """Send a request for each user, and the next one when one is served."""
    sent = min(load.users, load.requests)
    for number in range(sent):
        engine.submit(load.request(number, 0.0), at_seconds=0.0)
    handled = 0
    while sent < load.requests and engine.next_event_seconds < load.seconds:
        engine.advance(nextafter(engine.next_event_seconds, inf))
        for served in engine.finished[handled:]:
            handled += 1
            if sent < load.requests:
                engine.submit(load.request(sent, served.finish_seconds), at_seconds=engine.now_seconds)
                sent += 1
    _finish(engine, load.seconds)
    return engine.finished


def _finish(engine: DrivenEngine, until_seconds: float) -> None:
    while engine.next_event_seconds < min(until_seconds, inf):
        engine.advance(nextafter(engine.next_event_seconds, inf))
