"""Checks of ScaledObjects: their query, their trigger and their fallback."""

from __future__ import annotations

import copy

import pytest


@pytest.fixture
def objects(sound, scaled_object):
    """Return the sound installation with a ScaledObject instead of its HPA."""
    return {**{name: entry for name, entry in sound.items() if name != "hpa"}, "scaled": scaled_object}


def trigger(objects):
    """Return the one trigger."""
    return objects["scaled"]["spec"]["triggers"][0]


def replace_in_query(old, new):
    """Return a fault of the query."""

    def spoil(objects):
        metadata = trigger(objects)["metadata"]
        metadata["query"] = metadata["query"].replace(old, new)

    return spoil


def drop(*path):
    """Return a fault: the field at this path is missing."""

    def spoil(objects):
        place = objects["scaled"]["spec"]
        for step in path[:-1]:
            place = place[step]
        del place[path[-1]]

    return spoil


def put(value, *path):
    """Return a fault: the field at this path has another value."""

    def spoil(objects):
        place = objects["scaled"]["spec"]
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value

    return spoil


FIRST = ("triggers", 0, "metadata")
FAULTS = {
    "fallback": (drop("fallback"), "should", "no fallback", '"behavior":"currentReplicas"'),
    "minimum": (drop("minReplicaCount"), "should", "minReplicaCount is 0", '"minReplicaCount":1'),
    "variant_name": (replace_in_query('variant_name="chat-va", ', ""), "must", "no variant_name", "add variant_name"),
    "exported_namespace": (
        replace_in_query(', exported_namespace="models"', ""),
        "should",
        "no exported_namespace",
        "add exported_namespace",
    ),
    "pin": (
        replace_in_query(', namespace="wva"', ""),
        "should",
        "its query takes the number from every page that Prometheus scrapes",
        'add job="NAME-OF-ITS-METRICS-SERVICE",namespace="wva"',
    ),
    "pin by another label": (
        replace_in_query(' namespace="wva"', ' kubernetes_namespace="wva"'),
        "should",
        "any pod can forge it",
        'namespace="wva"',
    ),
    "sum": (replace_in_query("max(", "sum("), "must", "its query sums", "use max"),
    "sum by": (replace_in_query("max(", "sum by (variant_name) ("), "must", "its query sums", "use max"),
    "nulls": (drop(*FIRST, "ignoreNullValues"), "must", "a missing number counts as 0", 'ignoreNullValues: "false"'),
    "threshold": (put("2", *FIRST, "threshold"), "must", "one to one", 'threshold: "1"'),
    "type": (put("Value", "triggers", 0, "metricType"), "must", "one to one", "metricType: AverageValue"),
    "unsafe": (put("true", *FIRST, "unsafeSsl"), "should", "does not check Prometheus' certificate", "TriggerAuth"),
    "alias": (
        replace_in_query("wva_desired", "inferno_desired"),
        "must",
        "WVA_INFERNO_METRIC_ALIASES",
        "ask for wva_desired_replicas",
    ),
}


def test_sound_one_has_no_finding(objects, findings):
    """A ScaledObject as in the samples has no finding."""
    assert findings(objects.values()) == []


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_found(objects, findings, name):
    """One finding names the ScaledObject, the problem and the change that mends it."""
    spoil, severity, problem, change = FAULTS[name]
    spoil(objects)
    (finding,) = findings(objects.values())
    assert (finding.severity.value, str(finding.key)) == (severity, "models/chat-so")
    assert problem in finding.problem
    assert change in finding.change


def test_where_several_controllers_run_the_namespace_is_left_to_the_reader(objects, sound, findings):
    """If several controllers run, the finding has a placeholder for the namespace."""
    spoil, *_ = FAULTS["pin"]
    spoil(objects)
    second = copy.deepcopy(sound["controller"])
    second["metadata"]["namespace"] = "green"
    second["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "CONTROLLER_INSTANCE", "value": "green"}]
    objects["second"] = second
    (finding,) = findings(objects.values())
    assert 'namespace="NAMESPACE-OF-THE-CONTROLLER"' in finding.change


def test_other_triggers_are_not_ours(objects, told):
    """A ScaledObject with another query has no finding, and the variant counts as without a scaler."""
    trigger(objects)["metadata"]["query"] = "sum(up)"
    assert [problem.split(" takes")[0] for _, _, problem in told(objects.values())] == ["no HPA and no ScaledObject"]


def test_two_scalers_undo_each_other(objects, sound, told):
    """A variant with an HPA and a ScaledObject gets one finding that names both."""
    objects["hpa"] = sound["hpa"]
    ((severity, key, problem),) = told(objects.values())
    assert (severity, key) == ("must", "models/chat-va")
    assert "HorizontalPodAutoscaler chat-hpa and ScaledObject chat-so" in problem


def test_hpa_of_keda_is_not_looked_at(objects, sound, findings):
    """The check skips the HPA that KEDA made for a ScaledObject."""
    owner = {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "name": "chat-so",
        "uid": "1",
        "controller": True,
    }
    sound["hpa"]["metadata"]["ownerReferences"] = [owner]
    objects["hpa"] = sound["hpa"]
    assert findings(objects.values()) == []


@pytest.fixture
def pushed(objects):
    """Return the installation with KEDA push: the ScaledObject asks the controller itself."""
    objects["variant"]["metadata"]["annotations"] = {"wva.llmd.ai/actuation": "keda-push"}
    metadata = {"scalerAddress": "wva-keda-push:9443", "variantName": "chat-va", "enableTLS": "true"}
    objects["scaled"]["spec"]["triggers"] = [
        {"type": "external-push", "metricType": "AverageValue", "metadata": metadata}
    ]
    return objects


def test_a_scaled_object_that_asks_the_controller_is_a_scaler(pushed, findings):
    """Its target is followed, and nothing has to change; without a name the variant is called like it."""
    assert findings(pushed.values()) == []
    pushed["scaled"]["metadata"]["name"] = "chat-va"
    del trigger(pushed)["metadata"]["variantName"]
    assert findings(pushed.values()) == []


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda objects: objects["variant"]["metadata"].pop("annotations"), "has no wva.llmd.ai/actuation: keda-push"),
        (lambda objects: trigger(objects).update(metricType="Value"), "does not take the number one to one"),
        (
            lambda objects: trigger(objects)["metadata"].update(variantName="other"),
            "no HPA and no ScaledObject takes wva_desired_replicas",
        ),
    ],
)
def test_what_is_wrong_with_it_is_told(spoil, problem, pushed, findings):
    """Each fault has one finding."""
    spoil(pushed)
    (finding,) = findings(pushed.values())
    assert problem in finding.problem
    assert finding.change
