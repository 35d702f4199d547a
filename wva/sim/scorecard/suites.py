"""The scenarios of the scorecard by name, and the suites.

Unless a scenario says otherwise, Llama 3.1 with 8B parameters is served by two variants: one L40S at 20 per hour and
one A100 at 40, which is 1.9 times as fast. Pods are Ready 60 to 180 s after they were created, WVA decides every 15 s,
and the requests are those of ``traffic.shapes``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from wva.model.records import replace
from wva.sim.fleet.accelerators import Precision, engine_parameters
from wva.sim.fleet.parameters import PRESETS, EngineParameters
from wva.sim.fleet.users import GatewaySettings, Routing
from wva.sim.scorecard import earlier
from wva.sim.stage.scenario import Objectives, Scenario, StartUp, VariantSetup, WorldObservation
from wva.sim.traffic import shapes, traces
from wva.sim.traffic.csv_file import RequestsFileError, read_csv
from wva.sim.traffic.requests import Traffic

_MODEL: Final = "Llama-3.1-8B"
_LONGEST_TOKENS: Final = 32_768
_MINUTE: Final = 60.0
_HOUR: Final = 3600.0

CHEAP: Final = VariantSetup(
    "llama-l40s", "L40S", engine_parameters("L40S", _MODEL, max_model_len=_LONGEST_TOKENS), 20.0
)
DEAR: Final = VariantSetup("llama-a100", "A100", engine_parameters("A100", _MODEL, max_model_len=_LONGEST_TOKENS), 40.0)
FAST: Final = VariantSetup("llama-h100", "H100", engine_parameters("H100", _MODEL, max_model_len=_LONGEST_TOKENS), 40.0)

_GATEWAY: Final = GatewaySettings(patience_seconds=60.0, attempts=2, retry_seconds=2.0)


def _faster(parameters: EngineParameters, factor: float) -> EngineParameters:
    """Return an engine that does everything in a part of the time."""
    return replace(
        parameters,
        alpha_seconds=parameters.alpha_seconds / factor,
        beta_seconds_per_sequence=parameters.beta_seconds_per_sequence / factor,
        prefill_seconds_per_token=parameters.prefill_seconds_per_token / factor,
        kv_read_seconds_per_token=parameters.kv_read_seconds_per_token / factor,
        attention_seconds_per_token_pair=parameters.attention_seconds_per_token_pair / factor,
    )


def _of(name: str, title: str, traffic: Callable[..., Traffic], /, **more: Any) -> Scenario:
    """Return a scenario. ``traffic`` takes a seed; ``more`` are fields of ``Scenario``."""
    fields: dict[str, Any] = {
        "kind": name.removesuffix("-short"),
        "variants": (CHEAP, DEAR),
        "gateway": _GATEWAY,
        "measured_from_seconds": 5 * _MINUTE,
    }
    return Scenario(name, title, traffic=traffic, **fields | more)


def _starting(seconds: float, sigma: float = 0.25, *, pulls: float = 0.0) -> tuple[VariantSetup, ...]:
    """Return the two variants with pods that start in about this time; a share of them pulls the image first."""
    start_up = StartUp(seconds, sigma, pull_probability=pulls, pull_seconds=180.0)
    return tuple(replace(variant, start_up=start_up) for variant in (CHEAP, DEAR))


_SLOW_PODS: Final = _starting(10 * _MINUTE, 0.1)
_PULLING: Final = _starting(110.0, pulls=0.3)
_THREE_TIMES: Final = (
    CHEAP,
    replace(CHEAP, name="llama-triple", accelerator="triple", parameters=_faster(CHEAP.parameters, 3.0), price=40.0),
)
_THREE_SPEEDS: Final = (CHEAP, DEAR, FAST)
_LARGE_MODEL: Final = (
    VariantSetup(
        "llama70-mi300x",
        "MI300X",
        engine_parameters("MI300X", "Llama-3.1-70B", precision=Precision.FP8, max_model_len=_LONGEST_TOKENS),
        price=30.0,
        start_up=StartUp(240.0),
    ),
    VariantSetup(
        "llama70-h100x4",
        "H100",
        engine_parameters("H100", "Llama-3.1-70B", tensor_parallel=4, max_model_len=_LONGEST_TOKENS),
        price=130.0,
        start_up=StartUp(240.0),
        gpus=4,
    ),
)
_ONE_OF_TEN_PULLS: Final = _starting(110.0, pulls=0.1)
_LONG_PROMPTS: Final = tuple(
    replace(variant, parameters=engine_parameters(variant.accelerator, _MODEL, max_model_len=131_072))
    for variant in (DEAR, FAST)
)
_PATIENT: Final = Objectives(ttft_seconds=5.0)
_PREFIX_AWARE: Final = replace(_GATEWAY, routing=Routing.PREFIX, prefix_weight=0.5)
_ZERO: Final = tuple(replace(variant, minimum=0) for variant in (CHEAP, DEAR))
_RANDOM: Final = replace(_GATEWAY, routing=Routing.RANDOM)
_STALE: Final = replace(_GATEWAY, routing=Routing.STALE, view_seconds=2.0)
_LOSSY: Final = WorldObservation(lost_share=0.2)

_QUICK: Final = (
    _of(
        "sine-short",
        "The load swings around 14 requests/s, 40 minutes",
        partial(shapes.sine, duration_seconds=40 * _MINUTE, period_seconds=40 * _MINUTE),
    ),
    _of(
        "step-short",
        "The load jumps to ten times as much and back, half an hour",
        partial(shapes.step, duration_seconds=30 * _MINUTE),
    ),
    _of(
        "bursts-short",
        "Ten times the load for 5 of 20 minutes, 40 minutes",
        partial(shapes.bursts, duration_seconds=40 * _MINUTE),
    ),
    _of(
        "ramp-short",
        "The load rises to twelve times as much and falls, 40 minutes",
        partial(shapes.slow_ramp, duration_seconds=40 * _MINUTE),
    ),
    _of(
        "slow-pods-short",
        "A ramp of 10 minutes while pods need 10 minutes to start",
        partial(shapes.ramp, duration_seconds=40 * _MINUTE, rise_seconds=10 * _MINUTE),
        variants=_SLOW_PODS,
    ),
    _of(
        "prompts-short",
        "Prompts become eight times as long, half an hour",
        partial(shapes.prompt_shift, duration_seconds=30 * _MINUTE),
    ),
    _of(
        "random-routing-short",
        "The load jumps and falls while requests go to random replicas",
        partial(shapes.step, duration_seconds=30 * _MINUTE),
        gateway=_RANDOM,
    ),
    _of(
        "flash-crowd-short",
        "A crowd comes at an unknown time, half an hour",
        partial(shapes.flash_crowd, duration_seconds=30 * _MINUTE, crowds=1, height=3.0),
    ),
    _of(
        "upstream-ramp-short",
        "The ramp of llm-d's benchmark in half the time",
        partial(shapes.upstream_ramp, duration_seconds=21 * _MINUTE),
    ),
)

_FULL: Final = (
    _of("sine", "The load swings around 14 requests/s in two hours, 4 hours", shapes.sine),
    _of("step", "The load jumps to ten times as much and back", shapes.step),
    _of("bursts", "Ten times the load for 5 of 20 minutes, 2 hours", shapes.bursts),
    _of("slow-ramp", "The load rises to twelve times as much over 2 hours and falls as slowly", shapes.slow_ramp),
    _of(
        "slow-pods",
        "The load rises tenfold in 10 minutes while pods need 10 minutes to start",
        partial(shapes.ramp, duration_seconds=1.5 * _HOUR),
        variants=_SLOW_PODS,
    ),
    _of(
        "image-pulls",
        "The load jumps to ten times as much; three of ten pods pull their image, 3 minutes more",
        shapes.step,
        variants=_PULLING,
    ),
    _of("upstream-ramp", "The ramp of llm-d's benchmark: 2 to 10 requests/s with long prompts", shapes.upstream_ramp),
    _of("two-variants", "The load of llm-d's benchmark with two variants", shapes.upstream_two_variants),
    _of("prompts", "Prompts become eight times as long", shapes.prompt_shift),
    _of("answers", "Answers become four times as long", shapes.answer_shift),
    _of("fast-dear", "The load swings; the dear variant is three times as fast", shapes.sine, variants=_THREE_TIMES),
    _of(
        "three-speeds",
        "The load swings; three variants of three speeds at two prices",
        shapes.sine,
        variants=_THREE_SPEEDS,
    ),
    _of("lost-scrapes", "The load jumps and falls while a fifth of the scrapes fails", shapes.step, observation=_LOSSY),
    _of("random-routing", "The load swings while requests go to random replicas", shapes.sine, gateway=_RANDOM),
    _of(
        "random-routing-step",
        "The load jumps and falls while requests go to random replicas",
        shapes.step,
        gateway=_RANDOM,
    ),
    _of("stale-routing", "The load jumps and falls while the gateway sees loads 2 s late", shapes.step, gateway=_STALE),
    _of("flash-crowds", "Three crowds come at unknown times, 2.2 times the load each", shapes.flash_crowd),
    _of(
        "low-traffic",
        "Minutes to hours between two requests; variants may go to zero",
        partial(shapes.low_traffic, duration_seconds=12 * _HOUR),
        variants=_ZERO,
        objectives=Objectives(ttft_seconds=300.0),
        gateway=GatewaySettings(patience_seconds=600.0),
    ),
    _of(
        "large-model",
        "A model of 70B: one MI300X at 30, or four H100 at 130; the load swings",
        partial(shapes.sine, rate=8.0, duration_seconds=2 * _HOUR),
        variants=_LARGE_MODEL,
        objectives=Objectives(ttft_seconds=2.0, itl_seconds=0.15),
    ),
    _of(
        "conversation",
        "Six hours of a weekday of Azure's conversation service of 2024, around 10 requests/s",
        partial(traces.azure_2024_conversation, duration_seconds=6 * _HOUR, rate=10.0, day="Mon", hour=8),
        variants=_ONE_OF_TEN_PULLS,
    ),
    _of(
        "coding",
        "Six hours of a weekday of Azure's coding service of 2024, from the night into the day, around 10 requests/s",
        partial(traces.azure_2024_coding, duration_seconds=6 * _HOUR, rate=10.0, day="Tue", hour=9),
        variants=_ONE_OF_TEN_PULLS,
    ),
    _of(
        "coding-spells",
        "The hour of Azure's code service of 2023: spells of seconds with many requests, at twice its rate",
        partial(traces.azure_2023_code, rate=5.0),
    ),
    _of(
        "burstgpt",
        "Requests as BurstGPT draws them, 8 per second: clumped, with a few very long ones",
        partial(traces.burstgpt, duration_seconds=2 * _HOUR, rate=8.0),
    ),
    _of(
        "clients",
        "Twelve clients of whom few send most; each has bursts of its own",
        partial(traces.client_mix, duration_seconds=2 * _HOUR, rate=8.0),
    ),
    _of(
        "prefixes",
        "Chats with long shared beginnings, as Mooncake's, and routing that knows which replica holds them",
        partial(traces.mooncake_conversation, duration_seconds=_HOUR, rate=2.0),
        variants=_LONG_PROMPTS,
        gateway=_PREFIX_AWARE,
        objectives=_PATIENT,
    ),
    _of(
        "prefixes-random",
        "The same chats while requests go to random replicas",
        partial(traces.mooncake_conversation, duration_seconds=_HOUR, rate=2.0),
        variants=_LONG_PROMPTS,
        gateway=_RANDOM,
        objectives=_PATIENT,
    ),
)

_ILLUSTRATIVE: Final = tuple(
    VariantSetup(f"llama-{name.lower()}", name, PRESETS[name], price)
    for name, price in (("A100", 20.0), ("H100", 40.0))
)
_FIRST: Final = tuple(
    replace(
        scenario,
        name=f"first-{scenario.name}",
        title=f"{scenario.title}; with the engines and the patient users of the first comparison",
        kind=f"first-{scenario.kind}",
        variants=tuple(
            replace(variant, start_up=like.start_up)
            for variant, like in zip(_ILLUSTRATIVE, scenario.variants, strict=True)
        ),
        gateway=GatewaySettings(),
    )
    for scenario in _FULL
    if scenario.name in earlier.FIGURES
)
"""Scenarios that resemble those of the first comparison, before the scorecard."""

SCENARIOS: Final[Mapping[str, Scenario]] = MappingProxyType({each.name: each for each in (*_QUICK, *_FULL, *_FIRST)})
"""Every scenario by name."""
SUITES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"quick": tuple(each.name for each in _QUICK), "full": tuple(each.name for each in (*_FULL, *_FIRST))}
)
"""Names of the scenarios of each suite."""
DEFAULT_SEEDS: Final[Mapping[str, int]] = MappingProxyType({"quick": 1, "full": 5})
"""The number of seeds of a suite without a flag."""


def scenario_of_requests(path: Path) -> Scenario:
    """Return a scenario with the requests of a CSV file; it is checked now. Raises RequestsFileError.

    The start does not count: five minutes, or a tenth of the time if that is less.
    """
    if path.exists() and not path.is_file():
        raise RequestsFileError(f"{path} is no file: expected one, which is read more than once")
    traffic = read_csv(path)
    longest, duration_seconds = int((traffic.prompt_tokens + traffic.output_tokens).max()), traffic.duration_seconds
    if longest > _LONGEST_TOKENS:
        message = f"{path}: a request has {longest} tokens with its answer: expected at most {_LONGEST_TOKENS}"
        raise RequestsFileError(message)
    if duration_seconds < _MINUTE:
        raise RequestsFileError(f"{path}: the requests span {duration_seconds:g} s: expected at least {_MINUTE:g} s")
    return _of(
        "requests",
        f"The requests of {os.fsencode(path.name).decode(errors='replace')}",
        partial(_requests_of, path),
        measured_from_seconds=min(5 * _MINUTE, duration_seconds / 10.0),
    )


def _requests_of(path: Path, seed: int) -> Traffic:
    return read_csv(path, seed=seed)
