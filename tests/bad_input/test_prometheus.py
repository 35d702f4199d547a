"""A Prometheus with bad answers: WVA keeps the number, leaks no token, and goes on deciding."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from aiohttp import web

from tests.app.stage import MODEL, until
from tests.bad_input.hostile import SECRET, series, values_and_times, vector
from wva.prometheus import client


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Shorten the time limit of a query."""
    monkeypatch.setattr(client, "QUERY_TIMEOUT_SECONDS", 0.3)
    monkeypatch.setattr(client, "_RETRY_PAUSES_SECONDS", (0.01,))


def controller(stage, prometheus, **environment):
    """Run the controller against the scripted Prometheus, with a token and recordings."""
    return stage.controller(
        interval="10ms",
        PROMETHEUS_BASE_URL=prometheus.url,
        PROMETHEUS_BEARER_TOKEN=SECRET,
        RECORD_DIR=str(stage.folder / "recordings"),
        **environment,
    )


async def held(stage):
    """Assert that the number stays, that the condition says why, and that cycles succeed."""
    await until(lambda: stage.told("MetricsAvailable") is not None)
    await stage.works()
    assert stage.series()["va"] == 2
    assert stage.told("MetricsAvailable")[0] == "False"
    assert stage.metric("wva_cycles_total", result="error") == 0


async def held_at_each(stage, prometheus, answers):
    """Assert that the number stays at each answer, after a true one that lets it be decided."""
    for name, answer in answers.items():
        prometheus.report(values=[series("0.5", pod=pod) for pod in pods(stage)])
        await until(lambda: stage.told("MetricsAvailable") == ("True", "MetricsAvailable"))
        prometheus.answer = answer
        asked = len(prometheus.requests)
        await until(lambda: stage.told("MetricsAvailable")[0] == "False")
        await until(lambda asked=asked: len(prometheus.requests) > asked + 5)
        await stage.cycles(2)
        assert stage.series()["va"] == 2, name
    await held(stage)


def replying(status, body, **headers):
    """Return an answer with this status and body."""

    async def answer(_):
        return web.Response(status=status, body=body, headers=headers)

    return answer


LONG = b"x" * 296
BODIES = {
    "html": b"<html><body>login</body></html>",
    "empty": b"",
    "half": b'{"status":"success","data":{"resultType":"vec',
    "null": b"null",
    "not-utf-8": b'{"status":"\xff"}',
    "nested": b"[" * 200_000,
    "matrix": json.dumps({"status": "success", "data": {"resultType": "matrix", "result": []}}).encode(),
    "scalar": json.dumps({"status": "success", "data": {"resultType": "scalar", "result": [1, "1"]}}).encode(),
    "no-data": b'{"status":"success"}',
    "numbers-for-labels": vector({"metric": {"pod": 7}, "value": [1, "1"]}),
    "value-of-one": vector({"metric": {}, "value": [1]}),
    "error": json.dumps({"status": "error", "errorType": "internal", "error": SECRET}).encode(),
    "type": json.dumps({"status": "success", "data": {"resultType": SECRET, "result": []}}).encode(),
    "late-echo": json.dumps({"status": "error", "error": LONG.decode() + SECRET}).encode(),
}


async def test_an_answer_that_is_none_holds_the_number(stage, prometheus, output):
    """An invalid answer with status 200 does not change the number. The token is in no output."""
    prometheus.answer = next(iter(BODIES.values()))
    async with controller(stage, prometheus):
        await held_at_each(stage, prometheus, BODIES)
    assert_untold(stage, output)


def assert_untold(stage, output):
    """Assert that neither half of the token is in the output."""
    told = stage.everything_told() + output()
    assert SECRET[:12] not in told
    assert SECRET[-12:] not in told


REFUSALS = {
    "unauthorized": replying(401, f"Bearer {SECRET} is not known"),
    "cut": replying(401, LONG + SECRET.encode()),
    "json": replying(403, json.dumps({"status": "error", "error": f"{LONG.decode()}{SECRET}"}).encode()),
    "server": replying(500, f"Authorization: Bearer {SECRET}\r\n" * 100_000),
    "redirect": replying(302, b"", Location="http://127.0.0.1:1/steal"),
    "teapot": replying(418, b"\xff\x00\x1b[31m"),
    "encoding": replying(200, b"no gzip", **{"Content-Encoding": "gzip"}),
}


async def test_a_refusal_that_repeats_the_token_does_not_spread_it(stage, prometheus, output):
    """The token is masked even if the text of the error is cut within it."""
    prometheus.answer = next(iter(REFUSALS.values()))
    async with controller(stage, prometheus):
        await held_at_each(stage, prometheus, REFUSALS)
    assert_untold(stage, output)
    assert {path for path, _ in prometheus.requests} == {"/api/v1/query", "/api/v1/query_range"}


async def drip(request):
    """Send a byte from time to time, for ever."""
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.05)


async def flood(request):
    """Send 100 MB."""
    response = web.StreamResponse()
    await response.prepare(request)
    piece = b" " * 1_000_000
    for _ in range(100):
        await response.write(piece)
    return response


async def hang_up(request):
    """Close the connection without an answer."""
    request.transport.abort()
    return web.Response()


@pytest.mark.parametrize("answer", [drip, flood, hang_up])
async def test_a_connection_that_misbehaves_costs_a_bounded_time(stage, prometheus, monkeypatch, answer):
    """The query ends at its limit of time or size."""
    monkeypatch.setattr(client, "MAX_ANSWER_BYTES", 3_000_000)
    prometheus.answer = answer
    async with controller(stage, prometheus):
        await held(stage)


def pods(stage):
    """Return the names of the pods of the variant."""
    return [entry["metadata"]["name"] for entry in stage.api.store.list("pods") if entry["metadata"]["name"][0] == "d"]


async def test_the_stage_scales_on_good_data(stage, prometheus):
    """Good samples do change the number. Otherwise the other tests here would prove nothing."""
    prometheus.report(values=[series("0.95", pod=pod) for pod in pods(stage)])
    async with controller(stage, prometheus):
        await until(lambda: stage.series().get("va") == 3)


BAD_VALUES = ["NaN", "+Inf", "-Inf", "-0.5", "1.5", "1e400", "", "abc", "0x1p-2", "1_0", "\u0661", "9" * 10_000]


async def test_a_sample_that_is_no_measurement_is_classified_and_moves_nothing(stage, prometheus):
    """WVA counts an invalid sample, and does not use it."""
    invalid = lambda: stage.metric("wva_samples_total", signal="kv_cache_usage", state="invalid")  # noqa: E731 - it is read again and again
    prometheus.report(values=[series("0.5", pod=pod) for pod in pods(stage)])
    async with controller(stage, prometheus):
        await until(lambda: stage.series().get("va") == 2)
        for value in BAD_VALUES:
            prometheus.report(values=[series("0.5", pod=pod) for pod in pods(stage)])
            await stage.cycles(2)
            before = invalid()
            prometheus.report(values=[series(value, pod=pod) for pod in pods(stage)])
            await until(lambda before=before: invalid() > before)
            await stage.cycles(2)
            assert stage.series()["va"] == 2, value
        await stage.works()
        assert stage.series()["va"] == 2


async def test_one_bad_replica_keeps_the_others_from_shrinking(stage, prometheus):
    """The model does not shrink, because the replica with the invalid sample may be busy."""
    first, second = pods(stage)
    prometheus.report(values=[series("0.0", pod=first), series("NaN", pod=second)])
    async with controller(stage, prometheus):
        await until(lambda: stage.metric("wva_samples_total", signal="kv_cache_usage", state="invalid"))
        await stage.works()
        assert stage.series()["va"] == 2


def lies(stage):
    """Return false answers by name. Each of them would change the number if WVA believed it."""
    names, now = pods(stage), time.time()
    loads = [series("0.95", pod=pod) for pod in names]
    future = [series(f"{now + 3600:.3f}", pod=pod) for pod in names]
    return {
        "future": {"values": loads, "times": future},
        "past": {"values": loads, "times": [series(f"{now - 3600:.3f}", pod=pod) for pod in names]},
        "no-times": {"values": loads, "times": []},
        "duplicates": {"values": loads + loads},
        "duplicate-times": {"values": loads, "times": [series(f"{now:.3f}", pod=pod) for pod in names] * 2},
        "foreign-pod": {"values": [series("0.95", pod=f"x-{number}") for number in range(10)]},
        "foreign-namespace": {"values": [series("0.95", pod=pod, namespace="other") for pod in names]},
        "other-model": {"values": [series("0.95", pod=pod, model_name=MODEL + "\n") for pod in names]},
        "huge-labels": {"values": [series("0.95", pod=names[0], model_name="m" * 3_000_000, extra="x" * 3_000_000)]},
        "no-labels": {"values": [{"metric": {}, "value": [now, "0.95"]}]},
        "histogram": {"values": [{"metric": entry["metric"], "histogram": [now, {}]} for entry in loads]},
    }


LIES = ["future", "past", "no-times", "duplicates", "duplicate-times", "foreign-pod", "foreign-namespace"]
LIES += ["other-model", "huge-labels", "no-labels", "histogram"]


@pytest.mark.parametrize("name", LIES)
async def test_a_lie_moves_nothing(stage, prometheus, monkeypatch, output, name):
    """WVA uses only samples of its own Ready pods that are recent and unambiguous."""
    monkeypatch.setattr(client, "QUERY_TIMEOUT_SECONDS", 5.0)
    prometheus.report(**lies(stage)[name])
    async with controller(stage, prometheus):
        await held(stage)
        said = json.dumps(stage.status())
    assert len(said) < 10_000
    assert "mmmmmmmmmm" * 20 not in said + stage.page() + output()


async def test_a_hundred_thousand_series_are_counted_and_forgotten(stage, prometheus, monkeypatch):
    """WVA counts and ignores series of unknown pods, and uses those of its own pods."""
    monkeypatch.setattr(client, "QUERY_TIMEOUT_SECONDS", 10.0)
    loads = [series("0.95", pod=pod) for pod in pods(stage)]
    loads += [series("0.5", pod=f"foreign-{number}") for number in range(100_000)]
    times = [series(f"{time.time():.3f}", pod=pod) for pod in pods(stage)]
    prometheus.answer = vector(*values_and_times(loads, times))
    async with controller(stage, prometheus):
        await until(lambda: stage.series().get("va") == 3)
        assert stage.metric("wva_samples_ignored_total", cause="foreign_pod") >= 100_000
