"""The list of expectations: functions that hold against any server that claims to be a Kubernetes API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.contract.kubernetes.client import Client

Check = Callable[[Client, str], Awaitable[None]]


@dataclass(frozen=True)
class Expectation:
    """One thing that the API does. ``embedded_only`` says why it cannot be asked of a real server."""

    name: str
    check: Check
    embedded_only: str = ""


EXPECTATIONS: list[Expectation] = []


def expectation(check: Check) -> Check:
    """Add a check to the contract."""
    EXPECTATIONS.append(Expectation(check.__name__, check))
    return check


def embedded_only(reason: str) -> Callable[[Check], Check]:
    """Add a check that only the embedded server can be asked for, because of ``reason``."""

    def add(check: Check) -> Check:
        EXPECTATIONS.append(Expectation(check.__name__, check, reason))
        return check

    return add
