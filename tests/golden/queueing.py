"""Recorded queues as our values: v051 has the parameterisation of v0.5.1, v080 the one that can be estimated."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.golden.vectors import Case
from wva.decide.queueing.service import IterationTime, PrefillDecode, Queue, RequestSize

VERSIONS = ("v051", "v080")


def queue(case: Case) -> Queue:
    """Return the queue of a recorded case; only the older parameterisation has a delta."""
    instance = case["instance"]
    parameters = instance["parms"]
    kind = PrefillDecode if "delta" in parameters else IterationTime
    return Queue(
        kind(**parameters),
        RequestSize(instance["avg_input_tokens"], instance["avg_output_tokens"]),
        instance["max_batch_size"],
        instance["max_queue_size"],
    )


def decode_only(case: Case) -> str | None:
    """Leave out latencies of requests without prompt: the original subtracts a prefill that it did not add."""
    instance = case["instance"]
    biased = "delta" in instance["parms"] and instance["avg_input_tokens"] == 0
    return "requests without prompt, where the latencies of the original are biased" if biased else None


def not_numbers(case: Case) -> str | None:
    """Leave out service times that do not depend on the batch: the original's latencies are not numbers."""
    parameters = case["instance"]["parms"]
    return "beta = delta = 0, where the original divides 0 by 0" if _flat(parameters) else None


def _flat(parameters: Case) -> bool:
    return bool("delta" in parameters and parameters["beta"] == parameters["delta"] == 0)


def within(expected: float, *, rel: float, extra: float = 0.0) -> Any:
    """Return a matcher for a number to a relative and an absolute tolerance."""
    return pytest.approx(expected, rel=rel, abs=extra if math.isfinite(extra) else None)
