"""After one jump to a steady load, how many replicas the demand analyzer asks for, beside what it keeps in the end."""

from __future__ import annotations

from math import ceil, inf
from random import Random

import pytest

from tests.builders import NOW, variant
from tests.decide.measure.pods import ReportingPod, fresh
from wva.decide.pipeline import decide
from wva.model.memory import Memory
from wva.model.policy import Policy, SaturationPolicy
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.vllm_parameters import VllmParameters

pytestmark = pytest.mark.long_story

CYCLE = 15
TOP = 10.5
"""Requests per second that a pod gets through at most; within its targets it carries 8.9."""
CALM_SECONDS = 600


class JumpingLoad:
    """Pods of one variant under a load that jumps once: what a pod does not get through waits in it.

    ``patience`` is after how many seconds of waiting users go away, in no counter. A scaler applies each number a cycle
    later, and a pod takes ``start`` seconds. Loads of pods differ as by chance, always in the same way.
    """

    def __init__(self, policy: Policy, *, pods: int, start: int, patience: float) -> None:
        """Begin with Ready pods."""
        self.policy, self.start, self.patience = policy, start, patience
        self.pods = [ReportingPod(f"a-{place}") for place in range(pods)]
        self.starting: list[tuple[float, float]] = []  # when each pod that is not Ready was created, and will be Ready
        self.now, self.waiting, self.made, self.asked = NOW, 0.0, pods, pods
        self.memory, self.random = Memory(), Random(1)

    def run(self, rate: float, seconds: float) -> list[int]:
        """Send requests at a rate for some seconds, and return the number of each cycle."""
        numbers = []
        for _ in range(int(seconds / CYCLE)):
            self.now += CYCLE
            self._serve(rate)
            self._scale(self.asked)
            self.asked = self._decide()
            numbers.append(self.asked)
        return numbers

    def _serve(self, rate: float) -> None:
        offered = rate + self.waiting / CYCLE
        shares = [self.random.uniform(0.75, 1.25) for _ in self.pods]
        rates = [min(TOP, offered * share / sum(shares)) for share in shares]
        self.waiting = min((offered - sum(rates)) * CYCLE, rate * self.patience)
        for pod, served in zip(self.pods, rates, strict=True):
            pod.serve(served, CYCLE)
            pod.waiting = self.waiting / len(self.pods)

    def _scale(self, number: int) -> None:
        for created, ready in [pod for pod in self.starting if pod[1] <= self.now]:
            self.starting.remove((created, ready))
            pod = ReportingPod(f"a-{self.made}", ready_since=ready)
            pod.counters = replace(pod.counters, at=self.now)
            self.pods.append(pod)
            self.made += 1
        more = number - len(self.pods) - len(self.starting)
        self.starting += [(self.now, self.now + self.start)] * max(0, more)
        if more < 0:
            del self.starting[max(0, len(self.starting) + more) :]
            self.waiting -= sum([pod.waiting for pod in self.pods[number:]])  # they still serve what waits in them
            del self.pods[number:]

    def _decide(self) -> int:
        told = [replace(pod.told(), kv_usage=fresh(0.5), queue_length=fresh(pod.waiting)) for pod in self.pods]
        told = [replace(each, created=(each.ready_since or 0.0) - self.start) for each in told]
        one = variant(
            "a",
            replicas=len(self.pods) + len(self.starting),
            ready_replicas=len(self.pods),
            desired=self.asked,
            maximum=1000,
            oldest_unready_since=min([created for created, _ in self.starting], default=None),
        )
        one = replace(one, parameters=VllmParameters())
        (decision,), self.memory = decide(Snapshot.of([one], told), self.memory, self.policy, self.now)
        return decision.desired


def after_jump(factor: float, *, times: float, pods: int, start: int, patience: float) -> tuple[int, int]:
    """Return the most replicas that are asked for after a jump to so many times the load, and those kept in the end."""
    policy = Policy(saturation=SaturationPolicy(surge_factor=factor, transition_deadline_seconds=900.0))
    load = JumpingLoad(policy, pods=pods, start=start, patience=patience)
    load.run(pods * 8.0, CALM_SECONDS)
    numbers = load.run(pods * 8.0 * times, 4 * start + 1800)
    return max(numbers), numbers[-1]


@pytest.mark.parametrize(("start", "patience"), [(30, inf), (120, 60.0), (300, inf), (600, 60.0)])
@pytest.mark.parametrize(("pods", "times"), [(3, 2.0), (6, 2.5), (2, 10.0)])
def test_a_steady_load_after_a_jump_gets_no_more_than_the_surge_factor_of_what_it_keeps(
    pods: int, times: float, start: int, patience: float
) -> None:
    """Whatever waits while replicas start, and however long that takes."""
    most, kept = after_jump(1.25, times=times, pods=pods, start=start, patience=patience)
    assert kept >= pods * 8.0 * times / TOP
    assert most <= ceil(1.25 * kept)


def test_a_larger_factor_orders_more_for_what_waits() -> None:
    """So what waits is gone sooner; the default lies above 2."""
    factors = (1.25, 2.0, SaturationPolicy().surge_factor)
    most = [after_jump(factor, times=2.5, pods=6, start=120, patience=60.0)[0] for factor in factors]
    assert most[0] < most[1] < most[2]
