"""Another writer puts the replicas of a target back again and again: the number stays that of the load."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import pytest

from tests.builders import NOW, variant
from wva.decide.pipeline import decide
from wva.model.memory import Memory
from wva.model.metrics import EngineCounters, EngineSignals, ReplicaMetrics, Sample, SampleState
from wva.model.optimizers import Analyzer
from wva.model.policy import Policy, SaturationPolicy
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.variant import VariantKey
from wva.model.vllm_parameters import VllmParameters

POLICY = Policy(saturation=SaturationPolicy(analyzer_name=Analyzer.DEMAND))
PROMPT, ANSWER, KV_TOKENS, SEQUENCES = 100.0, 200.0, 20_000.0, 100.0
FIRST, EVERY, END = 900, 180, 2400
QUEUE, PAUSE = 40.0, 5
"""With ``retries``: how many wait in a pod at most, and after how many seconds a client tries again."""
RATE = 22.0
"""Requests per second: three pods carry them, two do not."""


@dataclass
class FluidPod:
    """An engine whose requests are a fluid: a step takes 20 ms, and 0.2 ms more for each sequence."""

    name: str
    created: int
    ready: int
    running: float = 0.0
    waiting: float = 0.0
    finished: float = 0.0
    begun: float = 0.0
    seconds: float = 0.0
    refused: float = 0.0

    def arrive(self, requests: float, most: float) -> float:
        """Let requests in until so many wait; return how many are refused."""
        taken = min(requests, max(0.0, most - self.waiting))
        self.waiting, self.refused = self.waiting + taken, self.refused + requests - taken
        return requests - taken

    def serve(self) -> None:
        """Serve for a second."""
        taken = min(SEQUENCES - self.running, self.waiting)
        self.running, self.waiting, self.begun = self.running + taken, self.waiting - taken, self.begun + taken
        batch = self.running
        done = min(batch, batch / (ANSWER * (0.02 + 0.0002 * batch) + 1e-4 * PROMPT * batch)) if batch else 0.0
        self.running, self.finished, self.seconds = batch - done, self.finished + done, self.seconds + batch

    def told(self, now: float) -> ReplicaMetrics:
        """Return what a scrape at this moment shows."""

        def fresh(value: float) -> Sample:
            return Sample(SampleState.FRESH, value, now)

        answers = self.finished * ANSWER
        usage = fresh(min(1.0, self.running * (PROMPT + ANSWER / 2) / KV_TOKENS))
        counters = EngineCounters(
            now, self.finished, 0.0, self.begun * PROMPT, self.begun, answers, self.finished, self.seconds, answers
        )
        counters = replace(counters, refused=self.refused)
        signals = EngineSignals(
            kv_capacity_tokens=fresh(KV_TOKENS),
            kv_usage=usage,
            running=fresh(self.running),
            waiting=fresh(self.waiting),
        )
        return ReplicaMetrics(
            self.name,
            VariantKey("ns", "a"),
            kv_usage=usage,
            queue_length=fresh(self.waiting),
            engine=signals,
            ready_since=NOW + self.ready,
            counters=counters,
            created=NOW + self.created,
        )


def numbers(
    *,
    start: int,
    writes: int | None,
    told: bool = True,
    rate: float = RATE,
    later: float | None = None,
    retries: int | None = None,
) -> list[int]:
    """Return the number of each cycle from the first write on.

    Pods are Ready ``start`` seconds after they were made. Each three minutes another writer sets ``writes`` replicas,
    and a scaler sets the number again within 15 s. ``told``: whether WVA knows of the writer. ``later``: the rate in
    the second half of the time. ``retries``: a pod refuses requests while many wait, and a client tries so many times
    more; None: all may wait.
    """
    attempts: list[list[tuple[int, float]]] = [[] for _ in range((retries or 0) + 1)]  # when which amounts come again
    pods = [FluidPod(f"a-{number}", -3600 - start, -3600) for number in range(3)]
    made, spec, desired, taken, memory, found = 3, 3, None, None, Memory(), []
    for second in range(1, END):
        ready = [pod for pod in pods if pod.ready <= second]
        coming = [rate if later is None or second < (FIRST + END) / 2 else later]
        coming += [sum([amount for at, amount in each if at == second]) for each in attempts[1:]]
        for number, requests in enumerate(coming):
            most = inf if retries is None else QUEUE
            refused = sum([pod.arrive(requests / len(ready), most) for pod in ready])
            if number + 1 < len(attempts):
                attempts[number + 1].append((second + PAUSE, refused))
        for pod in ready:
            pod.serve()
        if writes is not None and second >= FIRST and second % EVERY == 0:
            taken = NOW + second if writes < spec and told else taken
            spec = writes
        elif second % 15 == 1 and desired is not None:
            spec = desired
        while len(pods) < spec:
            pods.append(FluidPod(f"a-{made}", second, second + start))
            made += 1
        gone, pods = pods[spec:], pods[:spec]
        for pod in gone:  # it serves no new request; those that wait go elsewhere
            pods[0].waiting += pod.waiting
        if second % 15 == 0:
            ready = [pod for pod in pods if pod.ready <= second]
            starting = [pod.created for pod in pods if pod.ready > second]
            described = replace(
                variant("a", replicas=spec, ready_replicas=len(ready), desired=desired, minimum=1, maximum=10),
                oldest_unready_since=NOW + min(starting) if starting else None,
                parameters=VllmParameters(),
                taken_at=taken,
            )
            replicas = [pod.told(NOW + second) for pod in ready]
            (decision,), memory = decide(Snapshot.of([described], replicas), memory, POLICY, NOW + second)
            desired = decision.desired
            if second >= FIRST:
                found.append(desired)
    return found


def test_alone_the_number_is_that_of_the_load():
    """Nobody else writes."""
    assert set(numbers(start=60, writes=None)) == {3}


@pytest.mark.long_story
@pytest.mark.parametrize("start", [30, 300, *(pytest.param(each, marks=pytest.mark.nightly) for each in (60, 120))])
@pytest.mark.parametrize("writes", [1, 2, 8])
def test_the_number_stays_within_one_of_what_the_load_needs(start, writes):
    """What waits because replicas were taken away asks for none, and the replicas that come back are young."""
    assert set(numbers(start=start, writes=writes)) <= {2, 3, 4}


def test_without_word_of_the_writer_the_number_runs_away():
    """So the test above can fail: a replica that is lost for another reason does ask for more."""
    assert max(numbers(start=60, writes=1, told=False)) >= 6


def test_a_load_that_rises_still_gets_its_replicas():
    """What arrives counts as always, whoever else writes the target."""
    assert max(numbers(start=60, writes=2, rate=2 * RATE)) >= 5


@pytest.mark.long_story
@pytest.mark.parametrize("start", [60, pytest.param(120, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("writes", [1, 2])
@pytest.mark.parametrize("retries", [0, 2])
def test_clients_that_try_again_are_not_more_load(retries, writes, start):
    """While the replicas that were taken away are missing, nobody can tell a retry from a request."""
    assert set(numbers(start=start, writes=writes, retries=retries)) <= {2, 3, 4}


@pytest.mark.long_story
@pytest.mark.parametrize("retries", [None, 2])
def test_a_load_that_rises_while_another_writes_still_gets_its_replicas(retries):
    """It shows whenever the replicas are back."""
    assert numbers(start=60, writes=2, later=2 * RATE, retries=retries)[-1] >= 5
