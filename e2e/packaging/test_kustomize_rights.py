"""The shipped rights are exactly those that the code needs."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml

import wva
from e2e import kustomize
from e2e.controlplane.api import Body
from e2e.kustomize import DEPLOY, PREFIX
from e2e.rights import Right, places_of, rights, rights_of
from wva.api import kinds
from wva.api.kinds import NAMESPACES
from wva.api.resource import Resource
from wva.app.informers import Informers
from wva.config import Inputs, load
from wva.config.declare import TARGET_KINDS
from wva.config.kinds import local_names
from wva.doctor.rights import NEEDED
from wva.instruments import Instruments
from wva.targets import DEFAULT, KINDS, chosen_kinds

SOURCE = Path(wva.__file__).parent
VERBS = {"get", "list", "stream", "create", "update", "patch", "scale", "delete"}
# Every request to the API server besides those of the informers: file, method, the names in it, subresource.
CALLS = {
    ("cli/run.py", "get", "CONFIG_MAPS", ""): [kinds.CONFIG_MAPS],
    ("scale_from_zero/gateway.py", "get", "SERVICES", ""): [kinds.SERVICES],
    ("scale_from_zero/starts.py", "scale", "resource", ""): [],  # the targets that are switched on: see below
    ("actuation.py", "scale", "resource", ""): [],  # likewise
    ("controllers.py", "patch", "VARIANT_AUTOSCALINGS", "status"): [kinds.VARIANT_AUTOSCALINGS],
    ("serve/reviews.py", "create", "resource", ""): [kinds.TOKEN_REVIEWS, kinds.SUBJECT_ACCESS_REVIEWS],
    ("kube/leader.py", "get", "self.resource", ""): [kinds.LEASES],
    ("kube/leader.py", "create", "self.resource", ""): [kinds.LEASES],
    ("kube/leader.py", "update", "self.resource", ""): [kinds.LEASES],
    ("kube/events.py", "create", "self.resource", ""): [kinds.EVENTS],
    ("kube/events.py", "patch", "self.resource", ""): [kinds.EVENTS],
}
INFORMER = {("kube/watch.py", "list", "target.resource", ""), ("kube/watch.py", "stream", "target.resource", "")}
WATCHES = ("list", "watch")


@pytest.fixture(scope="module")
def shipped() -> list[Body]:
    """Return the objects of deploy/rbac."""
    return kustomize.render(DEPLOY / "rbac")


def granted(items: list[Body]) -> set[Right]:
    """Return the rights of the controller, without telling namespaces apart."""
    return rights_of(f"{PREFIX}controller-manager", items) or rights_of("controller-manager", items)


def calls() -> set[tuple[str, str, str, str]]:
    """Return every request that the controller sends through a client.

    The embedded world is no part of it. `wva migrate`, `wva doctor` and `wva explain` run with the rights of the person
    who calls them.
    """
    found = set()
    for file in sorted(SOURCE.rglob("*.py")):
        name = file.relative_to(SOURCE).as_posix()
        if name.startswith(("sim/", "migration/", "doctor/")) or name in {"kube/client.py", "cli/remote.py"}:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in VERBS:
                owner = ast.unparse(node.func.value)
                if owner.rpartition(".")[2].lstrip("_") == "client":
                    keywords = {keyword.arg: keyword.value for keyword in node.keywords}
                    sub = keywords.get("subresource")
                    text = sub.value if isinstance(sub, ast.Constant) else ""
                    found.add((name, node.func.attr, ast.unparse(node.args[0]), str(text)))
    return found


def asked(*, namespace: str = "", target_kinds: str = "") -> set[Right]:
    """Return what the code asks for; with a ``namespace`` what a process confined to it asks for.

    ``target_kinds`` are those that are scaled beside the default.
    """
    own = namespace or "own"
    environment = {"POD_NAMESPACE": own, "WATCH_NAMESPACE": namespace, "WVA_TARGET_KINDS": target_kinds}
    settings = load(Inputs({}, {**environment, "PROMETHEUS_BASE_URL": "https://p"}, {})).settings
    informers = Informers(None, settings=settings, instruments=Instruments(None))
    found = {
        Right(resource.group, resource.plural, verb)
        for resource in {id(informer.resource): informer.resource for informer in informers.all}.values()
        for verb in WATCHES
    }
    found |= {Right(kinds.LEASES.group, kinds.LEASES.plural, verb) for verb in WATCHES}
    if not namespace:
        names = local_names(settings)
        found |= {Right("", kinds.CONFIG_MAPS.plural, verb, name) for verb in WATCHES for name in names}
    for kind in chosen_kinds(target_kinds):
        found.add(Right(kind.resource.group, f"{kind.resource.plural}/scale", "patch"))
    for (_, verb, _, subresource), resources in CALLS.items():
        for resource in resources:
            found.add(Right(resource.group, "/".join(filter(None, (resource.plural, subresource))), verb))
    return found


def test_every_request_of_the_source_is_known():
    """A new call must be entered above, and with it the right that it takes."""
    assert calls() == set(CALLS) | INFORMER


def test_the_controller_may_do_what_it_asks_for_and_nothing_else(shipped: list[Body]):
    """Granted and needed rights are equal, rule by rule and verb by verb."""
    assert granted(shipped) == asked()


def test_an_installation_may_do_the_same_and_watch_its_own_config_map():
    """The chosen name of the saturation ConfigMap is one more in the namespaces of the models."""
    name = f"{PREFIX}wva-saturation-scaling-config"
    more = {Right("", "configmaps", verb, name) for verb in WATCHES}
    for overlay in ("kubernetes", "openshift", "dev"):
        assert granted(kustomize.render(DEPLOY / "overlays" / overlay)) == asked() | more


def test_a_confined_controller_has_the_rights_of_its_namespace():
    """The same rules come as Roles. Without cluster rights the controller cannot review tokens of metrics readers."""
    reviews = {Right(kind.group, kind.plural, "create") for kind in (kinds.TOKEN_REVIEWS, kinds.SUBJECT_ACCESS_REVIEWS)}
    items = kustomize.render(DEPLOY / "overlays" / "namespace-scoped")
    assert granted(items) == asked(namespace="models") - reviews


@pytest.mark.parametrize("kind", TARGET_KINDS)
def test_a_kind_that_is_switched_on_brings_its_own_rights_and_no_others(kind: str, tmp_path: Path):
    """A component adds the rights for its kind and the setting. Without the component the controller has neither."""
    component = "-".join(re.findall("[A-Z][a-z]+", kind)).lower() + "-targets"
    for overlay, namespace in (("kubernetes", ""), ("namespace-scoped", "models")):
        own = kustomize.write(tmp_path / overlay, DEPLOY / "overlays" / overlay, components=[component])
        items, before = kustomize.render(own), granted(kustomize.render(DEPLOY / "overlays" / overlay))
        added = asked(namespace=namespace, target_kinds=kind) - asked(namespace=namespace)
        assert len(added) >= 3
        assert granted(items) == before | added
        assert not before & added
        (data,) = [item["data"] for item in items if item["metadata"]["name"].endswith("-variantautoscaling-config")]
        assert load(Inputs({}, {}, data)).settings.target_kinds == kind


def test_the_names_of_the_setting_are_the_kinds_that_are_known():
    """Every kind that the code knows can be enabled by the setting."""
    assert tuple(kind.resource.kind for kind in KINDS if kind is not DEFAULT) == TARGET_KINDS


@pytest.mark.parametrize("overlay", kustomize.OVERLAYS)
def test_without_scale_from_zero_no_workload_is_written(overlay: str, tmp_path: Path):
    """The component removes the rights for starts from zero, and switches these starts off."""
    own = kustomize.write(tmp_path, DEPLOY / "overlays" / overlay, components=["without-scale-from-zero"])
    items = kustomize.render(own)
    before = granted(kustomize.render(DEPLOY / "overlays" / overlay))
    assert before - granted(items) == {Right("", "services", "get"), Right("apps", "deployments/scale", "patch")}
    assert not [item for item in items if "scale-from-zero" in item["metadata"]["name"]]
    (data,) = [item["data"] for item in items if item["metadata"]["name"].endswith("-variantautoscaling-config")]
    settings = load(Inputs({}, {}, data)).settings
    assert settings.scale_from_zero_max_concurrency == 0


@pytest.mark.parametrize("overlay", ["kubernetes", "namespace-scoped"])
def test_direct_actuation_brings_its_right_along(overlay: str, tmp_path: Path):
    """The component switches it on, and grants the right to scale also without scale from zero."""
    folder = DEPLOY / "overlays" / overlay
    without = kustomize.render(kustomize.write(tmp_path / "a", folder, components=["without-scale-from-zero"]))
    components = ["without-scale-from-zero", "direct-actuation"]
    items = kustomize.render(kustomize.write(tmp_path / "b", folder, components=components))
    assert granted(items) - granted(without) == {Right("apps", "deployments/scale", "patch")}
    assert granted(without) <= granted(items)
    (data,) = [item["data"] for item in items if item["metadata"]["name"].endswith("-variantautoscaling-config")]
    assert load(Inputs({}, {}, data)).settings.direct_actuation


@pytest.mark.parametrize("component", ["scale-in-named-namespaces", "direct-actuation-in-named-namespaces"])
@pytest.mark.parametrize("overlay", ["kubernetes", "openshift", "dev"])
def test_in_named_namespaces_the_rights_to_scale_are_the_same(overlay: str, component: str, tmp_path: Path):
    """Each namespace has them by a Role, also for a kind that is switched on; no other namespace has them."""
    folder = DEPLOY / "overlays" / overlay
    kinds_too = [*(["direct-actuation"] if component.startswith("direct") else []), "stateful-set-targets"]
    whole = kustomize.render(kustomize.write(tmp_path / "whole", folder, components=kinds_too))
    named = _in_namespaces(tmp_path, folder, ["prod", "staging"], [component, "stateful-set-targets"])
    account = f"{PREFIX}controller-manager"
    before, after = places_of(account, whole), places_of(account, named)
    scaling = {Right("apps", f"{plural}/scale", "patch") for plural in ("deployments", "statefulsets")}
    scaling.add(Right("", "services", "get"))
    assert {right: after.pop(right) for right in scaling} == {right: {"prod", "staging"} for right in scaling}
    assert all("" in before.pop(right) for right in scaling)
    assert after == before
    bindings = [item for item in named if item["kind"] == "RoleBinding" and item["metadata"]["namespace"] == "prod"]
    assert [item["subjects"] for item in bindings] == [
        [{"kind": "ServiceAccount", "name": account, "namespace": kustomize.NAMESPACE}]
    ]
    (data,) = [item["data"] for item in named if item["metadata"]["name"].endswith("-variantautoscaling-config")]
    assert load(Inputs({}, {}, data)).settings.direct_actuation is component.startswith("direct")


def _in_namespaces(directory: Path, overlay: Path, namespaces: list[str], components: list[str]) -> list[Body]:
    """Render an overlay with the right to scale in these namespaces, as docs/kustomize.md says."""
    for namespace in namespaces:
        kustomize.write(directory / namespace, DEPLOY / "scale-namespace", namespace=namespace)
    own = kustomize.write(directory / "own", overlay, components=components)
    file = own / "kustomization.yaml"
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    document["resources"] += [f"../{namespace}" for namespace in namespaces]
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return kustomize.render(own)


def test_the_doctor_asks_for_the_rights_that_are_shipped(shipped: list[Body]):
    """`wva doctor` compares the account of the controller with the roles, right by right."""
    known = {
        (needed.role, Right(needed.group, needed.resource, verb, name))
        for needed in NEEDED
        for verb in needed.verbs
        for name in needed.names or ("",)
    }
    ours = {needed.role for needed in NEEDED}
    roles = [item for item in shipped if "rules" in item and item["metadata"]["name"] in ours]
    assert known == {(item["metadata"]["name"], right) for item in roles for right in of(item)}
    assert {right for _, right in known} == granted(shipped)


def test_nothing_is_written_but_the_own_kinds_status_and_the_scale(shipped: list[Body]):
    """No writes to nodes, no Secrets, no wildcards; of Deployments the scale alone, by a role that may be left out."""
    of_controller = granted(shipped)
    writes = {right for right in of_controller if right.verb not in {"get", "list", "watch"}}
    assert {right.resource for right in writes} == {
        "variantautoscalings/status", "deployments/scale", "events", "leases", "tokenreviews", "subjectaccessreviews",
    }  # fmt: skip
    assert not {right for right in of_controller if "*" in (right.group, right.resource, right.verb)}
    assert not {right for right in of_controller if right.resource.startswith("secrets")}
    scaling = [
        item for item in shipped if "rules" in item and any(right.resource == "deployments/scale" for right in of(item))
    ]
    assert [item["metadata"]["name"] for item in scaling] == ["scale-from-zero-role"]


def of(role: Body) -> set[Right]:
    """Return the rights of one role."""
    return rights(role["rules"])


def test_nodes_and_namespaces_are_the_only_kinds_of_the_cluster(shipped: list[Body]):
    """Rights on kinds without a namespace have a ClusterRole of their own, since a Role cannot hold them."""
    whole = {resource.plural for resource in (kinds.NODES, NAMESPACES)}
    for role in shipped:
        if role["kind"] == "ClusterRole" and role["metadata"]["name"] in {"manager-role", "scale-from-zero-role"}:
            assert not {right.resource for right in of(role)} & whole
    assert isinstance(kinds.NODES, Resource)
    assert not kinds.NODES.namespaced


@pytest.mark.parametrize(
    ("role", "aggregated", "verbs"),
    [
        ("admin", "admin", {"*"}),
        ("editor", "edit", {"create", "delete", "get", "list", "patch", "update", "watch"}),
        ("viewer", "view", {"get", "list", "watch"}),
    ],
)
def test_people_get_the_kind_with_the_built_in_roles(shipped: list[Body], role: str, aggregated: str, verbs: set[str]):
    """The roles aggregate to the built-in ones, are about the right API group, and have no binding of their own."""
    (found,) = [item for item in shipped if item["metadata"]["name"] == f"variantautoscaling-{role}-role"]
    assert found["metadata"]["labels"] == {f"rbac.authorization.k8s.io/aggregate-to-{aggregated}": "true"}
    group, plural = kinds.VARIANT_AUTOSCALINGS.group, kinds.VARIANT_AUTOSCALINGS.plural
    assert of(found) == {Right(group, plural, verb) for verb in verbs} | {Right(group, f"{plural}/status", "get")}
    assert not [item for item in shipped if item.get("roleRef", {}).get("name") == found["metadata"]["name"]]


def test_the_reader_of_metrics_reads_metrics(shipped: list[Body]):
    """The reader of metrics has no other right, so a stolen token does little harm."""
    (reader,) = [item for item in shipped if item["metadata"]["name"] == "metrics-reader"]
    assert reader["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    items = kustomize.render(DEPLOY / "overlays" / "kubernetes")
    assert rights_of(f"{PREFIX}metrics-reader", items) == set()
