"""Pods whose engines sleep count as no replicas: whatever the load needs, it needs beside them."""

from __future__ import annotations

from itertools import count

import pytest

from tests.builders import NOW, replica, variant
from tests.decide.measure.pods import PodsOfModel, ReportingPod, fresh
from wva.decide.pipeline import decide
from wva.model.decision import ENGINES_READABLE, Decision, Reason
from wva.model.memory import Memory
from wva.model.metrics import EngineSignals, Sample, SampleState
from wva.model.optimizers import Analyzer
from wva.model.policy import Policy, SaturationPolicy
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.vllm_parameters import VllmParameters

DEMAND = Policy(saturation=SaturationPolicy(analyzer_name=Analyzer.DEMAND))


class SleepyFleet:
    """A fleet under the demand analyzer whose pods are Ready a cycle after they were ordered; some of them sleep."""

    def __init__(self, pods: int) -> None:
        """Begin with so many pods that are awake."""
        self.names = (f"a-{number}" for number in count())
        self.model = PodsOfModel([ReportingPod(next(self.names)) for _ in range(pods)])
        self.asleep: list[ReportingPod] = []
        self.memory = Memory()
        self.last: Decision | None = None

    def sleep(self, number: int) -> None:
        """Put pods to sleep; their counters stand still."""
        for _ in range(number):
            self.asleep.append(self.model.pods.pop())

    def wake(self) -> None:
        """Wake all pods."""
        self.model.pods += self.asleep
        self.asleep.clear()

    def run(self, rate: float, cycles: int) -> list[int]:
        """Serve a rate and do what is decided; return the numbers."""
        numbers = []
        for _ in range(cycles):
            self.model.serve(rate)
            for pod in self.asleep:
                pod.batch = 0.0
                pod.counters = replace(pod.counters, at=self.model.now)
            told = [pod.told() for pod in self.model.pods]
            told += [replace(pod.told(), dormant=True) for pod in self.asleep]
            told = [replace(each, kv_usage=fresh(0.2), queue_length=fresh(0.0)) for each in told]
            exist = len(told)
            known = variant("a", replicas=exist, ready_replicas=exist, desired=self.last and self.last.desired)
            known = replace(known, parameters=VllmParameters())
            (self.last,), self.memory = decide(Snapshot.of([known], told), self.memory, DEMAND, self.model.now)
            numbers.append(self.last.desired)
            while len(self.model.pods) + len(self.asleep) < self.last.desired:
                since = self.model.now
                self.model.pods.append(
                    ReportingPod(next(self.names), since, replace(ReportingPod("x").counters, at=since))
                )
            while len(self.model.pods) + len(self.asleep) > self.last.desired and len(self.model.pods) > 1:
                self.model.pods.pop()
        return numbers


@pytest.mark.parametrize("sleepers", [1, 2])
def test_the_fleet_has_what_the_load_needs_beside_the_pods_that_sleep(sleepers: int) -> None:
    """Without sleepers the load needs five pods. With them it needs as many more, and the number rests there."""
    fleet = SleepyFleet(5)
    needed = fleet.run(44.0, 60)[-1]
    assert needed == 5
    fleet.sleep(sleepers)
    numbers = fleet.run(44.0, 80)
    assert set(numbers[-60:]) == {needed + sleepers}
    assert len(fleet.model.pods) == needed


def test_a_pod_that_wakes_is_a_replica_again_and_brings_no_old_requests() -> None:
    """What it had served before it slept does not arrive anew, and the surplus goes."""
    fleet = SleepyFleet(3)
    fleet.run(24.0, 60)
    fleet.sleep(1)
    fleet.run(24.0, 20)
    fleet.wake()
    numbers = fleet.run(24.0, 40)
    assert max(numbers) <= 4
    assert numbers[-1] == 3


def test_it_is_told_which_pods_sleep() -> None:
    """The decision names up to three of them."""
    fleet = SleepyFleet(6)
    fleet.run(24.0, 5)
    assert fleet.last is not None
    assert fleet.last.engines == ENGINES_READABLE
    fleet.sleep(1)
    fleet.run(24.0, 1)
    told = fleet.last.engines
    assert (told.available, told.reason) == (False, "EnginesDormant")
    assert told.message == "1 Ready pod sleeps and counts as no replica: a-5"
    fleet.sleep(4)
    fleet.run(24.0, 1)
    assert fleet.last.engines.message == ("5 Ready pods sleep and count as no replica: a-1, a-2, a-3 and 2 more")


def test_the_percentage_analyzer_sees_no_spare_in_a_pod_that_sleeps() -> None:
    """One full pod and one that sleeps need one more; with both awake the empty one would be spare."""
    policy = Policy(saturation=SaturationPolicy(analyzer_name=Analyzer.PERCENTAGE))
    known = variant("a", replicas=2, ready_replicas=2, desired=2)
    full, empty = replica("a-0", variant="a", kv=0.79, queue=4), replica("a-1", variant="a", kv=0.0, queue=0)
    (awake,), _ = decide(Snapshot.of([known], [full, empty]), Memory(), policy, NOW)
    (found,), _ = decide(Snapshot.of([known], [full, replace(empty, dormant=True)]), Memory(), policy, NOW)
    assert (awake.desired, found.desired) == (2, 3)


def test_nothing_is_decided_on_a_model_that_sleeps_as_a_whole() -> None:
    """Its number stays, and the decision says that no replica is awake."""
    known = variant("a", replicas=1, ready_replicas=1, desired=1)
    sleeper = replace(replica("a-0", variant="a", kv=0.0, queue=0), dormant=True)
    (found,), _ = decide(Snapshot.of([known], [sleeper]), Memory(), Policy(), NOW)
    assert (found.desired, found.reason) == (1, Reason.NO_READY_REPLICAS)
    assert found.engines.reason == "EnginesDormant"


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (Sample(SampleState.MISSING), "a-0: no series vllm:cache_config_info"),
        (
            Sample(SampleState.INVALID, detail="num_gpu_blocks 'None' is no count"),
            "a-0: num_gpu_blocks 'None' is no count",
        ),
    ],
)
def test_it_is_told_when_the_size_of_the_cache_keeps_the_analyzer_off(size: Sample, words: str) -> None:
    """The percentage analyzer decides, and the condition names the series."""
    model, memory, found = PodsOfModel(), Memory(), None
    for _ in range(5):
        model.serve(8.0)
        told = [replace(pod.told(), kv_usage=fresh(0.1), queue_length=fresh(0.0)) for pod in model.pods]
        told = [replace(each, engine=replace(each.engine or EngineSignals(), kv_capacity_tokens=size)) for each in told]
        (found,), memory = decide(Snapshot.of([variant("a", replicas=2)], told), memory, DEMAND, model.now)
    assert found is not None
    assert (found.engines.available, found.engines.reason) == (False, "EngineSeriesUnusable")
    assert found.engines.message == f"the percentage analyzer decides instead: {words}"


def test_it_is_told_which_series_keep_the_analyzer_off() -> None:
    """The first pod that lacks series is named with them; a model that is only new has no such condition."""
    pods = [replace(pod.told(), kv_usage=fresh(0.1), queue_length=fresh(0.0)) for pod in PodsOfModel().pods]
    (new,), _ = decide(Snapshot.of([variant("a", replicas=2)], pods), Memory(), DEMAND, NOW)
    assert new.engines == ENGINES_READABLE
    lacking = [replace(pod, counters=None, counters_detail="no series vllm:request_success_total") for pod in pods]
    (found,), _ = decide(Snapshot.of([variant("a", replicas=2)], lacking), Memory(), DEMAND, NOW)
    words = "a-0: no series vllm:request_success_total"
    assert found.engines.message == f"the percentage analyzer decides instead: {words}"


def test_a_name_that_models_share_is_told() -> None:
    """Whatever else is wrong with the engines is told first, and by its reason."""
    words = "pods of none of its variants report its name: x-0"
    pods = [replace(pod.told(), kv_usage=fresh(0.1), queue_length=fresh(0.0)) for pod in PodsOfModel().pods]
    shared = [replace(pod, namesakes=words) for pod in pods]
    (found,), _ = decide(Snapshot.of([variant("a", replicas=2)], shared), Memory(), DEMAND, NOW)
    assert (found.engines.available, found.engines.reason) == (False, "ModelNameShared")
    assert found.engines.message == words
    lacking = [replace(pod, counters=None, counters_detail="no series x") for pod in shared]
    (found,), _ = decide(Snapshot.of([variant("a", replicas=2)], lacking), Memory(), DEMAND, NOW)
    assert found.engines.reason == "EngineSeriesUnusable"
    assert found.engines.message.endswith(f"no series x; {words}")
