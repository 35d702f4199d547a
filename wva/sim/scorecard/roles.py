"""Scenarios with roles: prefill and decode in pods of their own, each with one variant.

Qwen3 with 32B parameters, as in llm-d's benchmarks of such pods: a prefill replica has one H100 at 33 per hour, a
decode replica two at 66. Users want their first token within 2 s, and 50 ms between tokens. Pods are Ready 60 to 120 s
after they were created. Prompts of at least 512 tokens are computed by prefill pods.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from wva.model.objectives import Objectives
from wva.model.records import replace
from wva.model.roles import DECODE, PREFILL
from wva.sim.fleet.accelerators import engine_parameters
from wva.sim.fleet.transfer import KvTransfer
from wva.sim.scorecard.fleets import GATEWAY, HOUR, MINUTE, scenario_of
from wva.sim.stage.scenario import Scenario, StartUp, VariantSetup
from wva.sim.traffic import shapes
from wva.sim.traffic.lengths import Sizes, TokenLengths, lognormal
from wva.sim.traffic.requests import Traffic

MODEL: Final = "Qwen3-32B"
LONGEST_TOKENS: Final = 16_384
START_UP: Final = StartUp(85.0, 0.15)
_PREFILLS: Final = VariantSetup(
    "qwen-prefill",
    "H100",
    engine_parameters("H100", MODEL, max_model_len=LONGEST_TOKENS),
    price=33.0,
    start_up=START_UP,
    role=PREFILL,
)
_DECODES: Final = VariantSetup(
    "qwen-decode",
    "H100",
    engine_parameters("H100", MODEL, tensor_parallel=2, max_model_len=LONGEST_TOKENS),
    price=66.0,
    start_up=START_UP,
    gpus=2,
    role=DECODE,
)
_SIZES: Final = {
    "even": Sizes(lognormal(TokenLengths(2000)), lognormal(TokenLengths(500, maximum_tokens=2048))),
    "long answers": Sizes(lognormal(TokenLengths(600)), lognormal(TokenLengths(2000, maximum_tokens=8192))),
}


def _sized(shape: Callable[..., Traffic], sizes: str, seed: int, **more: float) -> Traffic:
    """Return traffic of a shape with sizes by name, as other processes can load the name but not the sizes."""
    return shape(seed, sizes=_SIZES[sizes], **more)


def _in_roles(name: str, title: str, traffic: Callable[..., Traffic], /, **more: Any) -> Scenario:
    """Return a scenario with both roles."""
    fields: dict[str, Any] = {
        "variants": (_PREFILLS, _DECODES),
        "gateway": replace(GATEWAY, transfer=KvTransfer.of(MODEL)),
        "objectives": Objectives(ttft_seconds=2.0, itl_seconds=0.05),
    }
    return scenario_of(name, title, traffic, **fields | more)


def _beginning(prefills: int, decodes: int) -> tuple[VariantSetup, ...]:
    """Return both roles with these replicas at the start: what the load needs then."""
    return replace(_PREFILLS, replicas=prefills), replace(_DECODES, replicas=decodes)


def _swinging(seed: int, *, swing: float) -> Traffic:
    """Return a load that swings around 5 requests/s. If it begins at its highest, it has other requests."""
    own_seed = seed if swing > 0 else 1000 + seed
    return _sized(shapes.sine, "even", own_seed, duration_seconds=HOUR, rate=5.0, swing=swing, period_seconds=HOUR)


_CODE: Final = _in_roles(
    "code",
    "The other model",
    partial(_swinging, swing=-0.8),
    variants=tuple(replace(setup, name=f"code-{setup.role}") for setup in _beginning(3, 2)),
    model_id="org/code",
)

ROLES: Final = (
    _in_roles(
        "roles-turn",
        "Prefill and decode: 10 requests/s whose prompts grow fourfold while answers shrink to a fifth, an hour",
        shapes.turning,
        variants=_beginning(2, 4),
    ),
    _in_roles(
        "roles-ramp",
        "Prefill and decode: the load rises from 1 to 10 requests/s within 10 minutes and falls, an hour",
        partial(_sized, shapes.ramp, "even", low=1.0, high=10.0),
    ),
    _in_roles(
        "roles-step",
        "Prefill and decode: the load jumps from 2 to 10 requests/s and back, an hour",
        partial(_sized, shapes.step, "even", duration_seconds=HOUR, high=10.0),
    ),
    _in_roles(
        "roles-prompts",
        "Prefill and decode: the ramp of llm-d's benchmark, prompts of 4,000 and answers of 1,000 tokens, an hour",
        partial(shapes.upstream_ramp, duration_seconds=HOUR),
    ),
    _in_roles(
        "roles-answers",
        "Prefill and decode: prompts of 600 tokens, of which decode pods compute the short ones, and answers of 2,000; "
        "the load swings, an hour",
        partial(_sized, shapes.sine, "long answers", duration_seconds=HOUR, period_seconds=40 * MINUTE, rate=5.0),
    ),
    _in_roles(
        "roles-two-models",
        "Two models in prefill and decode on 16 GPUs; one swings between 1 and 9 requests/s, the other against it",
        partial(_swinging, swing=0.8),
        others=(_CODE,),
        gpus={"H100": 16},
    ),
)
