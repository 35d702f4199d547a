"""``wva replay`` decides recorded cycles again, in another process or under other ConfigMaps."""

from __future__ import annotations

import json
import os
import socket

import msgspec
import pytest

from tests.builders import NOW, policy, replica, variant
from tests.hindsight import samples
from wva.decide.pipeline import conclude
from wva.hindsight.cycle import Recording
from wva.hindsight.recordings import RecordingWriter, read_recording
from wva.model.memory import Memory
from wva.model.records import replace
from wva.model.snapshot import Snapshot

pytestmark = pytest.mark.usefixtures("log_as_before")

EAGER = """
apiVersion: v1
kind: ConfigMap
metadata:
  name: wva-saturation-scaling-config{namespace}
data:
  default: |
    kvSpareTrigger: {trigger}
"""


@pytest.fixture
def folder(tmp_path):
    """Return a folder with the recordings of three cycles of one variant."""
    memory, place = Memory(), tmp_path / "cycles"
    for index, usage in enumerate((0.3, 0.62, 0.62)):
        snapshot = Snapshot.of([variant("a", desired=1)], [replica("a-0", kv=usage, queue=0)])
        outcome = conclude(snapshot, memory, policy(), NOW + 30 * index)
        RecordingWriter(str(place)).write(Recording(NOW + 30 * index, policy(), memory, snapshot, outcome.decisions))
        memory = outcome.memory
    return place


@pytest.fixture
def other(tmp_path):
    """Return a function that writes a file of ConfigMaps."""

    def write(text=EAGER, *, trigger="0.3", namespace=""):
        path = tmp_path / "other.yaml"
        path.write_text(text.format(trigger=trigger, namespace=namespace), encoding="utf-8")
        return str(path)

    return write


async def test_a_recording_of_the_demo_is_the_same_in_a_process_of_its_own(run, wva, tmp_path):
    """Every decision is the same, bit for bit, and each memory follows from the cycle before."""
    cycles = str(tmp_path / "cycles")
    assert (await run("demo", "--headless", "--for", "3m", "--record-dir", cycles)).status == 0
    again = await run("replay", cycles)
    assert (again.status, again.err) == (0, "")
    assert "12 decisions of 6 cycles are the same, bit for bit\n5 memories followed" in again.out
    document = json.loads(wva("replay", cycles, "--output", "json").out)
    assert document["same"] is True
    assert "before" not in document
    assert not any(row["differing"] or row["torn"] or row["overtaken"] for row in document["cycles"])


def test_a_changed_decision_is_told(wva, folder):
    """The status is 1, and the output has the recorded decision without control characters."""
    path = max(folder.iterdir())
    recording = read_recording(path.read_bytes())
    (decision,) = recording.decisions
    told = replace(decision, desired=9, message="odd \x1b[2J")
    path.write_bytes(msgspec.json.encode(replace(recording, decisions=(told,))))
    outcome = wva("replay", str(folder))
    assert outcome.status == 1
    assert "3 decisions of 3 cycles are not all the same" in outcome.out
    assert "ns/a: recorded 9 Steady: odd " in outcome.out
    assert "\x1b" not in outcome.out
    document = json.loads(wva("replay", str(folder), "--output", "json").out)
    assert document["same"] is False
    assert [row["differing"] for row in document["cycles"]] == [[], [], ["ns/a"]]


def test_a_missing_cycle_is_told(wva, folder):
    """The status is 1, because the memory does not follow from the cycle before."""
    sorted(folder.iterdir())[1].unlink()
    outcome = wva("replay", str(folder))
    assert outcome.status == 1
    assert "does not follow from the cycle before: is a recording missing between? Or has the folder" in outcome.out


def test_one_file_can_be_replayed(wva, folder):
    """The path may be one file."""
    outcome = wva("replay", str(min(folder.iterdir())))
    assert outcome.status == 0
    assert "1 decision of 1 cycle are the same" in outcome.out


def test_an_older_recording_without_decisions_is_read(wva, folder):
    """The output says that there is nothing to compare with."""
    for path in folder.iterdir():
        recording = json.loads(path.read_bytes())
        del recording["decisions"]
        path.write_text(json.dumps(recording | {"version": 2}), encoding="utf-8")
    outcome = wva("replay", str(folder))
    assert outcome.status == 0
    assert "3 cycles of an older format without decisions: there is nothing to compare with" in outcome.out
    assert "bit for bit" not in outcome.out
    assert "total" not in outcome.out
    document = json.loads(wva("replay", str(folder), "--output", "json").out)
    assert (document["same"], document["cycles"], document["before"]["cycles"]) == (None, [], 0)


@pytest.fixture
def before(tmp_path):
    """Return a function that writes a sample of the previous release into a folder."""

    def write(name):
        place = tmp_path / name
        place.mkdir()
        for index, data in enumerate(samples.files(name)):
            (place / f"cycle-{index:03}.json").write_bytes(data)
        return str(place)

    return write


def test_decisions_of_an_older_engine_are_compared(wva, before):
    """The output has both numbers, both reasons and the kind of each difference; the status is 0."""
    outcome = wva("replay", before("percentage-low-traffic"))
    assert (outcome.status, outcome.err) == (0, "")
    assert "format 3: an older version has decided, and this one need not decide the same" in outcome.out
    assert "bit for bit" not in outcome.out
    assert "8 decisions: the last replica of a sibling goes (a variant whose minimum is 0" in outcome.out
    assert "(8 cycles): 1 Steady -> 0 ScaleDown (the last replica of a sibling goes)" in outcome.out
    assert "note: An older format has no memory of demand" in outcome.out
    assert "counters" not in outcome.out


def test_decisions_of_an_older_engine_are_compared_as_json(wva, before):
    """The JSON has the rule of this engine and the number of decisions of each kind."""
    document = json.loads(wva("replay", before("percentage-low-traffic"), "--output", "json").out)
    assert document["same"] is None
    compared = document["before"]
    assert {each["kind"]: each["decisions"] for each in compared["kinds"]} == {
        "same number, another reason": 8,
        "the last replica of a sibling goes": 8,
    }
    (span,) = compared["variants"][0]["spans"]
    assert (span["then"], span["now"], span["kind"]) == (1, 0, "the last replica of a sibling goes")
    assert span["rule_now"] == "the cheapest numbers that suffice have fewer of it: shrink"


def test_an_older_engine_is_compared_under_another_policy(wva, before, other):
    """Notes name the data that the analyzer of the policy needs and an older recording lacks."""
    policy = other(EAGER.replace("kvSpareTrigger: {trigger}", "analyzerName: demand"))
    outcome = wva("replay", before("tokens-two-variants"), "--policy", policy)
    assert outcome.status == 0
    assert "requests/s needed" in outcome.out
    assert "note: An older format has no counters of engines: the demand analyzer counts from the means" in outcome.out
    assert "read the first difference" not in outcome.out


def test_a_controller_that_was_upgraded_meanwhile(wva, before, folder):
    """Cycles of this version are the same, bit for bit; cycles of an older one are compared."""
    place = before("percentage-low-traffic")
    for path in folder.iterdir():
        path.rename(f"{place}/{path.name}")
    outcome = wva("replay", place)
    assert outcome.status == 0
    assert "3 decisions of 3 cycles are the same, bit for bit" in outcome.out
    assert "format 3: an older version has decided" in outcome.out
    assert "does not follow" not in outcome.out


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (9, "it has format 9, which a newer version of WVA has written: expected 2, 3, 4 or 5"),
        (1, "it has format 1: expected 2, 3, 4 or 5"),
        ("new", "Expected `int`"),
    ],
)
def test_another_format_is_refused(wva, folder, version, words):
    """The error names the format, even if the rest of the file is unreadable."""
    path = min(folder.iterdir())
    path.write_text(json.dumps({"version": version, "odd": True}), encoding="utf-8")
    outcome = wva("replay", str(folder))
    assert (outcome.status, outcome.out) == (1, "")
    assert words in outcome.lines[0]


def test_another_policy_is_reported(wva, folder, other):
    """The output has the times, both numbers, the reasons and both costs."""
    outcome = wva("replay", str(folder), "--policy", other())
    assert (outcome.status, outcome.err) == (0, "")
    assert "ns/a: another number in 2 of 3 cycles" in outcome.out
    assert "2023-11-14T22:13:50Z (2 cycles): 1 " in outcome.out
    assert "-> 2 ScaleUp" in outcome.out
    assert "total: replica hours 0.02 -> 0.03 (+0.01), cost 0.17 -> 0.25 (+0.08)" in outcome.out
    assert "note: Each cycle saw the world as it was." in outcome.out


def test_another_policy_is_reported_as_json(wva, folder, other):
    """The JSON has the same facts as the text."""
    document = json.loads(wva("replay", str(folder), "--policy", other(), "--output", "json").out)
    (entry,) = document["variants"]
    assert (entry["key"], entry["differing"]) == ("ns/a", 2)
    (span,) = entry["spans"]
    assert (span["then"], span["now"], span["reason_now"]) == (1, 2, "ScaleUp")
    assert document["totals"]["replica_hours_now"] == pytest.approx(3 * 30 / 3600)
    assert document["replaces"] == "saturation (global)"


@pytest.mark.parametrize(
    ("namespace", "replaces"),
    [
        ("ns", "saturation of namespace ns"),
        ("workload-variant-autoscaler-system", "saturation (global)"),
        ("of-the-controller", "saturation (global)"),
    ],
)
def test_the_namespace_of_a_config_map_counts(wva, folder, other, namespace, replaces):
    """A ConfigMap in a namespace with recorded models applies to that namespace, any other one is global."""
    path = other(namespace=f"\n  namespace: {namespace}")
    document = json.loads(wva("replay", str(folder), "--policy", path, "--output", "json").out)
    assert document["replaces"] == replaces
    assert document["variants"][0]["differing"] == 2


def test_what_the_file_does_not_say_stays(wva, folder, other):
    """A ConfigMap of another kind changes no threshold."""
    path = other(EAGER.replace("saturation-scaling", "model-scale-to-zero").replace("kvSpare", "# kvSpare"))
    document = json.loads(wva("replay", str(folder), "--policy", path, "--output", "json").out)
    assert document["variants"][0]["differing"] == 0


def test_what_the_recording_cannot_tell_is_said(wva, folder, other):
    """Notes name the data that the other policy needs and the recording may lack."""
    text = EAGER + "    analyzerName: saturation\n    enableLimiter: true\n"
    notes = json.loads(wva("replay", str(folder), "--policy", other(text), "--output", "json").out)["notes"]
    assert [note.partition(",")[0] for note in notes[1:]] == [
        "the other policy counts GPUs",
        "the other policy asks for signals of engines that the recording may not have",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (EAGER, "kvSpareTrigger"),
        ("a: [", "expected YAML or JSON"),
        ("", "expected at least one ConfigMap, such as wva-saturation-scaling-config"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: other}}\ndata: {{}}\n", "expected one of wva-saturation"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: other}}\ndata: 7\n", "cannot be read"),
    ],
)
def test_a_policy_that_cannot_be_used_is_refused(wva, folder, other, text, words):
    """The status is 1, and one line names the file and the error."""
    path = other(text, trigger="many")
    outcome = wva("replay", str(folder), "--policy", path)
    assert (outcome.status, outcome.out) == (1, "")
    (line,) = outcome.lines
    assert path in line
    assert words in line


def test_a_policy_that_a_cluster_accepts_and_tells_of_is_a_note(wva, folder, other):
    """Thresholds with which a model grows at any load are in force in a cluster, so the command decides with them."""
    text = EAGER.replace("kvSpareTrigger: {trigger}", "queueLengthThreshold: 0")
    outcome = wva("replay", str(folder), "--policy", other(text))
    assert (outcome.status, outcome.err) == (0, "")
    assert "default.queueLengthThreshold: got 0, expected above 0 and at least queueSpareTrigger (3)" in outcome.out


def test_what_is_no_recording_is_refused(wva, tmp_path):
    """The command refuses an empty folder, a missing file, and a file that is not a recording."""
    (tmp_path / "empty").mkdir()
    assert "expected recordings made with --record-dir" in wva("replay", str(tmp_path / "empty")).lines[0]
    assert "No such file" in wva("replay", str(tmp_path / "nothing")).lines[0]
    (tmp_path / "empty" / "cycle-1.json").write_text("{}", encoding="utf-8")
    outcome = wva("replay", str(tmp_path / "empty"))
    assert outcome.status == 1
    assert "cycle-1.json is not a recording made with --record-dir" in outcome.lines[0]


def test_input_without_end_is_refused(wva, tmp_path, monkeypatch):
    """The command stops at the maximum size of a recording, and ignores pipes in a folder."""
    monkeypatch.setattr("wva.hindsight.recordings.MAXIMUM_BYTES", 1000)
    large = tmp_path / "cycle-1.json"
    large.write_bytes(b" " * 1001)
    outcome = wva("replay", str(large))
    assert (outcome.status, outcome.err) == (1, f"wva: cannot read {large}: larger than 1000 bytes\n")
    large.unlink()
    os.mkfifo(large)
    assert "found none" in wva("replay", str(tmp_path)).err


COMMANDS = [
    ("decide", "{}"),
    ("replay", "{}"),
    ("explain", "ns/a", "--from", "{}"),
    ("report", "--shadow", "--from", "{}"),
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
@pytest.mark.parametrize("kind", ["pipe", "device", "link to a pipe", "loop", "long name", "socket"])
def test_what_is_no_file_is_not_waited_for(wva, tmp_path, kind, words):
    """One sentence says what is wrong, at once."""
    path = tmp_path / "recording"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path = "/dev/zero"
    elif kind == "link to a pipe":
        os.mkfifo(tmp_path / "pipe")
        path.symlink_to(tmp_path / "pipe")
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "long name":
        path = "x" * 5000
    else:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
    outcome = wva(*(word.format(path) for word in words))
    assert (outcome.status, outcome.out) == (1, "")
    (line,) = outcome.lines
    assert f"cannot read {path}: " in line


@pytest.mark.parametrize("words", [*COMMANDS[1:], ("migrate", "{}")], ids=lambda words: words[0])
def test_strange_files_in_a_folder_are_left_out(wva, folder, words):
    """Pipes, loops, folders and links to nothing with the names of recordings are none."""
    for suffix in ("json", "yaml"):
        os.mkfifo(folder / f"cycle-0.{suffix}")
        (folder / f"cycle-1.{suffix}").symlink_to(folder / f"cycle-1.{suffix}")
        (folder / f"cycle-2.{suffix}").mkdir()
        (folder / f"cycle-3.{suffix}").symlink_to(folder / "nowhere")
        (folder / f"cycle-4.{suffix}").symlink_to("/dev/zero")
    outcome = wva(*(word.format(folder) for word in words))
    if words[0] == "migrate":  # without them the folder has no manifests
        assert (outcome.status, outcome.lines[0]) == (1, "wva: nothing was looked at")
    else:
        assert outcome.status == 0, outcome.err


def test_a_folder_of_too_many_bytes_is_not_read(wva, folder, monkeypatch):
    """All recordings of a folder are in memory at a time."""
    monkeypatch.setattr("wva.hindsight.recordings._MOST_BYTES_OF_A_FOLDER", 1000)
    (line,) = wva("replay", str(folder)).lines
    assert "bytes: expected at most 1000: move the older ones elsewhere" in line


@pytest.mark.parametrize("words", [("migrate", "{}"), ("replay", "{folder}", "--policy", "{}")], ids=str)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_manifests_that_are_no_files_are_not_waited_for(wva, tmp_path, folder, words, kind):
    """Nor is a device read without end."""
    path = "/dev/zero" if kind == "device" else tmp_path / "pipe"
    if kind == "pipe":
        os.mkfifo(path)
    outcome = wva(*(word.format(path, folder=folder) for word in words))
    assert outcome.status == 1
    assert f"{path}: it is not a file" in outcome.err
