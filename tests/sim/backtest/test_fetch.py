"""The backtest fetches the history of a model in chunks, which it keeps in files, and makes columns of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.sim.backtest.conftest import MINUTES
from tests.sim.backtest.engines import ANSWER, MODEL, NAMESPACE, PROMPT, START
from wva.prometheus.answers import ErrorKind, PrometheusError, RangeSeries
from wva.sim.backtest import fetch as module
from wva.sim.backtest.fetch import MAX_POINTS, Chunk, ModelSpan, fetch, visible_models
from wva.sim.backtest.history import NoHistoryError, history, start_up_seconds
from wva.sim.backtest.queries import queries

SPAN = ModelSpan(NAMESPACE, MODEL, START, START + 60 * MINUTES - 30)


class RangeQueries:
    """Answers each range query with one series that has every point, or raises the next planned error."""

    def __init__(self, *plan, most_points=10**9):
        """Refuse queries for more points than ``most_points``."""
        self.plan = list(plan)
        self.asked = []
        self._most = most_points

    async def query_range(self, promql, *, name, start, end, step_seconds, timeout_seconds):  # noqa: ARG002 - protocol
        """Answer with 1 at each point."""
        self.asked.append((name, start, end))
        planned = self.plan.pop(0) if self.plan else None
        if planned is not None:
            raise planned
        times = np.arange(start, end + 1, step_seconds)
        if len(times) > self._most:
            raise PrometheusError(ErrorKind.EXECUTION, "too many samples")
        return (RangeSeries({"pod": "a-b-c"}, tuple((float(at), "1") for at in times)),)


async def test_the_history_of_a_model_is_read(client, clock, tmp_path):
    """The history has pods by variant with their signals, the controller's values, histograms and KV cache sizes."""
    assert await visible_models(client, START, START + 1200, clock=clock) == [(NAMESPACE, MODEL)]
    found = history(SPAN, await fetch(client, SPAN, tmp_path, clock=clock))
    (variant,) = found.variants
    assert (variant.name, variant.accelerator, variant.cost, variant.maximum) == ("chat", "H100", 7.0, 6)
    assert [pod.name for pod in variant.pods] == ["chat-5d9f-aa", "chat-5d9f-bb"]
    assert [pod.kv_cache_tokens for pod in variant.pods] == [96000.0, 96000.0]
    assert found.interval_seconds == 45.0
    assert found.mean("prompt_sum", "prompt_count") == pytest.approx(PROMPT)
    assert found.mean("output_sum", "output_count") == pytest.approx(ANSWER)
    assert np.all(variant.replicas == 1.0)
    assert list(found.buckets["ttft_bucket"]) == [0.05, 1.0, math.inf]
    peak = found.total("success").max()
    assert peak == pytest.approx(3.0 * 2.3, rel=0.05)


async def test_a_chunk_that_is_there_is_not_asked_for_again(tmp_path, clock, monkeypatch):
    """After an error the same command continues where it stopped. It asks again for a damaged file."""
    monkeypatch.setattr(module, "POINTS_PER_QUERY", 20)
    count = len(queries(NAMESPACE, MODEL, window_seconds=60))
    broken = RangeQueries(*[None] * (count + 3), PrometheusError(ErrorKind.UNAUTHORIZED, "no"))
    with pytest.raises(PrometheusError):
        await fetch(broken, SPAN, tmp_path, clock=clock)
    source = RangeQueries()
    seen = []
    chunks = await fetch(source, SPAN, tmp_path, clock=clock, progress=lambda done, of: seen.append((done, of)))
    assert len(chunks) == math.ceil(SPAN.count / 20)
    assert len(source.asked) == count * (len(chunks) - 1)
    assert seen == [(done, len(chunks)) for done in range(len(chunks) + 1)]
    assert await fetch(RangeQueries(PrometheusError(ErrorKind.SERVER, "no")), SPAN, tmp_path, clock=clock) == chunks
    next(tmp_path.glob("*/*.json")).write_text("{", encoding="utf-8")
    again = RangeQueries()
    assert await fetch(again, SPAN, tmp_path, clock=clock) == chunks
    assert len(again.asked) == count


async def test_other_questions_have_other_files(tmp_path, clock):
    """Queries about another model, or with another step, have other files."""
    await fetch(RangeQueries(), SPAN, tmp_path, clock=clock)
    for other in (
        ModelSpan(NAMESPACE, "other", SPAN.start, SPAN.end),
        ModelSpan(NAMESPACE, MODEL, SPAN.start, SPAN.end, 60.0),
    ):
        source = RangeQueries()
        await fetch(source, other, tmp_path, clock=clock)
        assert source.asked


async def test_another_prometheus_has_other_files(tmp_path, clock):
    """Each Prometheus has its own files, because two clusters may serve models of the same name."""
    await fetch(RangeQueries(), SPAN, tmp_path, clock=clock, address="http://127.0.0.1:9090")
    source = RangeQueries()
    await fetch(source, SPAN, tmp_path, clock=clock, address="http://127.0.0.1:9091")
    assert source.asked


@pytest.mark.parametrize(("signal", "text"), [("interval", "1e-9"), ("current", "1e15")])
async def test_what_no_controller_publishes_is_no_data(client, clock, tmp_path, signal, text):
    """A published interval or number of replicas that is impossible counts as missing."""
    (chunk,) = await fetch(client, SPAN, tmp_path, clock=clock)
    wrong = tuple(
        RangeSeries(series.metric, tuple((at, text) for at, _ in series.values)) for series in chunk.answers[signal]
    )
    found = history(SPAN, [Chunk(chunk.start, chunk.end, chunk.answers | {signal: wrong})])
    assert found.interval_seconds == (None if signal == "interval" else 45.0)
    assert found.variants[0].replicas.max() <= 2.0


async def test_there_is_a_pause_after_each_query_and_a_longer_one_after_a_failure(tmp_path, clock):
    """The command pauses after each query, because other programs use Prometheus, too.

    It pauses longer after a failure.
    """
    source = RangeQueries(PrometheusError(ErrorKind.SERVER, "busy"), PrometheusError(ErrorKind.REFUSED, "429"))
    await fetch(source, SPAN, tmp_path, clock=clock)
    assert clock.pauses[:3] == [2.0, 5.0, 0.05]
    assert set(clock.pauses[3:]) == {0.05}


async def test_an_answer_that_is_too_large_is_asked_for_in_halves(tmp_path, clock):
    """The command also halves a query that takes too long. It gets every point once."""
    chunks = await fetch(RangeQueries(most_points=30), SPAN, tmp_path, clock=clock)
    (series,) = chunks[0].answers["running"]
    assert [at for at, _ in series.values] == [SPAN.start + 30 * index for index in range(SPAN.count)]


async def test_an_error_that_stays_ends_it(tmp_path, clock):
    """The command ends after an error that does not pass, such as a wrong token."""
    with pytest.raises(PrometheusError, match="no"):
        await fetch(RangeQueries(PrometheusError(ErrorKind.UNAUTHORIZED, "no")), SPAN, tmp_path, clock=clock)
    assert clock.pauses == []


def test_a_time_without_engines_is_no_history():
    """Without reports of engines, the error names model and namespace."""
    with pytest.raises(NoHistoryError, match="no engine of model 'x' in namespace 'prod'"):
        history(ModelSpan("prod", "x", 0.0, 600.0), [])


@pytest.mark.parametrize(("start", "end", "words"), [(10.0, 10.0, "before --to"), (0.0, 1e9, "expected --step=")])
def test_a_span_that_cannot_be_is_refused(start, end, words):
    """The error about an impossible span names the flags."""
    with pytest.raises(ValueError, match=words):
        ModelSpan("prod", "x", start, end)
    assert ModelSpan("prod", "x", 0.0, 30.0 * (MAX_POINTS - 1)).count == MAX_POINTS


def test_no_text_leaves_its_place_in_a_query():
    """The query escapes quotes and line ends of a model id. A namespace with them is refused."""
    for text in queries("prod", 'a"} or up{x="\n', window_seconds=60).values():
        assert 'model_name="a"}' not in text
        assert "\n" not in text
    with pytest.raises(ValueError, match="is not a namespace"):
        queries('a"', "m", window_seconds=60)


async def test_growth_tells_how_long_a_pod_takes(client, clock, tmp_path):
    """The start-up time runs from a higher published number until as many pods report."""
    (variant,) = history(SPAN, await fetch(client, SPAN, tmp_path, clock=clock)).variants
    desired = np.full(SPAN.count, 1.0)
    desired[20:] = 2.0
    second = variant.pods[1]
    late = second.signals["running"].copy()
    late[:26] = np.nan
    pods = (variant.pods[0], type(second)(second.name, second.variant, second.signals | {"running": late}, None))
    grown = type(variant)(*(desired if name == "desired" else pods if name == "pods" else getattr(variant, name)
                            for name in variant.__dataclass_fields__))  # fmt: skip
    assert start_up_seconds(grown, SPAN.step_seconds) == [6 * 30.0]
