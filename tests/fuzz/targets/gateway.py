"""Pages of endpoint pickers."""

from __future__ import annotations

import math

from wva.scale_from_zero.gateway import QUEUE_SIZE_METRIC, parse_queues

MOST_BYTES = 1024 * 1024
"""The largest page that WVA reads."""


def words():
    """Return the metric, its labels, and the values that a page may have."""
    yield from (QUEUE_SIZE_METRIC + "{", 'target_model_name="', 'model_name="', 'fairness_id="', '"} 3\n', "} 1e9\n")
    yield from (
        "# TYPE ",
        "# HELP ",
        " gauge\n",
        "NaN",
        "+Inf",
        "-Inf",
        "1e400",
        " 1.5e3 ",
        " # {",
        "\\",
        '"',
        ",",
        "=",
    )
    yield QUEUE_SIZE_METRIC


def check(data):
    """``parse_queues`` returns a finite number above zero for each model of a page, or raises ValueError."""
    try:
        found = parse_queues(data.decode("utf-8"))
    except ValueError:
        return False
    for model, count in found.items():
        assert model
        assert math.isfinite(count)
        assert count > 0
    return bool(found)
