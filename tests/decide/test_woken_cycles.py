"""Two models in the same cycles, of which the fast lane wakes one for the first model."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.builders import NOW, variant
from tests.decide.measure.pods import ReportingPod, fresh
from wva.decide.pipeline import decide
from wva.model.memory import Memory
from wva.model.policy import Policy
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.variant import ModelKey
from wva.model.vllm_parameters import VllmParameters

SURGES, BESIDE = ModelKey("ns", "surges"), ModelKey("ns", "beside")


class TwoModels:
    """Two Ready pods for each of two models, with as many requests per second as each cycle is told."""

    def __init__(self) -> None:
        """Have no past."""
        self.pods = {"a": [ReportingPod("a-0"), ReportingPod("a-1")], "b": [ReportingPod("b-0"), ReportingPod("b-1")]}
        self.now, self.memory = NOW, Memory()

    def cycle(self, seconds: float, surges: float, beside: float, urgent: Sequence[ModelKey] = ()) -> list[int]:
        """Return the numbers of both models after so many seconds."""
        self.now += seconds
        variants, replicas = [], []
        for name, model, rate in (("a", SURGES, surges), ("b", BESIDE, beside)):
            one = variant(name, model=model.model_id, replicas=2, desired=2, minimum=2, maximum=100)
            variants.append(replace(one, parameters=VllmParameters()))
            for pod in self.pods[name]:
                pod.serve(rate / 2.0, seconds)
                replicas.append(replace(pod.told(name), kv_usage=fresh(0.2), queue_length=fresh(0.0)))
        snapshot = replace(Snapshot.of(variants, replicas), woken=bool(urgent), urgent=tuple(urgent))
        decisions, self.memory = decide(snapshot, self.memory, Policy(), self.now)
        return [decision.desired for decision in decisions]


@pytest.mark.parametrize(
    ("urgent", "grows"), [([SURGES], [True, False]), ([BESIDE], [False, True]), ([BESIDE, SURGES], [True, True])]
)
def test_a_few_seconds_with_more_requests_are_a_surge_of_the_models_that_woke_the_cycle(
    urgent: list[ModelKey], grows: list[bool]
) -> None:
    """The same requests in the same seconds may be chance where nothing has told that the load has risen."""
    fleet = TwoModels()
    for _ in range(40):
        calm = fleet.cycle(15.0, 6.0, 6.0)
    woken = fleet.cycle(4.0, 20.0, 20.0, urgent)
    assert calm == [2, 2]
    assert [number > 2 for number in woken] == grows
    if not all(grows):
        after = fleet.cycle(15.0, 6.0, 6.0)
        assert [number for number, grew in zip(after, grows, strict=True) if not grew] == [2]
