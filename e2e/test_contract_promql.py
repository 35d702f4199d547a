"""The contract of PromQL, held by the real Prometheus: what the embedded one is measured against.

The expectations are those of ``tests/contract/promql``; a difference there is a bug of the embedded one or of the
expectation, never of this runner.
"""

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Mapping
from typing import Any

import pytest

from e2e.controlplane.cluster import ClusterAccess, ControlPlane
from e2e.controlplane.polling import eventually
from e2e.controlplane.prometheus import ScrapeJob
from e2e.scrape_target import scrape_target
from tests.contract.promql.checks import assert_expectation, assert_vector, vector
from tests.contract.promql.expectations import ERRORS, EXPECTATIONS, ErrorExpectation, QueryExpectation
from tests.contract.promql.history import END_SECONDS, history_page
from tests.contract.promql.live import SCENARIOS, LiveScenario
from tests.contract.promql.scope import Result, scoped
from wva.model.records import replace

_TIMEOUT_SECONDS = 10.0
_SCRAPED_SECONDS = 20.0
_GONE_SECONDS = 40.0  # discovery is read every 5 s, then two scrape intervals must pass
_AGE_SECONDS = 60  # the newest sample of the history is so old when it is scraped, younger ones are refused


class Asker:
    """Asks the real server instant queries, names made unique."""

    def __init__(self, plane: ControlPlane) -> None:
        """Trust the plane's own authority."""
        self.plane = plane
        self.suffix = f"-{uuid.uuid4().hex[:8]}"
        self.base_seconds = int(time.time()) - END_SECONDS - _AGE_SECONDS
        self._url = f"{plane.prometheus_api.url}/api/v1/query"
        self._tls = ssl.create_default_context(cafile=str(plane.layout.authority))

    def ask(self, query: str, **parameters: str) -> tuple[int, dict[str, Any]]:
        """Return the status and the body of the answer."""
        form = urllib.parse.urlencode({"query": scoped(query, self.suffix), **parameters}).encode()
        try:
            with urllib.request.urlopen(self._url, form, timeout=_TIMEOUT_SECONDS, context=self._tls) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def ask_history(self, query: str, at_seconds: float = END_SECONDS) -> tuple[int, dict[str, Any]]:
        """Ask at an offset from the history's base."""
        return self.ask(query, time=f"{self.base_seconds + at_seconds:.3f}")

    def assert_holds(self, queries: Mapping[str, Result]) -> bool:
        """Assert every query's result as of now."""
        for query, expected in queries.items():
            _, body = self.ask(query)
            assert_vector(vector(body), expected, suffix=self.suffix, query=query)
        return True


def _own(cluster: ClusterAccess) -> ControlPlane:
    """Return the cluster as one whose Prometheus can be given targets."""
    if not isinstance(cluster, ControlPlane):
        pytest.skip("needs a Prometheus of its own: this run uses the existing cluster of WVA_E2E_KUBECONFIG")
    return cluster


@pytest.fixture(scope="module")
def history(control_plane: ClusterAccess) -> Asker:
    """Give a server that has taken in the contract's history."""
    asker = Asker(_own(control_plane))
    with scrape_target() as target:
        target.text = history_page(asker.base_seconds, asker.suffix)
        job = ScrapeJob(name=f"contract-history{asker.suffix}", targets=[target.address], honor_labels=True)
        with asker.plane.scraping(job):
            eventually(
                lambda: asker.ask_history('contract_pod_info{namespace="team-a"}')[1]["data"]["result"],
                timeout_seconds=_SCRAPED_SECONDS,
                what="the history in Prometheus",
            )
    return asker


@pytest.mark.parametrize("expectation", EXPECTATIONS, ids=lambda expectation: expectation.query[:80])
def test_query_on_the_history(history: Asker, expectation: QueryExpectation):
    """The answer is that of the contract."""
    status, body = history.ask_history(expectation.query, expectation.at_seconds)
    assert status == 200, body
    assert_expectation(expectation, body, base_seconds=history.base_seconds, suffix=history.suffix)


@pytest.mark.parametrize("expectation", ERRORS, ids=lambda expectation: expectation.query[:80])
def test_query_that_fails(history: Asker, expectation: ErrorExpectation):
    """Status, kind of error and shape are those of the contract."""
    status, body = history.ask_history(expectation.query)
    assert (status, body["status"], body["errorType"]) == (expectation.status, "error", expectation.kind)
    assert body["error"]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_live_scenario(control_plane: ClusterAccess, scenario: LiveScenario):
    """After each page, and after the target has gone, its queries come to hold long before the look-back is over."""
    asker = Asker(_own(control_plane))
    with scrape_target() as target:
        job = ScrapeJob(
            name=scoped("contract-job", asker.suffix),
            targets=[target.address],
            honor_labels=scenario.honor_labels,
            labels={name: scoped(value, asker.suffix) for name, value in scenario.target_labels.items()},
        )
        with asker.plane.scraping(job):
            for step in scenario.steps:
                target.text = scoped(step.page, asker.suffix)
                eventually(lambda step=step: asker.assert_holds(step.holds), timeout_seconds=_SCRAPED_SECONDS)
            # Not by removing the job: then Prometheus presumes that it shuts down itself, and ends no series.
            asker.plane.prometheus.add_job(replace(job, targets=[]))
            eventually(lambda: asker.assert_holds(scenario.gone), timeout_seconds=_GONE_SECONDS)
