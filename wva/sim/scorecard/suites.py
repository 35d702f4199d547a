"""The scenarios of the scorecard by name, and the suites.

Variants and users are those of ``fleets`` unless a scenario says otherwise, WVA decides every 15 s, and the requests
are those of ``traffic.shapes``. Scenarios in which more changes than a plain load are in ``worlds``, those in which
there is something to learn in ``learning``, those with prefill and decode in pods of their own in ``roles``. A further
one is made by ``scenario_of`` here or in one of these modules. ``python -m tests.docs.rendering`` brings those of the
modules into docs/traffic.md, and the next full run brings all into docs/scorecard.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

from wva.model.objectives import Objectives
from wva.model.records import replace
from wva.sim.fleet.accelerators import Precision, engine_parameters
from wva.sim.fleet.parameters import PRESETS
from wva.sim.fleet.users import GatewaySettings, Routing
from wva.sim.scorecard import earlier
from wva.sim.scorecard.fleets import (
    CHEAP,
    DEAR,
    FAST,
    GATEWAY,
    HOUR,
    LONG_PROMPTS,
    LONGEST_TOKENS,
    MINUTE,
    scenario_of,
    starting,
)
from wva.sim.scorecard.learning import LEARNING
from wva.sim.scorecard.roles import ROLES
from wva.sim.scorecard.worlds import SHORT_WORLDS, WORLDS
from wva.sim.stage.scenario import Scenario, StartUp, VariantSetup, WorldObservation
from wva.sim.traffic import shapes, traces
from wva.sim.traffic.csv_file import RequestsFileError, read_csv
from wva.sim.traffic.requests import Traffic

_SLOW_PODS: Final = starting(10 * MINUTE, 0.1)
_PULLING: Final = starting(110.0, pulls=0.3)
_THREE_TIMES: Final = (
    CHEAP,
    replace(CHEAP, name="llama-triple", accelerator="triple", parameters=CHEAP.parameters.at_speed(3.0), price=40.0),
)
_THREE_SPEEDS: Final = (CHEAP, DEAR, FAST)
_LARGE_MODEL: Final = (
    VariantSetup(
        "llama70-mi300x",
        "MI300X",
        engine_parameters("MI300X", "Llama-3.1-70B", precision=Precision.FP8, max_model_len=LONGEST_TOKENS),
        price=30.0,
        start_up=StartUp(240.0),
    ),
    VariantSetup(
        "llama70-h100x4",
        "H100",
        engine_parameters("H100", "Llama-3.1-70B", tensor_parallel=4, max_model_len=LONGEST_TOKENS),
        price=130.0,
        start_up=StartUp(240.0),
        gpus=4,
    ),
)
_ONE_OF_TEN_PULLS: Final = starting(110.0, pulls=0.1)
_PATIENT: Final = Objectives(ttft_seconds=5.0)
_PREFIX_AWARE: Final = replace(GATEWAY, routing=Routing.PREFIX, prefix_weight=0.5)
_ZERO: Final = tuple(replace(variant, minimum=0) for variant in (CHEAP, DEAR))
_RANDOM: Final = replace(GATEWAY, routing=Routing.RANDOM)
_STALE: Final = replace(GATEWAY, routing=Routing.STALE, view_seconds=2.0)
_LOSSY: Final = WorldObservation(lost_share=0.2)

_QUICK: Final = (
    scenario_of(
        "sine-short",
        "The load swings around 14 requests/s, 40 minutes",
        partial(shapes.sine, duration_seconds=40 * MINUTE, period_seconds=40 * MINUTE),
    ),
    scenario_of(
        "step-short",
        "The load jumps to ten times as much and back, half an hour",
        partial(shapes.step, duration_seconds=30 * MINUTE),
    ),
    scenario_of(
        "bursts-short",
        "Ten times the load for 5 of 20 minutes, 40 minutes",
        partial(shapes.bursts, duration_seconds=40 * MINUTE),
    ),
    scenario_of(
        "ramp-short",
        "The load rises to twelve times as much and falls, 40 minutes",
        partial(shapes.slow_ramp, duration_seconds=40 * MINUTE),
    ),
    scenario_of(
        "slow-pods-short",
        "A ramp of 10 minutes while pods need 10 minutes to start",
        partial(shapes.ramp, duration_seconds=40 * MINUTE, rise_seconds=10 * MINUTE),
        variants=_SLOW_PODS,
    ),
    scenario_of(
        "prompts-short",
        "Prompts become eight times as long, half an hour",
        partial(shapes.prompt_shift, duration_seconds=30 * MINUTE),
    ),
    scenario_of(
        "random-routing-short",
        "The load jumps and falls while requests go to random replicas",
        partial(shapes.step, duration_seconds=30 * MINUTE),
        gateway=_RANDOM,
    ),
    scenario_of(
        "flash-crowd-short",
        "A crowd comes at an unknown time, half an hour",
        partial(shapes.flash_crowd, duration_seconds=30 * MINUTE, crowds=1, height=3.0),
    ),
    scenario_of(
        "upstream-ramp-short",
        "The ramp of llm-d's benchmark in half the time",
        partial(shapes.upstream_ramp, duration_seconds=21 * MINUTE),
    ),
    *SHORT_WORLDS,
)

_FULL: Final = (
    scenario_of("sine", "The load swings around 14 requests/s in two hours, 4 hours", shapes.sine),
    scenario_of("step", "The load jumps to ten times as much and back", shapes.step),
    scenario_of("bursts", "Ten times the load for 5 of 20 minutes, 2 hours", shapes.bursts),
    scenario_of(
        "slow-ramp", "The load rises to twelve times as much over 2 hours and falls as slowly", shapes.slow_ramp
    ),
    scenario_of(
        "slow-pods",
        "The load rises tenfold in 10 minutes while pods need 10 minutes to start",
        partial(shapes.ramp, duration_seconds=1.5 * HOUR),
        variants=_SLOW_PODS,
    ),
    scenario_of(
        "image-pulls",
        "The load jumps to ten times as much; three of ten pods pull their image, 3 minutes more",
        shapes.step,
        variants=_PULLING,
    ),
    scenario_of(
        "upstream-ramp", "The ramp of llm-d's benchmark: 2 to 10 requests/s with long prompts", shapes.upstream_ramp
    ),
    scenario_of("two-variants", "The load of llm-d's benchmark with two variants", shapes.upstream_two_variants),
    scenario_of("prompts", "Prompts become eight times as long", shapes.prompt_shift),
    scenario_of("answers", "Answers become four times as long", shapes.answer_shift),
    scenario_of(
        "fast-dear", "The load swings; the dear variant is three times as fast", shapes.sine, variants=_THREE_TIMES
    ),
    scenario_of(
        "three-speeds",
        "The load swings; three variants of three speeds at two prices",
        shapes.sine,
        variants=_THREE_SPEEDS,
    ),
    scenario_of(
        "lost-scrapes", "The load jumps and falls while a fifth of the scrapes fails", shapes.step, observation=_LOSSY
    ),
    scenario_of("random-routing", "The load swings while requests go to random replicas", shapes.sine, gateway=_RANDOM),
    scenario_of(
        "random-routing-step",
        "The load jumps and falls while requests go to random replicas",
        shapes.step,
        gateway=_RANDOM,
    ),
    scenario_of(
        "stale-routing", "The load jumps and falls while the gateway sees loads 2 s late", shapes.step, gateway=_STALE
    ),
    scenario_of("flash-crowds", "Three crowds come at unknown times, 2.2 times the load each", shapes.flash_crowd),
    scenario_of(
        "low-traffic",
        "Minutes to hours between two requests; variants may go to zero",
        partial(shapes.low_traffic, duration_seconds=12 * HOUR),
        variants=_ZERO,
        objectives=Objectives(ttft_seconds=300.0),
        gateway=GatewaySettings(patience_seconds=600.0),
    ),
    scenario_of(
        "large-model",
        "A model of 70B: one MI300X at 30, or four H100 at 130; the load swings",
        partial(shapes.sine, rate=8.0, duration_seconds=2 * HOUR),
        variants=_LARGE_MODEL,
        objectives=Objectives(ttft_seconds=2.0, itl_seconds=0.15),
    ),
    scenario_of(
        "conversation",
        "Six hours of a weekday of Azure's conversation service of 2024, around 10 requests/s",
        partial(traces.azure_2024_conversation, duration_seconds=6 * HOUR, rate=10.0, day="Mon", hour=8),
        variants=_ONE_OF_TEN_PULLS,
    ),
    scenario_of(
        "coding",
        "Six hours of a weekday of Azure's coding service of 2024, from the night into the day, around 10 requests/s",
        partial(traces.azure_2024_coding, duration_seconds=6 * HOUR, rate=10.0, day="Tue", hour=9),
        variants=_ONE_OF_TEN_PULLS,
    ),
    scenario_of(
        "coding-spells",
        "The hour of Azure's code service of 2023: spells of seconds with many requests, at twice its rate",
        partial(traces.azure_2023_code, rate=5.0),
    ),
    scenario_of(
        "burstgpt",
        "Requests as BurstGPT draws them, 8 per second: clumped, with a few very long ones",
        partial(traces.burstgpt, duration_seconds=2 * HOUR, rate=8.0),
    ),
    scenario_of(
        "clients",
        "Twelve clients of whom few send most; each has bursts of its own",
        partial(traces.client_mix, duration_seconds=2 * HOUR, rate=8.0),
    ),
    scenario_of(
        "prefixes",
        "Chats with long shared beginnings, as Mooncake's, and routing that knows which replica holds them",
        partial(traces.mooncake_conversation, duration_seconds=HOUR, rate=2.0),
        variants=LONG_PROMPTS,
        gateway=_PREFIX_AWARE,
        objectives=_PATIENT,
    ),
    scenario_of(
        "prefixes-random",
        "The same chats while requests go to random replicas",
        partial(traces.mooncake_conversation, duration_seconds=HOUR, rate=2.0),
        variants=LONG_PROMPTS,
        gateway=_RANDOM,
        objectives=_PATIENT,
    ),
    *WORLDS,
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
            replace(variant, start_up=counterpart.start_up)
            for variant, counterpart in zip(_ILLUSTRATIVE, scenario.variants, strict=True)
        ),
        gateway=GatewaySettings(),
    )
    for scenario in _FULL
    if scenario.name in earlier.FIGURES
)
"""Scenarios that resemble those of the first comparison, before the scorecard."""

SCENARIOS: Final[Mapping[str, Scenario]] = MappingProxyType(
    {scenario.name: scenario for scenario in (*_QUICK, *LEARNING, *ROLES, *_FULL, *_FIRST)}
)
"""Every scenario by name."""
SUITES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "quick": tuple(scenario.name for scenario in _QUICK),
        "learning": tuple(scenario.name for scenario in LEARNING),
        "roles": tuple(scenario.name for scenario in ROLES),
        "full": tuple(scenario.name for scenario in (*_FULL, *_FIRST, *ROLES)),
    }
)
"""Names of the scenarios of each suite. Those of roles are in full, too. On two cores quick and roles take about 5
minutes each, learning half an hour, full two hours."""
DEVELOPMENT_SEEDS: Final = range(1, 101)
"""The seeds of runs by which somebody chooses: a change, a constant, a setting."""
PAGE_SEEDS: Final = range(1001, 1101)
"""The seeds of the page that is published. Nobody chooses by them, so what they show holds for traffic not yet seen."""
DEFAULT_SEEDS: Final[Mapping[str, int]] = MappingProxyType({"quick": 3, "learning": 1, "roles": 3, "full": 5})
"""The number of seeds of a suite without a flag."""
_TITLE: Final = "Scorecard: suite "


def title_of(suite: str) -> str:
    """Return the title of a scorecard of a whole suite."""
    return f"{_TITLE}{suite}"


def without_results(title: str, recorded: Iterable[str]) -> list[str]:
    """Return the scenarios of the suite with this title that are not recorded; none if no suite has it.

    Results take hours to make: a scenario that has been added since has none.
    """
    with_results = set(recorded)
    return [name for name in SUITES.get(title.removeprefix(_TITLE), ()) if name not in with_results]


def scenario_of_requests(path: Path) -> Scenario:
    """Return a scenario with the requests of a CSV file; the file is checked now. Raises RequestsFileError.

    The start does not count: five minutes, or a tenth of the time if that is less.
    """
    if path.exists() and not path.is_file():
        raise RequestsFileError(f"{path} is no file: expected one, which is read more than once")
    traffic = read_csv(path)
    longest, duration_seconds = int((traffic.prompt_tokens + traffic.output_tokens).max()), traffic.duration_seconds
    if longest > LONGEST_TOKENS:
        message = f"{path}: a request has {longest} tokens with its answer: expected at most {LONGEST_TOKENS}"
        raise RequestsFileError(message)
    if duration_seconds < MINUTE:
        raise RequestsFileError(f"{path}: the requests span {duration_seconds:g} s: expected at least {MINUTE:g} s")
    return scenario_of(
        "requests",
        f"The requests of {os.fsencode(path.name).decode(errors='replace')}",
        partial(_requests_of, path),
        measured_from_seconds=min(5 * MINUTE, duration_seconds / 10.0),
    )


def _requests_of(path: Path, seed: int) -> Traffic:
    return read_csv(path, seed=seed)
