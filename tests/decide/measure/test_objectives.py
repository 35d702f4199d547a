"""Decisions of the demand analyzer for objectives that annotations ask for."""

from __future__ import annotations

import pytest

from tests.builders import variant
from tests.decide.measure.pods import PodsOfModel, ReportingPod
from tests.decide.measure.test_demand_decisions import POLICY, told
from wva.decide.pipeline import decide
from wva.model.decision import Aim, Decision
from wva.model.memory import Memory
from wva.model.objectives import DEFAULT_OBJECTIVES, AskedObjectives, Objectives
from wva.model.policy import Policy
from wva.model.records import replace
from wva.model.snapshot import CollectionFailure, Snapshot
from wva.model.vllm_parameters import VllmParameters


def served(asked: AskedObjectives | None = None, policy: Policy = POLICY) -> tuple[list[Decision], Memory]:
    """Return the decisions of 40 cycles on ten pods with long prompts, and the memory after the last one."""
    model, memory, decisions = (
        PodsOfModel([ReportingPod(f"a-{place}", prompt=4000.0) for place in range(10)]),
        Memory(),
        [],
    )
    for _ in range(40):
        model.serve(12.0)
        replicas = [told(pod, silent=False) for pod in model.pods]
        one = replace(variant("a", replicas=10), parameters=VllmParameters(), asked=asked)
        (decision,), memory = decide(Snapshot.of([one], replicas), memory, policy, model.now)
        decisions.append(decision)
    return decisions, memory


def annotated(ttft: float | None = None, itl: float | None = None, in_time: float | None = None) -> AskedObjectives:
    """Return what the annotations of the variant say."""
    return AskedObjectives(ttft, itl, in_time, "annotation of a", tenant=True)


def test_asking_for_the_defaults_changes_nothing_but_the_words() -> None:
    """To the last bit of every number, in decisions and memory."""
    plain, memory = served()
    asked, kept = served(annotated(1.0, 0.1, 0.99))
    assert [replace(each, aim=None) for each in asked] == [replace(each, aim=None) for each in plain]
    assert kept == memory
    assert {each.aim and each.aim.objectives for each in plain[1:]} == {DEFAULT_OBJECTIVES}
    assert {each.aim and each.aim.summary for each in plain} == {""}
    assert asked[0].aim == Aim(DEFAULT_OBJECTIVES, asked[-1].aim.words if asked[-1].aim else "")


@pytest.mark.parametrize("failure", ["silent", "Prometheus"])
def test_what_can_be_reached_stays_known_while_nothing_is_measured(failure: str) -> None:
    """A cycle that holds the number plans for the nearest time that can be reached, and says so, as those around it."""
    model, memory, aims = PodsOfModel([ReportingPod(f"a-{place}", prompt=4000.0) for place in range(4)]), Memory(), []
    for turn in range(12):
        model.serve(2.0 + turn % 3)
        replicas = [told(pod, silent=turn == 8 and failure == "silent") for pod in model.pods]
        one = replace(variant("a", replicas=4), parameters=VllmParameters(), asked=annotated(0.3))
        snapshot = Snapshot.of([one], replicas)
        if turn == 8 and failure == "Prometheus":
            snapshot = replace(snapshot, failures=(CollectionFailure(("ns",), "no answer"),))
        (decision,), memory = decide(snapshot, memory, POLICY, model.now)
        aims.append(decision.aim)
        assert decision.held == (turn == 8) or turn < 2
    assert aims[8] is not None
    assert aims[8].objectives.ttft_seconds > 0.3
    assert "no number of replicas of a reaches the first token within 300 ms" in aims[8].summary
    assert aims[7] == aims[8] == aims[9]


def test_the_annotations_of_a_variant_at_zero_count() -> None:
    """They are about the model, whichever of its variants has replicas now."""
    model, memory = PodsOfModel([ReportingPod("a-0", prompt=1000.0)]), Memory()
    one, resting = variant("a", replicas=1), replace(variant("b", replicas=0), asked=annotated(3.0))
    for _ in range(6):
        model.serve(1.0)
        snapshot = Snapshot.of([one, resting], [told(pod, silent=False) for pod in model.pods])
        decisions, memory = decide(snapshot, memory, POLICY, model.now)
    aim = decisions[0].aim
    assert aim is not None
    assert aim.objectives.ttft_seconds == 3.0
    assert "first token within 3 s (annotation of a)" in aim.summary


def test_looser_objectives_need_fewer_replicas() -> None:
    """More time for the first token is cheaper, and so are more late requests."""
    numbers = [served(annotated(ttft))[0][-1].desired for ttft in (0.3, 1.0, 3.0, 10.0)]
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[0] > numbers[-1]


def test_a_tenant_who_asks_for_a_millisecond_gets_no_replica_by_it() -> None:
    """What is not allowed is not in force, and all else is as if nobody had asked."""
    plain, _ = served()
    asked, _ = served(annotated(0.001, 0.001))
    assert [each.desired for each in asked] == [each.desired for each in plain]


def test_what_an_administrator_allows_and_nobody_reaches_is_told() -> None:
    """The nearest that can be reached is planned for, and the decision has both."""
    allowing = replace(POLICY, tightest=Objectives(0.001, 0.001, 0.999))
    last = served(annotated(0.001), allowing)[0][-1]
    assert last.aim is not None
    assert last.aim.objectives.ttft_seconds > 0.001
    assert "no number of replicas of a reaches the first token within 1 ms" in last.aim.summary
