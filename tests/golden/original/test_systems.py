"""Systems of servers and accelerators: candidates, solvers, best effort, use of cards, and the trace."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden.original.allocations import Allocation, BestEffort, Options, OriginalLoad, OriginalServer
from tests.golden.original.candidates import candidates
from tests.golden.original.service import IterationTime, PrefillDecode, derived_batch
from tests.golden.original.solution import optimize, trace
from tests.golden.original.solvers import solve
from tests.golden.original.system import Accelerator, Profile, ServiceClass, System, saturated
from tests.golden.original.targets import OriginalTarget
from wva.model.records import replace

A100 = Accelerator("A100", "NVIDIA-A100-PCIE-80GB", 40.0)
SEED = Profile("default/default", "A100", PrefillDecode(20.58, 0.41), 4)
PERCENTILE = -math.log(0.05)
"""The original compared the 95th percentile of an exponential wait with its target, not the mean."""


def system(**changes: object) -> System:
    """Return one server of 40 requests per minute on one accelerator, with two cards."""
    load = OriginalLoad(40, 100, 178)
    base = System(
        accelerators={"A100": A100},
        profiles={("default/default", "A100"): replace(SEED, parameters=PrefillDecode(20.58, 0.41, 5.2, 0.1))},
        classes={"Premium": ServiceClass("Premium", 1, {"default/default": OriginalTarget(500, 24)})},
        servers={"s": OriginalServer("s", "Premium", "default/default", load)},
        capacity={"NVIDIA-A100-PCIE-80GB": 2},
    )
    return replace(base, **changes)


def test_trace_of_the_integration_guide():
    """The trace has the guide's log line: 178 decode steps, no prefill, and a wait of 500 ms at the 95th percentile."""
    name = "vllme-deployment:llm-d-sim"
    current = Allocation("A100", 2, 256, cost=80.0)
    server = OriginalServer(
        name,
        "Premium",
        "default/default",
        OriginalLoad(40, 0, 179),
        current,
        keep_accelerator=True,
        min_replicas=1,
        max_batch=4,
    )
    guide = system(
        profiles={("default/default", "A100"): SEED},
        classes={"Premium": ServiceClass("Premium", 1, {"default/default": OriginalTarget(500 / PERCENTILE, 24)})},
        servers={name: server},
    )
    solution = optimize(guide)
    allocation = solution.allocations[name]
    assert allocation.itl == pytest.approx(21.49347, abs=1e-5)
    assert allocation.wait == pytest.approx(69.7666, abs=5e-4)
    assert allocation.busy == pytest.approx(0.71789724, abs=1e-7)
    assert allocation.max_rpm == pytest.approx(25.31145, abs=1e-5)
    first, *accounts = trace(guide, solution)
    assert first.startswith(f"s={name}; c=Premium; m=default/default; rate=40; tk=179; sol=1, sat=false, alloc={{")
    assert "alloc={acc=A100; num=2; maxBatch=4; cost=80, val=0, servTime=21.49347" in first
    assert accounts == [
        "AllocationByType:",
        "name=NVIDIA-A100-PCIE-80GB, count=2, limit=2, cost=80",
        "totalCost=80",
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"classes": {}}, "A100: service class Premium is not known"),
        ({"profiles": {}}, "A100: no performance parameters of default/default on A100"),
        (
            {"classes": {"Premium": ServiceClass("Premium", 1, {"ghost": OriginalTarget(1, 1)})}},
            "A100: service class Premium has no target for default/default",
        ),
        (
            {"servers": {"s": OriginalServer("s", "Premium", "default/default", OriginalLoad(-1, 1, 1))}},
            "A100: arrival rate -1, expected a number of at least 0",
        ),
        (
            {"profiles": {("default/default", "A100"): replace(SEED, parameters=PrefillDecode(math.nan, 1))}},
            "A100: alpha is nan, expected a number from 0 to 1e+12",
        ),
        (
            {
                "servers": {
                    "s": OriginalServer(
                        "s",
                        "Premium",
                        "default/default",
                        OriginalLoad(1, 1, 1),
                        Allocation("gone", 1),
                        keep_accelerator=True,
                    )
                }
            },
            "gone: accelerator gone is not known",
        ),
    ],
)
def test_what_is_no_candidate_says_why(changes, words):
    """The trace says why a server has no candidate; the other server gets its allocation."""
    one = system()
    other = replace(one.servers["s"], name="t", model="other", service_class="Other")
    broken = system(**changes)
    both = replace(
        broken,
        servers={**broken.servers, "t": other},
        profiles={**broken.profiles, ("other", "A100"): one.profiles["default/default", "A100"]},
        classes={**broken.classes, "Other": ServiceClass("Other", 500, {"other": OriginalTarget(500, 24)})},
    )
    solution = optimize(both)
    assert set(solution.allocations) == {"t"}
    assert f"no allocation ({words})" in trace(both, solution)[0]


def test_idle_servers_get_their_minimum_or_nothing():
    """A server without load gets its minimum or nothing; broken parameters give no candidate even then."""
    idle = OriginalServer("s", "Premium", "default/default", OriginalLoad(0, 0, 0), min_replicas=2)
    (found,) = candidates(system(servers={"s": idle}))[0].allocations
    assert (found.replicas, found.batch, found.cost) == (2, 4, 80)
    limited = Options(unlimited=False)
    nothing = optimize(system(servers={"s": replace(idle, min_replicas=0)}, options=limited))
    assert nothing.allocations["s"].replicas == 0
    assert nothing.by_type == ()
    broken = {("default/default", "A100"): replace(SEED, parameters=PrefillDecode(math.nan, 1))}
    assert candidates(system(servers={"s": idle}, profiles=broken))[0].allocations == ()
    estimated = {("default/default", "A100"): replace(SEED, parameters=IterationTime(8, 0.05, 0.0))}
    assert candidates(system(servers={"s": idle}, profiles=estimated))[0].allocations[0].ttft == 8.05
    zero = {("default/default", "A100"): replace(SEED, parameters=PrefillDecode(0, 0))}
    assert candidates(system(servers={"s": idle}, profiles=zero))[0].allocations[0].rate == 0


def test_batches_follow_the_length_of_answers():
    """The batch keeps the profile's number of tokens, with at least one request and an upper bound."""
    profile = replace(SEED, max_batch=16, at_tokens=512)
    assert [derived_batch(profile.max_batch, profile.at_tokens, tokens) for tokens in (1, 128, 1e6)] == [8192, 64, 1]
    assert derived_batch(10**6, 512, 1) == 100_000
    assert derived_batch(SEED.max_batch, SEED.at_tokens, 999) == 4


def test_a_cut_allocation_is_evaluated_again():
    """With one card for two replicas the latencies are those of the one overloaded replica."""
    limited = Options(unlimited=False, best_effort=BestEffort.PRIORITY_EXHAUSTIVE)
    whole = optimize(system()).allocations["s"]
    cut = optimize(system(capacity={"NVIDIA-A100-PCIE-80GB": 1}, options=limited)).allocations["s"]
    assert (whole.replicas, cut.replicas, cut.cost) == (2, 1, 40)
    assert cut.ttft > whole.ttft
    assert saturated(cut, 40)
    assert not saturated(whole, 40)


def test_accelerators_of_nobody_are_one():
    """An accelerator count of 0 or less counts as 1, and a server of an unknown class comes last."""
    assert replace(SEED, accelerators=0).units == 1
    assert replace(SEED, accelerators=3).units == 3
    assert system().rank(OriginalServer("x", "nobody", "m", OriginalLoad(1, 1, 1))) == 100


@st.composite
def systems(draw: st.DrawFn) -> tuple[System, dict[str, list[Allocation]]]:
    """Draw servers with candidates on two types of cards, and the number of cards."""
    names = [f"s{number}" for number in range(draw(st.integers(0, 5)))]
    kinds = {"A": Accelerator("A", "TA", 1.0), "B": Accelerator("B", "TB", 1.0, multiplicity=2)}
    options = {}
    for name in names:
        chosen = draw(st.lists(st.sampled_from("AB"), unique=True, max_size=2))
        options[name] = [
            Allocation(kind, draw(st.integers(1, 5)), cost=1.0, value=draw(st.integers(-3, 3))) for kind in chosen
        ]
    drawn = System(
        kinds,
        {("m", kind): Profile("m", kind, PrefillDecode(1, 1), 1) for kind in kinds},
        {str(rank): ServiceClass(str(rank), rank, {}) for rank in (1, 2)},
        {name: OriginalServer(name, draw(st.sampled_from("12")), "m", OriginalLoad(1, 1, 1)) for name in names},
        {"TA": draw(st.integers(0, 8)), "TB": draw(st.integers(0, 8))},
        Options(False, draw(st.sampled_from(list(BestEffort))), draw(st.booleans())),
    )
    return drawn, options


@given(systems())
def test_the_greedy_solver_stays_within_capacity(drawn):
    """No server gets more than it asks for, no card is used twice, and only best effort gives a part."""
    system_drawn, options = drawn
    found = solve(system_drawn, options)
    taken = {"TA": 0, "TB": 0}
    for name, allocation in found.items():
        whole = next(each for each in options[name] if each.accelerator == allocation.accelerator)
        assert 1 <= allocation.replicas <= whole.replicas
        if system_drawn.options.best_effort is BestEffort.NONE:
            assert allocation is whole
        kind = system_drawn.accelerators[allocation.accelerator]
        taken[kind.type] += allocation.replicas * kind.multiplicity
    assert all(taken[kind] <= system_drawn.capacity[kind] for kind in taken)


@given(systems())
def test_the_order_of_listing_changes_nothing(drawn):
    """The order of the servers does not change the allocations."""
    system_drawn, options = drawn
    backwards = replace(system_drawn, servers=dict(reversed(system_drawn.servers.items())))
    assert solve(backwards, dict(reversed(options.items()))) == solve(system_drawn, options)
    unlimited = replace(system_drawn, options=Options())
    assert all(
        solve(unlimited, options)[name].value == min(each.value for each in own) for name, own in options.items() if own
    )
