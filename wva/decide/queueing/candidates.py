"""Candidate allocations: for every server and accelerator the replicas that meet the targets (optimizer.md 3).

All pairs are sized together, then evaluated together at the load that each replica would get. A pair without a
candidate says why.

Departures: a TPS target asks for the tokens per second that are promised or those that arrive, whichever is more
(optimizer.md 8.1, item 8); a profile without ``at_tokens`` has its batch at any number of tokens; batches are bounded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from wva.decide.queueing.service import MAX_BATCH, QUEUE_TO_BATCH, PrefillDecode, Queue, RequestSize
from wva.decide.queueing.sizing import evaluate, perform, size
from wva.decide.queueing.system import NO_ACCELERATOR, Allocation, Profile, Server, System, transition_value
from wva.decide.queueing.targets import Target


@dataclass(frozen=True, slots=True)
class Candidates:
    """What a server could get: allocations sorted by accelerator, and why other accelerators are none."""

    server: Server
    allocations: tuple[Allocation, ...]
    dropped: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _Pair:
    """A server and an accelerator that have all that sizing needs."""

    server: Server
    profile: Profile
    cost: float
    target: Target
    queue: Queue


def candidates(system: System) -> tuple[Candidates, ...]:
    """Return the candidates of every server, sorted by server."""
    pairs, found, dropped = _pairs(system)
    sizings = size([pair.queue for pair in pairs], [pair.target for pair in pairs])
    sized = np.flatnonzero(~np.isnan(sizings.rates))
    for number in np.flatnonzero(np.isnan(sizings.rates)).tolist():
        pair = pairs[number]
        dropped[pair.server.name].append((pair.profile.accelerator, sizings[number].problem))
    kept = [pairs[number] for number in sized.tolist()]
    rates = sizings.rates[sized].tolist()
    demands = [_demand(pair, rate) for pair, rate in zip(kept, rates, strict=True)]
    offered = np.array([required / replicas for required, replicas in demands])
    rows = evaluate(sizings.columns.take(sized), offered).tolist()
    for pair, rate, demand, row in zip(kept, rates, demands, rows, strict=True):
        found[pair.server.name].append(_allocation(pair, rate, demand, row))
    return tuple(
        Candidates(
            system.servers[name],
            tuple(sorted(found[name], key=lambda each: each.accelerator)),
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
        target = _target(system, server)
        if isinstance(target, str):
            problems += [(accelerator, target) for accelerator in choices]
            continue
        for accelerator in choices:
            pair = _pair(system, server, target, accelerator)
            if isinstance(pair, str):
                problems.append((accelerator, pair))
            elif not server.load.idle:
                pairs.append(pair)
            else:
                own += [each for each in (_idle(pair),) if each not in own]
    return pairs, found, dropped


def _target(system: System, server: Server) -> Target | str:
    """Return the target of a server, or in words why it can have no candidate at all."""
    service_class = system.classes.get(server.service_class)
    if service_class is None:
        return f"service class {server.service_class} is not known"
    target = service_class.targets.get(server.model)
    if target is None:
        return f"service class {server.service_class} has no target for {server.model}"
    return server.load.problem() or target


def _pair(system: System, server: Server, target: Target, name: str) -> _Pair | str:
    """Return the pair, or in words why there is none."""
    accelerator, profile = system.accelerators.get(name), system.profiles.get((server.model, name))
    if accelerator is None:
        return f"accelerator {name} is not known"
    if profile is None:
        return f"no performance parameters of {server.model} on {name}"
    load = server.load
    if load.idle and profile.parameters.problem():
        return profile.parameters.problem()
    batch = server.max_batch if server.max_batch > 0 else derived_batch(profile, load.output_tokens)
    request = RequestSize(load.input_tokens, load.output_tokens)
    queue = Queue(profile.parameters, request, batch, QUEUE_TO_BATCH * batch)
    return _Pair(server, profile, accelerator.cost * profile.units, target, queue)


def _idle(pair: _Pair) -> Allocation:
    """Return what a server without load gets: its minimum, else nothing at all."""
    server, profile = pair.server, pair.profile
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


def _demand(pair: _Pair, rate: float) -> tuple[float, int]:
    """Return the requests per second that a server is asked for, and the replicas that take them."""
    load = pair.server.load
    required = max(load.per_minute / 60, pair.target.tps / load.output_tokens)
    return required, max(math.ceil(required / rate), pair.server.min_replicas)


def _allocation(pair: _Pair, rate: float, demand: tuple[float, int], row: list[float]) -> Allocation:
    """Return a candidate; ``row`` has the fields of ``Performance``, which would only be made to be taken apart."""
    _, _, wait, _, itl, prefill, _, _, rho, busy, _ = row
    required, replicas = demand
    current, accelerator, cost = pair.server.current, pair.profile.accelerator, pair.cost * replicas
    return Allocation(
        accelerator,
        replicas,
        pair.queue.max_batch,
        cost=cost,
        value=transition_value(current, accelerator, replicas=replicas, cost=cost),
        itl=itl,
        ttft=wait + prefill,
        wait=wait,
        rho=rho,
        busy=busy,
        rate=rate,
        offered=required,
        queue=pair.queue,
    )
