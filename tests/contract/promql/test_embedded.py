"""The embedded Prometheus keeps the contract of PromQL over its HTTP API."""

import aiohttp
import pytest

from tests.contract.promql.checks import assert_expectation, assert_vector, vector
from tests.contract.promql.expectations import ERRORS, EXPECTATIONS, ErrorExpectation, QueryExpectation
from tests.contract.promql.history import history_page
from tests.contract.promql.live import SCENARIOS, LiveScenario
from tests.contract.promql.scope import scoped
from wva.sim.prometheus import EmbeddedPrometheus, InProcess, ScrapeTarget

BASE = 1_700_000_000
SUFFIX = "-s"


@pytest.fixture
async def history():
    """Serve the contract's history and return a function that sends a query."""
    page = history_page(BASE, SUFFIX)
    async with EmbeddedPrometheus(now=lambda: BASE + 900.0) as prometheus, aiohttp.ClientSession() as session:
        target = ScrapeTarget(InProcess(lambda: page), {"job": "contract", "instance": "i"}, honor_labels=True)
        prometheus.scraper.add(target)
        await prometheus.scrape()

        async def ask(query: str, at_seconds: float = 600.0) -> tuple[int, dict]:
            form = {"query": scoped(query, SUFFIX), "time": f"{BASE + at_seconds:.3f}"}
            async with session.post(f"{prometheus.url}/api/v1/query", data=form) as response:
                return response.status, await response.json()

        yield ask


@pytest.mark.parametrize("expectation", EXPECTATIONS, ids=lambda expectation: expectation.query[:80])
async def test_query_on_the_history(history, expectation: QueryExpectation):
    """The embedded Prometheus gives the expected answer."""
    status, body = await history(expectation.query, expectation.at_seconds)
    assert status == 200, body
    assert_expectation(expectation, body, base_seconds=BASE, suffix=SUFFIX)


@pytest.mark.parametrize("expectation", ERRORS, ids=lambda expectation: expectation.query[:80])
async def test_query_that_fails(history, expectation: ErrorExpectation):
    """The embedded Prometheus gives the expected status and kind of error."""
    status, body = await history(expectation.query)
    assert (status, body["status"], body["errorType"]) == (expectation.status, "error", expectation.kind)
    assert body["error"]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
async def test_live_scenario(scenario: LiveScenario):
    """The embedded Prometheus gives the expected answers after each page, and after the target is gone."""
    clock = [float(BASE)]
    page = [""]
    async with EmbeddedPrometheus(now=lambda: clock[0]) as prometheus, aiohttp.ClientSession() as session:

        async def holds(queries: dict) -> None:
            for query, expected in queries.items():
                form = {"query": scoped(query, SUFFIX)}
                async with session.post(f"{prometheus.url}/api/v1/query", data=form) as response:
                    assert_vector(vector(await response.json()), expected, suffix=SUFFIX, query=query)

        given = {"job": "contract-job", "instance": "i", **scenario.target_labels}
        target = ScrapeTarget(
            InProcess(lambda: page[0]),
            {name: scoped(value, SUFFIX) for name, value in given.items()},
            honor_labels=scenario.honor_labels,
        )
        prometheus.scraper.add(target)
        for step in scenario.steps:
            page[0] = scoped(step.page, SUFFIX)
            clock[0] += 2
            await prometheus.scrape()
            await holds(step.holds)
        prometheus.scraper.remove(target)
        clock[0] += 2
        await prometheus.scrape()
        await holds(scenario.gone)
