"""How the recorder counts and combines many Events, and limits its requests to the API server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kube.clocks import settle
from tests.kube.event_bench import VARIANT, EventBench
from wva.api.core import ObjectReference
from wva.kube.events import BURST, Correlator, Note


@pytest.fixture(name="bench")
async def _bench():
    async with EventBench().running() as bench:
        yield bench


def other(number):
    """Return another object."""
    return ObjectReference("v1", "Pod", f"pod-{number}", "models", f"uid-{number}")


async def test_the_same_again_raises_the_count(bench):
    """The API server has one Event, with the count and the time of the newest occurrence."""
    for _ in range(3):
        bench.record()
        await bench.clock.advance(60.0)
    assert bench.server.shown == [("said", 3)]
    assert bench.server.requests == ["create", "patch", "patch"]
    (event,) = bench.server.events.values()
    assert (event["firstTimestamp"], event["lastTimestamp"]) == ("2023-11-14T22:30:00Z", "2023-11-14T22:32:00Z")
    assert (bench.count("created"), bench.count("aggregated")) == (1, 2)


@pytest.mark.parametrize(
    "different",
    [{"message": "other"}, {"reason": "Other"}, {"type_": "Warning"}, {"ref": other(1)}],
    ids=["message", "reason", "type", "object"],
)
async def test_what_differs_is_another_event(bench, different):
    """Two Events are equal only if message, reason, type and object are equal."""
    bench.record()
    bench.record(**different)
    await settle()
    assert [count for _, count in bench.server.shown] == [1, 1]


async def test_a_changed_object_is_the_same_object(bench):
    """Equality does not depend on the resourceVersion of the object."""
    bench.record()
    bench.record(ref=ObjectReference(VARIANT.api_version, VARIANT.kind, VARIANT.name, VARIANT.namespace, "uid-1", "8"))
    await settle()
    assert bench.server.shown == [("said", 2)]


async def test_after_ten_quiet_minutes_a_new_event_starts(bench):
    """An Event that repeats within ten minutes is counted. After a longer pause a new Event starts."""
    bench.record()
    await bench.clock.advance(599.0)
    bench.record()
    await bench.clock.advance(599.0)
    bench.record()
    await bench.clock.advance(601.0)
    bench.record()
    await settle()
    assert bench.server.shown == [("said", 3), ("said", 1)]


async def test_what_waits_already_is_counted_before_it_is_sent(bench):
    """Repetitions during a slow request need one more request in total."""
    bench.server.gate.clear()
    for _ in range(5):
        bench.record()
        await settle()
    bench.server.gate.set()
    await settle()
    assert bench.server.shown == [("said", 5)]
    assert bench.server.requests == ["create", "patch"]


async def test_many_texts_of_one_reason_are_combined(bench):
    """Ten messages are shown one by one. From the eleventh on, one Event shows the newest message."""
    for number in range(13):
        bench.record(f"attempt {number}")
        await settle()
    assert bench.server.shown == [
        *((f"attempt {number}", 1) for number in range(10)),
        ("(combined from similar events): attempt 12", 3),
    ]
    bench.record("attempt 3")
    await settle()
    assert bench.server.shown[3] == ("attempt 3", 2)


async def test_combining_ends_after_ten_quiet_minutes(bench):
    """After ten minutes without an Event, new messages are shown one by one again."""
    for number in range(12):
        bench.record(f"attempt {number}")
        await settle()
    await bench.clock.advance(601.0)
    bench.record("attempt 99")
    await settle()
    assert bench.server.shown[-1] == ("attempt 99", 1)


async def test_one_object_cannot_flood(bench):
    """An object has 25 posts at once, then one every five minutes.

    Other objects are not affected, and the count goes on.
    """
    for _ in range(40):
        bench.record()
        await settle()
    assert len(bench.server.requests) == BURST
    assert bench.server.shown == [("said", 25)]
    assert bench.count("dropped") == 15
    bench.record(ref=other(1))
    await settle()
    assert len(bench.server.requests) == BURST + 1
    await bench.clock.advance(299.0)
    bench.record()
    await settle()
    assert bench.server.shown[0] == ("said", 25)
    await bench.clock.advance(1.1)
    bench.record()
    await settle()
    assert bench.server.shown[0] == ("said", 42)


NOTES = st.tuples(st.integers(0, 3), st.integers(0, 30), st.sampled_from([0.0, 1.0, 30.0, 400.0]))


@given(st.lists(NOTES, max_size=80))
def test_whatever_is_recorded_every_count_is_right_and_posts_are_limited(notes):
    """The counts of all Events add up to the recorded ones, and no object exceeds its limit."""
    correlator, now, posts, series = Correlator(), 0.0, {}, {}
    for object_number, text, pause in notes:
        now += pause
        ref = other(object_number)
        event, wanted = correlator.see(Note(ref, "Normal", "R", str(text)), wall=now, now=now)
        series[id(event)] = event
        posts[object_number] = posts.get(object_number, 0) + wanted
    assert sum(event.count for event in series.values()) == len(notes)
    assert all(count <= BURST + now / 300.0 for count in posts.values())


def test_memory_is_bounded():
    """The correlator forgets the oldest Events, and counts them from 1 again."""
    correlator = Correlator(size=3)
    for number in range(10):
        correlator.see(Note(other(number), "Normal", "R", "m"), wall=0.0, now=0.0)
    again, _ = correlator.see(Note(other(9), "Normal", "R", "m"), wall=0.0, now=0.0)
    forgotten, _ = correlator.see(Note(other(0), "Normal", "R", "m"), wall=0.0, now=0.0)
    assert (again.count, forgotten.count) == (2, 1)
