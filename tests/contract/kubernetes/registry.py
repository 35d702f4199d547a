"""The list of expectations: functions that check a server of the Kubernetes API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.contract.kubernetes.client import ContractClient

Check = Callable[[ContractClient, str], Awaitable[None]]


@dataclass(frozen=True)
class ApiExpectation:
    """One behaviour of the API. ``embedded_only`` says why the tests do not check it on a real server."""

    name: str
    check: Check
    embedded_only: str = ""


EXPECTATIONS: list[ApiExpectation] = []


def expectation(check: Check) -> Check:
    """Add a check to the contract."""
    EXPECTATIONS.append(ApiExpectation(check.__name__, check))
    return check


def embedded_only(reason: str) -> Callable[[Check], Check]:
    """Add a check that runs on the embedded server only, because of ``reason``."""

    def add(check: Check) -> Check:
        EXPECTATIONS.append(ApiExpectation(check.__name__, check, reason))
        return check

    return add
