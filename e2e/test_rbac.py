"""Rights that few other tests use. The API server's audit log shows that the controller used each of them."""

from __future__ import annotations

import pytest

from e2e.controlplane.api import Body, KubernetesApi
from e2e.controlplane.audit import accesses, logs_in
from e2e.controlplane.cluster import ControlPlane
from e2e.controlplane.polling import eventually
from e2e.gateway import GROUP, OLDER_GROUP, gateway
from e2e.kustomize import DEPLOY
from e2e.load import PodReport
from e2e.manifests import MAIN_CONFIG_MAP, MODEL, SERVICE_ACCOUNT, ManifestedVariant
from e2e.rights import Right
from e2e.scene import Scene

ASLEEP = ManifestedVariant(name="asleep", replicas=0)


def test_a_model_is_woken_and_troubles_are_told_again(scene: Scene):
    """The controller watches pools of both groups, reads a Service, writes a scale and counts an event up."""
    metrics = scene.fixed_metrics()
    metrics.set(ASLEEP.name, PodReport(kv_usage=0.1))
    with gateway(scene, ASLEEP) as client:
        scene.deploy(ASLEEP)
        scene.declare(ASLEEP)
        scene.start_controller()
        scene.wait(lambda: scene.desired(ASLEEP.name) == 0, timeout_seconds=60, what="a number of zero")
        client.send(2, model=MODEL)
        scene.wait(lambda: scene.replicas(ASLEEP.name) >= 1, timeout_seconds=60, what="the first replica")
    for value in ("soon", "later", "soon"):  # the third change counts up the event of the first one
        scene.configure(MAIN_CONFIG_MAP, {"GLOBAL_OPT_INTERVAL": value})
        scene.wait(lambda value=value: _told(scene, value), timeout_seconds=60, what=f"an event about {value}")
    expected = {
        Right("", "services", "get"),
        Right("apps", "deployments/scale", "patch"),
        Right("", "events", "patch"),
        Right(GROUP, "inferencepools", "watch"),
        Right(OLDER_GROUP, "inferencepools", "watch"),
    }
    scene.wait(lambda: expected <= _made(scene), timeout_seconds=60, what=f"requests {expected}")


@pytest.mark.parametrize(
    ("role", "may", "may_not"),
    [
        ("view", {"get", "list", "watch"}, {"create", "patch", "update", "delete"}),
        ("edit", {"get", "list", "watch", "create", "patch", "update", "delete"}, {"deletecollection"}),
        ("admin", {"get", "create", "delete", "deletecollection"}, set[str]()),
    ],
)
def test_people_work_with_the_kind_by_the_built_in_roles(
    own_control_plane: ControlPlane, namespace: str, role: str, may: set[str], may_not: set[str]
):
    """Viewers, editors and admins of a namespace have these rights on its variants, by aggregated roles."""
    api = own_control_plane.api
    for path in sorted((DEPLOY / "rbac").glob("variantautoscaling_*_role.yaml")):
        api.apply_yaml(path.read_text(encoding="utf-8"))
    person = f"{role}-{namespace}"
    api.apply(_binding(person, role, namespace=namespace))
    for verb in sorted(may):
        eventually(
            lambda verb=verb: _may(api, person, verb, namespace=namespace), timeout_seconds=30, what=f"{role}: {verb}"
        )
    assert not [verb for verb in may_not if _may(api, person, verb, namespace=namespace)]
    assert not _may(api, person, "get", namespace="default")


def _binding(person: str, role: str, *, namespace: str) -> Body:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "person", "namespace": namespace},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": person}],
    }


def _may(api: KubernetesApi, person: str, verb: str, *, namespace: str) -> bool:
    """Ask the API server whether a person may use a verb on VariantAutoscalings."""
    what = {"group": "llmd.ai", "resource": "variantautoscalings", "verb": verb, "namespace": namespace}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": person, "resourceAttributes": what},
    }
    return bool(api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"])


def _told(scene: Scene, value: str) -> bool:
    return any(value in message for message in scene.events("InvalidConfiguration"))


def _made(scene: Scene) -> set[Right]:
    """Return the rights that the controller of a scene has used."""
    return {
        Right(access.group, access.resource, access.verb)
        for access in accesses(logs_in(scene.plane.layout.audit_log.parent), namespace=scene.namespace)
        if access.account == SERVICE_ACCOUNT and not access.forbidden
    }
