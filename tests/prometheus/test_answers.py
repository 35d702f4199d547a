"""Decoding of answers: what WVA reads of a valid one, and how long a hostile one takes."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from tests.timing import cpu_seconds
from wva.prometheus.answers import MAX_ANSWER_BYTES, MAX_SERIES, ErrorKind, Labels, PrometheusError, decode_matrix
from wva.prometheus.answers import decode_vector as steps_of_vector
from wva.slices import at_once


def decode_vector(text, **rest):
    """Decode an answer without pauses."""
    return at_once(steps_of_vector(text, **rest))


def body(result, **more):
    """Return an answer with this result, as bytes of JSON."""
    given = "".join(f',"{name}":{value}' for name, value in more.items())
    return f'{{"status":"success","data":{{"resultType":"vector","result":{result}}}{given}}}'.encode()


def series(count, write):
    """Return a result with so many series."""
    return "[" + ",".join(write(index) for index in range(count)) + "]"


def honest(index):
    """Return one series as long as a real one."""
    labels = {"namespace": f"team-{index % 100}", "model_name": "meta-llama/Llama-3.1-8B", "pod": f"llama-{index:06}"}
    return json.dumps({"metric": {**labels, "signal": "running"}, "value": [1_700_000_000.123, "0.25"]})


def test_only_labels_that_are_asked_for_are_read():
    """Labels that no query groups by are not read and take no memory."""
    text = json.dumps([{"metric": {"pod": "a", "extra": "x" * 1000}, "value": [1, "2"]}, {"metric": {"namespace": ""}}])
    first, second = decode_vector(body(text)).series
    assert (first.metric, first.value) == (Labels(pod="a"), (1.0, "2"))
    assert (second.metric.get("namespace", "none"), second.metric.get("pod", "none"), second.value) == (
        "",
        "none",
        None,
    )


def test_a_chunk_of_a_hundred_honest_namespaces_fits():
    """Ten signals of each of 7,000 pods fit into the largest answer."""
    text = body(series(70_000, honest))
    assert len(text) < MAX_ANSWER_BYTES
    assert len(decode_vector(text).series) == 70_000


def counted(steps):
    """Yield at each step, and at last the result."""
    yield (yield from steps)


@pytest.mark.parametrize("separators", [(",", ":"), None])
def test_a_long_answer_is_decoded_in_parts(separators):
    """The event loop can run other tasks between the parts; the series and their order are the same."""
    names = [f'{index},{{"metric":{{"}}' for index in range(20_000)]
    rows = [{"metric": {"metric": "x", "pod": name}, "value": [1, "2"]} for name in names]
    steps = counted(steps_of_vector(body(json.dumps(rows, separators=separators))))
    parts = list(steps)
    assert [each.metric.pod for each in parts.pop().series] == names
    assert len(parts) == 1 if separators is None else len(parts) > 1


def ranges(count, points, **more):
    """Return an answer to a range query with so many series of so many points."""
    written = series(count, lambda index: json.dumps({"metric": {"pod": f"p{index}"}, "values": [[1, "2"]] * points}))
    return body(written, **more).replace(b'"vector"', b'"matrix"')


def matrix(count, **more):
    """Return the series of an answer to a range query, with ten points each."""
    return at_once(decode_matrix(ranges(count, 10, **more)))


def test_a_long_answer_to_a_range_query_is_decoded_in_parts():
    """A week of many models; between two parts others have their turn."""
    assert len(matrix(5_000)) == 5_000
    assert sum(1 for _ in decode_matrix(ranges(5_000, 30))) > 3


def test_an_empty_answer_to_a_range_query_with_a_warning_is_no_answer():
    """A federated store could not ask the part that has the samples of that time."""
    assert matrix(0) == ()
    assert len(matrix(1, warnings='["partial"]')) == 1
    with pytest.raises(PrometheusError, match="answered nothing, with a warning: no store gateway") as caught:
        matrix(0, warnings='["no store gateway"]')
    assert caught.value.kind is ErrorKind.SERVER


def test_a_long_answer_that_breaks_off_is_refused():
    """An error where one part ends is found, too."""
    text = body(series(20_000, lambda _: '{"metric":{"pod":"a"},"value":[1,"2"]}'))
    for broken in (text.replace(b'"2"]},{', b'"2"]};{'), text.replace(b',"2"]}', b',"2"]', 10_000)):
        with pytest.raises(PrometheusError, match="not Prometheus JSON"):
            decode_vector(broken)


def test_more_series_than_anybody_has_are_refused_before_they_are_read():
    """WVA refuses an answer with more than ``MAX_SERIES`` series, because short series are many in few bytes."""
    with pytest.raises(PrometheusError, match="more than 120000 series") as caught:
        decode_vector(body(series(MAX_SERIES + 1, lambda _: '{"metric":{},"value":[1,"1"]}')))
    assert caught.value.kind is ErrorKind.MALFORMED


def test_a_large_answer_is_the_same_in_pieces():
    """The series keep their order, and an error in any part makes the answer malformed."""
    odd = '},{"metric":{' * 8
    series = [{"metric": {"pod": f"chat-{number}", "job": odd}, "value": [1.0, "1"]} for number in range(12_001)]
    answer = {"status": "success", "data": {"resultType": "vector", "result": series}}
    whole = json.dumps(answer, separators=(",", ":"))
    assert len(whole) > 1_000_000
    found = decode_vector(whole.encode()).series
    assert [each.metric.pod for each in found] == [each["metric"]["pod"] for each in series]
    assert {each.metric.job for each in found} == {odd}
    broken = whole.replace('"chat-11000"', "11000").encode()
    with pytest.raises(PrometheusError) as caught:
        decode_vector(broken)
    assert caught.value.kind is ErrorKind.MALFORMED


def test_of_many_warnings_some_are_told():
    """WVA keeps three warnings and cuts long ones, since one shows that the answer is incomplete."""
    assert decode_vector(body("[]", warnings=json.dumps(["w" * 1000] * 9))).warnings == ("w" * 300 + "...",) * 3
    assert decode_vector(body("[]", warnings=json.dumps(["w"] * 100_000))).warnings == (
        "more warnings than can be read",
    )
    assert decode_vector(body("[]", warnings="null", infos=json.dumps(["i"] * 9))).warnings == ()


HALF = MAX_ANSWER_BYTES - 1000
HOSTILE = {
    "honest": lambda: body(series(90_000, honest)),
    "tiny": lambda: body(series(MAX_SERIES, lambda _: '{"metric":{},"value":[1,"1"]}')),
    "long-label": lambda: body(json.dumps([{"metric": {"pod": "x" * HALF}}])),
    "escapes": lambda: body(json.dumps([{"metric": {"pod": "\u00e9" * (HALF // 6)}}])),
    "labels": lambda: body('[{"metric":{' + ",".join(f'"l{index:07}":"x"' for index in range(HALF // 14)) + "}}]"),
    "again": lambda: body('[{"metric":{' + ",".join(['"pod":"x"'] * (HALF // 10)) + "}}]"),
    "warnings": lambda: body("[]", warnings="[" + ",".join(['"w"'] * (HALF // 4)) + "]"),
    "infos": lambda: body("[]", infos="[" + ",".join(['"i"'] * (HALF // 4)) + "]"),
    "objects": lambda: body("[" + ",".join(["{}"] * (HALF // 3)) + "]"),
    "nested": lambda: body("[" * HALF),
    "digits": lambda: body('[{"metric":{},"value":[' + "9" * HALF + ',"1"]}]'),
    "error": lambda: b'{"status":"error","error":"' + b"x" * HALF + b'"}',
    "type": lambda: b'{"status":"success","data":{"resultType":"' + b"x" * HALF + b'","result":[]}}',
}


@pytest.fixture(scope="module")
def plain_numbers():
    """Return the CPU seconds in which the standard library reads the largest answer, made of plain numbers."""
    text = "[" + "1," * (HALF // 2) + "1]"
    return cpu_seconds(lambda: json.loads(text))


@pytest.mark.parametrize("name", HOSTILE)
def test_the_largest_answer_holds_the_event_loop_for_a_moment(name, plain_numbers):
    """Decoding takes less than half the time in which ``json`` reads as many bytes of plain numbers."""
    text = HOSTILE[name]()

    def decode():
        with suppress(PrometheusError):
            decode_vector(text, secrets=("token",))

    assert cpu_seconds(decode) < plain_numbers / 2


@pytest.mark.parametrize(
    "text",
    [
        '{"status":"success","data":{"resultType":"vector","result":[1,"1"]}}',
        '{"status":"success","data":{"resultType":"vector","result":{"metric":{}}}}',
        '{"status":"success","data":{"resultType":"vector","result":[{"metric":{"pod":1}}]}}',
        '{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[NaN,"1"]}]}}',
        '{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":["now","1"]}]}}',
        '{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1e999,"1"]}]}}',
        '{"status":"success","data":{"resultType":"vector","result":[]},"warnings":[1]}',
        '{"status":"success","data":{"resultType":"vector"}}',
        '{"status":"success","data":[]}',
        '{"status":1}',
    ],
)
def test_what_is_no_vector_is_malformed(text):
    """Any answer with a wrong part is malformed."""
    with pytest.raises(PrometheusError) as caught:
        decode_vector(text.encode())
    assert caught.value.kind is ErrorKind.MALFORMED
