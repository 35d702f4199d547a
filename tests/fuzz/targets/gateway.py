"""Pages of endpoint pickers."""

from __future__ import annotations

import math

from tests.scale_from_zero.pages import read_page
from wva.scale_from_zero.page import ERROR_METRICS, QUEUE_SIZE_METRICS

MOST_BYTES = 1024 * 1024
"""The largest page that WVA reads."""


def words():
    """Return the metric, its labels, and the values that a page may have."""
    yield from (*QUEUE_SIZE_METRICS, *ERROR_METRICS)
    yield from (
        QUEUE_SIZE_METRICS[0] + "{",
        'error_code="ServiceUnavailable"',
        'target_model_name="',
        'model_name="',
        'fairness_id="',
        '"} 3\n',
        "} 1e9\n",
    )
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


def check(data):
    """``PickerPageReader`` finds the same finite numbers above zero in pieces of any size, or raises ValueError."""
    try:
        page = read_page(data)
    except ValueError:
        return False
    for count in (*page.waiting.values(), *page.refused.values()):
        assert math.isfinite(count)
        assert count > 0
    assert read_page(data, piece_bytes=max(1, len(data) // 7)) == page
    return bool(page.waiting)
