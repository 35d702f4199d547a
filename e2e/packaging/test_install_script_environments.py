"""The environments of deploy/install.sh: OpenShift's own monitoring, and a kind cluster with fake GPUs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.packaging.installing import DEPLOY, Machine, ScriptOutcome, node
from wva.model.inventory import normalize_accelerator

USER_MONITORING = "openshift-user-workload-monitoring"
SERVICE_CA = "configmap/openshift-monitoring/openshift-service-ca.crt"
CONFIG_CA = "configmap/openshift-config/openshift-service-ca"
THANOS = "secret/openshift-monitoring/thanos-querier-tls"
PEM = "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n"
THANOS_DATA = (
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCnRoYW5vcwotLS0tLUVORCBDRVJUSUZJQ0FURS0tLS0tCg=="  # the PEM of "thanos"
)
KIND = {"ENVIRONMENT": "kind-emulator"}
NODES = ["kind-wva-gpu-cluster-control-plane", "kind-wva-gpu-cluster-worker", "kind-wva-gpu-cluster-worker2"]
IMAGE = "wva:0.6.0"


def openshift(folder: Path, *authorities: str) -> Machine:
    """Give an OpenShift cluster with some of the places where its authority may be."""
    places = {
        SERVICE_CA: {"data": {"service-ca.crt": PEM.format("first")}},
        CONFIG_CA: {"data": {"service-ca.crt": PEM.format("second")}},
        THANOS: {"data": {"tls.crt": THANOS_DATA}},
    }
    objects: dict[str, Any] = {place: places[place] for place in authorities}
    for kind in ("clusterversions.config.openshift.io", "servicemonitors.monitoring.coreos.com"):
        objects[f"customresourcedefinition//{kind}"] = {}
    objects[f"namespace//{USER_MONITORING}"] = {"status": {"phase": "Active"}, "metadata": {"labels": {}}}
    return Machine(folder, nodes=[node("one", nvidia="NVIDIA-L40S")], objects=objects)


def authority(outcome: ScriptOutcome) -> str:
    """Return the certificate that the controller is given."""
    call = outcome.release("workload-variant-autoscaler")
    return call.files[outcome.values()["wva.prometheus.caCert"]]


@pytest.mark.parametrize(
    ("places", "taken"),
    [((SERVICE_CA, CONFIG_CA, THANOS), "first"), ((CONFIG_CA, THANOS), "second"), ((THANOS,), "thanos")],
)
def test_openshift_looks_for_the_authority_in_order(tmp_path: Path, places: tuple[str, ...], taken: str):
    """The service CA, which lasts, before the certificate of Thanos, which is renewed; no private key is read."""
    outcome = openshift(tmp_path, *places).run(ENVIRONMENT="openshift", IMG="registry.example/wva:1.2")
    assert outcome.code == 0, outcome.err
    assert authority(outcome) == PEM.format(taken)
    assert "tls.key" not in "".join(map(str, outcome.calls))


def test_openshift_without_any_authority_says_where_it_looked(tmp_path: Path):
    """The error names all three places."""
    outcome = openshift(tmp_path).run(ENVIRONMENT="openshift", IMG="registry.example/wva:1.2")
    assert outcome.code == 1
    for place in ("openshift-service-ca.crt", "openshift-config/openshift-service-ca", "thanos-querier-tls"):
        assert place in outcome.err
    assert not outcome.beginning("helm upgrade")


def test_openshift_uses_its_own_monitoring(tmp_path: Path):
    """Thanos over verified TLS, namespaces that it scrapes, an adapter with a token and without user ids."""
    outcome = openshift(tmp_path, SERVICE_CA).run(ENVIRONMENT="openshift", IMG="registry.example/wva:1.2")
    assert outcome.code == 0, outcome.err
    assert not outcome.beginning("helm upgrade --install kube-prometheus-stack")
    given = outcome.values()
    assert given["wva.prometheus.baseURL"] == "https://thanos-querier.openshift-monitoring.svc.cluster.local:9091"
    assert given["wva.prometheus.serviceAccountName"] == "prometheus-adapter"
    assert "wva.prometheus.tls.insecureSkipVerify" not in given
    labelled = {
        call.words[2] for call in outcome.beginning("kubectl label namespace") if "user-monitoring" in str(call)
    }
    assert labelled == {"workload-variant-autoscaler-system", "llm-d-inference-scheduler"}
    adapter = outcome.release("prometheus-adapter").words
    values = DEPLOY / "samples" / "prometheus-adapter-values-openshift.yaml"
    assert adapter[adapter.index("--values") + 1] == str(values)
    [manifest] = [json.loads(call.stdin) for call in outcome.beginning("kubectl apply --filename")]
    [(key, certificate)] = manifest["data"].items()
    assert certificate == PEM.format("first")
    arguments = yaml.safe_load(values.read_text(encoding="utf-8"))["extraArguments"]
    assert f"--prometheus-ca-file=/etc/prometheus-ca/{key}" in arguments
    assert adapter[adapter.index("--namespace") + 1] == USER_MONITORING
    assert outcome.values("prometheus-adapter")["prometheus.port"] == "9091"


def test_a_label_that_says_otherwise_is_kept(tmp_path: Path):
    """The script keeps a label that switches scraping off in a namespace, and warns of it."""
    machine = openshift(tmp_path, SERVICE_CA)
    objects = machine.world["objects"]
    labels = {"openshift.io/user-monitoring": "false"}
    objects["namespace//llm-d-inference-scheduler"] = {"status": {"phase": "Active"}, "metadata": {"labels": labels}}
    machine.change(objects=objects)
    outcome = machine.run(ENVIRONMENT="openshift", IMG="registry.example/wva:1.2")
    assert outcome.code == 0, outcome.err
    assert "llm-d-inference-scheduler has openshift.io/user-monitoring=false, not true: it is left so" in outcome.err


def test_openshift_is_recognised_and_what_it_lacks_is_named(tmp_path: Path):
    """The script changes nothing on another kind of cluster, or without monitoring of user workloads."""
    outcome = Machine(tmp_path).run(ENVIRONMENT="openshift", IMG="registry.example/wva:1.2")
    assert (outcome.code, outcome.writes) == (1, [])
    assert "OpenShift: this cluster serves no config.openshift.io" in outcome.err
    assert "set enableUserWorkload: true" in outcome.err


def test_openshift_gets_no_second_prometheus(tmp_path: Path):
    """The script refuses a request for its own Prometheus on OpenShift."""
    outcome = openshift(tmp_path).run(ENVIRONMENT="openshift", IMG="registry.example/wva:1.2", DEPLOY_PROMETHEUS="true")
    assert (outcome.code, outcome.calls) == (1, [])
    assert "DEPLOY_PROMETHEUS=true: OpenShift has its own Prometheus" in outcome.err


@pytest.fixture(name="kind", scope="module")
def _kind(tmp_path_factory: pytest.TempPathFactory) -> tuple[ScriptOutcome, ScriptOutcome, Machine]:
    """Install into a kind cluster that is not there yet, and once more."""
    nodes = [{"metadata": {"name": name, "labels": {}}, "spec": {}} for name in NODES]
    nodes[0]["spec"]["taints"] = [{"key": "node-role.kubernetes.io/control-plane"}]
    machine = Machine(tmp_path_factory.mktemp("kind"), nodes=nodes, images=[IMAGE])
    first = machine.run(CLUSTER_TYPE="kind", DECODE_REPLICAS="2", VLLM_MAX_NUM_SEQS="8")
    return first, machine.run(**KIND, DECODE_REPLICAS="2", VLLM_MAX_NUM_SEQS="8"), machine


def test_kind_makes_a_cluster_with_gpus(kind: tuple[ScriptOutcome, ScriptOutcome, Machine]):
    """Three nodes of which each has four GPUs of another vendor, with the gate that lets an HPA go to zero."""
    first, _, _ = kind
    assert first.code == 0, first.err
    [create] = first.beginning("kind create cluster")
    assert yaml.safe_load(create.stdin) == {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "featureGates": {"HPAScaleToZero": True},
        "nodes": [{"role": "control-plane"}, {"role": "worker"}, {"role": "worker"}],
    }
    assert "kindest/node:v1.32.0" in create.argv
    assert first.beginning("kubectl taint nodes --all node-role.kubernetes.io/control-plane-")
    patches = {call.words[2]: json.loads(call.words[-1]) for call in first.beginning("kubectl patch node")}
    vendors = ("nvidia", "amd", "intel")
    for name, own in zip(NODES, vendors, strict=True):
        amounts = {f"{vendor}.com/gpu": "4" if vendor == own else None for vendor in vendors}
        assert patches.pop(name) == {"status": {"capacity": amounts, "allocatable": amounts}}
    assert not patches


def test_kind_touches_its_own_cluster_only(kind: tuple[ScriptOutcome, ScriptOutcome, Machine]):
    """Each call names the context of the kind cluster, so kubectl's current context does not matter."""
    first, second, _ = kind
    calls = [call for call in [*first.calls, *second.calls] if call.tool in {"kubectl", "helm"}]
    assert {tuple(call.argv[:2]) for call in calls if call.words[0] != "version"} == {
        ("--context", "kind-kind-wva-gpu-cluster"),
        ("--kube-context", "kind-kind-wva-gpu-cluster"),
    }


def test_kind_gets_the_image_and_an_emulated_model_server(kind: tuple[ScriptOutcome, ScriptOutcome, Machine]):
    """The controller's own image serves as vLLM, where the variant, its Service and its accelerator expect it."""
    first, _, _ = kind
    assert first.beginning("docker save --output")[0].words[-1] == IMAGE
    assert first.beginning("kind load image-archive")
    [manifest] = [yaml.safe_load(call.stdin) for call in first.beginning("kubectl apply") if "emulator" in call.stdin]
    assert (manifest["metadata"]["name"], manifest["metadata"]["namespace"]) == (
        "ms-sim-llm-d-modelservice-decode",
        "llm-d-sim",
    )
    assert "replicas" not in manifest["spec"]
    template = manifest["spec"]["template"]
    [container] = template["spec"]["containers"]
    assert container["image"] == IMAGE
    assert container["args"] == [
        "emulator", "--model=unsloth/Meta-Llama-3.1-8B", "--accelerator=A100", "--host=0.0.0.0", "--port=8200",
        "--startup=15s", "--max-num-seqs=8",
    ]  # fmt: skip
    assert template["metadata"]["labels"]["llm-d.ai/model"] == "ms-sim-llm-d-modelservice"
    assert template["spec"]["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-A100-PCIE-80GB"}
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 1}
    given = first.values()
    assert (given["llmd.modelName"], given["llmd.modelID"]) == (
        "ms-sim-llm-d-modelservice",
        "unsloth/Meta-Llama-3.1-8B",
    )
    assert (given["va.accelerator"], given["va.sloTpot"], given["va.sloTtft"]) == ("A100", "24", "500")
    assert (given["wva.image.repository"], given["wva.image.tag"]) == ("wva", "0.6.0")


def test_kind_again_makes_no_second_cluster_and_resets_no_replicas(kind: tuple[ScriptOutcome, ScriptOutcome, Machine]):
    """The script sets the first number of replicas once. Later runs leave the replicas to the scaler."""
    first, second, machine = kind
    assert second.code == 0, second.err
    assert [call.words[-1] for call in first.beginning("kubectl scale deployment")] == ["2"]
    assert not second.beginning("kubectl scale deployment")
    assert not second.beginning("kind create")
    assert machine.world["clusters"] == ["kind-wva-gpu-cluster"]


def test_kind_dry_without_a_cluster_shows_what_it_would_make(tmp_path: Path):
    """The dry run sends no request to the missing cluster and creates nothing."""
    outcome = Machine(tmp_path, images=[IMAGE], reachable=False).run("--dry-run", **KIND)
    assert outcome.code == 0, outcome.err
    assert outcome.writes == []
    assert "would run: kind create cluster --name kind-wva-gpu-cluster" in outcome.out
    assert "would run: helm --kube-context kind-kind-wva-gpu-cluster upgrade" in outcome.out


def test_kind_without_the_image_says_how_to_get_it(tmp_path: Path):
    """The script says so before it creates a cluster."""
    outcome = Machine(tmp_path).run(**KIND)
    assert (outcome.code, outcome.writes) == (1, [])
    assert "the image wva:0.6.0: docker does not have it; build it (docs/image.md) or give IMG" in outcome.err


def test_kind_with_an_accelerator_that_no_node_has_is_refused(tmp_path: Path):
    """The script refuses such an accelerator, because the pods would wait for a node for ever."""
    outcome = Machine(tmp_path, images=[IMAGE], clusters=["kind-wva-gpu-cluster"]).run(**KIND, ACCELERATOR_TYPE="H100")
    assert outcome.code == 1
    assert "ACCELERATOR_TYPE=H100: no node of CLUSTER_GPU_TYPE=mix has it" in outcome.err


def test_kind_is_removed_with_its_cluster_when_asked(
    kind: tuple[ScriptOutcome, ScriptOutcome, Machine], tmp_path: Path
):
    """The script deletes the model server, and the cluster only with DELETE_CLUSTER and in this environment."""
    machine = Machine(tmp_path / "kind", **kind[2].world)
    outcome = machine.run("-u", **KIND, DELETE_CLUSTER="true")
    assert outcome.code == 0, outcome.err
    assert outcome.beginning("kubectl delete deployment ms-sim-llm-d-modelservice-decode")
    assert machine.world["clusters"] == []
    other = Machine(tmp_path / "other").run("-u", DELETE_CLUSTER="true")
    assert "DELETE_CLUSTER=true has no effect" in other.err


@pytest.mark.parametrize(
    ("type_", "products", "marks"),
    [
        ("mix", ["NVIDIA-A100-PCIE-80GB", "AMD-MI300X-192G", "Intel-Gaudi-2-96GB"], []),
        (
            "nvidia-mix",
            ["NVIDIA-H100-SXM5-80GB", "NVIDIA-A100-PCIE-80GB", "AMD-MI300X-192G"],
            ["4H100", "4A100", "4MI300X"],
        ),
        (
            "amd-mix",
            ["AMD-MI300X-192G", "AMD-MI250-128G", "NVIDIA-A100-PCIE-80GB"],
            ["4MI300X", "4MI250", "4A100"],
        ),
        ("intel", ["Intel-Gaudi-3-128GB"] * 3, []),
    ],
)
def test_setup_labels_nodes_by_type(tmp_path: Path, type_: str, products: list[str], marks: list[str]):
    """The script labels nodes in the order of their names, as GPU operators do. It also repairs an existing cluster."""
    nodes = [{"metadata": {"name": name, "labels": {}}, "spec": {}} for name in reversed(NODES)]
    machine = Machine(tmp_path, nodes=nodes, clusters=["mine"])
    outcome = machine.run(
        "-c", "mine", "-t", type_, "-g", "4", "-d", "Intel-Gaudi-3-128GB", "-m", "1", script="kind-emulator/setup.sh"
    )
    assert outcome.code == 0, outcome.err
    assert not outcome.beginning("kind create")
    labels = [call.words[4:] for call in outcome.beginning("kubectl label node")]
    assert [call.words[2] for call in outcome.beginning("kubectl label node")] == NODES
    assert [found[1].partition("=")[2] for found in labels] == products
    assert [found[0].partition("=")[2] for found in labels] == ["4", "4", "4"]
    assert [found[3] for found in labels] == ([f"gpu-config={mark}" for mark in marks] or ["gpu-config-"] * 3)
    for found in labels:  # the script removes labels of an earlier type
        others = {"nvidia.com", "amd.com", "intel.com"} - {found[0].partition("/")[0]}
        assert set(found[4:]) == {f"{other}/gpu.{name}-" for other in others for name in ("count", "product", "memory")}
    assert all(mark[1:] == normalize_accelerator(product) for mark, product in zip(marks, products, strict=False))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-t", "tpu"], "-t tpu: expected mix, nvidia-mix"),
        (["-n", "0"], "-n 0: expected at least 1"),
        (["-g"], "-g needs a value"),
        (["--what"], "unknown option --what"),
    ],
)
def test_setup_refuses_what_it_does_not_know(tmp_path: Path, options: list[str], message: str):
    """The error has the option, the value and the expected form. The script creates no cluster."""
    outcome = Machine(tmp_path).run(*options, script="kind-emulator/setup.sh")
    assert (outcome.code, outcome.writes) == (1, [])
    assert f"ERROR: {message}" in outcome.err


def test_setup_without_the_gate(tmp_path: Path):
    """Without the feature gate, as on most clusters, an HPA keeps at least one replica."""
    outcome = Machine(tmp_path).run("--dry-run", script="kind-emulator/setup.sh", ENABLE_SCALE_TO_ZERO="false")
    assert outcome.code == 0, outcome.err
    assert "featureGates" not in outcome.out
    assert outcome.writes == []


def test_teardown_deletes_one_cluster_and_may_be_repeated(tmp_path: Path):
    """The script deletes the cluster of its name. A missing cluster is no error."""
    machine = Machine(tmp_path, clusters=["mine", "other"])
    assert machine.run("mine", script="kind-emulator/teardown.sh").writes == ["kind delete cluster --name mine"]
    again = machine.run(script="kind-emulator/teardown.sh", KIND_NAME="mine")
    assert (again.code, again.writes, again.out) == (0, [], "there is no cluster mine\n")
    assert machine.world["clusters"] == ["other"]
