"""Tests of the control plane itself, on which the other end-to-end tests run."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from e2e.controlplane.api import Body, KubernetesApi, RefusedRequestError
from e2e.controlplane.build import pinned_versions
from e2e.controlplane.cluster import ClusterAccess, ControlPlane
from e2e.controlplane.keda import EXTERNAL_METRICS, is_available
from e2e.controlplane.kubeconfig import read_kubeconfig
from e2e.controlplane.kubelet import LOADING, NEVER
from e2e.controlplane.nodes import GPU, POOL, NodePool
from e2e.controlplane.polling import eventually
from e2e.controlplane.processes import ServerProcess, start_ticks
from e2e.controlplane.prometheus import ScrapeJob
from e2e.scrape_target import scrape_target

ROOT = Path(__file__).parent.parent


def deployment(name: str, *, namespace: str, replicas: int, loading: str | None = None, gpus: int = 1) -> Body:
    """Describe a Deployment of pods with ``gpus`` GPUs each."""
    labels = {"app": name}
    resources = {"requests": {GPU: str(gpus)}, "limits": {GPU: str(gpus)}}
    container = {"name": "vllm", "image": "vllm", "resources": resources}
    metadata = {"labels": labels, "annotations": {LOADING: loading} if loading else {}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": metadata, "spec": {"containers": [container]}},
        },
    }


def ready_replicas(item: Body) -> int:
    """Return how many replicas a Deployment's status counts as ready."""
    return int(item["status"].get("readyReplicas", 0))


def test_servers_are_the_pinned_ones(own_control_plane: ControlPlane):
    """Every running server reports the version that the go.mod files pin."""
    assert own_control_plane.versions() == pinned_versions()


def test_nodes_are_ready_and_offer_gpus(own_control_plane: ControlPlane):
    """Nodes are Ready, untainted, and carry product labels and allocatable GPUs."""
    nodes = own_control_plane.api.list("Node", labels=f"{GPU}.product=NVIDIA-H100-80GB-HBM3")
    assert len(nodes) == 4
    for node in nodes:
        assert node["status"]["allocatable"][GPU] == "8"
        assert "taints" not in node["spec"]
        assert {"type": "Ready", "status": "True"}.items() <= node["status"]["conditions"][0].items()


def test_deployment_with_gpus_becomes_ready(control_plane: ClusterAccess, namespace: str):
    """Pods asking for GPUs are scheduled, run at once without being ready, and are ready after the loading time."""
    api = control_plane.api
    api.apply(deployment("fast", namespace=namespace, replicas=2))
    running = eventually(
        lambda: [pod for pod in api.list("Pod", namespace=namespace) if pod["status"].get("podIP")],
        timeout_seconds=10,
        what="running pods",
    )
    conditions = {condition["type"]: condition["status"] for condition in running[0]["status"]["conditions"]}
    assert conditions["PodScheduled"] == "True"
    assert conditions["Ready"] == "False"
    api.wait("Deployment", "fast", lambda item: ready_replicas(item) == 2, namespace=namespace, timeout_seconds=15)


def test_pods_that_never_become_ready(control_plane: ClusterAccess, namespace: str):
    """A pod annotated with ``never`` stays unready beside a ready one, until its annotation changes."""
    api = control_plane.api
    api.apply(deployment("stuck", namespace=namespace, replicas=1, loading=NEVER))
    api.apply(deployment("quick", namespace=namespace, replicas=1, loading="500ms"))
    api.wait("Deployment", "quick", ready_replicas, namespace=namespace, timeout_seconds=15)
    time.sleep(4.5)  # longer than the default loading time
    assert ready_replicas(api.get("Deployment", "stuck", namespace=namespace)) == 0
    (pod,) = api.list("Pod", namespace=namespace, labels="app=stuck")
    api.patch("Pod", pod["metadata"]["name"], {"metadata": {"annotations": {LOADING: "100ms"}}}, namespace=namespace)
    api.wait("Deployment", "stuck", ready_replicas, namespace=namespace, timeout_seconds=15)


def test_scale_subresource_and_deletion(control_plane: ClusterAccess, namespace: str):
    """Scaling to zero through the scale subresource removes the pods."""
    api = control_plane.api
    api.apply(deployment("shrinking", namespace=namespace, replicas=2, loading="100ms"))
    api.wait("Deployment", "shrinking", lambda item: ready_replicas(item) == 2, namespace=namespace, timeout_seconds=15)
    api.scale("Deployment", "shrinking", 0, namespace=namespace)
    eventually(lambda: not api.list("Pod", namespace=namespace), timeout_seconds=15, what="no pods")


def test_many_pods_become_ready(control_plane: ClusterAccess, namespace: str):
    """A hundred pods become Ready, each with an address of its own."""
    api = control_plane.api
    api.apply(deployment("many", namespace=namespace, replicas=100, loading="100ms", gpus=0))
    api.wait("Deployment", "many", lambda item: ready_replicas(item) == 100, namespace=namespace, timeout_seconds=30)
    assert len({pod["status"]["podIP"] for pod in api.list("Pod", namespace=namespace)}) == 100


def test_external_metrics_api_is_available(own_control_plane: ControlPlane):
    """The API server reaches KEDA's adapter through the ExternalName service."""
    assert is_available(own_control_plane.api.get("APIService", EXTERNAL_METRICS))
    assert own_control_plane.api.raw("/apis/external.metrics.k8s.io/v1beta1")["groupVersion"]


def test_keda_drives_replicas_from_a_metric(own_control_plane: ControlPlane, namespace: str):
    """A ScaledObject with a Prometheus trigger moves spec.replicas up, down and to zero with the metric."""
    api = own_control_plane.api
    api.apply(deployment("scaled", namespace=namespace, replicas=1, loading="100ms"))
    with scrape_target() as target:
        target.text = f'wanted_replicas{{ns="{namespace}"}} 3\n'
        with own_control_plane.scraping(ScrapeJob(name=namespace, targets=[target.address])):
            api.apply(scaled_object("scaled", namespace=namespace, url=own_control_plane.prometheus_api.url))
            for wanted in (3, 1, 0):
                target.text = f'wanted_replicas{{ns="{namespace}"}} {wanted}\n'
                api.wait(
                    "Deployment",
                    "scaled",
                    lambda item, wanted=wanted: item["spec"]["replicas"] == wanted,
                    namespace=namespace,
                    timeout_seconds=60,
                )


def scaled_object(name: str, *, namespace: str, url: str) -> Body:
    """Describe a ScaledObject without stabilization that follows ``wanted_replicas`` of its namespace."""
    at_once = {"stabilizationWindowSeconds": 0, "policies": [{"type": "Percent", "value": 100, "periodSeconds": 5}]}
    trigger = {
        "serverAddress": url,
        "query": f'wanted_replicas{{ns="{namespace}"}}',
        "threshold": "1",
        "activationThreshold": "0",
    }
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "scaleTargetRef": {"name": name},
            "minReplicaCount": 0,
            "maxReplicaCount": 10,
            "pollingInterval": 3,
            "cooldownPeriod": 3,
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": {"scaleDown": at_once}}},
            "triggers": [{"type": "prometheus", "metricType": "AverageValue", "metadata": trigger}],
        },
    }


def test_prometheus_answers_over_https_with_target_labels(own_control_plane: ControlPlane, namespace: str):
    """A job's labels win, unless labels are honoured. Prometheus renames the metric's own to ``exported_namespace``."""
    with scrape_target() as target:
        target.text = 'probe_metric{namespace="of-the-metric"} 7\n'
        job = ScrapeJob(name=namespace, targets=[target.address], labels={"namespace": namespace})
        with own_control_plane.scraping(job):
            (sample,) = eventually(
                lambda: own_control_plane.prometheus_api.query(f'probe_metric{{namespace="{namespace}"}}'),
                timeout_seconds=15,
            )
    assert own_control_plane.prometheus_api.url.startswith("https://")
    assert sample.value == 7
    assert sample.labels["exported_namespace"] == "of-the-metric"


def test_service_account_token_works_under_rbac(control_plane: ClusterAccess, namespace: str):
    """A kubeconfig from the TokenRequest API may do what its Role allows, and nothing else."""
    api = control_plane.api
    api.apply_yaml(_READER, namespace=namespace)
    kubeconfig = control_plane.kubeconfig_for_service_account(namespace, "reader")
    endpoint, tls, token = read_kubeconfig(kubeconfig)
    reader = KubernetesApi(endpoint.server, tls, token=token)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    eventually(lambda: _allowed(reader, pods), timeout_seconds=10, what="role in effect")
    with pytest.raises(RefusedRequestError) as refused:
        reader.raw(f"/api/v1/namespaces/{namespace}/secrets")
    assert refused.value.status == 403


_READER = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects:
- {kind: ServiceAccount, name: reader}
"""


def _allowed(api: KubernetesApi, path: str) -> bool:
    try:
        api.raw(path)
    except RefusedRequestError as error:
        if error.status == 403:
            return False
        raise
    return True


@pytest.mark.disruptive
def test_restart_and_compaction_give_a_real_410(own_control_plane: ControlPlane, namespace: str):
    """A watch from before a compaction and a restart of the API server gets 410 Expired. No stored object is lost."""
    api = own_control_plane.api
    old = api.listing("ConfigMap", namespace=namespace)["metadata"]["resourceVersion"]
    for index in range(3):
        api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{index}", "namespace": namespace}})
    compacted = own_control_plane.compact_etcd()
    assert compacted > int(old)
    own_control_plane.restart_apiserver()
    event = json.loads(
        api.request("GET", f"/api/v1/namespaces/{namespace}/configmaps?watch=1&timeoutSeconds=5&resourceVersion={old}")
    )
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    assert (
        len([item for item in api.list("ConfigMap", namespace=namespace) if item["metadata"]["name"] in "c0c1c2"]) == 3
    )


def bound_pod(name: str, *, namespace: str, node: str) -> Body:
    """Describe a pod that needs no scheduler."""
    metadata = {"name": name, "namespace": namespace, "annotations": {LOADING: "100ms"}}
    spec = {"nodeName": node, "containers": [{"name": "vllm", "image": "vllm"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def is_ready(item: Body) -> bool:
    """Return whether a pod or a node is Ready."""
    conditions = item.get("status", {}).get("conditions", ())
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def taints(node: Body) -> list[str]:
    """Return the keys of a node's taints."""
    return [taint["key"] for taint in node["spec"].get("taints", ())]


@pytest.mark.disruptive
def test_kubelet_outlives_a_restart_of_the_api_server(own_control_plane: ControlPlane, namespace: str):
    """The same kubelet process goes on after its back-off: pods bound after the restart become ready."""
    plane, api = own_control_plane, own_control_plane.api
    kubelet = plane.kubelet.pid
    plane.stop_apiserver()
    try:
        time.sleep(5)  # it tries, and fails, more than once
        plane.apiserver.start()
        api.create(bound_pod("after", namespace=namespace, node=api.list("Node")[0]["metadata"]["name"]))
        api.wait("Pod", "after", is_ready, namespace=namespace, timeout_seconds=45)
        assert plane.kubelet.running
        assert plane.kubelet.pid == kubelet
    finally:
        plane.restart_players()


@pytest.mark.disruptive
def test_kubelet_finds_what_happened_while_it_was_away(own_control_plane: ControlPlane, namespace: str):
    """A restarted kubelet makes new nodes and pods ready. Pods deleted while it was stopped disappear."""
    plane, api = own_control_plane, own_control_plane.api
    (old,) = plane.create_nodes(NodePool(product="NVIDIA-L4", nodes=1, reserved=f"{namespace}-old"))
    api.create(bound_pod("going", namespace=namespace, node=old))
    api.wait("Pod", "going", is_ready, namespace=namespace, timeout_seconds=15)
    plane.kubelet.stop()
    (new,) = plane.create_nodes(NodePool(product="NVIDIA-L4", nodes=1, reserved=f"{namespace}-new"))
    try:
        api.create(bound_pod("coming", namespace=namespace, node=new))
        api.delete("Pod", "going", namespace=namespace)
        assert "node.kubernetes.io/not-ready" in taints(api.get("Node", new))
        assert api.get("Pod", "going", namespace=namespace)["metadata"]["deletionTimestamp"]
    finally:
        plane.kubelet.start()
    api.wait("Node", new, lambda item: is_ready(item) and taints(item) == [POOL], timeout_seconds=15)
    api.wait("Pod", "coming", is_ready, namespace=namespace, timeout_seconds=15)
    eventually(lambda: api.find("Pod", "going", namespace=namespace) is None, timeout_seconds=15, what="pod gone")
    for name in (old, new):
        api.delete("Node", name)


@pytest.mark.disruptive
def test_prometheus_keeps_data_and_port_over_a_stop(own_control_plane: ControlPlane, namespace: str):
    """After stop and start, Prometheus is at the same address, still knows old samples and scrapes on."""
    prometheus = own_control_plane.prometheus_api
    with scrape_target() as target:
        target.text = f'kept_metric{{ns="{namespace}"}} 1\n'
        expression = f'kept_metric{{ns="{namespace}"}}'
        with own_control_plane.scraping(ScrapeJob(name=namespace, targets=[target.address])):
            eventually(lambda: prometheus.query(expression), timeout_seconds=15)
            own_control_plane.stop_prometheus()
            assert not prometheus.is_ready()
            own_control_plane.start_prometheus()
            assert prometheus.query(f"last_over_time({expression}[5m])")
            target.text = f'kept_metric{{ns="{namespace}"}} 2\n'
            eventually(lambda: [s for s in prometheus.query(expression) if s.value == 2], timeout_seconds=15)


@pytest.mark.disruptive
def test_paused_apiserver_says_nothing_until_resumed(own_control_plane: ControlPlane):
    """A paused server keeps its sockets and does not answer. A resumed server goes on as the same process."""
    server = own_control_plane.apiserver.process
    pid = server.pid
    server.pause()
    try:
        address = own_control_plane.layout.address("kube-apiserver")
        connection = http.client.HTTPSConnection(address, timeout=1, context=own_control_plane.endpoint.context())
        with pytest.raises(TimeoutError):
            connection.request("GET", "/readyz")
        connection.close()
    finally:
        server.resume()
    own_control_plane.apiserver.wait_ready()
    assert server.pid == pid


def test_stop_kills_what_ignores_the_request(tmp_path: Path):
    """A process that ignores SIGTERM is killed after the grace time, and its log stays readable."""
    code = (
        "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    process = ServerProcess("deaf", directory=tmp_path, argv=[sys.executable, "-c", code])
    process.start()
    process.wait_ready(lambda: "deaf" in process.tail(), timeout_seconds=10)
    pid = process.pid
    assert pid is not None
    process.stop(grace_seconds=0.2)
    assert not process.running
    assert start_ticks(pid) is None


@pytest.mark.parametrize("started", [True, False])
def test_killed_run_leaves_no_server_behind(own_control_plane: ControlPlane, tmp_path: Path, *, started: bool):
    """When the only user of a control plane is killed, the watchdog stops every server and removes the folder.

    It does so, too, when the user is killed while the servers start.
    """
    del own_control_plane  # only so that this test is skipped where no control plane can be built
    root = tmp_path / "other"
    folder = root / "run" / "processes"
    with subprocess.Popen(
        [sys.executable, "-m", "e2e.controlplane", root], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        try:
            if started:
                assert "started in" in run.stdout.readline()
            else:
                eventually(lambda: list(folder.glob("etcd*.json")), timeout_seconds=20, what="etcd starts")
            os.kill(run.pid, signal.SIGSTOP)
            records = [json.loads(path.read_text()) for path in folder.glob("*.json")]
        finally:
            run.kill()
    assert len(records) >= (9 if started else 2)
    eventually(
        lambda: (
            not any(start_ticks(record["pid"]) == record["start_ticks"] for record in records) and not root.exists()
        ),
        timeout_seconds=20,
        what="all servers gone",
    )
