"""ConfigMaps of namespaces on the real control plane, with the shipped roles and a controller for the whole cluster."""

from __future__ import annotations

import contextlib
import json
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from e2e import manifests
from e2e.controller import ControllerProcess
from e2e.controlplane.api import Body
from e2e.load import PodReport
from e2e.manifests import SATURATION_CONFIG_MAP, ManifestedVariant
from e2e.scene import Scene

VARIANT = ManifestedVariant(name="variant", replicas=2)
TIGHT = {"default": "kvCacheThreshold: 0.4\nkvSpareTrigger: 0.1\n"}
BROKEN = {"default": "kvCacheThreshold: 7\n"}
ALIAS = "saturation-scaling-config"
UPDATED = "Updated saturation config"
ENABLED, EXCLUDED = "wva.llmd.ai/config-enabled", "wva.llmd.ai/exclude"
INSTANCE = "wva.llmd.ai/controller-instance"
SECONDS = 30


@dataclass(frozen=True, slots=True)
class Team:
    """A namespace of workloads, and a controller that lives in another one and watches all of them."""

    scene: Scene
    system: str
    controller: ControllerProcess

    def declare(self) -> None:
        """Create the variant, labelled for this controller and no other test's."""
        body = manifests.variant_autoscaling(VARIANT, namespace=self.scene.namespace)
        body["metadata"]["labels"][INSTANCE] = self.system
        self.scene.api.apply(body)

    def undeclare(self) -> None:
        """Delete the variant."""
        self.scene.api.delete("VariantAutoscaling", VARIANT.name, namespace=self.scene.namespace)

    def configure(self, data: dict[str, str], *, local: bool = True, name: str = SATURATION_CONFIG_MAP) -> None:
        """Write a ConfigMap of the namespace, or a global one."""
        namespace = self.scene.namespace if local else self.system
        self.scene.api.apply(manifests.config_map(name, namespace=namespace, data=data))

    def delete(self, *, local: bool = True, name: str = SATURATION_CONFIG_MAP) -> None:
        """Delete a ConfigMap."""
        self.scene.api.delete("ConfigMap", name, namespace=self.scene.namespace if local else self.system)

    def label(self, *, enabled: str | None = None, excluded: str | None = None) -> None:
        """Set or remove label and annotation of the namespace."""
        metadata = {"labels": {ENABLED: enabled}, "annotations": {EXCLUDED: excluded}}
        self.scene.api.patch("Namespace", self.scene.namespace, {"metadata": metadata})

    def updates(self, *, local: bool = True) -> list[Any]:
        """Return every value that the default's KV threshold has had, in order; None where there was no entry."""
        lines = [line for line in self.controller.log(100_000).splitlines() if UPDATED in line and line.startswith("{")]
        found = [json.loads(line) for line in lines]
        scope = self.scene.namespace if local else None
        return [line["new"].get("default", {}).get("kvCacheThreshold") for line in found if line.get("scope") == scope]

    def wait_updates(self, expected: list[Any], *, local: bool = True) -> None:
        """Wait until the changes are exactly these."""
        self.scene.wait(
            lambda: self.updates(local=local) == expected, timeout_seconds=SECONDS, what=f"changes {expected}"
        )

    def wait_event(self, reason: str, *, local: bool = True) -> Body:
        """Wait for an event and return it."""
        namespace = self.scene.namespace if local else self.system
        path = f"/api/v1/namespaces/{namespace}/events?fieldSelector={urllib.parse.quote(f'reason={reason}')}"
        found: list[Body] = self.scene.wait(
            lambda: self.scene.api.raw(path)["items"], timeout_seconds=SECONDS, what=f"event {reason}"
        )
        return found[0]


@contextlib.contextmanager
def _system_namespace(scene: Scene) -> Iterator[str]:
    name = f"{scene.namespace}-sys"
    scene.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    bindings = []
    try:
        for item in manifests.rbac(name):
            scene.api.apply(item)
            if item["kind"] == "ClusterRoleBinding":
                bindings.append(item["metadata"]["name"])
        yield name
    finally:
        for controller in scene.controllers:
            controller.process.stop()  # the API server would refuse its requests
        for binding in bindings:
            scene.api.delete("ClusterRoleBinding", binding)
        scene.api.delete("Namespace", name)


@pytest.fixture
def system(scene: Scene) -> Iterator[str]:
    """Give a namespace for the controller, with its identity and roles."""
    with _system_namespace(scene) as name:
        main = {"GLOBAL_OPT_INTERVAL": "1s"}
        scene.api.apply(manifests.config_map(manifests.MAIN_CONFIG_MAP, namespace=name, data=main))
        yield name


def start(scene: Scene, system: str) -> Team:
    """Start a controller for the whole cluster that takes only variants with its label."""
    path = scene.plane.kubeconfig_for_service_account(system, manifests.SERVICE_ACCOUNT)
    environment = {"POD_NAMESPACE": system, "CONTROLLER_INSTANCE": system}
    controller = scene.start_controller("--watch-namespace=", kubeconfig=path, environment=environment)
    team = Team(scene, system, controller)
    scene.wait(
        lambda: controller.metrics().total("wva_cycles_total") >= 1, timeout_seconds=SECONDS, what="the first cycle"
    )
    return team


def test_a_local_override_waits_for_the_variant_and_follows_every_edit(scene: Scene, system: str):
    """Its ConfigMap comes before the variant, and is then broken, deleted and created again. WVA reports each edit."""
    metrics = scene.fixed_metrics()
    metrics.set(VARIANT.name, PodReport(0.5, 0))
    scene.api.apply(manifests.config_map(SATURATION_CONFIG_MAP, namespace=scene.namespace, data=TIGHT))
    scene.deploy(VARIANT)
    scene.wait_ready(VARIANT)
    team = start(scene, system)
    assert team.updates() == []
    team.declare()
    team.wait_updates([0.4])
    scene.wait(lambda: (scene.desired(VARIANT.name) or 0) > 2, timeout_seconds=60, what="more than two replicas wanted")

    team.configure(BROKEN)
    scene.wait(
        lambda: scene.condition(VARIANT.name, "ConfigurationValid").status == "False",
        timeout_seconds=SECONDS,
        what="the condition",
    )
    told = scene.condition(VARIANT.name, "ConfigurationValid").message
    assert f"ConfigMap {scene.namespace}/{SATURATION_CONFIG_MAP}: default.kvCacheThreshold: got 7" in told
    assert told.endswith("in force: 0.4, with the last valid text of this entry")
    event = team.wait_event("InvalidConfiguration")
    assert (event["type"], event["involvedObject"]["kind"]) == ("Warning", "ConfigMap")

    team.delete()
    team.wait_updates([0.4, None])
    assert "the global saturation configuration is in force" in team.wait_event("ConfigurationDeleted")["message"]
    scene.wait(
        lambda: scene.condition(VARIANT.name, "ConfigurationValid").status == "True",
        timeout_seconds=SECONDS,
        what="the condition again",
    )
    team.configure({"default": "kvCacheThreshold: 0.6"})
    team.wait_updates([0.4, None, 0.6])


def test_label_and_annotation_are_followed(scene: Scene, system: str):
    """The label opts in a namespace without variants. The annotation opts it out, even with a label or variant."""
    team = start(scene, system)
    team.configure(TIGHT)
    team.label(enabled="true")
    team.wait_updates([0.4])
    team.label()
    team.wait_updates([0.4, None])
    team.declare()
    team.wait_updates([0.4, None, 0.4])
    team.label(enabled="true", excluded="true")
    team.wait_updates([0.4, None, 0.4, None])
    team.label()
    team.wait_updates([0.4, None, 0.4, None, 0.4])
    team.undeclare()
    team.wait_updates([0.4, None, 0.4, None, 0.4, None])


def test_a_deleted_global_config_map_brings_the_defaults_back(scene: Scene, system: str):
    """WVA reports the deletion in an event. A ConfigMap under an older name gives way to the canonical name."""
    scene.api.apply(manifests.config_map(ALIAS, namespace=system, data={"default": "kvCacheThreshold: 0.7"}))
    team = start(scene, system)
    team.wait_updates([0.7], local=False)
    team.configure({"default": "kvCacheThreshold: 0.6"}, local=False)
    team.wait_updates([0.7, 0.6], local=False)
    assert team.wait_event("ConfigurationIgnored", local=False)["involvedObject"]["name"] == ALIAS
    team.delete(local=False, name=ALIAS)
    team.delete(local=False)
    team.wait_updates([0.7, 0.6, None], local=False)
    event = team.wait_event("ConfigurationDeleted", local=False)
    assert event["involvedObject"]["name"] == SATURATION_CONFIG_MAP
    assert "the built-in saturation defaults are in force" in event["message"]
