"""Bytes that are not UTF-8, or JSON that is nested too deeply: WVA skips the object, and the stream goes on."""

from __future__ import annotations

import msgspec
import pytest

from tests.builders import decoded_list
from tests.kube.scripted import ScriptedClient, event, play, pod, pods
from wva.api.kinds import PODS
from wva.kube.errors import from_status
from wva.kube.watch import Upserted
from wva.prometheus.answers import ErrorKind, PrometheusError, decode_vector, error_reason
from wva.slices import at_once
from wva.targets import DEPLOYMENTS

DEEP = b"[" * 100_000 + b"]" * 100_000
NOT_TEXT = b'{"metadata":{"name":"\xff\xfe"}}'
ENDLESS = b'{"metadata":{"name":"b"},"unread":' + DEEP + b"}"


@pytest.mark.looptime
@pytest.mark.parametrize("broken", [NOT_TEXT, ENDLESS, b'{"metadata":{"name":"\\ud800"}}'])
@pytest.mark.parametrize("kind", [b"ADDED", b"DELETED", b"BOOKMARK", b"UNHEARD-OF"])
async def test_a_watch_survives_an_object_of_broken_bytes(kind, broken):
    """The event after the broken one arrives on the same stream."""
    line = b'{"type":"' + kind + b'","object":' + broken + b"}"
    played = await play(ScriptedClient(lists=[pods()], streams=[[line, event("ADDED", "a", "11")]]))
    assert Upserted(pod("a", "11")) in played.changes
    assert played.watch_versions[:2] == ["10", "11"]


@pytest.mark.looptime
@pytest.mark.parametrize("line", [b'{"type":"\xff","object":{}}', b'{"type":"ADDED","object":' + DEEP + b"}", DEEP])
async def test_a_watch_survives_a_line_of_broken_bytes(line):
    """The line is counted as undecodable."""
    played = await play(ScriptedClient(lists=[pods()], streams=[[line, event("ADDED", "a", "11")]]))
    assert Upserted(pod("a", "11")) in played.changes
    assert played.metric("wva_undecodable_objects_total") == 1


@pytest.mark.looptime
async def test_an_error_event_of_broken_bytes_is_an_error():
    """The informer lists again, as after any error event."""
    line = b'{"type":"ERROR","object":{"message":"\xff"}}'
    played = await play(ScriptedClient(lists=[pods(), pods(pod("a", "11"), version="11")], streams=[[line]]))
    assert played.changes[1].items == (pod("a", "11"),)


def test_a_list_leaves_out_the_item_of_broken_bytes():
    """The list has its other items."""
    listed = decoded_list(PODS, b'{"items":[' + NOT_TEXT + b',{"metadata":{"name":"a"}}]}')
    assert [item.metadata.name for item in listed.items] == ["a"]
    assert listed.undecodable == 1


@pytest.mark.parametrize("body", [NOT_TEXT, ENDLESS])
def test_one_class_of_error_for_every_fault(body):
    """The decoder raises the same class of exception for every fault."""
    with pytest.raises(msgspec.DecodeError):
        DEPLOYMENTS.decode(body)
    with pytest.raises(msgspec.DecodeError):
        decoded_list(DEPLOYMENTS, b'{"items":' + DEEP + b"}")


@pytest.mark.parametrize("body", [b"[" * 900 + b"9" * 400 + b"]" * 900, b'{"metadata":{"generation":"' + b"x" * 9999])
def test_the_error_is_told_in_short(body):
    """The text of the error is short even if the path to the fault is long."""
    with pytest.raises(msgspec.DecodeError) as caught:
        DEPLOYMENTS.decode(body)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("body", [b'{"message":"\xff"}', DEEP, b"\xff\xfe", b""])
def test_a_refusal_of_broken_bytes_is_still_a_refusal(body):
    """The error has the status, though its body cannot be decoded."""
    assert from_status(403, body, attempted="GET /x").status == 403


@pytest.mark.parametrize("body", [b'{"status":"\xff"}', DEEP, b'{"status":"success","data":' + DEEP + b"}"])
def test_an_answer_of_prometheus_in_broken_bytes_is_malformed(body):
    """The decoder raises PrometheusError with the kind MALFORMED, and a short text."""
    with pytest.raises(PrometheusError) as caught:
        at_once(decode_vector(body))
    assert caught.value.kind is ErrorKind.MALFORMED
    assert len(error_reason(body)) < 400
