"""What scenarios of the scorecard have in common: the variants, the users, and how a scenario is made of them.

Unless a scenario says otherwise, Llama 3.1 with 8B parameters is served by two variants: one L40S at 20 per hour and
one A100 at 40, which is 1.9 times as fast. Pods are Ready 60 to 180 s after they were created.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from wva.model.records import replace
from wva.sim.fleet.accelerators import engine_parameters
from wva.sim.fleet.users import GatewaySettings
from wva.sim.stage.scenario import Scenario, StartUp, VariantSetup
from wva.sim.traffic.requests import Traffic

MODEL: Final = "Llama-3.1-8B"
LONGEST_TOKENS: Final = 32_768
MINUTE: Final = 60.0
HOUR: Final = 3600.0

CHEAP: Final = VariantSetup("llama-l40s", "L40S", engine_parameters("L40S", MODEL, max_model_len=LONGEST_TOKENS), 20.0)
DEAR: Final = VariantSetup("llama-a100", "A100", engine_parameters("A100", MODEL, max_model_len=LONGEST_TOKENS), 40.0)
FAST: Final = VariantSetup("llama-h100", "H100", engine_parameters("H100", MODEL, max_model_len=LONGEST_TOKENS), 40.0)
LONG_PROMPTS: Final = tuple(
    replace(variant, parameters=engine_parameters(variant.accelerator, MODEL, max_model_len=131_072))
    for variant in (DEAR, FAST)
)

GATEWAY: Final = GatewaySettings(patience_seconds=60.0, attempts=2, retry_seconds=2.0)


def scenario_of(name: str, title: str, traffic: Callable[..., Traffic], /, **more: Any) -> Scenario:
    """Return a scenario. ``traffic`` takes a seed; ``more`` are fields of ``Scenario``."""
    fields: dict[str, Any] = {
        "kind": name.removesuffix("-short"),
        "variants": (CHEAP, DEAR),
        "gateway": GATEWAY,
        "measured_from_seconds": 5 * MINUTE,
    }
    return Scenario(name, title, traffic=traffic, **fields | more)


def starting(seconds: float, sigma: float = 0.25, *, pulls: float = 0.0) -> tuple[VariantSetup, ...]:
    """Return the two variants with pods that start in about this time; a share of them pulls the image first."""
    start_up = StartUp(seconds, sigma, pull_probability=pulls, pull_seconds=180.0)
    return tuple(replace(variant, start_up=start_up) for variant in (CHEAP, DEAR))
