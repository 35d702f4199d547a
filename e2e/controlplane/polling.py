"""Waiting for something of the real world to become true, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(check: Callable[[], T], *, timeout_seconds: float, interval_seconds: float = 0.25, what: str = "") -> T:
    """Call ``check`` until it returns something true, and return that.

    AssertionError and OSError of a check count as "not yet", so a check may assert. When the time is over, an
    AssertionError names ``what`` did not happen, and the last value or error.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        cause: Exception | None = None
        try:
            value = check()
            if value:
                return value
            last = f"last value: {value!r}"
        except (AssertionError, OSError) as error:
            cause, last = error, f"last error: {error!r}"
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_seconds} s: {what or check}; {last}") from cause
        time.sleep(interval_seconds)
