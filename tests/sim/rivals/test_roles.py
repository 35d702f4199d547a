"""Autoscalers for prefill and decode as rivals."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.sim.rivals.fake_stage import FakeStage, scenario, setup
from wva.model.roles import DECODE, PREFILL
from wva.sim.fleet.parameters import PRESETS
from wva.sim.fleet.transfer import KvTransfer
from wva.sim.fleet.users import GatewaySettings
from wva.sim.rivals import FAMILIES, OF_ROLES, POLICIES
from wva.sim.rivals.hpa import Rate
from wva.sim.rivals.keda import ExternalAutoscaler
from wva.sim.rivals.roles import KV_CACHES, QUEUE_SECONDS, fixed_ratio, keda_tokens, peak_prefill_throughput
from wva.sim.stage.scenario import Scenario

TRANSFER = KvTransfer(token_seconds=1e-5, delay_seconds=0.1)


def in_roles(prefills: int = 1, decodes: int = 1) -> Scenario:
    """Return a scenario with both roles."""
    variants = (
        setup("prompts", role=PREFILL, replicas=prefills),
        setup("answers", role=DECODE, replicas=decodes),
    )
    return scenario(*variants, gateway=GatewaySettings(transfer=TRANSFER))


def test_the_policies_of_roles_are_known() -> None:
    """Each is tuned over pairs of targets."""
    assert {"hpa-roles-queue", "hpa-roles-inflight", "keda-tokens", "fixed-ratio"} == OF_ROLES
    assert "keda-tokens@1.5,0.8" in FAMILIES["keda-tokens"]


def test_each_role_has_its_own_target() -> None:
    """Eight requests in each of two pods: two prefill pods at a target of four, no more decode pods at 64."""
    stage = FakeStage(in_roles(), lambda _: 16.0).run(POLICIES["hpa-roles-inflight"](in_roles(), 1), until=45)
    assert stage.replicas("prompts") == 2
    assert stage.replicas("answers") == 1


def test_the_thresholds_and_the_behavior_are_those_of_the_guide() -> None:
    """1.5 s of backlog, 0.8 of a KV cache; one pod more in 180 s, one less in 300 s."""
    assert (QUEUE_SECONDS, KV_CACHES) == (1.5, 0.8)
    of = in_roles()
    scalers = [each for each in POLICIES["keda-tokens"](of, 1) if isinstance(each, ExternalAutoscaler)]
    assert len(scalers) == 2
    for scaler in scalers:
        behavior = scaler._hpa.behavior
        assert behavior.up.rates == (Rate("Pods", 1, 180),)
        assert behavior.down.rates == (Rate("Pods", 1, 300),)
        assert (behavior.up.window_seconds, behavior.down.window_seconds) == (0, 300)


def test_the_throughput_is_that_of_a_prompt_through_the_whole_path() -> None:
    """A full step of 8,191 tokens: computing it, its transfer, and the first step of a decode pod."""
    engine = PRESETS["H100"]
    seconds = 8191 * engine.prefill_seconds_per_token + engine.alpha_seconds + engine.beta_seconds_per_sequence
    seconds += TRANSFER.seconds(8191) + engine.alpha_seconds
    of = in_roles()
    assert peak_prefill_throughput(of, of.variants[0]) == pytest.approx(8191 / seconds)


def test_a_backlog_of_prompts_adds_a_prefill_pod_every_three_minutes() -> None:
    """Six seconds of backlog are four replicas, one after the other; decode has next to nothing to do."""
    of = in_roles()
    stage = FakeStage(of, lambda _: 2.0)
    stage.backlog_of = 6.0 * peak_prefill_throughput(of, of.variants[0])
    stage.run(keda_tokens(QUEUE_SECONDS, KV_CACHES)(of, 1), until=400)
    grown = [(at, replicas) for at, name, replicas in stage.asked if name == "prompts"]
    assert [replicas for _, replicas in grown] == [2, 3, 4]
    assert all(later - earlier >= 180 for (earlier, _), (later, _) in pairwise(grown))
    assert stage.replicas("answers") == 1


def test_without_the_page_of_the_picker_there_is_no_backlog() -> None:
    """KEDA takes an empty answer for 0."""
    of = in_roles(prefills=3)
    stage = FakeStage(of, lambda _: 0.0)
    stage.backlog_of = 1e6
    stage.gateway_queue = lambda: None  # type: ignore[method-assign]
    stage.run(keda_tokens(QUEUE_SECONDS, KV_CACHES)(of, 1), until=1200)
    assert stage.replicas("prompts") == 1


def test_prefill_follows_decode_at_the_ratio() -> None:
    """Each pod has 30 requests of 10 tokens/s: three decode pods at 100 tokens/s, and twice as many for prompts."""
    of = in_roles()
    stage = FakeStage(of, lambda at: 60.0 if at < 100 else 0.0)
    stage.run(fixed_ratio(2.0, 100.0)(of, 1), until=61)
    assert (stage.replicas("answers"), stage.replicas("prompts")) == (3, 6)
