"""The links of one variant: its object, target, pods, metrics, decision, publication, scaler and replicas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlencode

from wva.actuation import MODE_ANNOTATION
from wva.api.core import EXCLUDE_ANNOTATION
from wva.api.meta import Condition, Key, parse_time
from wva.api.scalers import PAUSED_REPLICAS_ANNOTATION
from wva.api.variantautoscaling import CONTROLLER_INSTANCE_LABEL, ConditionType, TargetReason
from wva.config.declare import TARGET_KINDS
from wva.decide.trust import SCRAPED_SELDOM
from wva.doctor.cluster import Cluster, Item, condition, key_of, mapping, path_of
from wva.doctor.diagnosis import Diagnosis, Link
from wva.doctor.installation import pod_trouble
from wva.kube.errors import ApiError
from wva.migration.objects import Finding, Subject
from wva.migration.scalers import DESIRED
from wva.publish.obstacles import standing
from wva.targets import DEFAULT, KINDS, TargetKind

STALE_SECONDS: Final = 900.0
"""The controller writes each status at least every ten minutes."""
_PAUSED_ANNOTATION: Final = "autoscaling.keda.sh/paused"
_EXTERNAL: Final = "external.metrics.k8s.io/v1beta1"
_MOST_PODS: Final = 3
_LINKS: Final[Mapping[ConditionType, Link]] = {
    ConditionType.READY: Link.TARGET,
    ConditionType.OPTIMIZATION_READY: Link.METRICS,
    ConditionType.LIMITED: Link.REPLICAS,
    ConditionType.QUERIES_ANSWERED: Link.METRICS,
    ConditionType.ENGINES_READABLE: Link.METRICS,
    ConditionType.REPLICAS_ON_TIME: Link.PODS,
    ConditionType.OBJECTIVES_MET: Link.REPLICAS,
    ConditionType.GATEWAY_READABLE: Link.DECISION,
    ConditionType.INVENTORY_CONSISTENT: Link.DECISION,
}
"""The link that each obstacle of a condition belongs to."""


@dataclass(slots=True)
class ExaminedVariant:
    """What was found of a variant: its target, the target's pods, its scalers, and what the controller says of it.

    ``published`` is the number on the page of metrics, None without a series; ``page_read`` says whether that page was
    read. ``shown`` is the controller's explanation, empty where it could not be asked.
    """

    item: Item
    target: Item | None = None
    pods: list[Item] = field(default_factory=list)
    autoscalers: list[Item] = field(default_factory=list)
    scaled_objects: list[Item] = field(default_factory=list)
    quotas: list[Item] = field(default_factory=list)
    namespace: Item | None = None
    published: float | None = None
    page_read: bool = False
    shown: Item = field(default_factory=dict)

    @property
    def subject(self) -> Subject:
        """The VariantAutoscaling as the subject of findings."""
        return Subject("VariantAutoscaling", key_of(self.item))

    @property
    def reference(self) -> tuple[str, str]:
        """Kind and name of the target."""
        reference = (self.item.get("spec") or {}).get("scaleTargetRef") or {}
        return str(reference.get("kind") or "Deployment"), str(reference.get("name") or "")

    @property
    def kind(self) -> TargetKind | None:
        """The kind of the target, None if it is one that WVA does not scale."""
        return next((kind for kind in KINDS if kind.resource.kind == self.reference[0]), None)

    @property
    def desired(self) -> int | None:
        """The number in the status."""
        number = ((self.item.get("status") or {}).get("desiredOptimizedAlloc") or {}).get("numReplicas")
        return number if isinstance(number, int) else None


async def with_target(cluster: Cluster, item: Item) -> ExaminedVariant:
    """Read the target of a variant, and nothing else."""
    view, namespace = ExaminedVariant(item), key_of(item).namespace
    kind, (_, name) = view.kind, view.reference
    if kind is not None and name:
        resource = kind.resource
        view.target = await cluster.get(path_of(resource.api_version, resource.plural, namespace, name))
    return view


async def view_of(cluster: Cluster, item: Item) -> ExaminedVariant:
    """Read what belongs to a variant."""
    view, namespace = await with_target(cluster, item), key_of(item).namespace
    kind, name = view.reference
    if view.target is not None:
        spec = view.target.get("spec") or {}
        labels = (spec.get("selector") or {}).get("matchLabels") or {}
        if view.kind is not None and view.kind.name_label:
            labels = {view.kind.name_label: name}
        if labels:
            selector = ",".join(f"{label}={value}" for label, value in sorted(labels.items()))
            view.pods = await cluster.list(path_of("v1", "pods", namespace), labelSelector=selector)
    for matching, group_version, plural in (
        (view.autoscalers, "autoscaling/v2", "horizontalpodautoscalers"),
        (view.scaled_objects, "keda.sh/v1alpha1", "scaledobjects"),
    ):
        for scaler in await cluster.list(path_of(group_version, plural, namespace)):
            reference = mapping(mapping(scaler.get("spec")).get("scaleTargetRef"))
            if (str(reference.get("kind") or "Deployment"), reference.get("name")) == (kind, name):
                matching.append(scaler)
    view.quotas = await cluster.list(path_of("v1", "resourcequotas", namespace))
    view.namespace = await cluster.get(path_of("v1", "namespaces", name=namespace))
    return view


def own_links(view: ExaminedVariant, *, instance: str | None, watched: str | None, now: float) -> Iterator[Diagnosis]:
    """Yield why the controller may not take the variant at all.

    ``instance`` and ``watched`` are settings of the controller, None where they are not known.
    """
    subject, metadata = view.subject, view.item.get("metadata") or {}
    labelled = (metadata.get("labels") or {}).get(CONTROLLER_INSTANCE_LABEL, "")
    if instance is not None and labelled != instance:
        problem = f"is for the controller instance {labelled!r}, and this one is {instance!r}"
        change = subject.kubectl("label", "--overwrite", f"{CONTROLLER_INSTANCE_LABEL}={instance}")
        if not instance:
            change = subject.kubectl("label", f"{CONTROLLER_INSTANCE_LABEL}-")
        yield Diagnosis(Link.VARIANT, "other-instance", subject.must(problem, change))
    if watched and subject.key.namespace != watched:
        problem = f"the controller watches the namespace {watched} alone"
        yield Diagnosis(Link.VARIANT, "namespace-not-watched", subject.must(problem, "change --watch-namespace"))
    annotations = ((view.namespace or {}).get("metadata") or {}).get("annotations") or {}
    if annotations.get(EXCLUDE_ANNOTATION) == "true":
        problem = f"its namespace has the annotation {EXCLUDE_ANNOTATION}=true"
        change = Subject("Namespace", Key("", subject.key.namespace)).kubectl("annotate", f"{EXCLUDE_ANNOTATION}-")
        yield Diagnosis(Link.VARIANT, "namespace-excluded", subject.must(problem, change))
    shadow = condition(view.item, ConditionType.SHADOW)
    if shadow.get("status") == "True":
        problem = f"is in shadow mode by the annotation {MODE_ANNOTATION}: {shadow.get('message')}"
        yield Diagnosis(Link.VARIANT, "shadow-mode", subject.note(problem))
    if not ((view.item.get("status") or {}).get("conditions")):
        problem = "has no status: no controller has looked at it"
        change = "see the findings about the controller; its log has the name of the variant"
        yield Diagnosis(Link.VARIANT, "never-seen", subject.must(problem, change))
        return
    allocation = (view.item.get("status") or {}).get("desiredOptimizedAlloc") or {}
    last = parse_time(allocation.get("lastRunTime"))
    if last is not None and now - last > STALE_SECONDS:
        problem = f"its status was last written at {allocation['lastRunTime']}: nothing decides on it now"
        yield Diagnosis(Link.DECISION, "status-old", subject.must(problem, "see the findings about the controller"))


def condition_links(view: ExaminedVariant) -> Iterator[Diagnosis]:
    """Yield what the controller itself says in the conditions, with its meaning."""
    subject = view.subject
    conditions = [
        Condition(
            type=str(entry.get("type") or ""),
            status=str(entry.get("status") or ""),
            reason=str(entry.get("reason") or ""),
            message=str(entry.get("message") or ""),
        )
        for entry in (view.item.get("status") or {}).get("conditions") or []
    ]
    kind, name = view.reference
    target = Subject(kind, Key(subject.key.namespace, name))
    changes = {
        TargetReason.DEPLOYMENT_NOT_FOUND: f"create the {kind}, or name another in spec.scaleTargetRef",
        TargetReason.TARGET_NOT_FOUND: f"create the {kind}, or name another in spec.scaleTargetRef",
        TargetReason.TARGET_CONFLICT: "delete one of the two VariantAutoscalings",
        TargetReason.TARGET_UNSUPPORTED: f"start the controller with WVA_TARGET_KINDS={kind}, and grant the rights"
        if kind in TARGET_KINDS
        else f"name a {' or '.join((DEFAULT.resource.kind, *TARGET_KINDS))} in spec.scaleTargetRef",
        "MetricsMissing": "let Prometheus scrape the pods, with the labels namespace and pod; spec.modelID must be the "
        "label model_name of vLLM's metrics",
        "MetricsStale": "look at the scrapes of these pods in Prometheus: /targets says why they fail",
        "MetricsInvalid": "look at the values that the message names in Prometheus",
        "MetricsIncomplete": "look at the scrapes of the pods that the message names",
        "PrometheusError": "check PROMETHEUS_BASE_URL, its token and its certificate; the log has the error",
        "QueryFailed": "look at what the message says of Prometheus, or of the store behind its API",
        "EngineSeriesUnusable": "keep the series that the message names in the scrape of these pods, as classic "
        "histograms and with vLLM's labels",
        "ModelNameShared": "give each model a name of its own (--served-model-name of vLLM, and spec.modelID); "
        "variants of one model belong behind one pool, each with a VariantAutoscaling",
        "RoleUnknown": "put the label of its role (llm-d.ai/role, or one of WVA_ROLE_LABELS) into the pod template, as "
        "other variants of the model have it",
        "EnginesDormant": "wake these engines (POST /wake_up), or delete their pods",
        "EnginesSlow": "look at the nodes of the pods that the message names (GPU errors, throttling, neighbours), and "
        "at the arguments of their engines; or delete these pods, so that others take their place",
        "ReplicasLate": target.kubectl("describe"),
        "PodsUnschedulable": "add nodes that these pods fit on; kubectl describe of a pod says what it lacks",
        "ContainersFailing": "kubectl logs --previous of the pod that the message names; check image and arguments",
        "ScalerMissing": "create an HPA or a ScaledObject for it: see deploy/samples",
        "ScalerNotFollowing": "see the findings about its scaler",
        "NoReadyReplicas": target.kubectl("describe"),
        "NoCandidate": "raise the maximum of a scaler, or mend the pods that the message names",
        "GpuLimited": "add GPUs, raise the quota, or free what others hold",
        "RoleLimited": "see the variants of the role that the message names",
        "Bounded": "raise the maximum of its scaler, or of the annotation wva.llmd.ai/max-replicas",
        "PartlyLimited": "raise the limit that the message names",
        "ObjectiveMissed": "see docs/runbooks/WVAObjectiveMissed.md: mend what keeps the model from growing, or choose "
        "objectives that its replicas reach",
        "AcceleratorUnknown": "correct the label inference.optimization/acceleratorName",
    }
    for obstacle, message in standing(conditions):
        link = _LINKS.get(obstacle.condition, Link.DECISION)
        problem = f"{message} ({obstacle.meaning.rstrip('.')})"
        yield Diagnosis(link, obstacle.reason, subject.must(problem, changes.get(obstacle.reason, "see the message")))
    for condition_ in conditions:
        if condition_.type == ConditionType.CONFIGURATION_VALID and condition_.status == "False":
            change = "mend the ConfigMap, annotation or scaler that the message names"
            yield Diagnosis(Link.CONFIGURATION, "configuration-invalid", subject.must(condition_.message, change))
        if condition_.type == ConditionType.METRICS_AVAILABLE and SCRAPED_SELDOM in condition_.message:
            change = "scrape the pods of engines every 15 s: interval of the ServiceMonitor or PodMonitor"
            yield Diagnosis(Link.METRICS, "scraped-seldom", subject.should(condition_.message, change))


def pod_links(view: ExaminedVariant) -> Iterator[Diagnosis]:
    """Yield which pods of the target are not Ready."""
    target = view.target
    if target is None:
        return
    wanted = int((target.get("spec") or {}).get("replicas", 1) or 0)
    kind, name = view.reference
    subject = Subject(kind, Key(view.subject.key.namespace, name))
    if wanted and not view.pods:
        failure = condition(target, "ReplicaFailure")
        reason = failure.get("message") or "its selector finds none"
        yield Diagnosis(Link.PODS, "no-pods", subject.must(f"has no pods: {reason}", subject.kubectl("describe")))
    troubled = [(pod, trouble) for pod in view.pods if (trouble := pod_trouble(pod))]
    for pod, trouble in troubled[:_MOST_PODS]:
        pod_subject = Subject("Pod", key_of(pod))
        name_ = "pod-unschedulable" if trouble.startswith("has no node") else "pod-not-ready"
        yield Diagnosis(Link.PODS, name_, pod_subject.should(trouble, pod_subject.kubectl("describe")))
    if troubled[_MOST_PODS:]:
        summary = f"has {len(troubled) - _MOST_PODS} more pods that are not Ready"
        yield Diagnosis(Link.PODS, "pod-not-ready", subject.should(summary, subject.kubectl("describe")))
    failure = condition(target, "ReplicaFailure")
    if view.pods and failure.get("status") == "True":
        name_ = "quota" if "quota" in str(failure.get("message")) else "pods-refused"
        problem = f"cannot create pods: {failure.get('message')}"
        yield Diagnosis(Link.REPLICAS, name_, subject.must(problem, "raise the quota, or mend what the message names"))


def sample_links(view: ExaminedVariant) -> Iterator[Diagnosis]:
    """Yield the samples that the controller ignored."""
    subject = view.subject
    ignored: dict[tuple[str, str], list[str]] = {}
    for sample in view.shown.get("ignored") or []:
        if sample.get("of") != "gateway" and sample.get("signal") in {"kv_usage", "queue_length"}:
            ignored.setdefault((str(sample.get("state")), str(sample.get("detail") or "")), []).append(
                str(sample.get("of"))
            )
    for (state, detail), pods in ignored.items():
        names = ", ".join(sorted(set(pods))[:_MOST_PODS])
        problem = f"samples of {names} are {state}{f': {detail}' if detail else ''}"
        change = "look at these pods in Prometheus (/targets), and at their label model_name"
        yield Diagnosis(Link.METRICS, f"samples-{state}", subject.should(problem, change))


def publication_links(view: ExaminedVariant) -> Iterator[Diagnosis]:
    """Yield whether the number of the status is on the page of metrics."""
    if not view.page_read or view.desired is None:
        return
    if view.published is None:
        problem = f"the leader's /metrics has no {DESIRED} for it, although its status has a number"
        yield Diagnosis(Link.PUBLICATION, "not-published", view.subject.must(problem, "see the log of the leader"))


async def scaler_links(cluster: Cluster, view: ExaminedVariant) -> list[Diagnosis]:
    """Return what keeps the scalers of the target from following the number."""
    diagnoses: list[Diagnosis] = []

    def say(name: str, finding: Finding) -> None:
        diagnoses.append(Diagnosis(Link.SCALER, name, finding))

    for scaled in view.scaled_objects:
        subject = Subject("ScaledObject", key_of(scaled))
        annotations = (scaled.get("metadata") or {}).get("annotations") or {}
        for annotation in (_PAUSED_ANNOTATION, PAUSED_REPLICAS_ANNOTATION):
            if annotations.get(annotation) not in (None, "false"):
                problem = f"is paused by its annotation {annotation}"
                say("scaler-paused", subject.must(problem, subject.kubectl("annotate", f"{annotation}-")))
        ready = condition(scaled, "Ready")
        if ready.get("status") == "False":
            say("scaler-not-ready", subject.must(str(ready.get("message")), subject.kubectl("describe")))
        elif not (scaled.get("status") or {}).get("conditions"):
            problem = "has no status: KEDA has not looked at it"
            say("keda-missing", subject.must(problem, "install KEDA, or look at the log of its operator"))
        if condition(scaled, "Fallback").get("status") == "True":
            say(
                "scaler-fallback", subject.should("runs on its fallback: KEDA cannot read the number", "see its events")
            )
    for hpa in view.autoscalers:
        subject = Subject("HorizontalPodAutoscaler", key_of(hpa))
        able, active = condition(hpa, "AbleToScale"), condition(hpa, "ScalingActive")
        if able.get("status") == "False":
            say("scaler-unable", subject.must(str(able.get("message")), subject.kubectl("describe")))
        if active.get("status") == "False" and active.get("reason") != "ScalingDisabled":
            say("scaler-inactive", subject.must(str(active.get("message")), subject.kubectl("describe")))
        spec = hpa.get("spec") or {}
        for direction in ("scaleUp", "scaleDown"):
            if ((spec.get("behavior") or {}).get(direction) or {}).get("selectPolicy") == "Disabled":
                problem = f"its behavior forbids to {'grow' if direction == 'scaleUp' else 'shrink'}"
                say("scaler-disabled", subject.should(problem, f"remove spec.behavior.{direction}.selectPolicy"))
        metrics = spec.get("metrics") or []
        ours = [metric for metric in metrics if _ours(metric)]
        other_types = [str(metric.get("type")) for metric in metrics if not _ours(metric)]
        if ours and other_types:
            problem = f"also follows other metrics ({', '.join(sorted(set(other_types)))}): the largest number counts"
            say("scaler-other-metrics", subject.should(problem, "remove them"))

        # The API of external metrics must have the number that the HPA asks for.
        for metric in ours:
            described = (metric.get("external") or {}).get("metric") or {}
            labels = (described.get("selector") or {}).get("matchLabels") or {}
            query = urlencode({"labelSelector": ",".join(f"{name}={value}" for name, value in sorted(labels.items()))})
            path = path_of(_EXTERNAL, str(described.get("name")), subject.key.namespace)
            failure = await cluster.failure(f"/apis/{_EXTERNAL}")
            if failure is not None:
                problem = f"the API of external metrics does not answer: {failure}"
                change = "install prometheus-adapter or KEDA; kubectl get apiservice v1beta1.external.metrics.k8s.io"
                say("adapter-missing", subject.must(problem, change))
                continue
            try:
                answer = await cluster.get(f"{path}?{query}")
            except ApiError as error:
                problem = f"the adapter does not answer for {described.get('name')}: {error}"
                change = (
                    "see the logs of the adapter; a cluster has one adapter for external metrics: where it is KEDA, "
                    "use a ScaledObject instead of an HPA of your own"
                )
                say("adapter-failing", subject.must(problem, change))
                continue
            if answer is not None and not answer.get("items"):
                problem = f"the adapter has no {described.get('name')} with {labels}"
                change = "compare the selector with the labels of the series in Prometheus, and the rule of the adapter"
                say("adapter-empty", subject.must(problem, change))
    return diagnoses


def _ours(metric: Item) -> bool:
    name = str(((metric.get("external") or {}).get("metric") or {}).get("name") or "")
    return name == DESIRED or name.startswith("s0-prometheus")


def replica_links(view: ExaminedVariant) -> Iterator[Diagnosis]:
    """Yield that the target does not have the desired number of replicas."""
    desired, target = view.desired, view.target
    if desired is None or target is None:
        return
    spec = int((target.get("spec") or {}).get("replicas", 1) or 0)
    if spec == desired:
        return
    kind, name = view.reference
    subject = Subject(kind, Key(view.subject.key.namespace, name))
    problem = f"has {spec} replicas, and {desired} are desired"
    change = "see the findings about its scaler; a scaler needs up to a minute, and a shrink its window"
    yield Diagnosis(Link.REPLICAS, "not-followed", subject.should(problem, change))
