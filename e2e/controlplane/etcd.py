"""etcd: one member without fsync, reached over its JSON gateway, so no etcd client is needed."""

from __future__ import annotations

import base64
import json
import urllib.request
from typing import Any

from e2e.controlplane.build import ETCD
from e2e.controlplane.layout import Layout

_TIMEOUT_SECONDS = 10.0


class Etcd:
    """The database of the control plane."""

    def __init__(self, layout: Layout) -> None:
        """Describe the member; nothing runs yet."""
        self.url = f"http://{layout.address('etcd')}"
        peer = f"http://{layout.address('etcd-peer')}"
        self.process = layout.process(
            "etcd",
            [
                ETCD.binary("etcd"),
                "--name=e2e",
                f"--data-dir={layout.data('etcd')}",
                f"--listen-client-urls={self.url}",
                f"--advertise-client-urls={self.url}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=e2e={peer}",
                "--unsafe-no-fsync",  # a test's data need not survive a power cut
                "--log-level=warn",
            ],
            environment={"GOMEMLIMIT": "512MiB"},
        )

    def start(self) -> None:
        """Start and wait until the member serves."""
        self.process.start()
        self.process.wait_ready(self._healthy)

    def compact(self) -> int:
        """Forget all history before the newest revision and return that revision.

        A watch from an older revision then fails, but only once the API server has lost its own watch cache, too.
        """
        revision = int(self._call("/v3/kv/range", {"key": _encoded("/"), "limit": 1})["header"]["revision"])
        self._call("/v3/kv/compaction", {"revision": revision, "physical": True})
        return revision

    def version(self) -> str:
        """Return the version the running server reports."""
        with urllib.request.urlopen(f"{self.url}/version", timeout=_TIMEOUT_SECONDS) as response:
            version: str = json.load(response)["etcdserver"]
        return version

    def _healthy(self) -> bool:
        with urllib.request.urlopen(f"{self.url}/health", timeout=_TIMEOUT_SECONDS) as response:
            return bool(json.load(response)["health"] == "true")

    def _call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(f"{self.url}{path}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
            answer: dict[str, Any] = json.load(response)
        return answer


def _encoded(key: str) -> str:
    return base64.b64encode(key.encode()).decode()
