"""Recorded queues as WVA's values: v051 has the known parameters of v0.5.1, v080 those that can be estimated."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.golden.original.queues import BoundedQueue
from tests.golden.original.service import IterationTime, PrefillDecode, RequestSize
from tests.golden.vectors import Better, Case, Verdict

VERSIONS = ("v051", "v080")


def queue(case: Case) -> BoundedQueue:
    """Return the queue of a recorded case; only the older parameterisation has a delta."""
    instance = case["instance"]
    parameters = instance["parms"]
    kind = PrefillDecode if "delta" in parameters else IterationTime
    return BoundedQueue(
        kind(**parameters),
        RequestSize(instance["avg_input_tokens"], instance["avg_output_tokens"]),
        instance["max_batch_size"],
        instance["max_queue_size"],
    )


def better(tested: str) -> Verdict:
    """Return the verdict on cases whose recorded latencies cannot be true; ``tested`` names the test of WVA's.

    For requests without a prompt the original subtracts a prefill time that it never added. If service times do not
    depend on the batch, it divides 0 by 0.
    """

    def verdict(case: Case) -> Better | None:
        instance = case["instance"]
        parameters = instance["parms"]
        if "delta" in parameters and instance["avg_input_tokens"] == 0:
            return Better("requests without prompt have no prefill", tested)
        if "delta" in parameters and parameters["beta"] == parameters["delta"] == 0:
            return Better("service times that do not depend on the batch", tested)
        return None

    return verdict


def within(expected: float, *, rel: float, extra: float = 0.0) -> Any:
    """Return a matcher for a number to a relative and an absolute tolerance."""
    return pytest.approx(expected, rel=rel, abs=extra if math.isfinite(extra) else None)
