"""A model whose variants have roles: some compute prompts, others answers. Each role gets what it needs."""

from __future__ import annotations

import re

import pytest

from tests.builders import NOW, replica, variant
from tests.decide.roles_loop import DECODE, PREFILL, RolesLoop
from tests.decide.story import BUSY, IDLE, Story, numbers
from wva.decide.failed import Load
from wva.decide.foresee import foresee
from wva.decide.measure.demand_arrivals import PodPrefills, VariantChange
from wva.decide.measure.demand_engine import learned_prompts, prompt_engine_of
from wva.decide.measure.need import Capacity, DemandRate, Need
from wva.decide.pipeline import conclude
from wva.decide.trust import believe
from wva.hindsight.cycle import Recording
from wva.hindsight.flips import Change, Input, changed
from wva.model.decision import Reason
from wva.model.memory import CapacityBasis, Fit, Memory
from wva.model.objectives import AskedObjectives, Objectives
from wva.model.optimizers import Analyzer
from wva.model.policy import (
    Compatibility,
    Policy,
    QueueingPolicy,
    QueueingRules,
    ScaleToZeroEntry,
    ScaleToZeroRules,
)
from wva.model.records import replace
from wva.model.roles import RoleLabels
from wva.model.snapshot import RequestCounts, Snapshot
from wva.model.trouble import Absence
from wva.model.variant import ModelKey, VariantKey, by_role
from wva.model.vllm_parameters import VllmParameters

MODEL = ModelKey("ns", "m")
NONE = RequestCounts(MODEL, 600.0, finished=0.0, in_progress=0.0, covered_seconds=600.0)
ZERO = Policy(scale_to_zero=ScaleToZeroRules(ScaleToZeroEntry("default", "", None, True, 600.0)))
P, D = variant("p", role=PREFILL), variant("d", role=DECODE)


@pytest.mark.long_story
@pytest.mark.parametrize("interval", [15.0, 30.0])
@pytest.mark.parametrize(
    ("rate", "least", "settled"), [(3.0, (1, 2), 300.0), (6.0, (2, 3), 300.0), (11.0, (3, 5), 700.0)]
)
def test_each_role_gets_what_it_needs_and_keeps_it(
    interval: float, rate: float, least: tuple[int, int], settled: float
) -> None:
    """A prefill pod carries 4.2 requests/s, a decode pod 2.1; the load is constant, and nothing is known at first."""
    loop = RolesLoop(interval, lambda _: rate).run(settled + 1200.0)
    (found,) = loop.pairs(settled)
    assert all(need <= number <= need + 1 for need, number in zip(least, found, strict=True))
    assert not any(pod.inside > 2.0 * max(pod.running, 1.0) for pod in loop.pods)


def test_without_roles_the_same_pods_are_one_model() -> None:
    """What the roles are for: counted together, each request counts twice, and the wrong pods grow."""
    loop = RolesLoop(30.0, lambda _: 11.0, named=False).run(900.0)
    assert loop.numbers[-1][1] < 3 or loop.numbers[-1][2] > 6


def test_prompts_that_grow_ask_for_more_prefill() -> None:
    """Prompts twice as long leave less time to wait, so a pod carries less than half; in the cache they take more."""
    loop = RolesLoop(15.0, lambda _: 3.0).run(600.0)
    assert loop.pairs(300.0) == [(1, 2)]
    loop.prompt = 3200.0
    loop.run(1500.0)
    assert loop.numbers[-1][1:] == (3, 3)


@pytest.mark.parametrize(
    ("labels", "kv_role", "role"),
    [
        ({}, "", ""),
        ({"llm-d.ai/role": "prefill"}, "", "prefill"),
        ({"llm-d.ai/role": "both"}, "", "prefill-decode"),
        ({"llm-d.ai/role": "prefill-decode"}, "kv_producer", "prefill-decode"),
        ({"llm-d.ai/role": "router"}, "kv_producer", ""),
        ({"app": "vllm"}, "kv_producer", "prefill"),
        ({}, "kv_consumer", "decode"),
        ({}, "kv_both", ""),
    ],
)
def test_the_label_says_the_role_and_else_the_engine_does(labels: dict[str, str], kv_role: str, role: str) -> None:
    """llm-d gives ``kv_both`` to pods of every role, so it says nothing."""
    assert RoleLabels().role_of(labels, kv_role) == role


@pytest.mark.parametrize(
    ("labels", "role"),
    [
        ({"example.com/stage": "context"}, "prefill"),
        ({"example.com/stage": "mixed", "llm-d.ai/role": "decode"}, "prefill-decode"),
        ({"example.com/stage": "encode"}, "encode"),
        ({"example.com/stage": "frontend", "llm-d.ai/role": "decode"}, ""),
        ({"llm-d.ai/role": "decode"}, "prefill"),
        ({"role": "decode"}, ""),
    ],
)
def test_other_stacks_have_other_labels_and_words(labels: dict[str, str], role: str) -> None:
    """The first key that a pod has counts. Values that are said go before those of llm-d, which stay known."""
    told = RoleLabels.of("example.com/stage, llm-d.ai/role", "context=prefill,mixed=both,decode=prefill")
    assert told.role_of(labels) == role


@pytest.mark.parametrize("keys", [f"{'x' * 254}/a", ",".join(["a"] * 4096)])
def test_keys_that_no_label_has_are_refused(keys: str) -> None:
    """Each template is compared with every key, so there is an end to them."""
    with pytest.raises(ValueError, match="long" if "," in keys else keys):
        RoleLabels.of(keys)


def test_the_variants_of_each_role_are_apart() -> None:
    """A variant that does not say its role is beside them. A role that is alone keeps its name when others come."""
    more = variant("e", role=DECODE)
    assert by_role({MODEL: [D, more]}) == {replace(MODEL, role=DECODE): [D, more]}
    plain = variant("x")
    apart = by_role({MODEL: [P, D, more, plain]})
    assert {str(key): [one.key.name for one in own] for key, own in apart.items()} == {
        "prefill of m in ns": ["p"],
        "decode of m in ns": ["d", "e"],
        "m in ns": ["x"],
    }
    assert {key.whole for key in apart} == {MODEL}


def test_the_roles_of_an_idle_model_go_to_zero_together() -> None:
    """A request needs all of them."""
    idle = Story(ZERO, requests=NONE).cycle(P, D, p=[IDLE], d=[IDLE])
    assert numbers(idle) == {"p": 0, "d": 0}


def test_what_keeps_one_role_above_zero_keeps_the_others() -> None:
    """The decision of the other role says which it is."""
    unfinished = replace(D, settling_since=NOW - 30.0, current_replicas=2)
    found = Story(ZERO, requests=NONE).cycle(P, unfinished, p=[IDLE], d=[IDLE])
    assert found["p"].desired >= 1
    assert found["d"].desired >= 1
    assert any(step.reason.startswith("not to zero: decode: ") for step in found["p"].steps)


def test_a_decision_says_the_role() -> None:
    """In the message and in the steps."""
    found = Story().cycle(P, D, p=[BUSY], d=[IDLE])
    assert all(found[name].message.startswith(f"{role}: ") for name, role in (("p", "prefill"), ("d", "decode")))
    assert found["p"].model == MODEL


def test_a_variant_that_does_not_say_its_role_beside_others_is_told() -> None:
    """It is sized by its own pods, and nothing is guessed."""
    found = Story().cycle(P, D, variant("x"), p=[IDLE], d=[IDLE], x=[IDLE])
    assert found["x"].engines.reason == "RoleUnknown"
    assert "prefill" in found["x"].engines.message
    assert found["p"].engines.available
    assert found["d"].engines.available


def test_the_former_engine_knows_no_roles() -> None:
    """``compatibility: v0.5`` decides as the Go controller did."""
    policy = Policy(compatibility=Compatibility.V0_5)
    found = conclude(Snapshot.of([P, D], []), Memory(), policy, NOW)
    assert [decision.message for decision in found.decisions] == [
        decision.message
        for decision in conclude(
            Snapshot.of([replace(P, role=""), replace(D, role="")], []), Memory(), policy, NOW
        ).decisions
    ]


def test_the_load_of_a_model_is_that_of_the_role_that_lacks_more() -> None:
    """A request needs every role; the looks of the fast lane compare with the sum of both."""
    loop = RolesLoop(15.0, lambda _: 6.0).run(600.0)
    found = conclude(Snapshot.of(*loop.state()), loop.memory, loop.policy, NOW + 615.0)
    (load,) = found.loads.values()
    assert set(found.loads) == set(found.ceilings) == {MODEL}
    assert load.serving < 2 * 4.0
    assert Load(5.0, 0.1, 6.0, 6.0).beside(Load(20.0, 0.1, 19.0, 24.0)).serving == 19.0
    assert load.demand == pytest.approx(6.0, rel=0.2)


@pytest.mark.parametrize("seconds", [1e-9, 1e9])
def test_a_time_of_prompts_that_cannot_be_true_is_not_learned(seconds: float) -> None:
    """What was known stays."""
    known = Fit(prompt_seconds=1.0, prompt_tokens=10_000.0, at=NOW)
    told = VariantChange(prefills=[PodPrefills(max(15.0, seconds), 10.0, 16_000.0, seconds, 0.0)])
    assert learned_prompts(known, told, None, 0.0, NOW + 15.0) == known


@pytest.mark.parametrize(("sequences", "most"), [(None, 256.0), (64, 64.0), (0, 1.0)])
def test_a_replica_computes_as_many_prompts_together_as_its_parameters_say(sequences: int | None, most: float) -> None:
    """Where they are not known, as many as vLLM's default."""
    parameters = None if sequences is None else VllmParameters(max_num_seqs=sequences)
    fit = Fit(prompt_seconds=0.5, prompt_tokens=4000.0)
    engine = prompt_engine_of(fit, parameters, 4000.0, 0.0, Objectives(2.0, 0.1))
    assert engine is not None
    assert engine.most == most


def test_replicas_that_share_a_queue_of_prompts_carry_more_each() -> None:
    """A picker sends a prompt where it waits least, so one of ten may be busier than one that is alone."""
    fit = Fit(prompt_seconds=0.5, prompt_tokens=4000.0)
    engine = prompt_engine_of(fit, VllmParameters(), 4000.0, 0.0, Objectives(2.0, 0.1), 0.3)
    assert engine is not None
    alone, shared, never = (engine.rate(engine.batch(share)) for share in (1.0, 0.4, 0.0))
    assert 0.35 < 0.5 * alone < 0.42 < 0.5 * shared < 0.5 < 0.5 * never < 0.6  # shares of the time
    assert alone == engine.rate(engine.batch_by_prompts(0.0))


@pytest.mark.long_story
@pytest.mark.parametrize("interval", [15.0, 30.0])
def test_decode_grows_with_prefill_when_the_load_jumps(interval: float) -> None:
    """What prefill does not get through comes to no decode pod before prefill has grown, and needs decode then."""
    loop = RolesLoop(interval, lambda now: 2.0 if now < 900.0 else 30.0).run(1500.0)
    prefill = next(now for now, pods, _ in loop.numbers if pods >= 14)
    decode = next(now for now, _, pods in loop.numbers if pods >= 14)
    assert prefill == decode <= 900.0 + 2.0 * interval
    assert max(pods for _, _, pods in loop.numbers) <= 18


def test_what_prefill_does_not_get_through_is_demand_of_its_own_decode_only() -> None:
    """Another model gets none of it, and a role of which nothing is known stays unknown."""
    other = variant("other", role=DECODE, model="other")
    models, _ = believe(
        Snapshot.of([P, D, other], [replica(f"{each.key.name}-0", variant=each.key.name) for each in (P, D, other)]),
        Memory(),
        Policy(),
        NOW,
    )
    rates = {"p": 30.0, "d": 6.0, "other": 6.0}

    def found(**holds: Absence) -> dict[str, float]:
        needs = [
            Need(
                model.key,
                "requests/s",
                rates[name],
                rates[name],
                rates[name],
                {VariantKey("ns", name): Capacity(6.0, CapacityBasis.OBSERVED)},
                DemandRate(),
                hold=holds.get(name),
            )
            for model in models
            for name in [model.variants[0].key.name]
        ]
        ahead, _ = foresee(needs, models, Memory(), Policy(), NOW)
        return {model.variants[0].key.name: need.demand for model, need in zip(models, ahead, strict=True)}

    assert found() == {"p": 30.0, "d": 30.0, "other": 6.0}
    assert found(d=Absence(Reason.METRICS_INCOMPLETE, "nothing is known")) == rates


def test_a_variant_without_a_role_keeps_the_roles_above_zero() -> None:
    """Nobody could start it again, and a request may need it."""
    found = Story(ZERO, requests=NONE).cycle(P, D, variant("x"), p=[IDLE], d=[IDLE], x=[IDLE])
    assert min(numbers(found).values()) == 1
    assert "its role is not known" in found["x"].message
    assert any("a variant: its role is not known" in step.reason for step in found["p"].steps)


def test_a_query_without_an_answer_does_not_count_all_of_the_past() -> None:
    """The time of prompts is not known in one cycle; the next one knows what came since."""
    loop = RolesLoop(15.0, lambda _: 6.0).run(1200.0)
    loop.untold = True
    loop.run(1230.0)
    loop.untold = False
    loop.run(1800.0)
    assert {pair[0] for pair in loop.pairs(1200.0)} == {2}


def test_an_objective_of_one_role_is_that_of_the_model() -> None:
    """With less time for the first token a prefill pod carries less, whichever variant says it."""
    loop = RolesLoop(15.0, lambda _: 6.0)
    loop.asked = {DECODE: AskedObjectives(ttft_seconds=0.5, origin="annotation")}
    loop.run(600.0)
    assert loop.numbers[-1][1] > 2
    assert all(decision.aim.objectives.ttft_seconds == 0.5 for decision in loop.decisions[-2:])


def test_what_the_handover_takes_is_no_time_for_prompts() -> None:
    """The objective is the user's: if the handover takes 0.4 s of 1 s, a prefill pod carries less."""
    loop = RolesLoop(15.0, lambda _: 8.0)
    loop.asked = {DECODE: AskedObjectives(ttft_seconds=1.0, origin="annotation")}
    loop.run(900.0)
    assert loop.pairs(600.0) == [(2, 4)]
    loop.handover = 0.4
    loop.run(1800.0)
    assert loop.numbers[-1][1:] == (3, 4)
    assert all(decision.aim.objectives.ttft_seconds == 1.0 for decision in loop.decisions[-2:])
    assert not any(decision.aim.beyond for decision in loop.decisions[-2:])


def test_a_handover_beyond_the_objective_asks_for_no_endless_prefill() -> None:
    """At most half of the objective is taken off: more prefill does not make a slow handover faster."""
    loop = RolesLoop(15.0, lambda _: 6.0, handover=30.0)
    loop.run(1800.0)
    assert loop.numbers[-1][1] <= 4


def test_a_handover_that_leaves_no_time_for_prompts_is_told() -> None:
    """What no number of prefill pods reaches is named with the nearest, from the handover and a long prompt."""
    loop = RolesLoop(15.0, lambda _: 6.0, handover=0.9)
    loop.asked = {DECODE: AskedObjectives(ttft_seconds=1.0, origin="annotation")}
    loop.run(900.0)
    (prefill,) = [decision for decision in loop.decisions[-2:] if decision.key.name == PREFILL]
    assert "the first token within 1 s: " in prefill.aim.beyond
    assert 0.9 < prefill.aim.objectives.ttft_seconds <= 2.0
    assert loop.numbers[-1][1] <= 4


def test_what_if_is_answered_for_a_model_in_roles() -> None:
    """A load that is a little higher changes nothing: what came since counts more, and not all since the begin."""
    loop = RolesLoop(15.0, lambda _: 5.0).run(600.0)
    recording = Recording(NOW + 615.0, loop.policy, loop.memory, Snapshot.of(*loop.state()))
    own = VariantKey("ns", PREFILL)
    higher = changed(recording, own, Change(Input.LOAD, "m", 0.05, "load +5%"))
    assert higher.again().decision(own).desired == recording.again().decision(own).desired


def test_the_queueing_analyzer_leaves_roles_to_the_demand_analyzer() -> None:
    """Its formulas are of requests that one replica serves from prompt to answer."""
    policy = Policy(queueing=QueueingRules(QueueingPolicy()))
    loop = RolesLoop(15.0, lambda _: 6.0, policy=policy).run(600.0)
    assert loop.policy.analyzer_for(MODEL) is Analyzer.QUEUEING
    assert loop.numbers[-1][1:] == (2, 3)


def test_a_growth_for_what_waits_says_how_much_waits():
    """A jump fills queues before replicas come; a growth without a queue does not speak of one."""
    loop = RolesLoop(15.0, lambda at: 12.0 if at > 300.0 else 2.0).run(600.0)
    grown = [each.message for each in loop.decisions if each.reason is Reason.SCALE_UP]
    assert any(re.search(r" tokens, [0-9.e+]+ waiting\)", message) for message in grown)
    calm = RolesLoop(15.0, lambda _: 2.0, replicas=(1, 2)).run(600.0)
    assert not any("waiting" in each.message for each in calm.decisions)
