"""Recordings as ``wva decide`` reads them, and WVA's decisions on them."""

from __future__ import annotations

import msgspec

from tests.fuzz.harness import short
from wva.decide.pipeline import conclude
from wva.hindsight.cycle import FORMAT, Recording
from wva.hindsight.recordings import read_recording
from wva.model.records import replace
from wva.numbers import MAX_REPLICAS, NumberError


def words():
    """Return the names of all fields."""
    seen = set()
    queue = [msgspec.inspect.type_info(Recording)]
    for info in queue:
        for field in getattr(info, "fields", ()):
            if field.encode_name not in seen:
                seen.add(field.encode_name)
                queue.append(field.type)
        inner = (getattr(info, "item_type", None), getattr(info, "value_type", None), *getattr(info, "types", ()))
        queue += [*(each for each in inner if each is not None), *getattr(info, "item_types", ())]
    yield from seen
    yield from ("fresh", "stale", "missing", "invalid", "v0.5", "tokens", "queueing", "null", "1e308", "2147483647")


def check(data):
    """Only the two declared errors are raised; a recording survives writing and reading; decisions are in range."""
    try:
        recording = read_recording(data)
    except (msgspec.DecodeError, NumberError) as error:
        short(error)
        return False
    assert read_recording(msgspec.json.encode(recording)) == recording
    outcome = conclude(recording.snapshot, recording.memory, recording.policy, recording.now)
    assert outcome.failures == outcome.refused == ()
    assert len(outcome.decisions) == len(recording.snapshot.variants)
    kept = replace(recording, decisions=outcome.decisions, version=FORMAT)
    assert read_recording(msgspec.json.encode(kept)) == kept
    assert all(0 <= decision.desired <= MAX_REPLICAS for decision in outcome.decisions)
    return bool(outcome.decisions)
