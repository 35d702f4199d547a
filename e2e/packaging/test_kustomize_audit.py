"""The report about the whole suite: unexpected refusals, and rights that no controller used."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from e2e import audit_report
from e2e.audit_report import UNUSED_FOR_A_REASON, granted, report
from e2e.controlplane import audit
from e2e.controlplane.audit import CONFINED, note_start, refused
from e2e.rights import Right

START = 1_700_000_000.0
ACCOUNT = "blue-workload-variant-autoscaler-controller-manager"


def entry(
    right: Right, *, account: str = ACCOUNT, decision: str = "allow", at_seconds: float = START, code: int = 200
) -> str:
    """Return a line of the audit log in the API server's format."""
    resource, _, subresource = right.resource.partition("/")
    received = dt.datetime.fromtimestamp(at_seconds, dt.UTC).isoformat()
    return json.dumps(
        {
            "kind": "Event",
            "verb": right.verb,
            "requestURI": "/somewhere",
            "user": {"username": f"system:serviceaccount:ns:{account}"},
            "objectRef": {
                "resource": resource,
                "subresource": subresource,
                "apiGroup": right.group,
                "name": right.name,
            },
            "responseStatus": {"code": code if decision == "allow" else 403},
            "requestReceivedTimestamp": received,
            "annotations": {"authorization.k8s.io/decision": decision},
        }
    )


def kept(folder: Path, lines: Iterable[str], *, run: str = "run") -> Path:
    """Write the log of one control plane as ``keep`` saves it."""
    directory = folder / run
    directory.mkdir()
    (directory / "audit.log").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return directory


ALL = sorted(granted())


def test_every_right_that_is_used_is_well(tmp_path: Path):
    """The report counts uses in the logs of several control planes, the rotated logs included."""
    half = len(ALL) // 2
    kept(tmp_path, map(entry, ALL[:half]))
    second = kept(tmp_path, [], run="second")
    (second / "audit-2026-01-01T00-00-00.000.log").write_text(
        "".join(f"{entry(right)}\n" for right in ALL[half:]), encoding="utf-8"
    )
    assert report(tmp_path, whole=True) == []


@pytest.mark.parametrize("missing", [right for right in ALL if right not in UNUSED_FOR_A_REASON], ids=str)
def test_a_right_that_nobody_used_is_named(missing: Right, tmp_path: Path):
    """The report names each unused right. A request of another account, or under a more specific right, is no use."""
    others = [entry(right) for right in ALL if right != missing]
    kept(tmp_path, [*others, entry(missing, account=CONFINED)])
    assert f"granted and never used: {missing}" in report(tmp_path, whole=True)
    assert report(tmp_path, whole=False) == []


def test_an_entry_of_the_allow_list_is_a_right_that_exists():
    """Each entry of the list has a reason, too."""
    assert UNUSED_FOR_A_REASON.keys() <= granted()
    assert all(UNUSED_FOR_A_REASON.values())


def test_a_refusal_is_named_unless_it_was_meant(tmp_path: Path):
    """Refusals of the account for refusals are expected, as are those while the API server starts."""
    right = Right("", "nodes", "list")
    directory = kept(
        tmp_path,
        [
            entry(right, decision="forbid", account=CONFINED),
            entry(right, decision="forbid", account="somebody"),
            entry(right, decision="forbid", at_seconds=START + 100),
            entry(right, decision="forbid", at_seconds=START + 200),
        ],
    )
    note_start(directory, begin_seconds=START + 190, ready_seconds=START + 195)
    lines = report(tmp_path, whole=False)
    assert lines == [f"refused: ns/{ACCOUNT}: list nodes */*: 403 "]
    assert len(refused([directory])) == 2, "of a test's own account, too"
    assert refused([directory], namespace="other") == []


def test_a_terminating_namespace_is_no_refusal(tmp_path: Path):
    """The server forbids every account to create objects in such a namespace."""
    kept(tmp_path, [entry(Right("", "events", "create"), code=403)])
    assert report(tmp_path, whole=False) == []


def test_a_run_without_logs_is_no_success(tmp_path: Path):
    """Without logs the report is an error: the run did not keep them."""
    assert report(tmp_path, whole=False) == [f"nothing was kept in {tmp_path}"]


def test_the_exit_status_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """The status is 1 with problems, 0 without. With arguments the report takes the run for a part of the suite."""
    monkeypatch.delenv("WVA_E2E_KUBECONFIG", raising=False)
    kept(tmp_path, [])
    assert audit_report.main([str(tmp_path)]) == 1
    assert "granted and never used" in capsys.readouterr().out
    assert audit_report.main([str(tmp_path), "-k", "outage"]) == 0
    monkeypatch.setenv("WVA_E2E_KUBECONFIG", "somewhere")
    assert audit_report.main([str(tmp_path)]) == 0


def test_logs_are_kept_where_the_run_asks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """``keep`` copies the logs of each control plane into a folder of its own, and only if the variable is set."""
    source = kept(tmp_path, [entry(ALL[0])])
    note_start(source, begin_seconds=START, ready_seconds=START)
    target = tmp_path / "target"
    monkeypatch.delenv("WVA_E2E_AUDIT", raising=False)
    audit.keep(source)
    assert not target.exists()
    monkeypatch.setenv("WVA_E2E_AUDIT", str(target))
    audit.keep(source)
    audit.keep(source)
    assert [sorted(file.name for file in copy.iterdir()) for copy in target.iterdir()] == [["audit.log", "starts"]] * 2
