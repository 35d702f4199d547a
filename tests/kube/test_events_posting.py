"""The form of a posted Event, what happens when the API server fails, and how the recorder stops."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from tests.kube.clocks import settle
from tests.kube.event_bench import VARIANT, EventBench
from wva.api.core import ObjectReference
from wva.api.meta import Key
from wva.kube.errors import Forbidden, NotFound, TooManyRequests, Unavailable, Unreachable, WriteRefused
from wva.kube.events import MAX_ATTEMPTS, MAX_WAITING


@pytest.fixture(name="bench")
async def _bench():
    with capture_logs() as logs:
        async with EventBench().running() as bench:
            bench.logs = logs
            yield bench


async def test_an_event_carries_what_kubectl_shows(bench):
    """An Event has object, texts, times, count and reporter."""
    bench.record("scaled to 3", reason="Scaled")
    await settle()
    assert bench.server.events == {
        Key("models", "llama.1"): {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "llama.1", "namespace": "models"},
            "involvedObject": {
                "apiVersion": "llmd.ai/v1alpha1",
                "kind": "VariantAutoscaling",
                "name": "llama",
                "namespace": "models",
                "uid": "uid-1",
                "resourceVersion": "7",
            },
            "type": "Normal",
            "reason": "Scaled",
            "message": "scaled to 3",
            "firstTimestamp": "2023-11-14T22:30:00Z",
            "lastTimestamp": "2023-11-14T22:30:00Z",
            "count": 1,
            "source": {"component": "wva"},
            "reportingComponent": "wva",
            "reportingInstance": "wva-0",
        }
    }


async def test_events_about_cluster_scoped_objects_go_to_the_default_namespace(bench):
    """An Event needs a namespace, even if its object has none."""
    bench.record(ref=ObjectReference("v1", "Node", "node-1"))
    await settle()
    (key,) = bench.server.events
    assert key == Key("default", "node-1.1")
    assert bench.server.events[key]["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "node-1"}


async def test_long_messages_and_names_are_cut_to_what_the_api_accepts(bench):
    """A message has at most 1024 bytes and no broken character.

    A name has at most 253 characters and no dot at its end.
    """
    bench.record("ä" * 1000, ref=ObjectReference("v1", "Pod", "a" * 250 + ".b", "models"))
    bench.record("\ud800")
    await settle()
    key = next(iter(bench.server.events))
    assert bench.server.events[key]["message"] == "ä" * 512
    assert key.name == "a" * 250 + ".1"
    for number in range(12):
        bench.record(f"{number}" + "ä" * 1000)
    await settle()
    assert max(len(event["message"].encode()) for event in bench.server.events.values()) <= 1024


async def test_an_event_that_expired_is_created_again(bench):
    """The API server deletes Events after an hour. A repetition creates a new Event with the old count."""
    bench.record()
    await settle()
    bench.server.events.clear()
    bench.record()
    await settle()
    assert bench.server.requests == ["create", "patch", "create"]
    assert bench.server.shown == [("said", 2)]
    assert list(bench.server.events) == [Key("models", "llama.2")]


@pytest.mark.parametrize(
    "error",
    [Unreachable(0, "", "refused"), Unavailable(503, "", "down"), TooManyRequests(429, "", "later")],
    ids=["unreachable", "unavailable", "throttled"],
)
async def test_a_passing_failure_is_retried(bench, error):
    """The recorder posts the Event when the server works again."""
    bench.server.failures = [error, error]
    bench.record()
    await bench.clock.advance(30.0)
    assert bench.server.shown == [("said", 1)]
    assert bench.server.requests == ["create"] * 3


async def test_the_server_says_when_to_come_back(bench):
    """The recorder waits as long as Retry-After says."""
    bench.server.failures = [TooManyRequests(429, "", "later", 20.0)]
    bench.record()
    await bench.clock.advance(19.0)
    assert len(bench.server.requests) == 1
    await bench.clock.advance(2.0)
    assert bench.server.shown == [("said", 1)]


async def test_a_create_whose_answer_was_lost_is_not_repeated_under_another_name(bench):
    """The retry finds the Event of the first try, and counts it as created."""
    bench.server.failures = [Unreachable(0, "", "reset")]
    bench.server.events[Key("models", "llama.1")] = {"message": "said", "count": 1}
    bench.record()
    await bench.clock.advance(30.0)
    assert list(bench.server.events) == [Key("models", "llama.1")]
    assert bench.count("created") == 1


async def test_after_some_tries_an_event_is_given_up(bench):
    """The failure is counted and logged, and the next Event is posted. A repetition of the first one is tried again."""
    bench.server.failures = [Unavailable(503, "", "down")] * MAX_ATTEMPTS
    bench.record("lost")
    bench.record("next")
    await bench.clock.advance(120.0)
    assert bench.server.shown == [("next", 1)]
    assert bench.count("failed") == 1
    assert [line["event"] for line in bench.logs] == ["event_not_posted"]
    bench.record("lost")
    await settle()
    assert ("lost", 2) in bench.server.shown


@pytest.mark.parametrize("error", [Forbidden(403, "", "no"), NotFound(404, "", "no namespace")])
async def test_a_refusal_is_not_retried(bench, error):
    """A refused Event is counted as failed after one request."""
    bench.server.failures = [error]
    bench.record()
    await bench.clock.advance(60.0)
    assert bench.server.requests == ["create"]
    assert bench.count("failed") == 1


async def test_what_a_process_without_the_lease_must_not_post_is_dropped_quietly(bench):
    """Without the Lease an Event is dropped without a log line, because the leader posts its own."""
    bench.server.failures = [WriteRefused(0, "", "not leading")]
    bench.record()
    await settle()
    assert (bench.count("dropped"), bench.count("failed")) == (1, 0)
    assert bench.logs == []


@pytest.mark.looptime
async def test_a_hanging_request_is_given_up(bench):
    """A request ends after 10 s."""
    bench.server.gate.clear()
    bench.record()
    await asyncio.sleep(9.9)
    bench.server.gate.set()
    await settle()
    assert bench.server.shown == [("said", 1)]
    bench.server.gate.clear()
    bench.record("hangs")
    await asyncio.sleep(10.1)
    bench.server.gate.set()
    assert len(bench.server.requests) == 2
    await bench.clock.advance(10.0)
    assert len(bench.server.requests) == 3


async def test_a_full_buffer_drops_what_is_new_and_keeps_counting_what_waits(bench):
    """Beyond 1000 waiting Events, new ones are dropped. Repetitions of waiting Events are still counted."""
    bench.server.gate.clear()
    for number in range(MAX_WAITING):
        bench.record(ref=ObjectReference("v1", "Pod", f"pod-{number}", f"models-{number % 4}"))
    for number in range(3):
        bench.record(ref=ObjectReference("v1", "Pod", f"late-{number}", "late"))
    assert bench.count("dropped") == 3
    bench.record(ref=ObjectReference("v1", "Pod", "pod-1", "models-1"))
    assert bench.count("dropped") == 3
    bench.server.gate.set()
    for _ in range(MAX_WAITING // 2):
        await settle()
    assert len(bench.server.events) == MAX_WAITING
    assert bench.server.shown[:2] == [("said", 1), ("said", 2)]


async def test_a_namespace_with_very_many_events_delays_no_other(bench):
    """One namespace can use a quarter of the buffer, and the namespaces take turns."""
    bench.server.gate.clear()
    for number in range(MAX_WAITING):
        bench.record(ref=ObjectReference("v1", "Pod", f"pod-{number}", "many"))
    assert bench.count("dropped") == MAX_WAITING * 3 / 4
    for name in ("a", "b"):
        bench.record(name, ref=ObjectReference("v1", "Pod", name, name))
    assert bench.count("dropped") == MAX_WAITING * 3 / 4
    bench.server.gate.set()
    await settle()
    assert [message for message, _ in bench.server.shown[:4]].count("said") == 2


async def test_idle_means_that_nothing_happens_before_the_clock_moves(bench):
    """The recorder is not idle while it posts, but idle while it waits for a retry."""
    assert bench.recorder.idle
    bench.server.gate.clear()
    bench.record()
    assert not bench.recorder.idle
    await settle()
    assert not bench.recorder.idle
    bench.server.failures = [Unavailable(503, "", "down")]
    bench.record("another")
    bench.server.gate.set()
    await settle()
    assert bench.recorder.idle
    assert len(bench.server.events) == 0
    await bench.clock.advance(10.0)
    assert len(bench.server.events) == 2
    assert bench.recorder.idle


async def test_drain_posts_what_is_waiting_without_run():
    """``drain`` also posts the Event whose request was cancelled with ``run``."""
    bench = EventBench()
    bench.server.gate.clear()
    async with bench.running():
        bench.record("in hand")
        await settle()
        bench.record("waiting")
    bench.server.gate.set()
    await bench.recorder.drain(5.0)
    assert bench.server.shown == [("in hand", 1), ("waiting", 1)]
    assert bench.recorder.idle


@pytest.mark.looptime
async def test_drain_waits_for_what_run_has_in_hand(bench):
    """``drain`` returns when every request is answered, not when the buffer is empty."""
    bench.server.gate.clear()
    bench.record()
    await settle()
    drain = asyncio.ensure_future(bench.recorder.drain(5.0))
    await settle()
    assert not drain.done()
    bench.server.gate.set()
    await drain
    assert bench.server.shown == [("said", 1)]
    assert asyncio.get_running_loop().time() < 1.0


@pytest.mark.looptime
async def test_drain_gives_up_in_time():
    """If the server does not answer, ``drain`` returns after the given time.

    The remaining Events are dropped and counted.
    """
    bench = EventBench()
    bench.server.gate.clear()
    bench.record("one")
    bench.record("two")
    with capture_logs() as logs:
        await bench.recorder.drain(5.0)
    assert asyncio.get_running_loop().time() == pytest.approx(5.0, abs=0.01)
    assert bench.count("dropped") == 2
    assert [(line["event"], line["events"]) for line in logs] == [("events_dropped", 2)]
    assert bench.recorder.idle


async def test_recording_about_our_own_variant_needs_no_running_loop_task():
    """``event`` sends nothing. ``run`` and ``drain`` do."""
    bench = EventBench()
    bench.recorder.event(VARIANT, "Warning", "R", "m")
    await settle()
    assert bench.server.requests == []


async def test_what_changes_a_number_goes_first_and_is_not_dropped(bench):
    """5,400 holds and 900 changes wait for a slow API server. All changes are posted before the next hold."""
    bench.server.gate.clear()
    bench.record(ref=_variant(0))
    await settle()
    for number in range(5400):
        bench.record("held", ref=_variant(number))
    for number in range(900):
        bench.record("3 -> 4", ref=_variant(number), reason="Changed")
    assert bench.count("dropped") == 5400 - MAX_WAITING
    bench.server.gate.set()
    for _ in range(500):
        await settle()
    assert bench.server.shown[1:901] == [("3 -> 4", 1)] * 900
    assert len(bench.server.events) == 1 + 900 + MAX_WAITING


async def test_events_give_way_to_what_is_more_important_but_not_for_ever(bench):
    """While other requests are more important, the recorder posts one Event a second.

    Afterwards it posts the rest at once.
    """
    busy = True
    bench.recorder.gives_way = lambda: busy
    for number in range(10):
        bench.record("held", ref=_variant(number))
    shown = []
    for _ in range(12):
        await settle()
        await bench.clock.advance(0.25)
        shown.append(len(bench.server.events))
    assert (shown[2], shown[-1]) == (0, 3)
    busy = False
    await settle()
    await bench.clock.advance(0.25)
    for _ in range(10):
        await settle()
    assert len(bench.server.events) == 10
    assert bench.recorder.idle


async def test_drain_and_a_loop_that_gives_way_do_not_post_the_same_event(bench):
    """``drain`` posts the Event while the loop waits. Afterwards the loop has nothing to post."""
    bench.recorder.gives_way = lambda: True
    bench.record("held")
    await settle()
    drain = asyncio.ensure_future(bench.recorder.drain(5.0))
    await settle()
    assert len(bench.server.events) == 1
    for _ in range(5):
        await bench.clock.advance(0.25)
        await settle()
    assert drain.done()
    bench.recorder.gives_way = lambda: False
    bench.record("said", ref=_variant(1))
    await settle()
    assert len(bench.server.events) == 2


async def test_changes_of_one_variant_are_combined_and_not_dropped(bench):
    """The first ten of forty changes are shown one by one. One Event shows the newest and counts the others."""
    for number in range(40):
        bench.record(f"{number} -> {number + 1}", reason="Changed")
        await settle()
    assert bench.count("dropped") == 0
    assert sum(count for _, count in bench.server.shown) == 40
    assert len(bench.server.shown) == 11
    assert bench.server.shown[-1] == ("(combined from similar events): 39 -> 40", 30)


async def test_a_change_that_was_in_hand_is_posted_first_when_the_recorder_goes_on():
    """The recorder was stopped during a request, and posts that Event first afterwards."""
    bench = EventBench()
    bench.server.gate.clear()
    async with bench.running():
        for number in range(3):
            bench.record(f"{number}", reason="Changed", ref=_variant(number))
        await settle()
    bench.server.gate.set()
    await bench.recorder.drain(5.0)
    assert bench.server.shown == [("0", 1), ("1", 1), ("2", 1)]


def _variant(number):
    return ObjectReference("llmd.ai/v1alpha1", "VariantAutoscaling", f"v{number}", f"ns-{number % 50}", f"uid-{number}")
