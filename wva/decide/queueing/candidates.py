"""Candidate allocations: for every server and accelerator the replicas that meet the targets (optimizer.md 3).

All pairs are sized together, then evaluated together at the load that each replica would get. A pair without a
candidate says why.

Departures: a TPS target asks for the tokens per second that are promised or those that arrive, whichever is more
(optimizer.md 8.1, item 8); a profile without ``at_tokens`` has its batch at any number of tokens; batches are bounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

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
    sized = []
    for number, (pair, rate) in enumerate(zip(pairs, sizings.rates.tolist(), strict=True)):
        if math.isnan(rate):
            dropped[pair.server.name].append((pair.profile.accelerator, sizings[number].problem))
        else:
            sized.append((pair, _sized(pair, rate)))
    for pair, allocation in zip((pair for pair, _ in sized), evaluated([each for _, each in sized]), strict=True):
        found[pair.server.name].append(allocation)
    return tuple(
        Candidates(
            system.servers[name],
            tuple(_valued(system.servers[name], each) for each in sorted(found[name], key=lambda one: one.accelerator)),
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
    return min(max(math.floor(profile.max_batch * profile.at_tokens / output_tokens), 1), MAX_BATCH)


def _pairs(
    system: System,
) -> tuple[list[_Pair], dict[str, list[Allocation]], dict[str, list[tuple[str, str]]]]:
    """Return the pairs to size, the allocations that need no sizing, and what is no candidate."""
    pairs: list[_Pair] = []
    found: dict[str, list[Allocation]] = {}
    dropped: dict[str, list[tuple[str, str]]] = {}
    for name in sorted(system.servers):
        server = system.servers[name]
        found[name], dropped[name] = [], []
        for accelerator in _choices(system, server):
            match _pair(system, server, accelerator):
                case _Pair() as pair if not server.load.idle:
                    pairs.append(pair)
                case _Pair() as pair:
                    found[name] += [each for each in (_idle(pair),) if each not in found[name]]
                case str(problem):
                    dropped[name].append((accelerator, problem))
    return pairs, found, dropped


def _choices(system: System, server: Server) -> Iterator[str]:
    if server.keep_accelerator and server.current.accelerator != NO_ACCELERATOR:
        yield server.current.accelerator
    else:
        yield from sorted(system.accelerators)


def _pair(system: System, server: Server, name: str) -> _Pair | str:
    """Return the pair, or in words why there is none."""
    accelerator, profile = system.accelerators.get(name), system.profiles.get((server.model, name))
    service_class = system.classes.get(server.service_class)
    if accelerator is None:
        return f"accelerator {name} is not known"
    if profile is None:
        return f"no performance parameters of {server.model} on {name}"
    if service_class is None:
        return f"service class {server.service_class} is not known"
    target = service_class.targets.get(server.model)
    if target is None:
        return f"service class {server.service_class} has no target for {server.model}"
    problem = server.load.problem() or profile.parameters.problem()
    if problem:
        return problem
    return _Pair(server, profile, accelerator.cost * profile.units, target, _queue(server, profile))


def _queue(server: Server, profile: Profile) -> Queue:
    load = server.load
    batch = server.max_batch if server.max_batch > 0 else derived_batch(profile, max(load.output_tokens, 1.0))
    request = RequestSize(load.input_tokens, load.output_tokens)
    return Queue(profile.parameters, request, batch, QUEUE_TO_BATCH * batch)


def _idle(pair: _Pair) -> Allocation:
    """Return what a server without load gets: its minimum, else nothing at all."""
    server, profile = pair.server, pair.profile
    if server.min_replicas == 0:
        return Allocation(NO_ACCELERATOR, 0)
    parameters = profile.parameters
    itl = parameters.alpha + parameters.beta
    ttft = parameters.gamma + parameters.delta if isinstance(parameters, PrefillDecode) else itl
    batch = server.max_batch if server.max_batch > 0 else profile.max_batch
    longest = ttft + parameters.alpha + parameters.beta * batch
    return Allocation(
        profile.accelerator,
        server.min_replicas,
        batch,
        cost=pair.cost * server.min_replicas,
        itl=itl,
        ttft=ttft,
        rate=batch / longest * 1000 if longest > 0 else 0.0,
    )


def _sized(pair: _Pair, rate: float) -> Allocation:
    load = pair.server.load
    required = max(load.per_minute / 60, pair.target.tps / load.output_tokens)
    replicas = max(math.ceil(required / rate), pair.server.min_replicas)
    return Allocation(
        pair.profile.accelerator,
        replicas,
        pair.queue.max_batch,
        cost=pair.cost * replicas,
        rate=rate,
        offered=required,
        queue=pair.queue,
    )


def _valued(server: Server, allocation: Allocation) -> Allocation:
    return replace(allocation, value=transition_value(server.current, allocation))
