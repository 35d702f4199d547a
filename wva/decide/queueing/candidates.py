"""Candidate allocations: for every server and accelerator the replicas that meet the targets.

Formulas: docs/design/queueing-formulas.md#candidates-and-their-value.

All pairs are sized together, then evaluated together at the load that each replica would get. A pair without a
candidate says why.

Three things differ from the Go controller: a TPS target asks for the larger of the promised and the arriving tokens per
second; a profile without ``at_tokens`` has its batch at any number of tokens; batches are bounded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import compress
from typing import NamedTuple

import numpy as np

from wva.decide.amounts import rounded_up
from wva.decide.queueing.service import MAX_BATCH, QUEUE_TO_BATCH, PrefillDecode, Queue, RequestSize
from wva.decide.queueing.sizing import perform, size
from wva.decide.queueing.system import NO_ACCELERATOR, Allocation, Profile, Server, System, transition_value
from wva.decide.queueing.targets import Target


@dataclass(frozen=True, slots=True)
class Candidates:
    """What a server could get: allocations sorted by accelerator, and why other accelerators are none."""

    server: Server
    allocations: tuple[Allocation, ...]
    dropped: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _Ask:
    """What a server asks of every accelerator; ``required`` are requests per second."""

    server: Server
    target: Target
    request: RequestSize
    required: float


class _Pair(NamedTuple):
    """A server and an accelerator that have all that sizing needs."""

    ask: _Ask
    profile: Profile
    cost: float
    queue: Queue


def candidates(system: System) -> tuple[Candidates, ...]:
    """Return the candidates of every server, sorted by server."""
    pairs, found, dropped = _pairs(system)
    sizings = size([pair.queue for pair in pairs], [pair.ask.target for pair in pairs])
    sized = ~np.isnan(sizings.rates)
    for number in np.flatnonzero(~sized).tolist():
        pair = pairs[number]
        dropped[pair.ask.server.name].append((pair.profile.accelerator, sizings[number].problem))
    kept = list(compress(pairs, sized.tolist()))
    rates = sizings.rates[sized].tolist()
    replicas = [_replicas(pair.ask, rate) for pair, rate in zip(kept, rates, strict=True)]
    offered = np.full(len(pairs), np.nan)
    offered[sized] = [pair.ask.required / count for pair, count in zip(kept, replicas, strict=True)]
    rows = sizings.evaluate(offered)[sized].tolist()
    for pair, rate, count, row in zip(kept, rates, replicas, rows, strict=True):
        found[pair.ask.server.name].append(_allocation(pair, rate, count, row))
    return tuple(
        Candidates(
            system.servers[name],
            tuple(found[name]),  # in the order of the pairs, which is that of the accelerators
            tuple(sorted(dropped[name])),
        )
        for name in sorted(system.servers)
    )


def evaluated(allocations: list[Allocation]) -> tuple[Allocation, ...]:
    """Return the allocations with the latencies and the load that their replicas would have."""
    queues = [allocation.queue for allocation in allocations if allocation.queue is not None]
    rates = [each.offered / each.replicas for each in allocations if each.queue is not None]
    done = iter(perform(queues, rates))
    results = []
    for allocation in allocations:
        performance = None if allocation.queue is None else next(done)
        if performance is not None:
            allocation = replace(  # noqa: PLW2901 - the same allocation, told more about
                allocation,
                itl=performance.itl,
                ttft=performance.wait + performance.prefill,
                wait=performance.wait,
                rho=performance.rho,
                busy=performance.busy,
            )
        results.append(allocation)
    return tuple(results)


def derived_batch(profile: Profile, output_tokens: float) -> int:
    """Return the batch at a number of tokens per answer: as many tokens in it as the profile was made with."""
    if profile.at_tokens <= 0:
        return profile.max_batch
    return min(max(math.floor(profile.max_batch * profile.at_tokens / max(output_tokens, 1.0)), 1), MAX_BATCH)


def _pairs(
    system: System,
) -> tuple[list[_Pair], dict[str, list[Allocation]], dict[str, list[tuple[str, str]]]]:
    """Return the pairs to size, the allocations that need no sizing, and what is no candidate."""
    pairs: list[_Pair] = []
    found: dict[str, list[Allocation]] = {}
    dropped: dict[str, list[tuple[str, str]]] = {}
    everything = sorted(system.accelerators)
    for name in sorted(system.servers):
        server = system.servers[name]
        own, problems = found.setdefault(name, []), dropped.setdefault(name, [])
        keeps = server.keep_accelerator and server.current.accelerator != NO_ACCELERATOR
        choices = [server.current.accelerator] if keeps else everything
        ask = _ask(system, server)
        if isinstance(ask, str):
            problems += [(accelerator, ask) for accelerator in choices]
            continue
        idle = server.load.idle
        for accelerator in choices:
            pair = _pair(system, ask, accelerator)
            if isinstance(pair, str):
                problems.append((accelerator, pair))
            elif not idle:
                pairs.append(pair)
            else:
                own += [each for each in (_idle(pair),) if each not in own]
    return pairs, found, dropped


def _ask(system: System, server: Server) -> _Ask | str:
    """Return what a server asks for, or in words why it can have no candidate at all."""
    service_class = system.classes.get(server.service_class)
    if service_class is None:
        return f"service class {server.service_class} is not known"
    target = service_class.targets.get(server.model)
    if target is None:
        return f"service class {server.service_class} has no target for {server.model}"
    load = server.load
    problem = load.problem()
    if problem:
        return problem
    request = RequestSize(load.input_tokens, load.output_tokens)
    tokens = 0.0 if load.idle else target.tps / load.output_tokens
    return _Ask(server, target, request, max(load.per_minute / 60, tokens))


def _pair(system: System, ask: _Ask, name: str) -> _Pair | str:
    """Return the pair, or in words why there is none."""
    server, request = ask.server, ask.request
    accelerator, profile = system.accelerators.get(name), system.profiles.get((server.model, name))
    if accelerator is None:
        return f"accelerator {name} is not known"
    if profile is None:
        return f"no performance parameters of {server.model} on {name}"
    if server.load.idle and profile.parameters.problem():
        return profile.parameters.problem()
    batch = server.max_batch if server.max_batch > 0 else derived_batch(profile, request.output_tokens)
    queue = Queue(profile.parameters, request, batch, QUEUE_TO_BATCH * batch)
    return _Pair(ask, profile, accelerator.cost * profile.units, queue)


def _idle(pair: _Pair) -> Allocation:
    """Return what a server without load gets: its minimum, else nothing at all."""
    server, profile = pair.ask.server, pair.profile
    current = server.current
    if server.min_replicas == 0:
        gone = transition_value(current, NO_ACCELERATOR, replicas=0, cost=0.0)
        return Allocation(NO_ACCELERATOR, 0, value=gone)
    parameters = profile.parameters
    itl = parameters.alpha + parameters.beta
    ttft = parameters.gamma + parameters.delta if isinstance(parameters, PrefillDecode) else itl
    batch = server.max_batch if server.max_batch > 0 else profile.max_batch
    longest = ttft + parameters.alpha + parameters.beta * batch
    replicas, cost = server.min_replicas, pair.cost * server.min_replicas
    return Allocation(
        profile.accelerator,
        replicas,
        batch,
        cost=cost,
        value=transition_value(current, profile.accelerator, replicas=replicas, cost=cost),
        itl=itl,
        ttft=ttft,
        rate=batch / longest * 1000 if longest > 0 else 0.0,
    )


def _replicas(ask: _Ask, rate: float) -> int:
    """Return the replicas that take what is asked for, at requests per second of one replica."""
    return max(rounded_up(ask.required / rate), ask.server.min_replicas)


def _allocation(pair: _Pair, rate: float, replicas: int, row: list[float]) -> Allocation:
    """Return a candidate; ``row`` has its latencies and how much it is used, in the order of ``Sizings.evaluate``."""
    itl, ttft, wait, rho, busy = row
    ask, accelerator, cost = pair.ask, pair.profile.accelerator, pair.cost * replicas
    return Allocation(
        accelerator,
        replicas,
        pair.queue.max_batch,
        cost=cost,
        value=transition_value(ask.server.current, accelerator, replicas=replicas, cost=cost),
        itl=itl,
        ttft=ttft,
        wait=wait,
        rho=rho,
        busy=busy,
        rate=rate,
        offered=ask.required,
        queue=pair.queue,
    )
