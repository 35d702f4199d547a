"""Prompts share prefixes with the given hit ratio, and sessions grow turn by turn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wva.sim.fleet.parameters import EngineParameters
from wva.sim.fleet.service import ModelService
from wva.sim.fleet.users import GatewaySettings
from wva.sim.stage.view import ScrapedSignal
from wva.sim.traffic.assembly import merged
from wva.sim.traffic.prefixes import Mix
from wva.sim.traffic.shapes import constant
from wva.sim.traffic.statistics import held_tokens, hit_ratio
from wva.sim.traffic.streams import stream
from wva.sim.traffic.traces import mooncake_conversation, mooncake_tool


@given(
    seed=st.integers(0, 2**40),
    count=st.integers(0, 300),
    sessions=st.floats(0, 1),
    templates=st.floats(0, 1),
    ratio=st.floats(0, 1),
)
def test_prompts_keep_their_lengths_and_prefixes_fit_in_them(seed, count, sessions, templates, ratio):
    """Prompts keep their lengths, prefixes are shorter, and the hit ratio is at most the given one."""
    prompts = stream(seed, "p").integers(1, 5000, count)
    arrivals = np.sort(stream(seed, "a").random(count) * 600)
    mix = Mix(hit_ratio=ratio, session_share=sessions, template_share=templates, template_tokens=500.0)
    got = mix(stream(seed, "x"), arrival_seconds=arrivals, prompt_tokens=prompts)
    assert sorted(got.prompt_tokens) == sorted(prompts)
    assert np.all((got.prefix_tokens >= 0) & (got.prefix_tokens < got.prompt_tokens))
    assert np.all(got.shared_tokens <= got.prompt_tokens)
    assert np.all((got.group >= 0) | (got.prefix_tokens == 0))
    held = held_tokens(got.group, prefix_tokens=got.prefix_tokens, shared_tokens=got.shared_tokens)
    assert held <= ratio * prompts.sum() + 1e-6


def slowly_held(traffic):
    """Return the tokens that a cache without bounds holds, request by request."""
    cached, held = {}, 0
    for group, prefix, shared in zip(traffic.group, traffic.prefix_tokens, traffic.shared_tokens, strict=True):
        if group >= 0:
            held += min(prefix, cached.get(group, 0))
            cached[group] = max(cached.get(group, 0), shared)
    return held


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_hit_ratio_is_that_of_a_cache_without_bounds(seed):
    """The quick count agrees with a cache that gets the requests one by one."""
    traffic = mooncake_conversation(seed, duration_seconds=600.0)
    assert hit_ratio(traffic) == pytest.approx(slowly_held(traffic) / traffic.prompt_tokens.sum())


def test_the_turns_of_a_session_grow():
    """Each turn is at least as long as the one before it, and begins with a part of it."""
    mix = Mix(hit_ratio=1.0, session_share=1.0, template_share=0.0)
    arrivals = np.sort(stream(1, "a").random(2000) * 3600)
    got = mix(stream(1, "x"), arrival_seconds=arrivals, prompt_tokens=stream(1, "p").integers(1, 9000, 2000))
    turns = [got.prompt_tokens[got.group == group] for group in np.unique(got.group)]
    assert np.mean([len(turn) for turn in turns]) == pytest.approx(5.0, rel=0.15)
    for group in np.unique(got.group):
        one = got.group == group
        assert np.all(np.diff(got.prompt_tokens[one]) >= 0)
        assert got.prefix_tokens[one][0] == 0
        assert np.all(got.prefix_tokens[one][1:] <= got.prompt_tokens[one][:-1])


@pytest.mark.parametrize("kind", [mooncake_conversation, mooncake_tool])
def test_an_engine_with_room_for_everything_finds_what_can_be_found(kind):
    """An engine with an unlimited cache has the hit ratio of the traffic."""
    roomy = EngineParameters(
        alpha_seconds=0.005,
        beta_seconds_per_sequence=0.0,
        prefill_seconds_per_token=1e-7,
        num_gpu_blocks=10_000_000,
        max_model_len=131_072,
        max_num_batched_tokens=131_072,
    )
    traffic = kind(1, duration_seconds=240.0)
    service = ModelService.of(traffic, [roomy], GatewaySettings())
    service.add(0, ready_at_seconds=0.0)
    service.advance(1000.0)
    looked_up, found = service.scrape(0)[ScrapedSignal.PREFIX_QUERIES], service.scrape(0)[ScrapedSignal.PREFIX_HITS]
    assert looked_up == traffic.prompt_tokens.sum()
    assert found / looked_up == pytest.approx(hit_ratio(traffic), abs=0.01)


def test_groups_of_merged_traffic_stay_apart():
    """Merged arrivals are in order, and each part has as many cache hits as alone."""
    one, two = mooncake_conversation(1, duration_seconds=300.0), mooncake_conversation(2, duration_seconds=400.0)
    alone = constant(3, duration_seconds=100.0)
    both = merged(one, alone, two)
    assert both.count == one.count + alone.count + two.count
    assert both.duration_seconds == 400.0
    assert np.all(np.diff(both.arrival_seconds) >= 0)
    assert slowly_held(both) == slowly_held(one) + slowly_held(two)
    assert merged(one).prefix_tokens.tolist() == one.prefix_tokens.tolist()
