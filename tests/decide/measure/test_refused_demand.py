"""A closed loop of ``decide`` with engines that refuse requests when too many wait, and clients that try again."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tests.builders import NOW, variant
from tests.decide.measure.pods import ReportingPod, fresh
from wva.decide.pipeline import decide
from wva.model.memory import Memory
from wva.model.optimizers import Analyzer
from wva.model.policy import Policy, SaturationPolicy
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.vllm_parameters import VllmParameters

POLICY = Policy(saturation=SaturationPolicy(analyzer_name=Analyzer.DEMAND))
CYCLE = 15.0
START = 60.0
MOST = 11.0  # requests per second that a pod serves at most: its KV cache is full then
QUEUE = 4.0  # requests that wait in a pod that refuses more


@dataclass
class RefusingModel:
    """Pods that serve what they can and refuse the rest; clients send what is refused ``retries`` times more."""

    retries: int
    pods: list[ReportingPod] = field(default_factory=lambda: [ReportingPod("a-0"), ReportingPod("a-1")])
    starting: dict[str, float] = field(default_factory=dict)
    made: int = 2
    now: float = NOW
    memory: Memory = field(default_factory=Memory)
    numbers: list[int] = field(default_factory=list)
    sent: float = 0.0

    def run(self, rate: float, seconds: float) -> None:
        """Send requests for some time, each counted once, and do what is decided."""
        end = self.now + seconds
        while self.now < end:
            self._serve(rate)
            self._decide()

    def _serve(self, rate: float) -> None:
        self.now += CYCLE
        most = MOST * len(self.pods)
        # Of each attempt the same share is refused, so that what is let in is what the pods serve.
        refused = max(0.0, 1.0 - most / rate) ** (1.0 / (1 + self.retries))
        self.sent = rate * sum(refused**attempt for attempt in range(1 + self.retries))
        for pod in self.pods:
            pod.serve(min(rate, most) / len(self.pods), CYCLE)
            pod.waiting = QUEUE if refused else 0.0
            more = self.sent * refused * CYCLE / len(self.pods)
            pod.counters = replace(pod.counters, refused=pod.counters.refused + more)

    def _decide(self) -> None:
        for name in [name for name, since in self.starting.items() if since <= self.now]:
            since = self.starting.pop(name)
            self.pods.append(ReportingPod(name, since, replace(ReportingPod(name).counters, at=since)))
        told = [replace(pod.told(), kv_usage=fresh(0.5), queue_length=fresh(pod.waiting)) for pod in self.pods]
        known = variant("a", replicas=len(self.pods) + len(self.starting), ready_replicas=len(self.pods))
        known = replace(known, parameters=VllmParameters(), status_desired=self.numbers[-1] if self.numbers else None)
        (decision,), self.memory = decide(Snapshot.of([known], told), self.memory, POLICY, self.now)
        self.numbers.append(decision.desired)
        while len(self.pods) + len(self.starting) < decision.desired:
            self.starting[f"a-{self.made}"] = self.now + START
            self.made += 1
        while len(self.pods) + len(self.starting) > decision.desired:
            if self.starting:
                self.starting.popitem()
            else:
                self.pods.pop()

    @property
    def demand(self) -> float:
        """The demand that was measured last, in requests per second."""
        slot = self.memory.foreseen[0].slots[-1]
        return slot.amount / slot.seconds


def needed(rate: float) -> int:
    """Return how many pods a fleet ends with that was never too small, so that nothing was ever refused."""
    model = RefusingModel(0, [ReportingPod(f"a-{place}") for place in range(2 + int(rate / 4))])
    model.made = len(model.pods)
    model.run(rate, 900.0)
    assert model.pods[0].counters.refused == 0.0
    return model.numbers[-1]


def test_without_retries_the_demand_is_what_was_sent() -> None:
    """Half of the requests are refused; all of them count at once, and none of them is taken to wait."""
    model = RefusingModel(0)
    model.run(8.0, 600.0)
    model.run(22.0, CYCLE)
    assert sum(pod.counters.refused for pod in model.pods) > 0.4 * 22.0 * CYCLE
    assert model.demand == pytest.approx(22.0, rel=0.1)
    assert model.numbers[-1] <= needed(22.0) + 1


@pytest.mark.long_story
@pytest.mark.parametrize("rate", [24.0, 80.0, 200.0])
@pytest.mark.parametrize("retries", [0, 2])
def test_the_fleet_ends_at_what_the_load_needs_however_often_clients_try(retries: int, rate: float) -> None:
    """At first each attempt counts. Once the pods have started, none is refused, and the demand is the true one."""
    model = RefusingModel(retries)
    model.run(8.0, 600.0)
    model.run(rate, 900.0)
    need = needed(rate)
    assert max(model.numbers) <= 1 + 1.2 * (1 + retries) * need
    assert 0.9 * need <= model.numbers[-1] <= 1.2 * need
    assert model.demand == pytest.approx(rate, rel=0.1)


def test_a_count_of_refusals_that_went_back_takes_nothing_off() -> None:
    """If the counter is missing from a page, what finished still counts."""
    model = RefusingModel(0)
    model.run(8.0, 600.0)
    model.run(22.0, CYCLE)
    for pod in model.pods:
        pod.counters = replace(pod.counters, refused=0.0)
    model.run(8.0, CYCLE)
    assert model.demand == pytest.approx(8.0, rel=0.1)
