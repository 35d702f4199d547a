"""Recordings of cycles: complete, limited in number, and never in the way of a decision."""

from __future__ import annotations

import stat

import msgspec
import pytest
from structlog.testing import capture_logs

from tests.builders import NOW, policy, replica, variant
from wva.decide.pipeline import decide
from wva.model.memory import Memory
from wva.model.recording import FORMAT, Recording
from wva.model.snapshot import Snapshot
from wva.model.vllm_parameters import VllmParameters
from wva.publish.recordings import KEPT, RecordingWriter, read_recording


def recording(now=NOW):
    """Return a cycle with one busy replica."""
    snapshot = Snapshot.of([variant("a", desired=1)], [replica("a-0", kv=0.9, queue=7)])
    return Recording(now=now, policy=policy(), memory=Memory(), snapshot=snapshot)


def test_a_recording_read_back_decides_the_same(tmp_path):
    """What is on the disk gives the decisions of that cycle again."""
    RecordingWriter(str(tmp_path)).write(recording())
    (path,) = tmp_path.iterdir()
    read = msgspec.json.decode(path.read_bytes(), type=Recording)
    assert read == recording()
    assert read.version == FORMAT
    again = decide(read.snapshot, read.memory, read.policy, read.now)
    first = recording()
    assert again == decide(first.snapshot, first.memory, first.policy, first.now)


def test_a_recording_with_arguments_below_zero_is_read(tmp_path):
    """The arguments of an engine are taken as a tenant writes them, and so they are in a recording."""
    hostile = variant("a", parameters=VllmParameters(max_num_seqs=-1, block_size=-5))
    written = Recording(now=NOW, policy=policy(), memory=Memory(), snapshot=Snapshot.of([hostile], []))
    RecordingWriter(str(tmp_path)).write(written)
    (path,) = tmp_path.iterdir()
    assert read_recording(path.read_bytes()) == written


def test_a_missing_folder_is_made(tmp_path):
    """It need not exist before the first cycle."""
    RecordingWriter(str(tmp_path / "a" / "b")).write(recording())
    assert len(list((tmp_path / "a" / "b").iterdir())) == 1


def test_the_newest_hundred_are_kept(tmp_path):
    """Older ones go, in the order of their times and not of their names' lengths; foreign files stay."""
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    writer = RecordingWriter(str(tmp_path))
    times = [float(second) for second in range(KEPT + 5)]
    for now in times:
        writer.write(recording(now))
    left = sorted(tmp_path.glob("cycle-*.json"))
    assert [msgspec.json.decode(path.read_bytes(), type=Recording).now for path in left] == times[5:]
    assert len(list(tmp_path.iterdir())) == KEPT + 1


def test_a_folder_that_cannot_be_written_is_only_logged(tmp_path):
    """A full or read-only disk must not stop the decisions."""
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")
    with capture_logs() as lines:
        RecordingWriter(str(blocked)).write(recording())
    assert [line["event"] for line in lines] == ["recording_failed"]
    assert lines[0]["reason"]


def test_a_failed_replacement_is_only_logged(tmp_path):
    """The same when the last step fails."""
    (tmp_path / f"cycle-{NOW:017.3f}.json").mkdir()
    with capture_logs() as lines:
        RecordingWriter(str(tmp_path)).write(recording())
    assert [line["event"] for line in lines] == ["recording_failed"]


@pytest.mark.parametrize("word", ["token", "http", "label"])
def test_a_recording_holds_nothing_confidential(tmp_path, word):
    """It can be handed to somebody else."""
    RecordingWriter(str(tmp_path)).write(recording())
    (path,) = tmp_path.iterdir()
    assert word not in path.read_text(encoding="utf-8").lower()
    assert stat.S_ISREG(path.stat().st_mode)
