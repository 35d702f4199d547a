"""The queueing model: all candidates at once against one after the other, and a whole cycle of allocations.

The baseline (``queueing_baseline``) evaluates the same closed form for each candidate. It uses numpy over the states of
one queue and plain floats elsewhere, finds roots by the same method to the same 1e-12, and computes nothing twice. The
rest of a cycle is the same code in both. The benchmark also gives our own evaluation one candidate at a time, so that
each candidate pays for arrays of one row.

The Go controller took, on another machine of this size: 367 us per candidate to construct and size it at batch 64; for
200 servers x 5 accelerators 591 ms for the candidates, 0.17 ms for the unlimited and 0.38 ms for the greedy solver.
"""

from __future__ import annotations

import math
import random

from bench.paired import cpu_seconds, ratio
from bench.queueing_baseline import Single, size_one
from tests.golden.original.allocations import Allocation, BestEffort, Options, OriginalLoad, OriginalServer
from tests.golden.original.candidates import Candidates
from tests.golden.original.queues import BoundedQueue
from tests.golden.original.service import PrefillDecode, RequestSize
from tests.golden.original.sizing import perform, size
from tests.golden.original.solution import Solution, choose, optimize
from tests.golden.original.system import Accelerator, Profile, ServiceClass, System, transition_value
from tests.golden.original.targets import OriginalTarget
from wva.model.records import replace

COUNT = 1000
BATCH = 64
SERVERS = 200
ACCELERATORS = 5
LEAST = 8
"""The least factor by which the lockstep evaluation must be faster."""


def _queues() -> tuple[list[BoundedQueue], list[OriginalTarget]]:
    """Return candidates that all differ, at batch 64; nearly all are bound by one of their targets."""
    dice = random.Random(1)  # noqa: S311 - reproducible numbers
    queues, targets = [], []
    for _ in range(COUNT):
        parameters = PrefillDecode(7.47 * dice.uniform(0.5, 2), 0.044 * dice.uniform(0.5, 2), 15.4, 0.000337)
        size_of = RequestSize(512 * dice.uniform(0.5, 2), 256 * dice.uniform(0.5, 2))
        queues.append(BoundedQueue(parameters, size_of, BATCH, 10 * BATCH))
        targets.append(OriginalTarget(ttft=60 * dice.uniform(1, 8), itl=8 * dice.uniform(2, 3)))
    return queues, targets


def test_sizing_of_a_thousand_candidates_at_batch_64() -> None:
    """At least eight times as fast as one after the other, with the same results to 1e-9."""
    queues, targets = _queues()
    together = size(queues, targets).rates.tolist()
    alone = [size_one(queue, target) for queue, target in zip(queues, targets, strict=True)]
    for rate, single in zip(together, alone, strict=True):
        assert math.isnan(rate) if single is None else abs(rate / single - 1) < 1e-9
    everything = lambda: size(queues, targets)  # noqa: E731 - the work to be timed
    quick = ratio(lambda: [size_one(q, t) for q, t in zip(queues, targets, strict=True)], everything)
    each = min(cpu_seconds(everything) for _ in range(5)) / COUNT * 1e6
    print(f"\nsizing {COUNT} candidates at batch {BATCH}: {each:.1f} us each (Go: 367 us),")
    print(f"{quick:.1f} times as fast as one candidate after the other")
    assert quick >= LEAST


def _system(options: Options) -> System:
    dice = random.Random(2)  # noqa: S311 - reproducible numbers
    names = [f"acc-{number}" for number in range(ACCELERATORS)]
    models = [f"model-{number}" for number in range(SERVERS)]
    profiles = {}
    for model in models:
        for name in names:
            parameters = PrefillDecode(7.47 * dice.uniform(0.5, 2), 0.044 * dice.uniform(0.5, 2), 15.4, 0.000337)
            profiles[model, name] = Profile(model, name, parameters, BATCH)
    classes = {
        str(rank): ServiceClass(str(rank), rank, {model: OriginalTarget(400, 20) for model in models})
        for rank in (1, 10)
    }
    servers = {
        f"server-{model}": OriginalServer(
            f"server-{model}", dice.choice(["1", "10"]), model, OriginalLoad(dice.uniform(60, 3000), 512, 256)
        )
        for model in models
    }
    accelerators = {name: Accelerator(name, name, dice.uniform(20, 100)) for name in names}
    return System(accelerators, profiles, classes, servers, dict.fromkeys(names, 150), options)


def _one_at_a_time(system: System) -> Solution:
    """Return the solution with every candidate sized and evaluated on its own."""
    found = []
    for name in sorted(system.servers):
        server = system.servers[name]
        request = RequestSize(server.load.input_tokens, server.load.output_tokens)
        target = system.classes[server.service_class].targets[server.model]
        options = []
        for accelerator in sorted(system.accelerators):
            profile = system.profiles[server.model, accelerator]
            queue = BoundedQueue(profile.parameters, request, BATCH, 10 * BATCH)
            rate = size_one(queue, target)
            if rate is not None:
                options.append(_allocated(server, accelerator, queue, rate, system.accelerators[accelerator].cost))
        found.append(Candidates(server, tuple(options)))
    return choose(system, tuple(found))


def _allocated(server: OriginalServer, accelerator: str, queue: BoundedQueue, rate: float, cost: float) -> Allocation:
    required = server.load.per_minute / 60
    replicas = math.ceil(required / rate)
    chain = Single(queue)
    ttft, itl, _ = chain.latencies(math.log(required / replicas / 1000 / chain.top_rate))
    total = cost * replicas
    value = transition_value(server.current, accelerator, replicas=replicas, cost=total)
    return Allocation(
        accelerator, replicas, BATCH, cost=total, value=value, itl=itl, ttft=ttft, rate=rate, offered=required
    )


def _evaluated_alone(system: System) -> None:
    """Size and evaluate every candidate with our own functions, one after the other."""
    for server in system.servers.values():
        request = RequestSize(server.load.input_tokens, server.load.output_tokens)
        target = system.classes[server.service_class].targets[server.model]
        for accelerator in system.accelerators:
            queue = BoundedQueue(system.profiles[server.model, accelerator].parameters, request, BATCH, 10 * BATCH)
            rate = float(size([queue], [target]).rates[0])
            if not math.isnan(rate):
                perform([queue], [rate])


def test_a_cycle_of_two_hundred_variants_on_five_accelerators() -> None:
    """Candidates, solver and accounts take at most an eighth of the evaluation one candidate at a time."""
    unlimited = _system(Options())
    greedy = replace(unlimited, options=Options(unlimited=False, best_effort=BestEffort.PRIORITY_ROUND_ROBIN))
    together, alone = optimize(unlimited), _one_at_a_time(unlimited)
    assert len(together.allocations) == SERVERS
    for name, allocation in together.allocations.items():
        other = alone.allocations[name]
        assert (allocation.accelerator, allocation.replicas) == (other.accelerator, other.replicas)
        for mine, theirs in zip(_figures(allocation), _figures(other), strict=True):
            assert abs(mine / theirs - 1) < 1e-9
    times = [
        min(cpu_seconds(lambda system=system: optimize(system)) for _ in range(5)) * 1e3  # type: ignore[misc] - bound now
        for system in (unlimited, greedy)
    ]
    quick = ratio(lambda: _one_at_a_time(unlimited), lambda: optimize(unlimited), pairs=15)
    ours = ratio(lambda: _evaluated_alone(unlimited), lambda: optimize(unlimited), pairs=1)
    print(f"\ncycle of {SERVERS} variants x {ACCELERATORS} accelerators at batch {BATCH} (Go: 591 ms):")
    print(f"unlimited {times[0]:.0f} ms, greedy {times[1]:.0f} ms, {quick:.1f} times as fast as one after the other,")
    print(f"{ours:.0f} times as fast as our own evaluation one at a time")
    assert ours >= LEAST
    assert quick >= LEAST


def _figures(allocation: Allocation) -> tuple[float, float, float]:
    return allocation.rate, allocation.ttft, allocation.itl
