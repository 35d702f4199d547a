"""WVA decides a recorded cycle again, bit by bit, after the recording went through JSON."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import NOW, replica, variant
from tests.decide.strategies import cycles
from wva.decide.pipeline import decide
from wva.hindsight.cycle import FORMAT, Recording
from wva.model.decision import Decision
from wva.model.memory import Memory
from wva.model.optimizers import Analyzer
from wva.model.policy import Compatibility, Policy, SaturationPolicy
from wva.model.records import replace
from wva.model.snapshot import Snapshot

any_cycles = cycles() | cycles(compatibility=Compatibility.V0_5)


def decided(recording: Recording) -> tuple[tuple[Decision, ...], Memory]:
    """Decide on a recorded cycle."""
    return decide(recording.snapshot, recording.memory, recording.policy, recording.now)


@given(any_cycles)
def test_a_recording_survives_json_and_is_decided_alike(recording):
    """Inputs and decisions come back equal, and encode to the same bytes again, down to the last bit of every float."""
    data = msgspec.json.encode(recording)
    back = msgspec.json.decode(data, type=Recording)
    assert back == recording
    assert msgspec.json.encode(back) == data
    result = decided(recording)
    told = msgspec.json.encode(result)
    assert msgspec.json.encode(decided(back)) == told
    assert msgspec.json.decode(told, type=tuple[tuple[Decision, ...], Memory]) == result


@settings(max_examples=settings().max_examples // 3)
@given(st.lists(cycles(), min_size=2, max_size=4))
def test_a_sequence_of_cycles_can_be_entered_anywhere(recordings):
    """Memory that went through JSON gives the same next cycle as memory that did not."""
    memory = recorded = Memory()
    for number, recording in enumerate(recordings):
        now = recording.now + 30 * number
        decisions, memory = decide(recording.snapshot, memory, recording.policy, now)
        again, recorded = decide(recording.snapshot, recorded, recording.policy, now)
        assert again == decisions
        recorded = msgspec.json.decode(msgspec.json.encode(recorded), type=Memory)


def test_pods_may_be_listed_in_any_order():
    """WVA looks at the pods of a variant in the order of their names."""
    snapshot = Snapshot.of([variant("a", replicas=3)], [replica(f"a-{number}", kv=0.1 * number) for number in range(3)])
    mixed = replace(snapshot, replicas=(snapshot.replicas[2], snapshot.replicas[0], snapshot.replicas[1]))
    for analyzer in Analyzer:
        policy = Policy(SaturationPolicy(analyzer_name=analyzer))
        assert decide(mixed, Memory(), policy, NOW) == decide(snapshot, Memory(), policy, NOW)


def test_recordings_name_their_format():
    """A reader of another format can say that it does not know the format."""
    recording = Recording(0.0, policy=Policy(), memory=Memory(), snapshot=Snapshot())
    assert b'"version":%d' % FORMAT in msgspec.json.encode(recording)
