"""What the API server's audit log says: which account sent which request, and when.

Each ServiceAccount token has an id of its own, which the server notes with every request. So the writes of two
processes of one ServiceAccount are told apart by the kubeconfig that each was given.

``keep`` saves what a run's servers have noted for ``python -m e2e.audit_report``, which judges the whole suite.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from e2e.controlplane.kubeconfig import read_kubeconfig

CONFINED = "confined-controller"
"""The ServiceAccount of controllers that a test wants the API server to refuse. Any other refusal is an error."""
POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, userGroups: ["system:masters"]}
- level: Request
  userGroups: ["system:serviceaccounts"]
  verbs: [create, update, patch]
  resources: [{group: apps, resources: [deployments/scale]}, {group: coordination.k8s.io, resources: [leases]}]
- {level: Metadata, userGroups: ["system:serviceaccounts"]}
- {level: None, verbs: [get, list, watch]}
- {level: Metadata}
"""
_CREDENTIAL = "authentication.kubernetes.io/credential-id"
_ACCOUNT_PREFIX = "system:serviceaccount:"
_READS = frozenset({"get", "list", "watch"})
_STARTS = "starts"
_SETTLING_SECONDS = 10.0
_DECISION = "authorization.k8s.io/decision"
_REASON = "authorization.k8s.io/reason"


@dataclass(frozen=True, slots=True)
class Write:
    """A write that reached the server, whatever the answer was; ``at_seconds`` of the wall clock.

    ``body`` is what was sent for a scale or a Lease, and empty for anything else.
    """

    at_seconds: float
    verb: str
    path: str
    code: int
    body: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AuditedRequest:
    """A request of a ServiceAccount. ``resource`` has its subresource, ``name`` is empty where there is none."""

    at_seconds: float
    account_namespace: str
    account: str
    verb: str
    group: str
    resource: str
    namespace: str
    name: str
    code: int
    forbidden: bool
    reason: str

    def __str__(self) -> str:
        """Return the request as a readable line."""
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        where = f"{self.namespace or '*'}/{self.name or '*'}"
        return f"{self.account_namespace}/{self.account}: {self.verb} {what} {where}: {self.code} {self.reason}"


def writes(log: Path, *, kubeconfig: Path, since_seconds: float = 0.0) -> list[Write]:
    """Return the writes made with the token of a kubeconfig since a time of the wall clock, in order."""
    _, _, token = read_kubeconfig(kubeconfig)
    payload = token.split(".")[1]
    identity = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["jti"]
    found = []
    for entry in _entries([log], holding=identity):
        if f"JTI={identity}" not in entry["user"].get("extra", {}).get(_CREDENTIAL, []) or entry["verb"] in _READS:
            continue
        received = _received(entry)
        if received >= since_seconds:
            body = entry.get("requestObject", {})
            found.append(Write(received, entry["verb"], entry["requestURI"], _code(entry), body))
    return found


def accesses(logs: Iterable[Path], *, namespace: str = "") -> Iterator[AuditedRequest]:
    """Yield what the ServiceAccounts of a namespace (empty: of any) asked for resources; an open watch counts."""
    for entry in _entries(logs, holding=f"{_ACCOUNT_PREFIX}{namespace}"):
        account = entry["user"].get("username", "").removeprefix(_ACCOUNT_PREFIX).split(":")
        if len(account) != len(("namespace", "name")) or (namespace and account[0] != namespace):
            continue
        if reference := entry.get("objectRef"):
            yield AuditedRequest(
                at_seconds=_received(entry),
                account_namespace=account[0],
                account=account[1],
                verb=entry["verb"],
                group=reference.get("apiGroup", ""),
                resource="/".join(filter(None, (reference.get("resource"), reference.get("subresource")))),
                namespace=reference.get("namespace", ""),
                name=reference.get("name", ""),
                code=_code(entry),
                forbidden=entry.get("annotations", {}).get(_DECISION) == "forbid",
                reason=entry.get("annotations", {}).get(_REASON, ""),
            )


def refused(directories: Iterable[Path], *, namespace: str = "") -> list[AuditedRequest]:
    """Return the refused requests in the logs of these folders, without those that a test wanted to be refused.

    While it starts, the API server has no rules yet and refuses every request. Such refusals are left out, too.
    """
    found = []
    for directory in directories:
        starts = _starts(directory)
        found += [
            access
            for access in accesses(logs_in(directory), namespace=namespace)
            if access.forbidden
            and access.account != CONFINED
            and not any(begin <= access.at_seconds <= end for begin, end in starts)
        ]
    return found


def note_start(directory: Path, *, begin_seconds: float, ready_seconds: float) -> None:
    """Note in the folder of the logs that the API server was started, in seconds of the wall clock."""
    with (directory / _STARTS).open("a", encoding="utf-8") as file:
        file.write(f"{begin_seconds} {ready_seconds}\n")


def _starts(directory: Path) -> list[tuple[float, float]]:
    try:
        lines = (directory / _STARTS).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    return [(float(begin), float(ready) + _SETTLING_SECONDS) for begin, ready in map(str.split, lines)]


def logs_in(directory: Path) -> list[Path]:
    """Return the logs in a folder, the rotated ones included."""
    return sorted(directory.glob("audit*.log"))


def keep(directory: Path) -> None:
    """Copy the logs of a control plane below ``WVA_E2E_AUDIT``, if that is set: every run into a folder of its own."""
    if (target := os.environ.get("WVA_E2E_AUDIT")) and directory.exists():
        copy = Path(target) / uuid.uuid4().hex[:8]
        copy.mkdir(parents=True)
        for path in (*logs_in(directory), directory / _STARTS):
            if path.exists():
                shutil.copyfile(path, copy / path.name)


def _entries(logs: Iterable[Path], *, holding: str) -> Iterator[dict[str, Any]]:
    """Yield the entries that hold a text, without a last line that the server has not finished."""
    for log in logs:
        with log.open(encoding="utf-8") as lines:
            for line in lines:
                if holding in line and line.endswith("\n"):
                    yield json.loads(line)


def _received(entry: dict[str, Any]) -> float:
    return datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp()


def _code(entry: dict[str, Any]) -> int:
    return int(entry.get("responseStatus", {}).get("code", 0))
