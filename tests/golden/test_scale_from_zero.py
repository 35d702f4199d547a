"""Recorded passes of the original's scale-from-zero loop: WVA starts the same targets.

WVA differs on purpose: a pool claims no workload if it has no selector, or if the workload is in another namespace. An
absent apiVersion means ``apps/v1``.
"""

from __future__ import annotations

import msgspec
import pytest

from tests.builders import variant
from tests.golden.vectors import Better, parameters, tally
from tests.scale_from_zero.pages import read_page
from wva.api.core import InferencePool
from wva.collect.pools import PoolStores
from wva.decide.start import activate
from wva.kube.cache import Store
from wva.model.decision import Decision
from wva.model.records import replace
from wva.model.variant import ModelKey, VariantKey

HTTP_OK = 200
POOLS = "collect/test_pools.py"


def on_purpose(row):
    """Tell where WVA differs on purpose."""
    texts = [pod["metrics_text"] for pool in row["pools"] or [] for pod in pool.get("epp_pods") or []]
    if any('target_model_name=""' in text for text in texts):
        tested = "scale_from_zero/test_gateway_queue.py::test_queues_by_model"
        return Better("without a target model the model asked for is meant", tested)
    namespaces = {deployment["namespace"] for deployment in row["deployments"] or []}
    for pool in row["pools"] or []:
        if not pool["selector"]:
            return Better("a pool without a selector claims nothing", f"{POOLS}::test_an_empty_selector_claims_nothing")
        if pool["namespace"] not in namespaces:
            return Better(
                "a pool has no say in another namespace", f"{POOLS}::test_pools_of_one_name_in_two_namespaces_are_two"
            )
    if any(not va["scale_target_api_version"] for va in row["variant_autoscalings"] or []):
        return Better(
            "an absent apiVersion is apps/v1", "collect/test_resolution.py::test_an_absent_api_version_means_apps_v1"
        )
    return None


def pools_of(row):
    """Return the caches of the recorded pools."""
    stores = PoolStores(Store(), Store())
    for pool in row["pools"] or []:
        spec = {"selector": {"matchLabels": pool["selector"]}, "endpointPickerRef": {"name": "epp"}}
        metadata = {"name": pool["name"], "namespace": pool["namespace"]}
        stores.pools.upsert(msgspec.convert({"metadata": metadata, "spec": spec}, InferencePool))
    return stores


def waiting_at(pool):
    """Return the waiting requests that the recorded picker reports, by model; empty if no picker answers."""
    totals = {}
    for pod in pool.get("epp_pods") or []:
        if not pod["ready"] or pod["http_status"] != HTTP_OK or pool.get("epp_service_missing"):
            continue
        try:
            found = read_page(pod["metrics_text"]).waiting
        except ValueError:
            continue
        for model, count in found.items():
            totals[model] = totals.get(model, 0.0) + count
    return totals


def variant_at(va, deployment):
    """Return a recorded variant."""
    spec = 1 if deployment["spec_replicas"] is None else deployment["spec_replicas"]
    made = variant(va["name"], replicas=spec)
    namespace = va["namespace"]
    return replace(
        made,
        key=VariantKey(namespace, va["name"]),
        model=ModelKey(namespace, va["model_id"]),
        target=va["deployment"],
        accelerator=va.get("accelerator_label") or "",
        spec_replicas=spec,
    )


@pytest.mark.parametrize("row", parameters("scale_from_zero", better=on_purpose))
def test_the_same_targets_are_started(row):
    """WVA starts the same targets with one replica each, for the queue of their own model."""
    tally("scale_from_zero").run += 1
    deployments = {(entry["namespace"], entry["name"]): entry for entry in row["deployments"] or []}
    stores = pools_of(row)
    pools = {(pool["namespace"], pool["name"]): pool for pool in row["pools"] or []}
    started = {}
    for va in row["variant_autoscalings"] or []:
        deployment = deployments.get((va["namespace"], va["deployment"]))
        if deployment is None:
            continue
        candidate = variant_at(va, deployment)
        for pool in stores.pools_of(va["namespace"], deployment["pod_template_labels"] or {}):
            waiting = waiting_at(pools[pool.namespace, pool.name]).get(va["model_id"], 0.0)
            answer = activate([candidate], waiting)
            if isinstance(answer, Decision):
                started[f"{va['namespace']}/{va['deployment']}"] = answer.desired
    assert started == (row["expected"]["scale_updates"] or {})
