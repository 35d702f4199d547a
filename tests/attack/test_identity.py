"""A tenant's objects, pods and pages claim to belong to the victim or to the controller."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import aiohttp
import pytest
import yaml

from tests.app.gateways import POOLS
from tests.app.stage import DEPLOYMENTS, MODEL, SYSTEM, VARIANTS
from tests.attack.harness import Attack, ExpectedCondition, ExpectedNumber, Says, survive
from tests.attack.world import SLEEPER, SLEEPING_MODEL, TENANT, VICTIM, page
from tests.rows import by_day
from wva.api.meta import Key, format_time
from wva.scale_from_zero import starts
from wva.sim.prometheus import EmbeddedPrometheus, InProcess, ScrapeTarget

SHIPPED_NAMESPACE = "workload-variant-autoscaler-system"
WVA_JOB = "workload-variant-autoscaler-metrics"
PUBLISHED = ("wva_desired_replicas", "inferno_desired_replicas", "inferno_current_replicas", "inferno_desired_ratio")
SAMPLES = Path(__file__).resolve().parents[2] / "deploy" / "samples"
PODS, REPLICA_SETS = "pods", "replicasets.apps"
_wait_visible = starts.Starter.wait_visible


def uid(world, resource, deployment="d"):
    """Return the uid of the victim's Deployment, or of its ReplicaSet."""
    store = world.api.store
    if resource == DEPLOYMENTS:
        return store.get(DEPLOYMENTS, Key(VICTIM, deployment))["metadata"]["uid"]
    (found,) = [
        entry
        for entry in store.list(REPLICA_SETS)
        if entry["metadata"]["namespace"] == VICTIM
        and any(owner["name"] == deployment for owner in entry["metadata"]["ownerReferences"])
    ]
    return found["metadata"]["uid"]


def owned_by(world, resource, deployment="d"):
    """Return a change that writes a workload of the victim into an object as its controller."""
    kind = {DEPLOYMENTS: "Deployment", REPLICA_SETS: "ReplicaSet"}[resource]
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": deployment, "uid": uid(world, resource, deployment)}

    def change(value, _number=0):
        value["metadata"]["ownerReferences"] = [owner | {"controller": True}]

    return change


def steal(world, resource, change=None, *, count=1, usage=0.99):
    """Create tenant pods that name the victim's workload as their controller and report a full cache."""
    owned = owned_by(world, resource)

    def make(value, number):
        if resource == REPLICA_SETS:
            owned(value)
        if change is not None:
            change(value, number)

    (pod,) = world.pods()
    world.pages[TENANT, "bad"] = lambda _: page(usage=usage, waiting=50)
    world.many(PODS, pod, count, make)
    if resource == DEPLOYMENTS:
        (replica_set,) = [
            entry["metadata"]["name"]
            for entry in world.api.store.list(REPLICA_SETS)
            if entry["metadata"]["namespace"] == TENANT
        ]
        world.twist(REPLICA_SETS, replica_set, owned)
    else:
        world.twist(PODS, pod, lambda value: make(value, 0))


def unready(value, _number):
    """Mark a pod as new and not Ready."""
    value["metadata"]["creationTimestamp"] = format_time(time.time())
    value["status"] = {"phase": "Pending", "conditions": [{"type": "Ready", "status": "False"}]}


def unschedulable(value, _number):
    """Mark a pod as unschedulable for years."""
    since = "2020-01-01T00:00:00Z"
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": since}
    value["metadata"]["creationTimestamp"] = since
    value["spec"].pop("nodeName", None)
    value["status"] = {"phase": "Pending", "conditions": [refused]}


async def come_and_go(world):
    """Create pods with a copied owner and delete them again, twenty times."""
    for number in range(20):
        steal_more(world, f"wave-{number}")
        await asyncio.sleep(0.02)
        for entry in [pod for pod in world.api.store.list(PODS) if pod["metadata"]["name"].startswith("wave-")]:
            world.api.store.delete(PODS, Key(TENANT, entry["metadata"]["name"]))


def steal_more(world, prefix):
    """Create ten pods with a copied owner."""
    owned = owned_by(world, REPLICA_SETS)
    world.many(PODS, world.pods()[0], 10, owned, prefix=prefix)


def says_it_is(**labels):
    """Return a step that lets the tenant's pod report samples with the labels of the victim's pod."""

    def act(world):
        (pod,) = world.pods("d", namespace=VICTIM)[:1]
        given = {name: value.format(pod=pod) for name, value in labels.items()}
        text = ",".join(f'{name}="{value}"' for name, value in {"model_name": MODEL, **given}.items())
        world.pages[TENANT, "bad"] = lambda _: (
            f"vllm:kv_cache_usage_perc{{{text}}} 0.99\nvllm:num_requests_waiting{{{text}}} 90\n"
        )

    return act


def same_names(world):
    """Give the tenant a Deployment, a variant and an HPA with the victim's names, and full pods."""
    world.workload("d", replicas=2)
    world.variant("va", target="d")
    world.hpa("hpa", target="d", minimum=4, maximum=4)
    world.pages[TENANT, "d"] = lambda _: page(usage=0.99, waiting=50)


def numbers_of(name, namespace, value):
    """Return a page with forged published numbers of a variant, in every way a page can label them."""
    own = f'variant_name="{name}",accelerator_type="H100"'
    return "".join(
        f"wva_desired_replicas{{{own},{more}}} {value}\n"
        for more in (
            f'namespace="{namespace}"',
            f'exported_namespace="{namespace}"',
            f'exported_namespace="{namespace}",namespace="{SYSTEM}",job="{WVA_JOB}",service="{WVA_JOB}"',
            f'exported_namespace="{namespace}",namespace="{SHIPPED_NAMESPACE}",job="{WVA_JOB}"',
            f'namespace="{namespace}",exported_namespace="{namespace}",exported_job="{WVA_JOB}"',
        )
    )


def forges(value):
    """Return a step that lets the tenant's pod expose forged numbers of the victim's variants."""

    def act(world):
        lines = "".join(numbers_of(name, VICTIM, value) for name in ("va", SLEEPER))
        world.pages[TENANT, "bad"] = lambda _: page() + lines

    return act


async def forge_and_scrape(world):
    """Let Prometheus scrape the forged numbers before the controller looks for its own."""
    forges(1000)(world)
    await world.scrape()
    await asyncio.sleep(1 - time.time() % 1 + 0.05)  # autoscalers ask for the last whole second
    world.seen = []
    world.set("wva.scale_from_zero.starts.Starter.wait_visible", noting(world.seen))


def noting(seen):
    """Return a ``wait_visible`` that appends its results to ``seen``."""

    async def wait(*arguments, **rest):
        seen.append(await _wait_visible(*arguments, **rest))
        return seen[-1]

    return wait


def tenants_pool(world):
    """Create a pool of the tenant whose selector has the labels of the victim's model at zero."""
    world.api.store.create(
        POOLS,
        {
            "metadata": {"name": "theirs", "namespace": TENANT},
            "spec": {"selector": {"matchLabels": {"app": SLEEPER}}, "endpointPickerRef": {"name": "epp"}},
        },
    )


def scales_the_victims(world):
    """Let scalers of the tenant name the victim's Deployment; a scaler acts in its own namespace only."""
    world.hpa("hpa", target="d", minimum=4, maximum=4)
    world.scaled_object("so", target="d", annotations={"autoscaling.keda.sh/paused-replicas": "0"}, minReplicaCount=0)


def claims_the_victims_target(world):
    """Create tenant variants whose target names the victim's Deployment, with and without its namespace."""
    world.variant("thief", target="d")
    world.variant("path", target=f"../{VICTIM}/d")
    world.variant("slash", target=f"{VICTIM}/d")


def claimed_by_another(world):
    """Write into the tenant's status that another controller has claimed the variant."""
    now = format_time(time.time())
    claimed = {"type": "Claimed", "status": "True", "reason": "Claimed", "message": "kube-system/another"}
    allocation = {"accelerator": "H100", "numReplicas": 1, "lastRunTime": now}
    status = {"desiredOptimizedAlloc": allocation, "conditions": [claimed | {"lastTransitionTime": now}]}
    world.twist(VARIANTS, "bad", lambda value: value.update(status=status))


ATTACKS = [
    Attack("foreign_pods_with_a_copied_owner_uid_join_a_variant", before=lambda world: steal(world, REPLICA_SETS)),
    Attack(
        "foreign_replica_set_with_a_copied_owner_uid_joins_a_variant", before=lambda world: steal(world, DEPLOYMENTS)
    ),
    Attack(
        "foreign_pods_with_a_copied_owner_uid_while_the_controller_runs",
        during=lambda world: steal(world, REPLICA_SETS, count=3),
    ),
    Attack(
        "foreign_pods_with_a_copied_owner_uid_are_never_ready",
        before=lambda world: steal(world, REPLICA_SETS, unready, count=5),
    ),
    Attack(
        "foreign_pods_with_a_copied_owner_uid_find_no_node",
        before=lambda world: steal(world, REPLICA_SETS, unschedulable, count=5),
    ),
    Attack(
        "foreign_pods_with_a_copied_owner_uid_report_nothing",
        before=lambda world: (steal(world, REPLICA_SETS), world.pages.update({(TENANT, "bad"): lambda _: ""})),
    ),
    Attack(
        "foreign_pods_with_a_copied_owner_uid_say_that_they_are_idle",
        before=lambda world: steal(world, REPLICA_SETS, usage=0.0, count=4),
    ),
    Attack("foreign_pods_with_a_copied_owner_uid_come_and_go", during=come_and_go),
    Attack(
        "two_thousand_foreign_pods_with_a_copied_owner_uid",
        before=lambda world: steal(world, REPLICA_SETS, count=2000),
        interval="100ms",
    ),
    Attack(
        "forged_number_before_a_start_from_zero",
        during=forge_and_scrape,
        gateway=True,
        shows=(
            Says("the forged number is not taken for visible", lambda world: world.seen == [False]),
            ExpectedNumber(1),
        ),
    ),
    Attack("forged_numbers_of_every_variant", before=forges(1000), shows=ExpectedNumber(1)),
    Attack("forged_numbers_that_are_none", before=forges("NaN"), shows=ExpectedNumber(1)),
    Attack(
        "a_page_says_that_it_is_the_victims_pod",
        before=says_it_is(namespace=VICTIM, pod="{pod}", job="vllm", instance="x"),
    ),
    Attack(
        "a_page_uses_the_names_that_prometheus_gives",
        before=says_it_is(exported_namespace=VICTIM, exported_pod="{pod}", pod_name="{pod}", exported_job="vllm"),
    ),
    Attack("a_tenant_with_the_names_of_the_victim", before=same_names, shows=ExpectedNumber(4, name="va")),
    Attack("scalers_of_a_tenant_name_the_victims_deployment", before=scales_the_victims, shows=ExpectedNumber(1)),
    Attack(
        "variants_of_a_tenant_name_the_victims_deployment",
        before=claims_the_victims_target,
        shows=(
            ExpectedCondition("TargetResolved", "False", name="thief"),
            ExpectedCondition("TargetResolved", "False", name="path"),
            ExpectedCondition("TargetResolved", "False", name="slash"),
        ),
    ),
    Attack(
        "a_pool_of_a_tenant_selects_the_victims_model_at_zero",
        before=tenants_pool,
        gateway=True,
        shows=ExpectedNumber(1),
    ),
    Attack(
        "a_tenants_model_has_the_name_of_the_victims_model_at_zero",
        before=lambda world: world.patch(VARIANTS, "bad", {"spec": {"modelID": SLEEPING_MODEL}}),
        gateway=True,
    ),
    Attack("a_tenants_status_says_that_another_controller_decides", before=claimed_by_another),
]

BY_DAY = (
    "foreign_replica_set_with_a_copied_owner_uid_joins_a_variant",
    "foreign_pods_with_a_copied_owner_uid_while_the_controller_runs",
    "foreign_pods_with_a_copied_owner_uid_find_no_node",
    "foreign_pods_with_a_copied_owner_uid_say_that_they_are_idle",
    "foreign_pods_with_a_copied_owner_uid_come_and_go",
    "forged_number_before_a_start_from_zero",
    "forged_numbers_of_every_variant",
    "a_page_says_that_it_is_the_victims_pod",
    "a_page_uses_the_names_that_prometheus_gives",
    "a_tenant_with_the_names_of_the_victim",
    "scalers_of_a_tenant_name_the_victims_deployment",
    "variants_of_a_tenant_name_the_victims_deployment",
    "a_pool_of_a_tenant_selects_the_victims_model_at_zero",
    "a_tenants_model_has_the_name_of_the_victims_model_at_zero",
    "a_tenants_status_says_that_another_controller_decides",
)


@pytest.mark.parametrize("attack", by_day(ATTACKS, BY_DAY), ids=str)
async def test_the_victim_does_not_notice(world, attack):
    """The controller takes no pod, series or scaler of the tenant for the victim's."""
    await survive(world, attack)


def shipped_queries():
    """Return the queries of KEDA and prometheus-adapter about one variant, from the files in deploy/samples."""
    variant = 'exported_namespace="models",variant_name="chat-a100"'
    queries = {}
    for path in sorted(SAMPLES.glob("prometheus-adapter-values*.yaml")):
        for rule in yaml.safe_load(path.read_text(encoding="utf-8"))["rules"]["external"]:
            query = rule["metricsQuery"].replace("<<.LabelMatchers>>", variant)
            queries[f"{path.name}: {rule['name']['as']}"] = query
    scaled_object = yaml.safe_load((SAMPLES / "keda" / "chat-a100.yaml").read_text(encoding="utf-8"))
    queries["keda"] = scaled_object["spec"]["triggers"][0]["metadata"]["query"]
    return queries


@pytest.mark.parametrize("query", shipped_queries().values(), ids=shipped_queries().keys())
async def test_forged_series_change_nothing_that_a_scaler_reads(query):
    """The controller publishes 2 and a tenant's page claims 1000; the query of each shipped scaler returns 2."""
    own = "".join(
        f'{metric}{{variant_name="chat-a100",namespace="models",accelerator_type="A100"}} 2\n' for metric in PUBLISHED
    )
    claims = numbers_of("chat-a100", "models", 1000)
    forged = "".join(claims.replace("wva_desired_replicas", metric) for metric in PUBLISHED)
    controller = {"job": WVA_JOB, "namespace": SHIPPED_NAMESPACE, "pod": "controller", "instance": "a"}
    tenants = {"job": WVA_JOB, "namespace": TENANT, "pod": "page", "instance": "b"}
    without_namespace = {"job": "kubernetes-pods", "pod": "page", "instance": "c"}
    async with EmbeddedPrometheus(now=time.time) as prometheus, aiohttp.ClientSession() as session:
        pages = [(own, controller), (forged, tenants), (forged, without_namespace)]
        targets = [ScrapeTarget(InProcess(lambda text=text: text), labels) for text, labels in pages]
        prometheus.scraper.discover(lambda: targets)
        await prometheus.scrape()
        async with session.post(f"{prometheus.url}/api/v1/query", data={"query": query}) as answer:
            found = (await answer.json())["data"]["result"]
    assert [series["value"][1] for series in found] == ["2"]
