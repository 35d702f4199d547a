"""What traffic demands of the variants of each role, and what a replica of each role carries.

Each role has the same kind of demand as a model without roles (``demand``), of variants and requests that stand for its
part of the work:

- **Prefill** gets the prompts that the picker sends there, each with an answer of one token.
- **Decode** gets all requests. Of their prompts it computes those that are too short for a prefill replica, and the
  last token of each of the others. On these engines a prompt token costs the share that is computed.

A replica carries its throughput; for decode, the throughput with the time between tokens within the objective. How much
less it carries when first tokens have to be in time depends on how many replicas share a queue: a single replica that
computes each prompt for half a second carries half of that, ten replicas carry nearly all of it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from wva.model.records import replace
from wva.model.roles import PREFILL
from wva.sim.fleet.transfer import KvTransfer
from wva.sim.stage.capacity import fluent, saturation
from wva.sim.stage.demand import DemandOverTime, demand
from wva.sim.stage.scenario import Scenario, VariantSetup
from wva.sim.traffic.requests import Traffic

_BUDGET_TOKENS: Final = 1_000_000
"""Prompts that are there already take none of the budget of a step."""


def demands(scenario: Scenario, traffic: Traffic) -> tuple[DemandOverTime, ...]:
    """Return the demand of a model's traffic on the variants of each role, in their order; one without roles."""
    transfer = scenario.gateway.transfer
    if transfer is None:
        return (demand(scenario, traffic),)
    return tuple(
        (_of_prefill if part.variants[0].role == PREFILL else _of_decode)(part, traffic, transfer)
        for part in scenario.by_role
    )


def _of_prefill(part: Scenario, traffic: Traffic, transfer: KvTransfer) -> DemandOverTime:
    sent = _sent(traffic, transfer)
    return demand(part, replace(sent, output_tokens=np.ones_like(sent.output_tokens)), capacity=saturation)


def _of_decode(part: Scenario, traffic: Traffic, transfer: KvTransfer) -> DemandOverTime:
    tokens = float(traffic.prompt_tokens.sum())
    share = 1.0 - float(_sent(traffic, transfer).prompt_tokens.sum()) / tokens if tokens else 1.0

    def computing_less(setup: VariantSetup) -> VariantSetup:
        engine = setup.parameters
        less = replace(
            engine,
            prefill_seconds_per_token=share * engine.prefill_seconds_per_token,
            attention_seconds_per_token_pair=share * engine.attention_seconds_per_token_pair,
            max_num_batched_tokens=_BUDGET_TOKENS,
        )
        return replace(setup, parameters=less)

    variants = tuple(computing_less(setup) for setup in part.variants)
    return demand(replace(part, variants=variants), traffic, capacity=fluent(part.objectives.itl_seconds))


def _sent(traffic: Traffic, transfer: KvTransfer) -> Traffic:
    """Return the requests whose prompts go to prefill."""
    rows = traffic.prompt_tokens >= transfer.least_prompt_tokens
    return replace(
        traffic,
        arrival_seconds=traffic.arrival_seconds[rows],
        prompt_tokens=traffic.prompt_tokens[rows],
        output_tokens=traffic.output_tokens[rows],
        group=traffic.group[rows],
        prefix_tokens=traffic.prefix_tokens[rows],
        shared_tokens=traffic.shared_tokens[rows],
        draw=traffic.draw[rows],
    )
