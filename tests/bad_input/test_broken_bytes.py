"""Bytes that are no text or nest without end: one object is left out, the stream and the process go on."""

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
    """Such a line is counted like any other that is no event."""
    played = await play(ScriptedClient(lists=[pods()], streams=[[line, event("ADDED", "a", "11")]]))
    assert Upserted(pod("a", "11")) in played.changes
    assert played.metric("wva_undecodable_objects_total") == 1


@pytest.mark.looptime
async def test_an_error_event_of_broken_bytes_is_an_error():
    """It ends the request like any error, and the next list brings what there is."""
    line = b'{"type":"ERROR","object":{"message":"\xff"}}'
    played = await play(ScriptedClient(lists=[pods(), pods(pod("a", "11"), version="11")], streams=[[line]]))
    assert played.changes[1].items == (pod("a", "11"),)


def test_a_list_leaves_out_the_item_of_broken_bytes():
    """The other items of the list are there."""
    listed = decoded_list(PODS, b'{"items":[' + NOT_TEXT + b',{"metadata":{"name":"a"}}]}')
    assert [item.metadata.name for item in listed.items] == ["a"]
    assert listed.undecodable == 1


@pytest.mark.parametrize("body", [NOT_TEXT, ENDLESS])
def test_one_class_of_error_for_every_fault(body):
    """Code that decodes a body has to catch one class of exception only."""
    with pytest.raises(msgspec.DecodeError):
        DEPLOYMENTS.decode(body)
    with pytest.raises(msgspec.DecodeError):
        decoded_list(DEPLOYMENTS, b'{"items":' + DEEP + b"}")


@pytest.mark.parametrize("body", [b"[" * 900 + b"9" * 400 + b"]" * 900, b'{"metadata":{"generation":"' + b"x" * 9999])
def test_the_error_is_told_in_short(body):
    """The decoder's own words name the way to the fault, however long it is."""
    with pytest.raises(msgspec.DecodeError) as caught:
        DEPLOYMENTS.decode(body)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("body", [b'{"message":"\xff"}', DEEP, b"\xff\xfe", b""])
def test_a_refusal_of_broken_bytes_is_still_a_refusal(body):
    """The status alone says what is known; building the error does not fail."""
    assert from_status(403, body, attempted="GET /x").status == 403


@pytest.mark.parametrize("body", [b'{"status":"\xff"}', DEEP, b'{"status":"success","data":' + DEEP + b"}"])
def test_an_answer_of_prometheus_in_broken_bytes_is_malformed(body):
    """One error class for the collector as well."""
    with pytest.raises(PrometheusError) as caught:
        at_once(decode_vector(body))
    assert caught.value.kind is ErrorKind.MALFORMED
    assert len(error_reason(body)) < 400
