"""Candidate allocations: for every server and accelerator the replicas that meet the targets.

Formulas: docs/design/queueing-formulas.md#candidates-and-their-value.

All pairs are sized together, then evaluated together at the load of each replica. A pair without a candidate has a
reason in words.

Three things differ from the Go controller: a server with a TPS target must serve the larger of the promised and the
arriving tokens per second; the batch of a profile without ``at_tokens`` holds at any number of tokens; batches are
bounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress
from typing import NamedTuple

import numpy as np

from tests.golden.original.allocations import NO_ACCELERATOR, Allocation, OriginalServer
from tests.golden.original.queues import QUEUE_TO_BATCH, BoundedQueue, parameter_problem
from tests.golden.original.results import Performance
from tests.golden.original.service import PrefillDecode, RequestSize, derived_batch
from tests.golden.original.sizing import perform, size
from tests.golden.original.system import Profile, System, idle, load_problem, transition_value
from tests.golden.original.targets import OriginalTarget
from wva.decide.amounts import rounded_up
from wva.model.records import replace


@dataclass(frozen=True, slots=True)
class Candidates:
    """The possible allocations of a server, sorted by accelerator, and why other accelerators are not possible."""

    server: OriginalServer
    allocations: tuple[Allocation, ...]
    dropped: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _Ask:
    """The demand of a server on every accelerator; ``required`` is in requests per second."""

    server: OriginalServer
    target: OriginalTarget
    request: RequestSize
    required: float


class _CandidatePair(NamedTuple):
    """A server and an accelerator with everything that sizing needs."""

    ask: _Ask
    profile: Profile
    cost: float
    queue: BoundedQueue


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
    offered = [pair.ask.required / count for pair, count in zip(kept, replicas, strict=True)]
    done = perform([pair.queue for pair in kept], offered)
    for pair, rate, count, performance in zip(kept, rates, replicas, done, strict=True):
        assert performance is not None
        found[pair.ask.server.name].append(_allocation(pair, rate, count, performance))
    return tuple(
        Candidates(
            system.servers[name],
            tuple(found[name]),  # in the order of the pairs, which is that of the accelerators
            tuple(sorted(dropped[name])),
        )
        for name in sorted(system.servers)
    )


def evaluated(allocations: list[Allocation]) -> tuple[Allocation, ...]:
    """Return the allocations with the latencies and the load of their replicas."""
    queues = [allocation.queue for allocation in allocations if allocation.queue is not None]
    rates = [each.offered / each.replicas for each in allocations if each.queue is not None]
    done = iter(perform(queues, rates))
    results = []
    for allocation in allocations:
        performance = None if allocation.queue is None else next(done)
        if performance is not None:
            allocation = replace(  # noqa: PLW2901 - the same allocation with more fields set
                allocation,
                itl=performance.itl,
                ttft=performance.wait + performance.prefill,
                wait=performance.wait,
                rho=performance.rho,
                busy=performance.busy,
            )
        results.append(allocation)
    return tuple(results)


def _pairs(
    system: System,
) -> tuple[list[_CandidatePair], dict[str, list[Allocation]], dict[str, list[tuple[str, str]]]]:
    """Return the pairs to size, the allocations that need no sizing, and the refused accelerators."""
    pairs: list[_CandidatePair] = []
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
        at_rest = idle(server.load)
        for accelerator in choices:
            pair = _pair(system, ask, accelerator)
            if isinstance(pair, str):
                problems.append((accelerator, pair))
            elif not at_rest:
                pairs.append(pair)
            else:
                own += [each for each in (_idle(pair),) if each not in own]
    return pairs, found, dropped


def _ask(system: System, server: OriginalServer) -> _Ask | str:
    """Return the demand of a server, or in words why it cannot have a candidate."""
    service_class = system.classes.get(server.service_class)
    if service_class is None:
        return f"service class {server.service_class} is not known"
    target = service_class.targets.get(server.model)
    if target is None:
        return f"service class {server.service_class} has no target for {server.model}"
    load = server.load
    problem = load_problem(load)
    if problem:
        return problem
    request = RequestSize(load.input_tokens, load.output_tokens)
    tokens = 0.0 if idle(load) else target.tps / load.output_tokens
    return _Ask(server, target, request, max(load.per_minute / 60, tokens))


def _pair(system: System, ask: _Ask, name: str) -> _CandidatePair | str:
    """Return the pair, or in words why there is none."""
    server, request = ask.server, ask.request
    accelerator, profile = system.accelerators.get(name), system.profiles.get((server.model, name))
    if accelerator is None:
        return f"accelerator {name} is not known"
    if profile is None:
        return f"no performance parameters of {server.model} on {name}"
    if idle(server.load) and parameter_problem(profile.parameters):
        return parameter_problem(profile.parameters)
    batch = (
        server.max_batch
        if server.max_batch > 0
        else derived_batch(profile.max_batch, profile.at_tokens, request.output_tokens)
    )
    queue = BoundedQueue(profile.parameters, request, batch, QUEUE_TO_BATCH * batch)
    return _CandidatePair(ask, profile, accelerator.cost * profile.units, queue)


def _idle(pair: _CandidatePair) -> Allocation:
    """Return the allocation of a server without load: its minimum, or no replicas."""
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
    """Return the replicas that serve the demand, if one replica serves ``rate`` requests per second."""
    return max(rounded_up(ask.required / rate), ask.server.min_replicas)


def _allocation(pair: _CandidatePair, rate: float, replicas: int, done: Performance) -> Allocation:
    """Return a candidate; ``done`` has its latencies and how much it is used."""
    ask, accelerator, cost = pair.ask, pair.profile.accelerator, pair.cost * replicas
    return Allocation(
        accelerator,
        replicas,
        pair.queue.max_batch,
        cost=cost,
        value=transition_value(ask.server.current, accelerator, replicas=replicas, cost=cost),
        itl=done.itl,
        ttft=done.wait + done.prefill,
        wait=done.wait,
        rho=done.rho,
        busy=done.busy,
        rate=rate,
        offered=ask.required,
        queue=pair.queue,
    )
