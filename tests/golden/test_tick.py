"""Complete passes of the original: in compatibility mode WVA gives the same numbers, series and conditions.

The inputs are caches and Prometheus answers; the tests run collection, decision, ledger, series and status. The
recording answers one query per model; an adapter turns those answers into answers to WVA's grouped queries (labels
``namespace`` and ``model_name``, a recent time), and makes the recorded pods Ready, because they have no readiness.

The tests do not compare:

- message texts, and the number of queries;
- series of variants at zero: WVA publishes 0;
- series of a variant without a decision: WVA publishes the existing replicas;
- the current replicas of a Deployment with an empty status: WVA takes those of the spec, while the original's gauge and
  its decision disagreed;
- variants without accelerator, for which the original published nothing;
- models whose query failed while those of other models were answered.
"""

from __future__ import annotations

import re

import pytest
import yaml
from prometheus_client import CollectorRegistry

from tests.collect.cluster import CachedCluster
from tests.collect.doubles import NOW, FakePrometheus
from tests.golden.vectors import Better, near, parameters, tally
from tests.publish.collectors import collector
from wva.api.meta import Key
from wva.api.variantautoscaling import ACCELERATOR_LABEL, CONTROLLER_INSTANCE_LABEL
from wva.collect.inventory import GPU_RESOURCES
from wva.collect.resolution import resolve
from wva.collect.snapshot import Collector
from wva.collect.variants import Claimant, Claims
from wva.config import Inputs, load
from wva.config.live import LiveConfiguration
from wva.decide.pipeline import decide
from wva.instruments import Instruments
from wva.model.inventory import AcceleratorPool, Inventory, normalize_accelerator
from wva.model.memory import Memory
from wva.model.records import replace
from wva.model.snapshot import RequestCounts
from wva.model.variant import ModelKey, VariantKey
from wva.prometheus.answers import ErrorKind
from wva.publish.conditions import ConfigurationView, TargetView
from wva.publish.ledger import Ledger
from wva.publish.status import status_patch

pytestmark = pytest.mark.long_story

SIGNALS = {"vllm:kv_cache_usage_perc": "kv_cache_usage", "vllm:num_requests_waiting": "queue_length"}
ONE_QUERY = Better(
    "models whose query fails alone, since one of ours asks for all of them",
    "collect/test_collector.py::test_a_failing_query_fails_its_namespaces",
)
NO_LABEL = Better(
    "variants without accelerator, which get their number all the same",
    "decide/v05/test_compatibility.py::test_a_variant_without_accelerator_gets_its_number",
)
COMPARED = ("wva_current_replicas", "wva_desired_replicas", "wva_desired_ratio")


def _better(case):
    """Tell whether WVA reads the ConfigMaps of a case differently on purpose."""
    if "default" not in (case.get("saturation_global") or {}):
        tested = "config/test_saturation_config.py::test_no_entries_mean_the_built_in_values"
        return Better("without a default entry the built-in values hold, and the model is decided on", tested)
    if any("default" not in entries for entries in _local_maps(case).values()):
        tested = "model/test_policy.py::test_each_kind_of_rules_falls_back_by_itself"
        return Better("the entries of a namespace win one by one over those for everybody", tested)
    entries = [yaml.safe_load(text) for text in case["saturation_global"].values()]
    models = {va["model_id"] for va in case["variant_autoscalings"]}
    if any(isinstance(entry, dict) and entry.get("model_id") in models for entry in entries):
        tested = "model/test_policy.py::test_an_entry_for_the_namespace_beats_one_for_every_namespace"
        return Better("the entry of a model is obeyed", tested)
    return None


def _instance(case):
    return (case.get("env") or {}).get("CONTROLLER_INSTANCE", "")


def _local_maps(case):
    """Return the entries of each ConfigMap of a namespace, by namespace and name."""
    names = {"saturation_namespace": "wva-saturation-scaling-config"}
    names["scale_to_zero_namespace"] = "wva-model-scale-to-zero-config"
    return {
        Key(namespace, name): entries
        for field, name in names.items()
        for namespace, entries in (case.get(field) or {}).items()
    }


def _failing(case):
    """Return the models for which a query fails while it answers for others; WVA's grouped queries cannot do that.

    The adapter leaves their series out, and the tests do not compare their variants.
    """
    failing = {_model(answer["query"]) for answer in case["prometheus"] if answer.get("error") and _signal(answer)}
    models = {(va["namespace"], va["model_id"]) for va in case["variant_autoscalings"]}
    return failing if len(models) > 1 else set()


def _not_compared(case):
    """Return the variants of the models for which a query fails alone."""
    failing = _failing(case)
    return {
        (va["namespace"], va["name"])
        for va in case["variant_autoscalings"]
        if (va["namespace"], va["model_id"]) in failing
    }


def _unlabelled(case):
    """Return the variants without accelerator, for which the original published nothing."""
    return {(va["namespace"], va["name"]) for va in case["variant_autoscalings"] if va.get("accelerator_label") is None}


def _signal(answer):
    return next((name for metric, name in SIGNALS.items() if metric in answer["query"]), None)


def _model(query):
    """Return namespace and model id of a recorded query, unescaped."""
    pattern = r'namespace="((?:[^"\\]|\\.)*)",model_name="((?:[^"\\]|\\.)*)"'
    return tuple(re.sub(r"\\(.)", r"\1", text) for text in re.search(pattern, query).groups())


def _cluster(case):
    cluster = CachedCluster()
    for deployment in case["deployments"]:
        made = cluster.deployment(
            deployment["name"],
            namespace=deployment["namespace"],
            replicas=deployment["status_replicas"],
            ready=deployment["ready_replicas"],
            resources={"requests": deployment["container_requests"]},
        )
        _set_spec(cluster, made, deployment["spec_replicas"])
    present = {(deployment["namespace"], deployment["name"]) for deployment in case["deployments"]}
    for pod in case["pods"]:
        if (pod["namespace"], pod["deployment"]) in present:
            cluster.pod(pod["name"], namespace=pod["namespace"], deployment=pod["deployment"])
    for va in case["variant_autoscalings"]:
        _add_va(cluster, va)
    return cluster


def _set_spec(cluster, deployment, replicas):
    import msgspec  # noqa: PLC0415 - only here

    spec = msgspec.structs.replace(deployment.spec, replicas=replicas)
    cluster.deployments.upsert(
        msgspec.structs.replace(
            deployment, spec=spec, metadata=msgspec.structs.replace(deployment.metadata, resource_version="2")
        )
    )


def _add_va(cluster, va):
    allocation = {"accelerator": va["status_desired_accelerator"], "numReplicas": va["status_desired_replicas"]}
    known = va["status_desired_accelerator"] or va["status_desired_replicas"]
    given = {
        ACCELERATOR_LABEL: va.get("accelerator_label"),
        CONTROLLER_INSTANCE_LABEL: va.get("controller_instance_label"),
    }
    deleting = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if va.get("deleting") else {}
    cluster.va(
        va["name"],
        namespace=va["namespace"],
        target=va["deployment"],
        model_id=va["model_id"],
        labels={name: value for name, value in given.items() if value is not None},
        spec={"variantCost": va["variant_cost"]},
        status={"desiredOptimizedAlloc": allocation} if known else {},
        metadata=deleting,
    )


def _prometheus(case):
    prometheus = FakePrometheus()
    for answer in case["prometheus"]:
        name = _signal(answer)
        if name is None:
            continue
        namespace, model = _model(answer["query"])
        if (namespace, model) in _failing(case):
            continue
        if answer.get("error"):
            prometheus.fail(name, ErrorKind.SERVER, "recorded error")
        for series in answer["result"] or []:
            labels = {"namespace": namespace, "model_name": model, "pod": "", **series["metric"]}
            prometheus.put(name, series["value"], **labels)
            prometheus.put(f"{name}_timestamp", str(NOW - 5), **labels)
    return prometheus


def _policy(case):
    """Return the policy that the ConfigMaps of a case give, in compatibility mode."""
    settings = load(Inputs({}, {"PROMETHEUS_BASE_URL": "https://prometheus", "POD_NAMESPACE": "wva"}, {})).settings
    live = LiveConfiguration(settings, refusal=lambda _: "")
    saturation = dict(case["saturation_global"])
    saturation["default"] += "\ncompatibility: v0.5\n"
    assert live.apply(Key("wva", settings.saturation_config_map_name), saturation).problems == ()
    live.apply(Key("wva", settings.scale_to_zero_config_map_name), case.get("scale_to_zero_global") or {})
    for key, entries in _local_maps(case).items():
        live.apply(key, entries)
    default = (case.get("env") or {}).get("WVA_SCALE_TO_ZERO", "").lower() == "true"
    return replace(live.policy, scale_to_zero_default=default)


def _request_counts(case, policy):
    """Return the recorded counts of finished requests; the original did not count requests in progress."""
    counts = []
    for answer in case["prometheus"]:
        if "request_success_total" not in answer["query"]:
            continue
        model = ModelKey(*_model(answer["query"]))
        values = [float(series["value"]) for series in answer["result"] or []]
        finished = values[0] if values and not answer.get("error") else None
        retention = policy.scale_to_zero_for(model).retention_seconds
        counts.append(RequestCounts(model, retention, finished, covered_seconds=retention))
    return tuple(counts)


def _inventory(case):
    """Return the GPUs of the recorded nodes; None if the original could not list them."""
    selector = (case.get("env") or {}).get("WVA_NODE_SELECTOR", "")
    if selector:
        assert "((" in selector, "only a selector that nobody can parse is recorded"
        return None
    pools = []
    for row in case.get("nodes") or []:
        for resource in GPU_RESOURCES:
            product = row["labels"].get(f"{resource}.product")
            if product:
                count = int(row["allocatable"].get(resource, 0))
                pools.append(AcceleratorPool(normalize_accelerator(product), count, 0, resource))
    return Inventory.of(pools)


async def _pass(case, cluster):
    """Run one pass and return the ledger."""
    collector = Collector(
        cluster.stores,
        prometheus=_prometheus(case),
        instruments=Instruments(CollectorRegistry()),
        claims=Claims(Claimant("wva/controller", _instance(case))),
    )
    snapshot = await collector.collect(NOW)
    policy = _policy(case)
    snapshot = replace(snapshot, request_counts=_request_counts(case, policy), inventory=_inventory(case))
    decisions, _ = decide(snapshot, Memory(), policy, NOW)
    ledger = Ledger()
    ledger.record(decisions)
    return ledger


def _series(ledger, cluster):
    """Return the published values by (metric, namespace, variant, accelerator)."""

    def current(key):
        va = cluster.stores.variant_autoscalings.get(Key(key.namespace, key.name))
        deployment = cluster.deployments.get(Key(key.namespace, va.spec.scale_target_ref.name))
        return deployment.current_replicas if deployment.spec_replicas else deployment.status.replicas

    names = ("namespace", "variant_name", "accelerator_type")
    return {
        (sample.name, *(sample.labels[name] for name in names)): sample.value
        for metric in collector(ledger, current=current).collect()
        for sample in metric.samples
        if sample.name in COMPARED
    }


def _status_empty(case):
    """Return the variants whose Deployment has no replica in its status."""
    empty = {
        (deployment["namespace"], deployment["name"])
        for deployment in case["deployments"]
        if deployment["status_replicas"] == 0
    }
    return {
        (va["namespace"], va["name"])
        for va in case["variant_autoscalings"]
        if (va["namespace"], va["deployment"]) in empty
    }


@pytest.mark.parametrize("case", parameters("tick", better=_better))
async def test_a_pass_publishes_and_writes_what_the_original_did(case):
    """One pass, whose series and status are those of the original."""
    _count(case)
    cluster = _cluster(case)
    ledger = await _pass(case, cluster)
    _check_series(case, ledger, cluster)
    _check_status(case, ledger, cluster)


def _check_series(case, ledger, cluster):
    """Check that WVA publishes every series of the original with the same value.

    For any further series it keeps the current replicas.
    """
    series = _series(ledger, cluster)
    fuzzy, skipped = _status_empty(case), _not_compared(case)
    expected = {}
    for metric in case["expected"]["metrics"]:
        labels = metric["labels"]
        key = (metric["name"], labels["namespace"], labels["variant_name"], labels["accelerator_type"])
        expected[key] = metric["value"]
    for key, value in expected.items():
        if key[1:3] in skipped or (key[0] != "wva_desired_replicas" and key[1:3] in fuzzy):
            continue
        assert series[key] == near(value), key
    for key in series.keys() - expected.keys():
        if key[1:3] not in skipped | _unlabelled(case):
            _check_extra(key, ledger)


def _count(case):
    """Count a pass, and the parts of it that are not compared."""
    count = tally("tick")
    count.run += 1
    if _failing(case):
        count.partly[str(ONE_QUERY)] += 1
    elif _unlabelled(case):
        count.partly[str(NO_LABEL)] += 1


def _check_extra(key, ledger):
    """Check that WVA keeps the current replicas of a variant for which the original had no series."""
    decision = ledger.get(VariantKey(key[1], key[2]))
    assert decision.desired == decision.current, key


def _check_status(case, ledger, cluster):
    """Check that WVA writes the number, the accelerator and the conditions that the original wrote in one reconcile.

    The original did not reconcile a variant at zero, so its old number stayed in the status; WVA writes 0.
    """
    for name, expected in case["expected"]["va_status_after_reconcile"].items():
        key = Key(*name.split("/", 1))
        if (key.namespace, key.name) in _not_compared(case) | _unlabelled(case):
            continue
        va = cluster.stores.variant_autoscalings.get(key)
        stores = cluster.stores
        resolution = resolve(va, vas=stores.variant_autoscalings, targets=stores.targets)
        decision = ledger.get(VariantKey(*key))
        found = resolution.has_target
        patch = status_patch(
            va,
            target=TargetView(found, resolution.reason, resolution.message, va.spec.scale_target_ref.name),
            decision=decision if found else None,
            configuration=ConfigurationView(),
            now=NOW,
        )
        conditions = {entry["type"]: entry for entry in patch["status"]["conditions"]}
        for type_, condition in expected["conditions"].items():
            assert conditions[type_]["status"] == condition["status"], type_
        if expected["accelerator"] and name in case["expected"]["triggered"]:
            allocation = patch["status"]["desiredOptimizedAlloc"]
            assert allocation["numReplicas"] == expected["num_replicas"]
            assert allocation["accelerator"] == expected["accelerator"]
