"""What is known of a model's requests before it may go to zero, and what is not."""

from __future__ import annotations

import asyncio

import promql_parser
import pytest

from wva.collect.answers import ErrorKind, InstantVector, PrometheusError, Series
from wva.collect.request_counts import count_requests, request_query
from wva.model.variant import ModelKey

NOW = 1_000_000.0
MODEL = ModelKey("ns", "m")
OTHER = ModelKey("ns", "n")


def series(signal, value, *, model="m", namespace="ns", target=None):
    """Return one series of an answer."""
    labels = {"namespace": namespace, "model_name": model, "signal": signal}
    if target is not None:
        labels["target_model_name"] = target
    return Series(labels, (NOW, value))


def idle(model="m", namespace="ns"):
    """Return the series of a model that serves nothing."""
    return [series(signal, "0", model=model, namespace=namespace) for signal in ("finished", "running", "waiting")]


class Prometheus:
    """Answers every query with the same, and notes them."""

    def __init__(self, *found, error=None, warnings=(), hangs=False):
        """Answer with the series, or not."""
        self.asked = []
        self._found, self._error, self._warnings, self._hangs = found, error, warnings, hangs

    async def answer(self, query, at):
        """Answer."""
        assert at == NOW
        promql_parser.parse(query.text)
        self.asked.append(query.text)
        if self._hangs:
            await asyncio.sleep(3600)
        return self._error or InstantVector(tuple(self._found), tuple(self._warnings))

    async def count(self, models=None):
        """Return the counts by model."""
        deadline = asyncio.get_running_loop().time() + (0.05 if self._hangs else 30.0)
        made = await count_requests(models or {MODEL: 600.0}, self.answer, now=NOW, deadline=deadline)
        return {counts.model: counts for counts in made}


async def test_an_idle_model_is_known_to_be_idle():
    """Nothing finished, nothing in progress."""
    counts = (await Prometheus(*idle()).count())[MODEL]
    assert (counts.finished, counts.in_progress, counts.retention_seconds, counts.detail) == (0.0, 0.0, 600.0, "")


async def test_what_runs_waits_and_queues_is_in_progress():
    """In the engines and at the gateway; a target names the model where there is one."""
    found = [
        series("finished", "2.5"),
        series("running", "1"),
        series("waiting", "2"),
        series("queued", "3", model="", target="m"),
        series("queued", "4", model="m", target=""),
        series("queued", "99", model="m", target="other"),
    ]
    counts = (await Prometheus(*found).count())[MODEL]
    assert (counts.finished, counts.in_progress) == (2.5, 10.0)


@pytest.mark.parametrize("gone", ["finished", "running", "waiting"])
async def test_a_missing_signal_makes_everything_unknown(gone):
    """No data is not zero."""
    found = [one for one in idle() if one.metric["signal"] != gone]
    counts = (await Prometheus(*found).count())[MODEL]
    assert (counts.finished, counts.in_progress) == (None, None)
    assert gone in counts.detail


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "x", "1.7e308"])
async def test_what_is_no_number_of_requests_makes_everything_unknown(value):
    """However good the other signals look."""
    counts = (await Prometheus(*idle()[:2], series("waiting", value)).count())[MODEL]
    assert (counts.finished, counts.in_progress) == (None, None)
    assert "waiting requests are not a number from 0 to 1,000,000,000,000,000" in counts.detail


@pytest.mark.parametrize(
    ("prometheus", "words"),
    [
        (Prometheus(error=PrometheusError(ErrorKind.UNREACHABLE, "refused")), "refused"),
        (Prometheus(*idle(), warnings=["partial answer"]), "partial answer"),
        (Prometheus(*idle(), hangs=True), "no answer in time"),
        (Prometheus(), "no samples"),
    ],
)
async def test_no_whole_answer_makes_everything_unknown(prometheus, words):
    """An error, half an answer, no answer, an empty one."""
    counts = (await prometheus.count())[MODEL]
    assert (counts.finished, counts.in_progress) == (None, None)
    assert words in counts.detail


async def test_models_of_one_retention_share_a_query():
    """Each retention period needs one of its own."""
    prometheus = Prometheus(*idle(), *idle("n"))
    models = {MODEL: 600.0, OTHER: 600.0, ModelKey("far", "m"): 90.0}
    counts = await prometheus.count(models)
    assert len(prometheus.asked) == 2
    assert any("[10m]" in text for text in prometheus.asked)
    assert any("[90s]" in text and '"far"' in text for text in prometheus.asked)
    assert counts[OTHER].finished == 0.0
    assert counts[ModelKey("far", "m")].finished is None


async def test_another_namespace_says_nothing():
    """A model of the same name elsewhere is another one."""
    counts = (await Prometheus(*idle(namespace="elsewhere")).count())[MODEL]
    assert counts.finished is None


def test_a_namespace_that_is_none_does_not_enter_a_query():
    """Nor does a query without any: it would read every namespace."""
    for namespaces in ([], ['x"}']):
        with pytest.raises(ValueError, match="namespace"):
            request_query(namespaces, 60.0)
