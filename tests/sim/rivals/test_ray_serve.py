"""The autoscaler of Ray Serve as a rival."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.sim.rivals.fake_stage import FakeStage, scenario, setup
from wva.sim.rivals import POLICIES
from wva.sim.rivals.ray_serve import HandleMetrics, RayServeAutoscaler, RayServeSettings

RECORDED = json.loads(Path(__file__).with_name("ray_serve_examples.json").read_text(encoding="utf-8"))
NAMES = {
    "target_ongoing_requests": "target_ongoing_requests",
    "upscale_delay_s": "upscale_delay_seconds",
    "downscale_delay_s": "downscale_delay_seconds",
    "downscale_to_zero_delay_s": "downscale_to_zero_delay_seconds",
    "upscaling_factor": "upscaling_factor",
    "downscaling_factor": "downscaling_factor",
}


@pytest.mark.parametrize("example", RECORDED["examples"], ids=str)
def test_it_decides_as_ray_serve_did(example) -> None:
    """The decisions are those that Ray Serve's own policy made of the same ticks; bench/rivals records them."""
    settings = RayServeSettings(**{NAMES[name]: value for name, value in example["settings"].items()})
    autoscaler = RayServeAutoscaler(settings)
    for now, ongoing, running, target, decision in example["ticks"]:
        found = autoscaler.decide(ongoing=ongoing, running=running, target=target, now=now)
        assert found == decision, (now, ongoing, running, target)


def test_the_examples_are_of_the_version_that_is_named() -> None:
    """The module names the version of the examples, and these grow, shrink, wait, and go to zero and back."""
    assert RECORDED["ray"] == "2.60.0"
    ticks = [tick for example in RECORDED["examples"] for tick in example["ticks"]]
    steps = {(decision > target) - (decision < target) for _, _, _, target, decision in ticks}
    assert steps == {-1, 0, 1}
    assert any(target and not decision for *_, target, decision in ticks)
    assert any(decision and not target for *_, target, decision in ticks)


def test_the_defaults_are_ray_serves() -> None:
    """By default it aims at 2 ongoing requests, grows after 30 s and shrinks after 600 s."""
    settings = RayServeSettings()
    assert (settings.target_ongoing_requests, settings.upscaling_factor, settings.downscaling_factor) == (2, 1, 1)
    assert (settings.upscale_delay_seconds, settings.downscale_delay_seconds) == (30, 600)
    assert (settings.look_back_seconds, settings.record_seconds, settings.report_seconds) == (30, 6, 10)


def test_it_sees_the_mean_of_half_a_minute_as_reported_last() -> None:
    """A rise shows with the next report, and in full half a minute later."""
    metrics = HandleMetrics(RayServeSettings())
    seen = [metrics.look(0.0 if now < 60 else 100.0, now=float(now)) for now in range(120)]
    assert seen[0] == 0.0
    assert seen[69] == 20.0  # one of five notes
    assert seen[70] == 40.0
    assert seen[90] == 100.0


def test_on_the_stage() -> None:
    """It grows half a minute after the mean has risen, by as much as is wanted then, and shrinks ten minutes later."""
    of = scenario(setup(replicas=2, maximum=12))
    stage = FakeStage(of, lambda at: 320.0 if 300 <= at < 600 else 24.0)
    stage.run(POLICIES["ray-serve@16"](of, 1), until=1300)
    (up_at, _, first), *between, (down_at, _, last) = stage.asked
    assert 330 <= up_at <= 350
    assert 2 < first <= 12
    assert [count for *_, count in between] in ([], [12])
    assert 1200 <= down_at <= 1250
    assert last == 2


def test_the_gateway_wakes_it() -> None:
    """Without a replica the first request that waits starts one."""
    of = scenario(setup(minimum=0, replicas=0))
    stage = FakeStage(of, lambda at: 10.0 if at > 100 else 0.0)
    stage.run(POLICIES["ray-serve"](of, 1), until=130)
    assert stage.replicas() == 1
