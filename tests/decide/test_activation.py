"""Which variant WVA starts from zero, and with how many replicas."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import variant
from wva.decide.start import Budget, Refusal, activate, roles_to_start
from wva.model.decision import Reason, Source
from wva.model.inventory import AcceleratorPool, GpuQuota, Inventory
from wva.model.records import replace
from wva.model.variant import Bounds
from wva.model.vllm_parameters import VllmParameters
from wva.numbers import MAX_REPLICAS


def asleep(name, *, cost=10.0, minimum=None, maximum=None, seqs=None, gpus=1):
    """Return a variant at zero."""
    made = variant(name, replicas=0, cost=cost)
    return replace(
        made,
        spec_replicas=0,
        current_replicas=0,
        ready_replicas=0,
        bounds=Bounds(minimum, maximum),
        gpus_per_replica=gpus,
        parameters=None if seqs is None else VllmParameters(max_num_seqs=seqs),
    )


def budget(*, free=8, quota=None):
    """Return a budget of A100, the accelerator of the built variants."""
    quotas = [] if quota is None else [GpuQuota("ns", "nvidia.com/gpu", quota, 0, "q")]
    return Budget(Inventory.of([AcceleratorPool("A100", free, 0)], quotas))


def test_the_cheapest_is_started():
    """WVA starts the cheapest variant only; the series and the conditions show why."""
    made = activate([asleep("dear", cost=40), asleep("cheap", cost=20)], 3.0)
    assert made.key.name == "cheap"
    assert (made.current, made.desired, made.reason, made.source) == (0, 1, Reason.SCALE_FROM_ZERO, Source.MEASURED)
    assert (made.metrics.available, made.metrics.reason) == (True, "ScaleFromZero")
    assert "3 waiting" in made.message


BOTH = "prefill-decode"


@pytest.mark.parametrize(
    ("costs", "active", "started"),
    [
        ({"prefill": 10.0, "decode": 20.0}, (), {"prefill", "decode"}),
        ({"prefill": 10.0, "decode": 20.0}, ("decode",), {"prefill"}),
        ({"prefill": 10.0, "decode": 20.0}, ("decode", "prefill"), set()),
        ({"prefill": 10.0, "decode": 20.0, BOTH: 40.0}, (), {"prefill", "decode"}),
        ({"prefill": 10.0, "decode": 20.0, BOTH: 25.0}, (), {BOTH}),
        ({"prefill": 10.0, "decode": 20.0, BOTH: 30.0}, (), {BOTH}),
        ({"prefill": 10.0, "decode": 20.0, BOTH: 25.0}, (BOTH,), set()),
        ({"prefill": 10.0, "decode": 20.0, "": 1.0}, (), {"prefill", "decode"}),
        ({"encode": 5.0, "prefill": 10.0, "decode": 20.0}, ("decode",), {"encode", "prefill"}),
    ],
)
def test_the_cheapest_roles_that_serve_a_request_are_started(costs, active, started):
    """Each stage is computed by a role that starts or runs; of equal prices fewer roles start."""
    variants = {
        role: [variant(f"v{role}", cost=cost) if role in active else asleep(f"v{role}", cost=cost)]
        for role, cost in costs.items()
    }
    assert roles_to_start(variants) == started


def test_a_role_that_may_not_start_is_not_chosen():
    """Where no other set does, it is, so that its refusal is told."""
    both = [asleep("b", cost=1.0, maximum=0)]
    apart = {"prefill": [asleep("p")], "decode": [asleep("d")]}
    assert roles_to_start({**apart, BOTH: both}) == {"prefill", "decode"}
    assert roles_to_start({BOTH: both}) == {BOTH}


def test_the_name_breaks_a_tie():
    """The order of the variants in the list does not change the answer."""
    both = [asleep("b"), asleep("a")]
    assert activate(both, 1.0).key.name == "a"
    assert activate(both[::-1], 1.0).key.name == "a"


@pytest.mark.parametrize("waiting", [0.0, -1.0, float("nan")])
def test_nobody_is_started_when_nothing_waits(waiting):
    """WVA starts no variant if the number of waiting requests is zero, negative or not a number."""
    assert activate([asleep("a")], waiting) is None


def test_nobody_is_started_while_a_sibling_runs():
    """A replica of a sibling serves, so the ordinary decision grows the model."""
    assert activate([asleep("a"), variant("b", replicas=1)], 5.0) is None


@pytest.mark.parametrize(
    ("waiting", "seqs", "bounds", "desired"),
    [
        (1.0, None, (None, None), 1),
        (256.0, None, (None, None), 1),
        (257.0, None, (None, None), 2),
        (0.5, 64, (None, None), 1),
        (200.0, 64, (None, None), 4),
        (200.0, 64, (None, 3), 3),
        (1.0, 64, (2, 5), 2),
        (200.0, 0, (None, 7), 7),
        (1e300, 1, (None, 9), 9),
        (1e300, 1, (None, 10**30), MAX_REPLICAS),
        (float("inf"), 1, (-1, None), MAX_REPLICAS),
    ],
)
def test_as_many_replicas_as_take_the_queue_at_once(waiting, seqs, bounds, desired):
    """WVA divides the queue by max_num_seqs (256 unless given), within the bounds, and starts one replica at least."""
    made = activate([asleep("a", seqs=seqs, minimum=bounds[0], maximum=bounds[1])], waiting)
    assert made.desired == desired


def test_a_variant_that_may_not_run_is_passed_over():
    """The scaler of the cheapest variant allows no replica: WVA takes the next cheapest, and the message says why."""
    made = activate([asleep("a", cost=1, maximum=0), asleep("b", cost=2)], 1.0)
    assert made.key.name == "b"
    assert "a: at the maximum 0" in made.message


def test_the_gpu_budget_bounds_the_start():
    """WVA starts whole replicas only, within the free GPUs of the nodes and the quota of the namespace."""
    wide = asleep("a", seqs=1, gpus=2)
    assert activate([wide], 9.0, budget(free=5)).desired == 2
    assert activate([wide], 9.0, budget(free=8, quota=3)).desired == 1
    assert activate([replace(wide, gpus_per_replica=0)], 9.0, budget(free=5)).desired == 5


@pytest.mark.parametrize(
    ("given_budget", "words"),
    [
        (budget(free=1), "1 GPU left (gpu-limiter A100), 2 needed"),
        (budget(free=8, quota=1), "1 GPU left (ResourceQuota ns/q), 2 needed"),
        (Budget(Inventory.of([])), "no node has accelerator A100"),
        (Budget(None, "nodes cannot be read"), "the GPU budget is not known (nodes cannot be read)"),
    ],
)
def test_a_refusal_says_what_is_missing(given_budget, words):
    """Requests wait and WVA can start no variant: the answer says what is missing."""
    answer = activate([asleep("a", gpus=2)], 1.0, given_budget)
    assert isinstance(answer, Refusal)
    assert words in answer.reasons[0]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4) | st.none(), st.integers(1, 4)), min_size=1, max_size=4),
    st.floats(0, 1e6),
    st.integers(0, 12),
    st.integers(0, 12) | st.none(),
)
def test_never_past_bounds_or_budget(shapes, waiting, free, quota):
    """For any variants, queue and GPUs, WVA starts one variant at most, within all limits."""
    variants = [asleep(f"v{n}", cost=c, maximum=most, gpus=g) for n, (c, most, g) in enumerate(shapes)]
    answer = activate(variants, waiting, budget(free=free, quota=quota))
    if answer is None:
        assert waiting == 0
    elif not isinstance(answer, Refusal):
        (chosen,) = [made for made in variants if made.key == answer.key]
        assert answer.desired >= 1
        assert chosen.bounds.maximum is None or answer.desired <= chosen.bounds.maximum
        assert answer.desired * chosen.gpus_per_replica <= (free if quota is None else min(free, quota))
