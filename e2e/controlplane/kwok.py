"""kwok: nodes with GPUs and the life of pods, without a kubelet.

A pod that is bound to a node runs at once, but is not ready until its model is "loaded". How long that takes is said
by an annotation of the pod: a duration like ``30s``, or ``never``; without it, 2 to 4 seconds. Changing the
annotation of a living pod takes effect, so a test may let a stuck pod become ready in the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from e2e.controlplane.api import Api, Body
from e2e.controlplane.build import KWOK
from e2e.controlplane.layout import LOOPBACK, Layout
from e2e.controlplane.processes import Process

LOADING = "e2e.llmd.ai/loading"  # pod annotation: 30s, 500ms, never
NEVER = "never"
POD_IP = "e2e.llmd.ai/pod-ip"  # pod annotation: an address in 127.0.0.0/8 for a pod that a test answers for
POOL = "e2e.llmd.ai/pool"  # label and taint of the nodes of a reserved pool
GPU = "nvidia.com/gpu"

_STAGES = Path(__file__).parent / "kwok-stages.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePool:
    """Equal nodes of one GPU product.

    ``reserved`` names a pool that nobody's pods come to unless they select it; empty for nodes that are everybody's.
    """

    product: str
    nodes: int
    gpus: int = 8
    memory_mebibytes: int = 81559
    reserved: str = ""


DEFAULT_POOLS = (
    NodePool(product="NVIDIA-H100-80GB-HBM3", nodes=4),
    NodePool(product="NVIDIA-A100-PCIE-80GB", nodes=4, memory_mebibytes=81920),
    NodePool(product="NVIDIA-L40S", nodes=2, memory_mebibytes=46068),
)


def kwok(layout: Layout) -> Process:
    """Describe kwok, which plays all nodes and pods of the cluster."""
    return layout.process(
        "kwok",
        [
            KWOK.binary("kwok"),
            f"--kubeconfig={layout.kubeconfig('kwok')}",
            f"--config={_STAGES}",
            "--manage-all-nodes=true",
            "--cidr=10.128.0.1/16",
            f"--node-ip={LOOPBACK}",
            f"--node-port={layout.ports['kwok']}",
            f"--server-address={layout.address('kwok')}",
            "--node-lease-duration-seconds=0",  # nobody watches the nodes' heartbeats here
            "--v=WARN",
        ],
        environment={"GOMEMLIMIT": "256MiB"},
    )


def create_nodes(api: Api, pool: NodePool) -> list[str]:
    """Create the nodes of a pool and return their names."""
    prefix = pool.reserved or pool.product.lower()
    nodes = [_node(f"{prefix}-{index}", pool) for index in range(pool.nodes)]
    return [api.create(node)["metadata"]["name"] for node in nodes]


def _node(name: str, pool: NodePool) -> Body:
    resources = {"cpu": "128", "memory": "2Ti", "pods": "1k", GPU: str(pool.gpus)}
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        f"{GPU}.product": pool.product,
        f"{GPU}.count": str(pool.gpus),
        f"{GPU}.memory": str(pool.memory_mebibytes),
    }
    taints = []
    if pool.reserved:
        labels[POOL] = pool.reserved
        taints = [{"key": POOL, "value": pool.reserved, "effect": "NoSchedule"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
        "status": {"allocatable": resources, "capacity": resources},
    }
