"""Recorded GPU discovery: WVA finds the same capacity by node and product, and the same use by pods.

WVA leaves out nodes that accept no new pods. The recorded nodes have no Ready condition, and the original counts
cordoned nodes, so the tests call the functions that run after the choice of nodes. The API server evaluates selectors:
here the embedded one does.
"""

from __future__ import annotations

import msgspec
import pytest

from tests.golden.vectors import Better, parameters, tally
from wva.api.core import Node, Pod
from wva.collect.inventory import GPU_RESOURCES, NODE_INDEX, node_index, node_pools
from wva.kube.cache import Store
from wva.model.inventory import normalize_accelerator
from wva.sim.apiserver import errors
from wva.sim.apiserver.kinds import KindSpec
from wva.sim.apiserver.selectors import select

REQUESTS = ("container_requests", "init_container_requests")
ASPECT = "gpu_discovery better here"
NODES = KindSpec(group="", version="v1", plural="nodes", kind="Node", namespaced=False)


def wire_pod(row):
    """Return a recorded pod as JSON."""
    containers = [{"resources": {"requests": requests}} for requests in row.get("container_requests", [])]
    init = [{"resources": {"requests": requests}} for requests in row.get("init_container_requests", [])]
    return {
        "metadata": {"name": row["name"], "namespace": row["namespace"]},
        "spec": {"nodeName": row["node"], "containers": containers, "initContainers": init},
        "status": {"phase": row["phase"]},
    }


def wire_node(row):
    """Return a recorded node as JSON."""
    return {
        "metadata": {"name": row["name"], "labels": row["labels"]},
        "status": {"allocatable": row["allocatable"]},
    }


def foreign_vendor(row):
    """Tell whether pods use GPUs that their node does not have; the original counts them as the node's product."""
    labels = {node["name"]: node["labels"] for node in row["nodes"] or []}
    running = (pod for pod in row["pods"] or [] if pod["phase"] not in {"Succeeded", "Failed"})
    for pod in running:
        for requests in (*pod.get("container_requests", []), *pod.get("init_container_requests", [])):
            for resource in GPU_RESOURCES:
                known = labels.get(pod["node"], {})
                if known and requests.get(resource, "0") != "0" and f"{resource}.product" not in known:
                    return Better(
                        "GPUs of a vendor that the node has not are not taken from those that it has",
                        "golden/test_gpu_discovery.py::test_what_the_node_has_not_is_not_taken_from_it",
                    )
    return None


@pytest.mark.parametrize("row", parameters("pipeline", section="gpu_discovery", better=foreign_vendor))
def test_gpus_are_found_like_the_original(row):
    """Capacity and use of GPUs are those of the original; an invalid selector is an error."""
    tally("pipeline", "gpu_discovery").run += 1
    if row["expected_error"]:
        with pytest.raises(errors.ServedError):
            select(NODES, labels=row["env_WVA_NODE_SELECTOR"])
        return
    capacity, usage = found_in(row)
    expected = recorded_capacity(row)
    taken = {}
    for product, count in (row["expected_usage"] or {}).items():
        taken[normalize_accelerator(product)] = taken.get(normalize_accelerator(product), 0) + count
    assert capacity == expected
    assert {name: count for name, count in usage.items() if count} == {name: n for name, n in taken.items() if n}


@pytest.mark.parametrize(
    "row", parameters("pipeline", section="gpu_discovery", better=foreign_vendor, aspect=ASPECT, recorded=False)
)
def test_what_the_node_has_not_is_not_taken_from_it(row):
    """Only pods with GPUs of the node's vendor take any of its recorded capacity."""
    tally("pipeline", ASPECT).run += 1
    capacity, usage = found_in(row)
    assert capacity == recorded_capacity(row)
    ours = {resource for node in row["nodes"] for resource in GPU_RESOURCES if f"{resource}.product" in node["labels"]}
    rows = [{**pod, **{field: own(pod.get(field), ours) for field in REQUESTS}} for pod in row["pods"]]
    assert usage == found_in({**row, "pods": rows})[1]
    recorded = {}
    for product, count in (row["expected_usage"] or {}).items():
        recorded[normalize_accelerator(product)] = recorded.get(normalize_accelerator(product), 0) + count
    assert all(count <= recorded.get(name, 0) for name, count in usage.items())


def own(requests, resources):
    """Return the requests of containers for these resources alone."""
    return [{name: count for name, count in container.items() if name in resources} for container in requests or []]


def recorded_capacity(row):
    """Return GPUs by node and normalized name of the product."""
    return {
        node: {normalize_accelerator(product): found["count"] for product, found in products.items()}
        for node, products in (row["expected_capacity"] or {}).items()
    }


def found_in(row):
    """Return GPUs by node and product, and the used GPUs by product."""
    chosen = select(NODES, labels=row["env_WVA_NODE_SELECTOR"])
    pods = Store()
    pods.add_index(NODE_INDEX, node_index)
    for number, recorded in enumerate(row["pods"]):
        made = wire_pod(recorded | {"name": f"{recorded['name']}-{number}"})
        pods.upsert(msgspec.convert(made, Pod))
    capacity, usage = {}, {}
    for recorded in map(wire_node, row["nodes"] or []):
        if chosen.matches(recorded):
            for pool in node_pools(msgspec.convert(recorded, Node), pods):
                capacity.setdefault(recorded["metadata"]["name"], {})[pool.accelerator] = pool.capacity
                usage[pool.accelerator] = usage.get(pool.accelerator, 0) + pool.used
    return capacity, usage
