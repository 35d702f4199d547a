"""What the doctor says: at which link of the chain something is wrong, the name of the fault, and what mends it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from wva.migration.objects import Finding


class Link(StrEnum):
    """The links of the chain, in their order. A broken link is often the cause of what is wrong further on."""

    DEFINITION = "definition"
    CONTROLLER = "controller"
    RIGHTS = "rights"
    CONFIGURATION = "configuration"
    VARIANT = "variant"
    TARGET = "target"
    PODS = "pods"
    METRICS = "metrics"
    DECISION = "decision"
    PUBLICATION = "publication"
    SCALER = "scaler"
    REPLICAS = "replicas"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Something that is wrong. ``name`` is stable, for programs; the finding says what, where, and what mends it."""

    link: Link
    name: str
    finding: Finding

    @property
    def order(self) -> tuple[int, tuple[object, ...], str]:
        """Sorts diagnoses by link, then by severity and object."""
        return (list(Link).index(self.link), self.finding.order, self.name)


MEANINGS: Final[Mapping[Link, Mapping[str, str]]] = {
    Link.DEFINITION: {
        "crd-missing": "The API server knows no VariantAutoscalings.",
        "crd-version": "The definition does not serve the version that the controller reads.",
        "crd-old": "The definition is older than the controller, so the API server drops fields.",
        "crd-not-established": "Another definition has the same names.",
    },
    Link.CONTROLLER: {
        "controller-missing": "The namespace has no controller.",
        "controller-at-zero": "The Deployment of the controller has no replicas.",
        "controller-not-ready": "A pod of the controller is not Ready; the finding says why.",
        "lease-missing": "There is no Lease, so no controller has ever led.",
        "no-leader": "Nobody holds the Lease.",
        "leader-gone": "The holder of the Lease no longer renews it.",
    },
    Link.RIGHTS: {"right-missing": "The account of the controller lacks a right that it needs."},
    Link.CONFIGURATION: {
        "configuration-wrong": "A value in a ConfigMap is not in force; the finding says which value is.",
        "configuration-invalid": "The condition ConfigurationValid of the variant is False.",
    },
    Link.VARIANT: {
        "variant-missing": "There is no such VariantAutoscaling.",
        "variant-wrong": "A field or label of the VariantAutoscaling is missing or wrong.",
        "other-instance": "The variant is for another instance of the controller.",
        "namespace-not-watched": "The controller watches another namespace only.",
        "namespace-excluded": "An annotation excludes the namespace.",
        "never-seen": "No controller has written a status.",
        "roles": "The roles of a model in disaggregated serving. It is no fault.",
        "role-without-partner": "The roles of a model do not serve a request: no variant computes answers.",
        "role-unknown": "The variant does not say its role, and others of its model do.",
        "shadow-mode": "The variant is in shadow mode, so nothing follows its number.",
    },
    Link.TARGET: {"target-wrong": "Two VariantAutoscalings have the same target."},
    Link.PODS: {
        "no-pods": "The target has no pods.",
        "pod-unschedulable": "A pod has no node.",
        "pod-not-ready": "A pod is not Ready; the finding says why.",
    },
    Link.METRICS: {
        "samples-missing": "Pods are Ready, but Prometheus has no samples of them.",
        "samples-stale": "The last samples are too old.",
        "samples-invalid": "Samples have impossible values.",
        "scraped-seldom": "Prometheus scrapes the pods less often than once a minute.",
    },
    Link.DECISION: {"status-old": "The status is old: no controller decides on the variant any more."},
    Link.PUBLICATION: {
        "not-published": "The status has a number, but `/metrics` does not.",
        "publication-wrong": "A rule of prometheus-adapter does not fit the metric.",
    },
    Link.SCALER: {
        "scaler-wrong": "The HPA or ScaledObject is missing, is there twice, or does not take the number as it is.",
        "scaler-paused": "The ScaledObject is paused.",
        "scaler-not-ready": "KEDA says that the ScaledObject is not Ready.",
        "scaler-fallback": "The ScaledObject runs on its fallback, because KEDA cannot read the number.",
        "keda-missing": "KEDA has not looked at the ScaledObject.",
        "scaler-unable": "The HPA cannot scale the target.",
        "scaler-inactive": "The HPA has no number.",
        "scaler-disabled": "The `behavior` of the HPA forbids to scale up or down.",
        "scaler-other-metrics": "The HPA follows other metrics as well.",
        "adapter-missing": "Nothing serves external metrics.",
        "adapter-failing": "The server of external metrics answers with an error.",
        "adapter-empty": "The server of external metrics has no series for the selector.",
    },
    Link.REPLICAS: {
        "quota": "A quota forbids pods of the target.",
        "pods-refused": "The API server refuses pods of the target.",
        "not-followed": "The target has not as many replicas as desired.",
    },
}
"""The findings of each link and what they mean. There are also findings with the name of a condition's reason."""
