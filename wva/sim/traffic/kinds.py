"""All kinds of traffic by name. A kind is a function of a seed; its other parameters have defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from wva.sim.traffic import shapes, traces
from wva.sim.traffic.agents import agents
from wva.sim.traffic.lengths import Sizes, fixed
from wva.sim.traffic.requests import Traffic

UPSTREAM_RAMP_SMALL: Final = partial(shapes.upstream_ramp, scale=0.5, sizes=Sizes(fixed(1000), fixed(250)))

KINDS: Final[Mapping[str, Callable[..., Traffic]]] = MappingProxyType(
    {
        "constant": shapes.constant,
        "sine": shapes.sine,
        "step": shapes.step,
        "bursts": shapes.bursts,
        "ramp": shapes.ramp,
        "slow-ramp": shapes.slow_ramp,
        "levels": shapes.levels,
        "jittered-bursts": shapes.jittered_bursts,
        "flash-crowd": shapes.flash_crowd,
        "viral": shapes.viral,
        "office": shapes.office,
        "agents": agents,
        "prompt-shift": shapes.prompt_shift,
        "answer-shift": shapes.answer_shift,
        "turning": shapes.turning,
        "low-traffic": shapes.low_traffic,
        "upstream-ramp": shapes.upstream_ramp,
        "upstream-ramp-small": UPSTREAM_RAMP_SMALL,
        "upstream-two-variants": shapes.upstream_two_variants,
        "azure-2023-conversation": traces.azure_2023_conversation,
        "azure-2023-code": traces.azure_2023_code,
        "azure-2024-conversation": traces.azure_2024_conversation,
        "azure-2024-coding": traces.azure_2024_coding,
        "burstgpt": traces.burstgpt,
        "mooncake-conversation": traces.mooncake_conversation,
        "mooncake-tool": traces.mooncake_tool,
        "mooncake-synthetic": traces.mooncake_synthetic,
        "client-mix": traces.client_mix,
    }
)
