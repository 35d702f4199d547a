"""Pages without timestamps, scraped one after the other: staleness, ``up``, label clashes.

Each page has queries, and the answers that Prometheus must give after the scrape. A shared server also has the series
of other tests, so the runner makes the names of namespaces and jobs unique (``scoped``).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.contract.promql.scope import Result, by_pod, labels


@dataclass(frozen=True)
class LivePage:
    """A page, and the answer to each query once the page has been scraped."""

    page: str
    holds: dict[str, Result]


@dataclass(frozen=True)
class LiveScenario:
    """Pages in order; each changes a query's answer, so that a runner can wait for the change."""

    name: str
    target_labels: dict[str, str]
    steps: list[LivePage]
    honor_labels: bool = False
    gone: dict[str, Result] = field(default_factory=dict)
    """The answers after the target is gone."""


_TARGET = {"namespace": "team-a"}
_UP = 'sum by (namespace) (up{job="contract-job"})'
_LIVE_A0 = 'contract_gauge{namespace="team-a",pod="a-0"}'
_LIVE_A1 = 'contract_gauge{namespace="team-a",pod="a-1"}'

SCENARIOS = [
    LiveScenario(
        name="a series that vanishes is gone at once, a range still holds its samples",
        target_labels=_TARGET,
        steps=[
            LivePage(
                'contract_gauge{pod="a-0"} 1\ncontract_gauge{pod="a-1"} 2\n',
                {
                    f"sum by (pod) ({_LIVE_A1})": by_pod(a_1=2),
                    _UP: {labels(namespace="team-a"): 1},
                    'sum by (namespace) (scrape_samples_scraped{job="contract-job"})': {labels(namespace="team-a"): 2},
                },
            ),
            LivePage(
                'contract_gauge{pod="a-0"} 1\n',
                {
                    f"sum by (pod) ({_LIVE_A1})": {},
                    f"sum by (pod) (timestamp({_LIVE_A1}))": {},
                    f"max by (pod) (max_over_time({_LIVE_A1}[1m]))": by_pod(a_1=2),
                    f"sum by (pod) ({_LIVE_A0})": by_pod(a_0=1),
                },
            ),
            LivePage(
                'contract_gauge{pod="a-0"} 1\ncontract_gauge{pod="a-1"} 3\n',
                {f"sum by (pod) ({_LIVE_A1})": by_pod(a_1=3)},
            ),
        ],
        gone={
            _UP: {},
            f"sum by (pod) ({_LIVE_A0})": {},
            f"max by (pod) (max_over_time({_LIVE_A0}[1m]))": by_pod(a_0=1),
        },
    ),
    LiveScenario(
        name="a failed scrape says so and ends every series of the target",
        target_labels=_TARGET,
        steps=[
            LivePage(
                'contract_gauge{pod="a-0"} 1\n',
                {_UP: {labels(namespace="team-a"): 1}, f"sum by (pod) ({_LIVE_A0})": by_pod(a_0=1)},
            ),
            LivePage(
                "this is not a page of metrics {\n",
                {
                    _UP: {labels(namespace="team-a"): 0},
                    f"sum by (pod) ({_LIVE_A0})": {},
                    f"absent({_LIVE_A0})": {labels(namespace="team-a", pod="a-0"): 1},
                    'sum by (namespace) (scrape_samples_scraped{job="contract-job"})': {labels(namespace="team-a"): 0},
                },
            ),
            LivePage(
                'contract_gauge{pod="a-0"} 5\n',
                {_UP: {labels(namespace="team-a"): 1}, f"sum by (pod) ({_LIVE_A0})": by_pod(a_0=5)},
            ),
        ],
    ),
    LiveScenario(
        name="labels of the target win, those of the sample become exported",
        target_labels=_TARGET,
        steps=[
            LivePage(
                'contract_gauge{namespace="mine",exported_namespace="older",pod="p"} 1\n',
                {
                    'sum without (job, instance) (contract_gauge{namespace="team-a"})': {
                        labels(
                            namespace="team-a",
                            exported_namespace="older",
                            exported_exported_namespace="mine",
                            pod="p",
                        ): 1
                    }
                },
            ),
        ],
    ),
    LiveScenario(
        name="labels of the sample win when they are honoured, also over up",
        target_labels=_TARGET,
        honor_labels=True,
        steps=[
            LivePage(
                'contract_gauge{namespace="team-b",empty=""} 1\nup{pod="p"} 0\n',
                {
                    'sum without (job, instance) (contract_gauge{job="contract-job"})': {labels(namespace="team-b"): 1},
                    'sum by (namespace, pod) (up{job="contract-job"})': {
                        labels(namespace="team-a"): 1,
                        labels(namespace="team-a", pod="p"): 0,
                    },
                },
            ),
        ],
    ),
]
