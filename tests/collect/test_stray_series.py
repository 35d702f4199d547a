"""A model whose series are there under another name, or with other labels, is told so."""

from __future__ import annotations

import promql_parser
import pytest

from tests.builders import NOW
from wva.collect.queries import STRAY_SERIES
from wva.collect.snapshot import Collector
from wva.prometheus.answers import ErrorKind, InstantSeries, InstantVector, Labels, PrometheusError
from wva.sim.prometheus.promql import EvaluationTime, evaluate, parse
from wva.sim.prometheus.tsdb import Tsdb, milliseconds

WAITING = "vllm:num_requests_waiting"
USUAL = {"namespace": "ns", "pod": "va-0", "model_name": "m"}


class StrayStore:
    """Answers from series that a scrape has stored."""

    def __init__(self) -> None:
        """Have no series."""
        self.tsdb = Tsdb()
        self.asked: list[str] = []
        self.error: Exception | None = None

    def store(self, name: str = WAITING, **labels: str) -> None:
        """Store a sample; an empty label is one that the series lacks."""
        kept = {label: value for label, value in (USUAL | labels).items() if value}
        self.tsdb.append({"__name__": name, **kept}, NOW - 5.0, 1.0)

    async def query(self, promql: str, *, name: str, at: float) -> InstantVector:
        """Answer as Prometheus does."""
        promql_parser.parse(promql)
        self.asked.append(name)
        if name == STRAY_SERIES and self.error is not None:
            raise self.error
        found = evaluate(parse(promql), EvaluationTime(self.tsdb, *[milliseconds(at)] * 3))
        labels = [{name: text for name, text in each.labels.items() if hasattr(Labels(), name)} for each in found]
        told = [InstantSeries(Labels(**each), (at, str(one.value))) for each, one in zip(labels, found, strict=True)]
        return InstantVector(tuple(told))


@pytest.fixture
def store():
    """Return a store without series."""
    return StrayStore()


@pytest.fixture
def noted():
    """Return what is noted of queries."""
    return []


@pytest.fixture
def details(cluster, store, instruments, noted):
    """Return a function that plays cycles and returns the details of the samples of the one pod in the last."""
    cluster.variant(model_id="m")
    collector = Collector(
        cluster.stores, prometheus=store, instruments=instruments, note=lambda *what: noted.append(what)
    )

    async def collect(*times):
        for seconds in times:
            (replica,) = (await collector.collect(NOW + seconds)).replicas
        return {replica.kv_usage.detail, replica.queue_length.detail}

    return collect


@pytest.mark.parametrize(
    ("name", "labels", "words"),
    [
        ("ray_vllm:num_requests_waiting", {}, f"ray_vllm:num_requests_waiting, expected {WAITING}"),
        ("ray_vllm_num_requests_waiting", {"namespace": "ray"}, f"ray_vllm_num_requests_waiting, expected {WAITING}"),
        ("ray_vllm:num_requests_waiting", {"namespace": "", "pod": ""}, f"expected {WAITING}"),
        (WAITING, {"pod": "", "kubernetes_pod_name": "va-0"}, "have the label kubernetes_pod_name, expected pod"),
        (WAITING, {"pod": "", "exported_pod": "va-0"}, "have the label exported_pod, expected pod"),
        (WAITING, {"namespace": "", "kubernetes_namespace": "ns"}, "have the label kubernetes_namespace, expected nam"),
        (WAITING, {"namespace": "watch", "exported_namespace": "ns"}, "have the label exported_namespace, expected na"),
        (WAITING, {"namespace": ""}, "have no label namespace"),
    ],
)
async def test_series_that_cannot_be_used_are_named(store, details, name, labels, words):
    """The samples that are missing say so from the second cycle on, which asks one more query."""
    store.store(name, **labels)
    before = await details(0.0)
    assert not any(words in detail for detail in before)
    (detail,) = await details(15.0)
    assert words in detail
    assert store.asked.count(STRAY_SERIES) == 1


@pytest.mark.parametrize(
    "labels",
    [
        {"model_name": "other", "namespace": ""},
        {"namespace": "watch", "exported_namespace": "others"},
        {"namespace": "others", "pod": "", "kubernetes_pod_name": "va-0"},
    ],
)
async def test_series_of_others_are_not_told(store, details, labels):
    """They belong to another model, or to a namespace of another name."""
    store.store(**labels)
    assert await details(0.0, 15.0) == {""}


async def test_a_model_that_reports_is_not_looked_for(store, details):
    """What was found is forgotten with its first sample, and the query ends."""
    store.store(namespace="")
    assert await details(0.0, 15.0) == {"series of its model have no label namespace"}
    store.store()
    assert await details(20.0) != {"series of its model have no label namespace"}
    store.tsdb.append({"__name__": WAITING, **USUAL}, NOW + 395.0, 1.0)
    await details(400.0)
    assert store.asked.count(STRAY_SERIES) == 1


async def test_it_is_asked_every_five_minutes(store, details):
    """A scrape configuration may be mended meanwhile, and one may be wrong from now on."""
    assert await details(0.0, 15.0, 30.0, 300.0) == {""}
    assert store.asked.count(STRAY_SERIES) == 1
    store.store("ray_vllm:num_requests_waiting")
    store.tsdb.append({"__name__": "ray_vllm:num_requests_waiting", **USUAL}, NOW + 310.0, 1.0)
    (detail,) = await details(316.0)
    assert "ray_vllm" in detail
    assert store.asked.count(STRAY_SERIES) == 2


@pytest.mark.parametrize("error", [PrometheusError(ErrorKind.BAD_QUERY, "HTTP 400"), TimeoutError(), KeyError("x")])
async def test_without_an_answer_nothing_is_told_of_the_series(store, details, noted, error):
    """The failure is noted as that of any query."""
    store.error = error
    assert await details(0.0, 15.0) == {""}
    (failed,) = [reasons for query, _, reasons in noted if query == STRAY_SERIES]
    words = {TimeoutError: "Prometheus did not answer within 3 s", KeyError: "its answer cannot be read: KeyError"}
    assert failed["ns"].startswith(f"query stray_series: {words.get(type(error), 'HTTP 400')}")
