"""Compares an answer of the HTTP API with an expectation; the tests of both servers use it."""

from __future__ import annotations

import math

from tests.contract.promql.expectations import QueryExpectation
from tests.contract.promql.scope import Result, scoped

TARGET_LABELS = frozenset({"job", "instance"})


def vector(body: dict) -> Result:
    """Return the vector of an answer by labels, without the labels that the scrape adds."""
    assert body["status"] == "success", body
    assert body["data"]["resultType"] == "vector", body
    elements = body["data"]["result"]
    result = {
        frozenset((name, value) for name, value in element["metric"].items() if name not in TARGET_LABELS): float(
            element["value"][1]
        )
        for element in elements
    }
    assert len(result) == len(elements), f"two elements differ by the target only: {elements}"
    return result


def assert_vector(actual: Result, expected: Result, *, suffix: str, query: str) -> None:
    """Assert that a result holds the expected label sets with the expected values, up to rounding."""
    expected = {
        frozenset((name, scoped(value, suffix)) for name, value in key): value for key, value in expected.items()
    }
    assert actual.keys() == expected.keys(), query
    for key, value in expected.items():
        same = math.isclose(actual[key], value, rel_tol=1e-9) or (math.isnan(actual[key]) and math.isnan(value))
        assert same, f"{query}: {dict(key)} is {actual[key]}, expected {value}"


def assert_expectation(expectation: QueryExpectation, body: dict, *, base_seconds: int, suffix: str) -> None:
    """Assert that the answer to an expectation's query is the expected one."""
    times = expectation.result.keys() if expectation.times_are_absolute else expectation.times
    expected = {key: value + base_seconds * (key in times) for key, value in expectation.result.items()}
    assert_vector(vector(body), expected, suffix=suffix, query=expectation.query)
