"""The API server's own account of who wrote what and when.

Each ServiceAccount token has an id of its own, which the server notes with every request. So the writes of two
processes of one ServiceAccount are told apart by the kubeconfig that each was given.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from e2e.controlplane.kubeconfig import read_kubeconfig

POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, verbs: [get, list, watch]}
- {level: None, userGroups: ["system:masters"]}
- {level: Metadata}
"""
_CREDENTIAL = "authentication.kubernetes.io/credential-id"


@dataclass(frozen=True, slots=True)
class Write:
    """A write that reached the server, whatever the answer was; ``at_seconds`` of the wall clock."""

    at_seconds: float
    verb: str
    path: str
    code: int


def writes(log: Path, *, kubeconfig: Path, since_seconds: float = 0.0) -> list[Write]:
    """Return the writes made with the token of a kubeconfig since a time of the wall clock, in order."""
    _, _, token = read_kubeconfig(kubeconfig)
    payload = token.split(".")[1]
    identity = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["jti"]
    found = []
    for line in log.read_text(encoding="utf-8").splitlines():
        if identity not in line:
            continue
        entry = json.loads(line)
        if f"JTI={identity}" not in entry["user"].get("extra", {}).get(_CREDENTIAL, []):
            continue
        received = datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp()
        if received >= since_seconds:
            code = entry.get("responseStatus", {}).get("code", 0)
            found.append(Write(received, entry["verb"], entry["requestURI"], code))
    return found
