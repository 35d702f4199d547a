"""``wva explain`` prints why a variant has its number, from recordings."""

from __future__ import annotations

import json

import pytest

from tests.builders import INVALID, NOW, policy, replica, variant
from wva.decide.pipeline import conclude
from wva.hindsight.cycle import Recording
from wva.hindsight.explanation import SHOWN, explanation, lines
from wva.hindsight.recordings import RecordingWriter
from wva.model.memory import Memory
from wva.model.records import replace
from wva.model.snapshot import CollectionFailure, Snapshot

pytestmark = pytest.mark.usefixtures("log_as_before")


@pytest.fixture
def folder(tmp_path):
    """Return a folder with the recordings of two cycles; the load rises in the second."""
    place, memory = tmp_path / "cycles", Memory()
    for index, usage in enumerate((0.3, 0.79)):
        variants = [variant("a", maximum=2, replicas=2, model="big"), variant("b", model="big", cost=5.0)]
        pods = [replica("a-0", kv=usage), replica("a-1", kv=INVALID), replica("b-0", variant="b", kv=usage)]
        keep(place, index, Snapshot.of(variants, pods), memory)
    return str(place)


def keep(place, index, snapshot, memory):
    """Write the recording of a cycle."""
    now = NOW + 15 * index
    decisions = conclude(snapshot, memory, policy(), now).decisions
    RecordingWriter(str(place)).write(Recording(now, policy(), memory, snapshot, decisions))


def test_the_last_cycle_is_explained(wva, folder):
    """Number, steps, samples, ignored samples, siblings and changes stand below each other."""
    found = wva("explain", "ns/b", "--from", folder)
    assert (found.status, found.err) == (0, "")
    assert found.out.startswith("ns/b: 2 replicas (ScaleUp) at 2023-11-14T22:13:35Z\n")
    for part in (
        "  model big in ns, analyzer percentage\n",
        "\nsteps\n  measure   1",
        "\nsamples\n  a-0  kv_usage                     0.79  20 s old   fresh\n",
        "\nignored samples\n  a-1  kv_usage                        -  no time    invalid 'NaN' is not a number\n",
        "\nother variants of the model\n  ns/a: 2 replicas, 2 exist (",
        "\nsmallest changes that give another number\n  load ",
        "\n  900 s later, if all stays as it is\n",
    ):
        assert part in found.out


def test_roles_are_beside_the_model_and_the_other_variants(wva, tmp_path):
    """The number of a role is that of its own pods."""
    pair = [replace(variant("a"), role="prefill"), replace(variant("b"), role="decode")]
    keep(tmp_path / "cycles", 0, Snapshot.of(pair, [replica("a-0"), replica("b-0", variant="b")]), Memory())
    found = wva("explain", "ns/a", "--from", str(tmp_path / "cycles"), "--no-changes").out
    assert "  model m in ns, role prefill, analyzer percentage\n" in found
    assert ", cost 10, role decode\n" in found


def test_an_earlier_cycle_is_explained(wva, folder):
    """``--at`` takes the last cycle at or before a time."""
    found = wva("explain", "ns/b", "--from", folder, "--at", "2023-11-14T22:13:30Z", "--no-changes")
    assert found.out.startswith("ns/b: 1 replica (")
    assert "smallest changes" not in found.out


def test_json_has_all(wva, folder):
    """The document is the one that the controller serves."""
    document = json.loads(wva("explain", "ns/b", "--from", folder, "--output", "json").out)
    assert document["desired"] == 2
    assert document["changes"]["flips"][0]["change"]["input"] == "load"


def test_many_samples_are_cut_for_people(wva, tmp_path):
    """The text says how many more there are."""
    pods = [replica(f"a-{number:02}", kv=0.1) for number in range(SHOWN)]
    keep(tmp_path, 0, Snapshot.of([variant(replicas=SHOWN)], pods), Memory())
    out = wva("explain", "ns/a", "--from", str(tmp_path), "--no-changes").out
    assert f"  and {SHOWN} more (--output json has all)\n" in out


def test_without_any_sample_the_text_says_so(wva, tmp_path):
    """What could not be read stands apart."""
    failed = [CollectionFailure(("ns",), "Prometheus is away")]
    keep(tmp_path, 0, Snapshot.of([variant()], [], failed), Memory())
    out = wva("explain", "ns/a", "--from", str(tmp_path)).out
    assert "\nsamples\n  none\n" in out
    assert "\nnot read\n  Prometheus is away\n" in out


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["a"], 2, "'a': expected NAMESPACE/NAME of a VariantAutoscaling"),
        (["ns/other"], 1, "the cycle at 2023-11-14T22:13:35Z has no decision on ns/other; it has ns/a, ns/b"),
        (["ns/a", "--at", "noon"], 2, "--at='noon': expected a time as 2026-01-31T12:00:00Z"),
        (["ns/a", "--at", "2020-01-01T00:00:00"], 1, "no recorded cycle at 2020-01-01T00:00:00 or before"),
    ],
)
def test_what_cannot_be_explained_is_one_line(wva, folder, words, status, message):
    """The line says what is expected. The status is 2 where the words alone are wrong."""
    found = wva("explain", *words, "--from", folder)
    assert (found.status, found.err) == (status, f"wva: {message}\n")


def test_what_users_get_is_told_where_the_controller_says_it():
    """A recording does not have it."""
    snapshot = Snapshot.of([variant("a")], [replica(variant="a")])
    outcome = conclude(snapshot, Memory(), policy(), NOW)
    key = outcome.decisions[0].key
    found = explanation(Recording(NOW, policy(), Memory(), snapshot, outcome.decisions), key, with_changes=False)
    told = "requests in time: 97 % of 200 in the last hour"
    assert f"  {told}" not in [*lines(found)]
    assert f"  {told}" in [*lines(replace(found, served=told))]
