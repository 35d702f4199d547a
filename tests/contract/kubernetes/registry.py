"""The list of expectations: functions that check any server that claims to be a Kubernetes API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.contract.kubernetes.client import ContractClient

Check = Callable[[ContractClient, str], Awaitable[None]]


@dataclass(frozen=True)
class ApiExpectation:
    """One thing that the API does. ``embedded_only`` says why a test cannot ask a real server for it."""

    name: str
    check: Check
    embedded_only: str = ""


EXPECTATIONS: list[ApiExpectation] = []


def expectation(check: Check) -> Check:
    """Add a check to the contract."""
    EXPECTATIONS.append(ApiExpectation(check.__name__, check))
    return check


def embedded_only(reason: str) -> Callable[[Check], Check]:
    """Add a check that a test can only ask of the embedded server, because of ``reason``."""

    def add(check: Check) -> Check:
        EXPECTATIONS.append(ApiExpectation(check.__name__, check, reason))
        return check

    return add
