"""Recordings are complete and limited in number, and a failure to write one does not stop a decision."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from tests.builders import NOW, policy, replica, variant
from wva.decide.measure.demand_arrivals import VariantChange
from wva.decide.measure.demand_engine import learned
from wva.decide.pipeline import decide
from wva.hindsight.cycle import FORMAT, Recording
from wva.hindsight.recordings import KEPT, RecordingWriter, read_recording
from wva.model.decision import Reason
from wva.model.memory import DemandMemory, Fit, Foresight, Level, Memory, ModelMemory, PodPeak, VariantDemand
from wva.model.metrics import EngineCounters
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.variant import ModelKey
from wva.model.vllm_parameters import VllmParameters
from wva.numbers import NumberError


def recording(now=NOW):
    """Return a cycle with one busy replica."""
    snapshot = Snapshot.of([variant("a", desired=1)], [replica("a-0", kv=0.9, queue=7)])
    return Recording(now=now, policy=policy(), memory=Memory(), snapshot=snapshot)


def test_a_recording_read_back_decides_the_same(tmp_path):
    """A recording that is read from the disk gives the same decisions."""
    RecordingWriter(str(tmp_path)).write(recording())
    (path,) = tmp_path.iterdir()
    read = msgspec.json.decode(path.read_bytes(), type=Recording)
    assert read == recording()
    assert read.version == FORMAT
    again = decide(read.snapshot, read.memory, read.policy, read.now)
    first = recording()
    assert again == decide(first.snapshot, first.memory, first.policy, first.now)


COUNTERS = EngineCounters(NOW - 5.125, 1e6, 3.0, -60.5, 1e6, 1e9, 1e6, 2.5e7, 1e9)


def test_the_counters_of_engines_are_in_a_recording(tmp_path):
    """A recording has the counters with their time, or the reason why they are missing."""
    seen = [
        replace(replica("a-0", kv=0.9, queue=7), counters=COUNTERS, created=NOW - 600),
        replace(replica("a-1", kv=0.9, queue=7), counters_detail="no counter gaps"),
    ]
    written = Recording(now=NOW, policy=policy(), memory=Memory(), snapshot=Snapshot.of([variant("a")], seen))
    RecordingWriter(str(tmp_path)).write(written)
    (path,) = tmp_path.iterdir()
    assert read_recording(path.read_bytes()) == written


def test_a_recording_of_before_the_counters_is_read(tmp_path):
    """Replicas of an older recording have no counters."""
    RecordingWriter(str(tmp_path)).write(recording())
    (path,) = tmp_path.iterdir()
    old = json.loads(path.read_bytes())
    for each in old["snapshot"]["replicas"]:
        for name in ("counters", "counters_detail", "created"):
            del each[name]
    assert read_recording(json.dumps(old).encode()) == recording()


@pytest.mark.parametrize(("seconds", "woken"), [(4.0, True), (13.9, True), (15.0, False)])
def test_of_an_older_recording_its_time_tells_whether_the_fast_lane_woke_it(seconds, woken):
    """An engine of then took a cycle of a model for woken that began soon after the last one of this model."""
    before = {ModelKey("ns", "held"): NOW - 60.0, ModelKey("ns", "m"): NOW - seconds, ModelKey("ns", "new"): None}
    memory = Memory(foreseen=tuple(Foresight(key, at=at) for key, at in before.items()))
    for version, expected in ((4, woken), (FORMAT, False)):
        old = json.loads(msgspec.json.encode(replace(recording(), version=version, memory=memory)))
        del old["snapshot"]["woken"], old["snapshot"]["urgent"]
        found = read_recording(json.dumps(old).encode()).snapshot
        assert found.woken is expected
        assert found.urgent == ((ModelKey("ns", "m"),) if expected else ())


@pytest.mark.parametrize("version", [2, 4])
def test_an_older_recording_without_a_cycle_before_was_not_woken(version):
    """Nothing says when the cycle before was."""
    old = msgspec.json.encode(replace(recording(), version=version))
    assert not read_recording(old).snapshot.woken


def test_a_recording_says_whether_the_fast_lane_woke_its_cycle():
    """The engine is told, so the recording is, too. One of some models says it of them, and names no others."""
    one, other = ModelKey("ns", "m"), ModelKey("other", "m")
    woken = replace(recording(), snapshot=replace(recording().snapshot, woken=True, urgent=(one, other)))
    assert read_recording(msgspec.json.encode(woken)) == woken
    parts = [each.snapshot for each in woken.grouped({one: 0, ModelKey("ns", "calm"): 1}, 2)]
    assert [(each.woken, each.urgent) for each in parts] == [(True, (one,)), (True, ())]


def test_peaks_of_an_older_recording_are_of_an_older_scrape():
    """They have no times, so WVA decides as then: it compares them with the samples, which show less of a queue."""
    peaks = (PodPeak("a-0", 0.95, 30.0),)
    seen = Snapshot.of([variant("a")], [replica("a-0", kv=0.95, queue=20)])
    memory = Memory(models=(ModelMemory(ModelKey("ns", "m"), peaks),))
    given = replace(recording(), version=4, snapshot=seen, memory=memory)
    old = json.loads(msgspec.json.encode(given))
    (entry,) = old["memory"]["models"]
    del entry["earlier"], entry["peaks"][0]["at"]
    found = read_recording(json.dumps(old).encode())
    assert found.memory == given.memory
    (decision,), after = decide(found.snapshot, found.memory, found.policy, found.now)
    assert decision.reason is Reason.GROWTH_SETTLING
    assert after.models[0].earlier == peaks


@pytest.mark.parametrize("number", [1e19, -1e19])
def test_counters_that_no_cycle_has_seen_are_refused(tmp_path, number):
    """A recording may come from an untrusted source, so its numbers are checked."""
    seen = replace(replica("a-0", kv=0.9, queue=7), counters=replace(COUNTERS, gaps=number))
    written = Recording(now=NOW, policy=policy(), memory=Memory(), snapshot=Snapshot.of([variant("a")], [seen]))
    RecordingWriter(str(tmp_path)).write(written)
    (path,) = tmp_path.iterdir()
    with pytest.raises(NumberError, match=r"counters\.gaps"):
        read_recording(path.read_bytes())


@pytest.mark.parametrize(
    ("step", "batch", "prompts", "held"),
    [(0.008, 250.0, 4_000.0, 2_000.0), (1.1e-5, 0.99e5, 0.99e8, 1e8)],
    ids=["a fast engine under load", "the most that is believed"],
)
def test_what_was_learned_in_days_is_read(step, batch, prompts, held):
    """Squares of the tokens in a cache add up to far more than any sample."""
    gaps, fit = 1e6, Fit()
    change = VariantChange(gaps=gaps, step=step * gaps, batch=batch * gaps, prefilled=prompts * gaps)
    for cycle in range(20_000):
        fit = learned(fit, change, held=held, now=NOW + cycle)
    assert max(map(max, fit.rows)) > 1e18
    memory = Memory(demand=(DemandMemory(ModelKey("ns", "m"), variants=(VariantDemand(variant("a").key, fit),)),))
    given = replace(recording(), memory=memory)
    assert read_recording(msgspec.json.encode(given)) == given


def test_a_recording_with_arguments_below_zero_is_read(tmp_path):
    """A tenant may write negative arguments for an engine, and the recording has them."""
    hostile = variant("a", parameters=VllmParameters(max_num_seqs=-1, block_size=-5))
    written = Recording(now=NOW, policy=policy(), memory=Memory(), snapshot=Snapshot.of([hostile], []))
    RecordingWriter(str(tmp_path)).write(written)
    (path,) = tmp_path.iterdir()
    assert read_recording(path.read_bytes()) == written


def test_a_level_of_demand_below_one_request_per_second_is_read():
    """The number of a level is an exponent; WVA refuses one that is too large."""
    for number, fits in ((-16, True), (10**6, False)):
        foresight = Foresight(ModelKey("ns", "m"), levels=(Level(number, NOW),))
        given = replace(recording(), memory=Memory(foreseen=(foresight,)))
        data = msgspec.json.encode(given)
        if fits:
            assert read_recording(data) == given
        else:
            with pytest.raises(NumberError, match=r"memory\.foreseen\.levels\.number"):
                read_recording(data)


@pytest.mark.parametrize("version", [2, 3, FORMAT])
def test_a_recording_in_which_the_queueing_analyzer_has_a_memory_of_its_own_is_read(version):
    """It becomes memory of demand; where a model has both, the entry of demand counts."""
    m, n = (DemandMemory(ModelKey("ns", name), at=NOW - 60, queue=3.0) for name in "mn")
    of_demand = replace(n, queue=5.0)
    old = json.loads(msgspec.json.encode(replace(recording(), version=version, memory=Memory(demand=(of_demand,)))))
    old["memory"]["queueing"] = {"models": json.loads(msgspec.json.encode([m, n])), "learned": []}
    assert read_recording(json.dumps(old).encode()).memory.demand == (m, of_demand)
    del old["memory"]["queueing"]["models"]
    assert read_recording(json.dumps(old).encode()).memory.demand == (of_demand,)


def test_a_missing_folder_is_made(tmp_path):
    """The writer makes the folder with the first recording."""
    RecordingWriter(str(tmp_path / "a" / "b")).write(recording())
    assert len(list((tmp_path / "a" / "b").iterdir())) == 1


def test_the_newest_hundred_are_kept(tmp_path):
    """The writer deletes the oldest recordings by their time, and leaves other files alone."""
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    writer = RecordingWriter(str(tmp_path))
    times = [float(second) for second in range(KEPT + 5)]
    for now in times:
        writer.write(recording(now))
    left = sorted(tmp_path.glob("cycle-*.json"))
    assert [msgspec.json.decode(path.read_bytes(), type=Recording).now for path in left] == times[5:]
    assert len(list(tmp_path.iterdir())) == KEPT + 1


def test_recordings_of_the_future_are_the_oldest(tmp_path):
    """The clock was set back after they were written. They go first, and what is written now stays."""
    writer = RecordingWriter(str(tmp_path))
    for now in [*range(5_000, 5_000 + KEPT), 100, 101]:
        writer.write(recording(float(now)))
    left = [float(path.stem.removeprefix("cycle-")) for path in sorted(tmp_path.glob("cycle-*.json"))]
    assert left == [100, 101, *range(5_002, 5_000 + KEPT)]


def test_a_folder_that_cannot_be_written_is_only_logged(tmp_path):
    """A full or read-only disk must not stop the decisions."""
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")
    with capture_logs() as lines:
        RecordingWriter(str(blocked)).write(recording())
    assert [line["event"] for line in lines] == ["recording_failed"]
    assert lines[0]["reason"]


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    """A full disk would otherwise fill up with parts of recordings. Those of a process that was killed go, too."""
    stale, young = tmp_path / "cycle-0000000000001.000.tmp", tmp_path / "cycle-0000000000002.000.tmp"
    for left in (stale, young):
        left.write_bytes(b"{")
    os.utime(stale, (time.time() - 3600, time.time() - 3600))
    writer = RecordingWriter(str(tmp_path))
    writer.write(recording())
    assert sorted(tmp_path.glob("*.tmp")) == [young]
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with capture_logs() as lines:
        writer.write(recording(NOW + 15))
    assert [line["event"] for line in lines] == ["recording_failed"]
    assert sorted(tmp_path.glob("*.tmp")) == [young]


@pytest.mark.parametrize("now", [1e17, -1.0, 1e11 + 1])
def test_a_cycle_of_no_year_is_refused(now):
    """Its time could not be shown."""
    with pytest.raises(NumberError, match=r"recording\.now"):
        read_recording(msgspec.json.encode(recording(now)))


def test_a_failed_replacement_is_only_logged(tmp_path):
    """A failure to rename the finished file is logged, too."""
    (tmp_path / f"cycle-{NOW:017.3f}.json").mkdir()
    with capture_logs() as lines:
        RecordingWriter(str(tmp_path)).write(recording())
    assert [line["event"] for line in lines] == ["recording_failed"]


def test_what_others_put_into_the_folder_stops_neither_writing_nor_tidying(tmp_path):
    """Folders, pipes and links with the names of recordings: the newest hundred recordings are kept beside them."""
    secret = tmp_path / "secret"
    secret.write_text("mine", encoding="utf-8")
    for suffix in ("json", "tmp"):
        for first in ("cycle-0000000000000.000", "cycle-9999999999999.000"):
            (tmp_path / f"{first}1.{suffix}").mkdir()
            os.mkfifo(tmp_path / f"{first}2.{suffix}")
            (tmp_path / f"{first}3.{suffix}").symlink_to(tmp_path / "nowhere")
            (tmp_path / f"{first}4.{suffix}").symlink_to(secret)
    strange = {path.name for path in tmp_path.iterdir()}
    writer = RecordingWriter(str(tmp_path))
    with capture_logs() as lines:
        for second in range(1, KEPT + 6):
            writer.write(recording(float(second)))
    assert lines == []
    assert len([path for path in tmp_path.iterdir() if path.name not in strange]) == KEPT
    assert secret.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_recording_is_not_written_through_what_others_have_put_there(tmp_path, kind):
    """A pipe would keep the writer for ever, and a link would let it write elsewhere."""
    temporary, elsewhere = tmp_path / f"cycle-{NOW:017.3f}.tmp", tmp_path / "elsewhere"
    elsewhere.write_text("mine", encoding="utf-8")
    if kind == "pipe":
        os.mkfifo(temporary)
    else:
        temporary.symlink_to(elsewhere)
    with capture_logs() as lines:
        RecordingWriter(str(tmp_path)).write(recording())
    assert [line["event"] for line in lines] == ["recording_failed"]
    assert elsewhere.read_text(encoding="utf-8") == "mine"
    assert temporary.is_symlink() == (kind == "link")


@pytest.mark.parametrize("word", ["token", "http", "label"])
def test_a_recording_holds_nothing_confidential(tmp_path, word):
    """Users may give a recording to other people, so it has no tokens, URLs or labels."""
    RecordingWriter(str(tmp_path)).write(recording())
    (path,) = tmp_path.iterdir()
    assert word not in path.read_text(encoding="utf-8").lower()
    assert stat.S_ISREG(path.stat().st_mode)


def test_levels_of_demand_have_numbers_below_zero():
    """A negative number is a level of less than one request per second."""
    level = Level(-16, reached=NOW)
    foresight = Foresight(ModelKey("ns", "m"), levels=(level,))
    kept = replace(recording(), memory=replace(recording().memory, foreseen=(foresight,)))
    assert read_recording(msgspec.json.encode(kept)).memory.foreseen == (foresight,)
