"""deploy/install.sh: the order of its steps, the inputs that it refuses, and the objects that it leaves unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from e2e.packaging import chart
from e2e.packaging.installing import DEPLOY, Machine, ScriptOutcome, node
from e2e.packaging.recorded_tool import CERTIFICATE

CHART = DEPLOY.parent / "charts" / "workload-variant-autoscaler"
MONITORING = "workload-variant-autoscaler-monitoring"
SYSTEM = "workload-variant-autoscaler-system"
H100 = node("one", nvidia="NVIDIA-H100-80GB-HBM3")
IMAGE = "registry.example.org:5000/wva:1.2"
QUIET = {"SKIP_CHECKS": "true", "DEPLOY_PROMETHEUS": "false", "DEPLOY_PROMETHEUS_ADAPTER": "false"}
URL = "https://HOST or https://HOST:PORT, without user, path or query (the value is not shown)"
SECRET = f"secret/{MONITORING}/prometheus-web-tls"


@pytest.fixture(name="machine")
def _machine(tmp_path: Path) -> Machine:
    """Give a machine with all tools and an empty cluster."""
    return Machine(tmp_path, nodes=[H100])


@pytest.fixture(name="twice", scope="module")
def _twice(tmp_path_factory: pytest.TempPathFactory) -> tuple[ScriptOutcome, ScriptOutcome, Machine]:
    """Install into an empty cluster, and once more."""
    machine = Machine(tmp_path_factory.mktemp("twice"), nodes=[H100])
    first = machine.run(IMG=IMAGE, HF_TOKEN="hf_secret")
    return first, machine.run(IMG=IMAGE), machine


def test_an_installation_in_order(twice: tuple[ScriptOutcome, ScriptOutcome, Machine]):
    """The order is: namespaces, Prometheus with its certificate, the definition, the release, a wait, the adapter."""
    first, _, _ = twice
    assert first.code == 0, first.err
    assert [" ".join(call.split()[:4]) for call in first.writes] == [
        f"kubectl create namespace {SYSTEM}",
        f"kubectl label namespace {SYSTEM}",
        "kubectl create namespace llm-d-inference-scheduler",
        "kubectl label namespace llm-d-inference-scheduler",
        f"kubectl create namespace {MONITORING}",
        f"kubectl label namespace {MONITORING}",
        "openssl req -x509 -newkey",
        "kubectl create secret tls",
        "kubectl label secret prometheus-web-tls",
        "helm upgrade --install kube-prometheus-stack",
        "kubectl apply --server-side --force-conflicts",
        "helm upgrade --install workload-variant-autoscaler",
        "kubectl rollout status deployment",
        "kubectl apply --filename -",
        "helm upgrade --install prometheus-adapter",
    ]


def test_a_second_run_creates_nothing(twice: tuple[ScriptOutcome, ScriptOutcome, Machine]):
    """A second run keeps all objects, above all the certificate, and upgrades the releases to the same state."""
    first, second, machine = twice
    assert second.code == 0, second.err
    assert [" ".join(call.split()[:4]) for call in second.writes] == [
        "helm upgrade --install kube-prometheus-stack",
        "kubectl apply --server-side --force-conflicts",
        "helm upgrade --install workload-variant-autoscaler",
        "kubectl rollout status deployment",
        "kubectl apply --filename -",
        "helm upgrade --install prometheus-adapter",
    ]
    assert second.values() | {"wva.prometheus.caCert": ""} == first.values() | {"wva.prometheus.caCert": ""}
    assert len(machine.world["releases"]) == 3


def test_the_authority_reaches_controller_and_adapter(twice: tuple[ScriptOutcome, ScriptOutcome, Machine]):
    """The certificate of Prometheus is its own authority. The adapter finds it where its values say."""
    first, _, machine = twice
    given = first.values()
    assert first.release("workload-variant-autoscaler").files[given["wva.prometheus.caCert"]] == CERTIFICATE
    assert CERTIFICATE.splitlines()[1] in machine.world["objects"][f"configmap/{MONITORING}/prometheus-ca"]["applied"]
    adapter = first.values("prometheus-adapter")
    assert adapter["prometheus.url"] == f"https://kube-prometheus-stack-prometheus.{MONITORING}.svc.cluster.local"
    assert adapter["prometheus.port"] == "9090"


@pytest.mark.parametrize(
    ("given", "namespace", "job"),
    [
        ({}, SYSTEM, "workload-variant-autoscaler-metrics"),
        ({"WVA_NS": "wva"}, "wva", "workload-variant-autoscaler-metrics"),
        ({"WVA_RELEASE_NAME": "chat"}, SYSTEM, "chat-workload-variant-autoscaler-metrics"),
        (
            {"WVA_NS": "wva", "WVA_RELEASE_NAME": "a-release-whose-name-is-as-long-as-it-is-allowed-to"},
            "wva",
            "a-release-whose-name-is-as-long-as-it-is-allowed-to-wor-metrics",
        ),
    ],
)
def test_the_adapter_reads_the_series_of_the_release(tmp_path: Path, given: dict[str, str], namespace: str, job: str):
    """The adapter's rules name the Service of the release and its namespace, as the chart renders them."""
    outcome = Machine(tmp_path, nodes=[H100]).run(IMG=IMAGE, **given)
    assert outcome.code == 0, outcome.err
    (text,) = outcome.release("prometheus-adapter").files.values()
    rules = yaml.safe_load(text)["rules"]["external"]
    for rule in rules:
        for query in (rule["seriesQuery"], rule["metricsQuery"]):
            assert f'job="{job}",namespace="{namespace}"' in query
    items = chart.parsed(chart.text({}, release=given.get("WVA_RELEASE_NAME", "workload-variant-autoscaler")))
    services = {item["metadata"]["name"] for item in items if item["kind"] == "Service"}
    assert job in services


def test_no_secret_is_written_anywhere(twice: tuple[ScriptOutcome, ScriptOutcome, Machine]):
    """Neither the generated key nor a token of the caller appears in the output or in a command line."""
    first, _, _ = twice
    seen = first.out + first.err + "".join(map(str, first.calls)) + "".join(call.stdin for call in first.calls)
    assert "secret of the key" not in seen
    assert "hf_secret" not in seen
    assert "HF_TOKEN is set and has no effect" in first.err


def test_the_accelerator_is_that_of_the_nodes(twice: tuple[ScriptOutcome, ScriptOutcome, Machine]):
    """Without a value from the caller, the script reads the accelerator from the nodes and prints its short name."""
    first, _, _ = twice
    assert first.values()["va.accelerator"] == "H100"
    assert "accelerator of the nodes: H100" in first.out


def test_a_dry_run_shows_everything_and_changes_nothing(machine: Machine):
    """A dry run prints the commands with their standard input, and only reads from the cluster."""
    outcome = machine.run("--dry-run", IMG=IMAGE)
    assert outcome.code == 0, outcome.err
    assert outcome.writes == []
    for words in (f"kubectl create namespace {SYSTEM}", "helm upgrade --install workload-variant-autoscaler"):
        assert f"would run: {words}" in outcome.out
    assert 'va: {accelerator: "H100", }' in outcome.out
    assert "done" not in outcome.out


@pytest.mark.parametrize("without", ["kubectl", "helm", "openssl"])
def test_a_missing_command_is_named_with_what_to_do(tmp_path: Path, without: str):
    """The script names the command before it changes anything."""
    outcome = Machine(tmp_path, without=[without]).run()
    assert outcome.code == 1
    assert f"  - {without}: the command is not on the PATH; " in outcome.err
    assert outcome.writes == []


def test_all_that_is_missing_is_said_at_once(machine: Machine):
    """The script names all missing rights and kinds in one error, and ends."""
    machine.change(forbidden=["namespaces", "clusterroles.rbac.authorization.k8s.io"])
    outcome = machine.run(PROMETHEUS_URL="https://prometheus.example.org", MONITORING_NAMESPACE="nowhere")
    assert outcome.code == 1
    said = [line for line in outcome.err.splitlines() if line.startswith("  - ")]
    assert [line.partition(":")[0] for line in said] == [
        "  - the image of the controller",
        "  - the right to create namespaces",
        "  - the right to create clusterroles.rbac.authorization.k8s.io",
        "  - the namespace of Prometheus",
        "  - the kind ServiceMonitor",
    ]
    assert outcome.writes == []


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({}, 1),
        ({"WVA_IMAGE_TAG": "1.2"}, 1),
        ({"VALUES_FILE": "wva: {replicaCount: 1}"}, 1),
        ({"IMG": IMAGE}, 0),
        ({"WVA_IMAGE_REPO": "registry.example.org:5000/wva"}, 0),
        ({"VALUES_FILE": "wva: {image: {repository: registry.example.org/wva}}"}, 0),
        ({"DEPLOY_WVA": "false", "PROM_CA_CERT_PATH": CERTIFICATE}, 0),
    ],
)
def test_the_image_has_to_be_named(machine: Machine, tmp_path: Path, given: dict[str, str], code: int):
    """No registry has the chart's default image. Without another one the pods would wait for an image for ever."""
    for name in {"VALUES_FILE", "PROM_CA_CERT_PATH"} & given.keys():
        file = tmp_path / name
        file.write_text(given[name], encoding="utf-8")
        given = {**given, name: str(file)}
    outcome = machine.run(**given)
    assert outcome.code == code, outcome.err
    said = (
        "the image of the controller: no registry has the chart's; build and push one (docs/image.md), then give IMG="
    )
    assert (said in outcome.err, outcome.writes == []) == (bool(code), bool(code))


def test_a_cluster_that_does_not_answer_is_named_with_the_reason(machine: Machine):
    """The error has the first line of kubectl's message, and says where to look."""
    machine.change(reachable=False)
    outcome = machine.run()
    assert outcome.code == 1
    assert "a cluster: kubectl does not reach one (The connection to the server 127.0.0.1:1 was refused)" in outcome.err
    assert "second line" not in outcome.err


def test_an_old_helm_is_missing(machine: Machine):
    """The script treats Helm 2 as missing, because Helm 2 has other commands."""
    machine.change(helm="v2.17.0")
    outcome = machine.run()
    assert (outcome.code, outcome.writes) == (1, [])
    assert "helm: version 3 or later, and this is v2.17.0" in outcome.err


def test_several_accelerators_are_a_question(machine: Machine):
    """The script does not choose an accelerator: a wrong one would keep WVA from scaling the variant."""
    machine.change(nodes=[H100, node("two", amd="AMD-MI300X-192G"), node("three", intel="Intel-Gaudi-2-96GB")])
    outcome = machine.run(**QUIET)
    assert outcome.code == 1
    assert "ACCELERATOR_TYPE: the nodes have several, Gaudi-2 H100 MI300X; say which one" in outcome.err
    assert (
        machine.run(**QUIET, SKIP_TLS_VERIFY="true", ACCELERATOR_TYPE="MI300X").values()["va.accelerator"] == "MI300X"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--frobnicate"], "unknown option --frobnicate"),
        (["--model"], "--model needs a value"),
        (["-e", "mars"], "ENVIRONMENT=mars: expected kubernetes, openshift or kind-emulator"),
    ],
)
def test_a_wrong_option_ends_it(machine: Machine, options: list[str], message: str):
    """The script ends with status 1, names the wrong word, and calls no tool."""
    outcome = machine.run(*options)
    assert (outcome.code, outcome.calls) == (1, [])
    assert f"ERROR: {message}" in outcome.err


def test_help_tells_the_options_and_ends(machine: Machine):
    """``--help`` calls no tool."""
    outcome = machine.run("--help", ENVIRONMENT="mars")
    assert (outcome.code, outcome.err, outcome.calls) == (0, "", [])
    assert "--dry-run" in outcome.out


def test_wrong_variables_are_all_named(machine: Machine):
    """The error has each wrong value and the expected form. It does not show a URL, which may hold a password."""
    outcome = machine.run(
        DEPLOY_VA="yes", HPA_MIN_REPLICAS="two", WVA_NS="Upper", MODEL_ID="a,b", PROMETHEUS_URL="https://me:pw@host",
    )  # fmt: skip
    assert (outcome.code, outcome.calls) == (1, [])
    assert outcome.err.splitlines() == [
        "ERROR: WVA_NS=Upper: expected at most 53 lower-case letters, digits and dashes, as names of namespaces are",
        "ERROR: MODEL_ID=a,b: expected a model id, such as Qwen/Qwen3-0.6B",
        "ERROR: HPA_MIN_REPLICAS=two: expected a whole number",
        f"ERROR: PROMETHEUS_URL=...: expected {URL}",
        "ERROR: DEPLOY_VA=yes: expected true or false",
    ]


def test_contradictions_are_refused(machine: Machine):
    """The script refuses contradictory variables instead of choosing one of them."""
    outcome = machine.run(IMG=IMAGE, WVA_IMAGE_TAG="2")
    assert "given together with WVA_IMAGE_REPO or WVA_IMAGE_TAG" in outcome.err
    assert outcome.calls == []
    outcome = machine.run(CLUSTER_TYPE="kind", ENVIRONMENT="openshift")
    assert "CLUSTER_TYPE=kind and ENVIRONMENT=openshift contradict each other" in outcome.err


def test_a_namespace_on_its_way_out_is_not_forced(machine: Machine):
    """The script tells the user to wait. It removes no finalizers, since another program relies on them."""
    machine.change(objects={f"namespace//{SYSTEM}": {"status": {"phase": "Terminating"}, "metadata": {"labels": {}}}})
    outcome = machine.run(**QUIET)
    assert (outcome.code, outcome.writes) == (1, [])
    assert f"namespace {SYSTEM} is being deleted; wait until it is gone" in outcome.err


def test_a_controller_that_does_not_come_up_is_an_error(machine: Machine):
    """The error says where the pods of the controller tell the reason."""
    machine.change(ready=False)
    outcome = machine.run(**QUIET, SKIP_TLS_VERIFY="true", WAIT_TIMEOUT="7s")
    assert outcome.code == 1
    assert "the controller is not ready after 7s" in outcome.err
    assert f"kubectl -n {SYSTEM} logs" in outcome.err


def test_a_certificate_about_to_end_is_renewed_if_it_is_ours(
    twice: tuple[ScriptOutcome, ScriptOutcome, Machine], machine: Machine
):
    """The script does not renew a certificate that it did not make."""
    machine.change(objects=twice[2].world["objects"], expiring=True)
    only = {"DEPLOY_WVA": "false", "DEPLOY_PROMETHEUS_ADAPTER": "false"}
    renewed = machine.run(**only)
    assert [" ".join(call.split()[:3]) for call in renewed.writes][:3] == [
        "kubectl delete secret",
        "openssl req -x509",
        "kubectl create secret",
    ]
    objects = machine.world["objects"]
    objects[SECRET]["metadata"]["labels"] = {}
    machine.change(objects=objects)
    kept = machine.run(**only)
    assert "this script did not make it, so renew it yourself" in kept.err
    assert not kept.beginning("kubectl delete") + kept.beginning("openssl req")


def test_another_server_of_external_metrics_is_left_in_place(machine: Machine):
    """A cluster has one such server. If the script replaced KEDA's, KEDA could no longer scale."""
    service = {"spec": {"service": {"namespace": "keda", "name": "keda-operator-metrics-apiserver"}}}
    machine.change(objects={"apiservice//v1beta1.external.metrics.k8s.io": service})
    outcome = machine.run(**QUIET | {"DEPLOY_PROMETHEUS_ADAPTER": "true", "DEPLOY_WVA": "false"}, PROM_CA_CERT_PATH=str(
        certificate(machine)
    ))  # fmt: skip
    assert outcome.code == 0, outcome.err
    assert "external metrics are served by keda/keda-operator-metrics-apiserver" in outcome.err
    assert outcome.writes == []


def certificate(machine: Machine, text: str = CERTIFICATE) -> Path:
    """Write a certificate that the caller passes to the script."""
    file = machine.folder / "given.crt"
    file.write_text(text, encoding="utf-8")
    return file


def test_the_callers_certificate_is_taken_as_it_is(machine: Machine):
    """The script neither looks for another certificate nor overwrites this one. The original overwrote it."""
    file = certificate(machine)
    outcome = machine.run(**QUIET, PROM_CA_CERT_PATH=str(file))
    assert outcome.values()["wva.prometheus.caCert"] == str(file)
    assert not outcome.beginning("kubectl get secret")
    assert file.read_text(encoding="utf-8") == CERTIFICATE


@pytest.mark.parametrize(
    ("text", "message"),
    [("nothing", "has no PEM certificate"), (f"{CERTIFICATE}-----BEGIN PRIVATE KEY-----\n", "has a private key in it")],
)
def test_a_file_that_is_no_certificate_alone_is_refused(machine: Machine, text: str, message: str):
    """The file becomes a ConfigMap, which more users can read than a Secret, so it must hold only certificates."""
    outcome = machine.run(**QUIET, PROM_CA_CERT_PATH=str(certificate(machine, text)))
    assert outcome.code == 1
    assert message in outcome.err
    assert not outcome.beginning("helm upgrade")


def test_without_an_authority_it_is_said_where_it_was_looked_for(machine: Machine):
    """The error says where the script looked and what the user can do. The script does not switch verification off."""
    outcome = machine.run(**QUIET)
    assert outcome.code == 1
    assert f"it is not in Secret {MONITORING}/prometheus-web-tls. Set PROM_CA_CERT_PATH" in outcome.err


def test_every_variable_becomes_the_value_it_means(machine: Machine):
    """Each variable of the caller reaches the chart, and wins over the caller's values file."""
    values = machine.folder / "values.yaml"
    values.write_text("va: {enabled: true}\n", encoding="utf-8")
    outcome = machine.run(
        "--model", "other/model", "--accelerator", "L40S", "--release-name", "mine", "--wva-image", IMAGE,
        **QUIET, SKIP_TLS_VERIFY="true", VALUES_FILE=str(values), WVA_NS="wva", LLMD_NS="models",
        MONITORING_NAMESPACE="monitoring", PROMETHEUS_URL="https://prometheus.monitoring.svc:9090", MODEL_ID="a/b",
        WVA_IMAGE_TAG="2", WVA_IMAGE_PULL_POLICY="Never", WVA_LOG_LEVEL="warn", WVA_RECONCILE_INTERVAL="1m30s",
        NAMESPACE_SCOPED="true", CONTROLLER_INSTANCE="pr-123", LLM_D_MODELSERVICE_NAME="chat", SLO_TPOT="24",
        SLO_TTFT="500", VLLM_SVC_ENABLED="false", VLLM_SVC_NODEPORT="30001", HPA_MIN_REPLICAS="2",
        HPA_STABILIZATION_SECONDS="120", ENABLE_SCALE_TO_ZERO="true", DEPLOY_HPA="false", DEPLOY_VA="true",
        KUBE_CONTEXT="there",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    assert outcome.given("mine") == {
        "wva.image.repository": "registry.example.org:5000/wva",
        "wva.image.tag": "1.2",
        "wva.imagePullPolicy": "Never",
        "wva.namespaceScoped": "true",
        "wva.controllerInstance": "pr-123",
        "wva.logging.level": "warn",
        "wva.reconcileInterval": "1m30s",
        "wva.scaleToZero": "true",
        "wva.prometheus.monitoringNamespace": "monitoring",
        "wva.prometheus.baseURL": "https://prometheus.monitoring.svc:9090",
        "wva.prometheus.tls.insecureSkipVerify": "true",
        "va.enabled": "true",
        "va.accelerator": "L40S",
        "va.sloTpot": "24",
        "va.sloTtft": "500",
        "llmd.namespace": "models",
        "llmd.modelName": "chat",
        "llmd.modelID": "other/model",
        "hpa.enabled": "false",
        "hpa.minReplicas": "2",
        "hpa.behavior.scaleUp.stabilizationWindowSeconds": "120",
        "hpa.behavior.scaleDown.stabilizationWindowSeconds": "120",
        "vllmService.enabled": "false",
        "vllmService.nodePort": "30001",
    }
    words = outcome.release("mine").words
    assert [words[at + 1] for at, word in enumerate(words) if word == "--values"] == ["-", str(values)]
    assert words[words.index("--namespace") + 1] == "wva"
    assert {tuple(call.argv[:2]) for call in outcome.calls} == {("--context", "there"), ("--kube-context", "there")}


def test_what_the_script_chooses_goes_below_a_values_file(machine: Machine):
    """Defaults are the first values, so that the caller's file wins over them; switches stay the chart's."""
    values = machine.folder / "values.yaml"
    values.write_text("wva: {prometheus: {tls: {insecureSkipVerify: true}}}\n", encoding="utf-8")
    outcome = machine.run(**QUIET, VALUES_FILE=str(values), PROM_CA_CERT_PATH=str(certificate(machine)))
    assert set(outcome.given()) == {"wva.prometheus.caCert"}
    assert outcome.chosen() == {
        "wva.prometheus.monitoringNamespace": MONITORING,
        "wva.prometheus.baseURL": f"https://kube-prometheus-stack-prometheus.{MONITORING}.svc.cluster.local:9090",
        "va.accelerator": "H100",
        "llmd.namespace": "llm-d-inference-scheduler",
    }


@pytest.mark.parametrize(
    ("image", "digest", "tag"),
    [(f"wva@sha256:{'a' * 64}", f"sha256:{'a' * 64}", None), ("host:5000/team/wva:v1", None, "v1")],
)
def test_an_image_by_digest_or_by_tag(machine: Machine, image: str, digest: str | None, tag: str | None):
    """The script does not take the port of a registry for a tag."""
    given = machine.run("-i", image, **QUIET, SKIP_TLS_VERIFY="true").values()
    assert (given.get("wva.image.digest"), given.get("wva.image.tag")) == (digest, tag)
    assert image.startswith(given["wva.image.repository"])
    assert given["wva.image.repository"] in {"wva", "host:5000/team/wva"}


def test_undeploy_removes_what_was_installed_and_keeps_the_rest(
    twice: tuple[ScriptOutcome, ScriptOutcome, Machine], tmp_path: Path
):
    """Undeploy removes the releases, the controller's first. A second run is no error."""
    machine = Machine(tmp_path, **twice[2].world)
    outcome = machine.run("--undeploy")
    assert outcome.code == 0, outcome.err
    assert [" ".join(call.split()[:4]) for call in outcome.writes] == [
        f"helm uninstall workload-variant-autoscaler {'--namespace'}",
        "helm uninstall prometheus-adapter --namespace",
        "kubectl delete configmap prometheus-ca",
        "helm uninstall kube-prometheus-stack --namespace",
    ]
    assert machine.world["releases"] == {}
    again = machine.run("--undeploy")
    assert again.code == 0
    assert "release workload-variant-autoscaler is not installed" in again.out
    assert not again.beginning("helm uninstall")


def test_only_namespaces_of_its_own_are_deleted(twice: tuple[ScriptOutcome, ScriptOutcome, Machine], tmp_path: Path):
    """Undeploy deletes a namespace only if the script created it and the user asks for it."""
    machine = Machine(tmp_path, **twice[2].world)
    objects = machine.world["objects"]
    objects["namespace//llm-d-inference-scheduler"]["metadata"]["labels"] = {}
    machine.change(objects=objects)
    outcome = machine.run("-u", DELETE_NAMESPACES="true")
    assert outcome.code == 0, outcome.err
    assert {call.words[2] for call in outcome.beginning("kubectl delete namespace")} == {SYSTEM, MONITORING}
    assert "namespace llm-d-inference-scheduler was not made by this script: it stays" in outcome.out


def test_undeploy_can_be_tried_dry(twice: tuple[ScriptOutcome, ScriptOutcome, Machine], tmp_path: Path):
    """A dry run of undeploy prints what it would delete."""
    outcome = Machine(tmp_path, **twice[2].world).run("--undeploy", "--dry-run")
    assert (outcome.code, outcome.writes) == (0, [])
    assert "would run: helm uninstall workload-variant-autoscaler" in outcome.out
