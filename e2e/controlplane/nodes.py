"""The nodes of the cluster: each has GPUs of one product, for all tests or for one test."""

from __future__ import annotations

from dataclasses import dataclass

from e2e.controlplane.api import Body, KubernetesApi

POOL = "e2e.llmd.ai/pool"  # label and taint of the nodes of a reserved pool
GPU = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePool:
    """Equal nodes of one GPU product.

    ``reserved`` names a pool whose nodes run only pods that select it. It is empty for nodes that any pod may use.
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


def create_nodes(api: KubernetesApi, pool: NodePool) -> list[str]:
    """Create the nodes of a pool and return their names. The kubelet makes them Ready."""
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
