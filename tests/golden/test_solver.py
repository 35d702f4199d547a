"""The candidates are those of the original, and the solvers choose a result that the original can reach."""

from __future__ import annotations

import pytest

from tests.golden.original.allocations import Allocation, OriginalServer
from tests.golden.original.candidates import Candidates, candidates
from tests.golden.original.service import derived_batch
from tests.golden.original.solution import Solution, choose
from tests.golden.original.solvers import solve
from tests.golden.original.system import Profile, System, idle, saturated
from tests.golden.original.targets import OriginalTarget
from tests.golden.queueing import within
from tests.golden.systems import system_of
from tests.golden.vectors import Case, parameters, tally
from wva.model.records import replace

NAME = "solver"


def incomparable(server: OriginalServer, profile: Profile, target: OriginalTarget) -> str:
    """Tell why the original's candidate is not comparable, for example because its batch is one; "" if it is."""
    tokens = max(server.load.output_tokens, 1)
    if profile.at_tokens == 0 and server.max_batch == 0:
        return "no tokens that the batch is for"
    if (server.max_batch or derived_batch(profile.max_batch, profile.at_tokens, tokens)) == 1:
        return "batch of one"
    if 0 < target.tps < server.load.per_minute / 60 * server.load.output_tokens:
        return "more arrives than the TPS target promises"
    return ""


@pytest.mark.parametrize("case", parameters(NAME))
def test_solver(case):
    """From the recorded candidates the solver reaches a result that the original can reach."""
    tally(NAME).run += 1
    system = system_of(case["system"])
    options = {
        name: [allocation_of(row) for row in rows.values()]
        for name, rows in case["candidates"].items()
        if name in system.servers
    }
    found = {name: [each.accelerator, each.replicas] for name, each in solve(system, options).items()}
    if not system.options.unlimited:
        found = {name: choice for name, choice in found.items() if choice != ["", 0]}
    assert found in case["acceptable"]


@pytest.mark.parametrize("case", parameters(NAME, aspect="end to end"))
def test_end_to_end(case):
    """The candidates are those of the original, and the result from them is one that the original can reach.

    A pair whose original candidate is not comparable gets the recorded one.
    """
    count = tally(NAME, "end to end")
    count.run += 1
    system = system_of(case["system"])
    options = []
    for own in candidates(system):
        recorded = dict(case["candidates"].get(own.server.name, {}))
        kept = []
        for name, allocation in by_pair(own, recorded).items():
            reason = noise(system, own.server, name)
            if not reason:
                check_candidate(allocation, recorded.pop(name), own.server)
                kept.append(allocation)
        for name, row in recorded.items():
            assert noise(system, own.server, name)
            kept.append(allocation_of(row))
        options.append(replace(own, allocations=tuple(kept)))
    solution = choose(system, tuple(options))
    found = {name: [each.accelerator, each.replicas] for name, each in solution.allocations.items()}
    if not system.options.unlimited:
        found = {name: choice for name, choice in found.items() if choice != ["", 0]}
    assert found in case["acceptable"]
    for outcome in case["outcomes"]:
        if chosen(outcome) == found:
            check_accounts(solution, outcome, system)


def by_pair(own: Candidates, recorded: Case) -> dict[str, Allocation]:
    """Return candidates by accelerator; the one of an idle server without minimum stands for all accelerators."""
    if idle(own.server.load) and own.server.min_replicas == 0:
        return dict.fromkeys(recorded, own.allocations[0]) if own.allocations else {}
    return {each.accelerator: each for each in own.allocations}


def noise(system: System, server: OriginalServer, name: str) -> str:
    """Return why the recorded candidate of a pair is not comparable; "" if it is."""
    profile = system.profiles[server.model, name]
    return incomparable(server, profile, system.classes[server.service_class].targets[server.model])


def chosen(outcome: Case) -> Case:
    """Return the accelerators and replicas of a recorded result."""
    return {name: [row["accelerator"], row["num_replicas"]] for name, row in (outcome["allocations"] or {}).items()}


def check_candidate(found: Allocation, row: Case, server: OriginalServer) -> None:
    """Compare a candidate up to single precision.

    The original's latencies without a prompt are wrong and not compared.
    """
    response = row["ttft"] + row["itl"] * server.load.output_tokens
    assert (found.replicas, found.batch) == (row["num_replicas"], row["max_batch"])
    assert found.cost == within(row["cost"], rel=1e-5, extra=1e-4)
    assert found.value == within(row["value"], rel=1e-5, extra=1e-4)
    if server.load.input_tokens > 0 or idle(server.load):
        assert found.itl == within(row["itl"], rel=1e-6)
        assert found.max_rpm == within(row["max_rpm"], rel=1e-4)
        assert found.ttft == within(row["ttft"], rel=2e-4, extra=1e-4 * response)


def check_accounts(solution: Solution, outcome: Case, system: System) -> None:
    """Compare cost, value, saturation and cards per type with the recorded result for the same choice."""
    for name, row in (outcome["allocations"] or {}).items():
        allocation = solution.allocations[name]
        assert allocation.cost == within(row["cost"], rel=1e-5, extra=1e-4)
        assert allocation.value == within(row["value"], rel=1e-5, extra=1e-4)
        assert saturated(allocation, system.servers[name].load.per_minute) == row["saturated"]
    uses = {use.type: use for use in solution.by_type}
    assert set(uses) == set(outcome["by_type"] or {})
    for kind, row in (outcome["by_type"] or {}).items():
        assert (uses[kind].count, uses[kind].limit) == (row["count"], row["limit"])
        assert uses[kind].cost == within(row["cost"], rel=1e-5)


def allocation_of(row: Case) -> Allocation:
    """Return a recorded candidate."""
    return Allocation(
        row["accelerator"],
        row["num_replicas"],
        row["max_batch"],
        cost=row["cost"],
        value=row["value"],
        itl=row["itl"],
        ttft=row["ttft"],
        rate=row["max_rpm"] / 60,
    )
