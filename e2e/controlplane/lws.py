"""The LeaderWorkerSet controller as a plain process, started by the first test that needs it, for the rest of the run.

Its webhooks are those of its module, called by URL instead of through a service. The one for pods sees only pods of
LeaderWorkerSets, as in its own installation, so other tests do not notice when it ends.
"""

from __future__ import annotations

import base64
import fcntl
import socket

import yaml

from e2e.controlplane.api import KubernetesApi
from e2e.controlplane.build import LEADER_WORKER_SET
from e2e.controlplane.kubernetes import is_healthy
from e2e.controlplane.layout import LOOPBACK, Layout

_NAME = "lws-controller"
_PATCHES = {"MutatingWebhookConfiguration": "mutating-patch", "ValidatingWebhookConfiguration": "validating-patch"}


def ensure_leader_worker_sets(layout: Layout, api: KubernetesApi) -> None:
    """Serve LeaderWorkerSets, and start their controller unless it runs. NotBuiltError when it is not built."""
    with (layout.directory / f"{_NAME}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        configuration = layout.directory / f"{_NAME}.yaml"
        process = layout.process(
            _NAME,
            [
                LEADER_WORKER_SET.binary(_NAME),
                f"--config={configuration}",
                f"--kubeconfig={layout.kubeconfig('admin')}",
            ],
        )
        if process.running:
            return
        for definition in sorted(LEADER_WORKER_SET.binary("crds").glob("*.yaml")):
            api.apply_yaml(definition.read_text(encoding="utf-8"))
        api.resource("LeaderWorkerSet")
        configuration.write_text(yaml.safe_dump(_configuration(layout)), encoding="utf-8")
        process.start()
        process.wait_ready(lambda: _serves(layout))
        _register(layout, api)


def _configuration(layout: Layout) -> dict[str, object]:
    certificates = layout.directory / "lws-certs"
    certificates.mkdir(exist_ok=True)
    pair = layout.pair(_NAME)
    for origin, name in ((pair.certificate, "tls.crt"), (pair.key, "tls.key")):
        (certificates / name).write_bytes(origin.read_bytes())
    return {
        "apiVersion": "config.lws.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"host": LOOPBACK, "port": layout.ports["lws-webhook"], "certDir": str(certificates)},
        "health": {"healthProbeBindAddress": layout.address("lws-probe")},
        "metrics": {"bindAddress": "0"},
    }


def _serves(layout: Layout) -> bool:
    if not is_healthy(layout.address("lws-probe"), scheme="http", path="/readyz"):
        return False
    with socket.create_connection((LOOPBACK, layout.ports["lws-webhook"]), timeout=1):
        return True


def _register(layout: Layout, api: KubernetesApi) -> None:
    """Let the API server call the webhooks of the module, with the module's own selector of pods."""
    folder = LEADER_WORKER_SET.binary("webhook")
    authority = base64.b64encode(layout.authority.read_bytes()).decode()
    for item in yaml.safe_load_all((folder / "manifests.yaml").read_text(encoding="utf-8")):
        for change in yaml.safe_load((folder / f"{_PATCHES[item['kind']]}.yaml").read_text(encoding="utf-8")):
            item["webhooks"][int(change["path"].rpartition("/")[2])] = change["value"]
        item["metadata"]["name"] = f"lws-{item['metadata']['name']}"
        for webhook in item["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            url = f"https://{layout.address('lws-webhook')}{path}"
            webhook["clientConfig"] = {"url": url, "caBundle": authority}
        api.apply(item)
