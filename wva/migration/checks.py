"""Checks the variants, the controllers that decide on them, and the controllers' ConfigMaps."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from typing import Final, NamedTuple

from wva.api.crd import COST_PATTERN
from wva.api.meta import Key, parse_time
from wva.api.variantautoscaling import ACCELERATOR_LABEL, DEFAULT_VARIANT_COST
from wva.config import Inputs, Settings, load
from wva.config.kinds import MapKind
from wva.config.live import LiveConfiguration
from wva.config.load import unknown_keys
from wva.migration.objects import Finding, FoundObjects, ManifestContainer, ManifestVariant, Subject, about
from wva.prometheus.settings import PrometheusSettings
from wva.targets import DEFAULT, KINDS

_COST: Final = re.compile(COST_PATTERN)

_GO_IMAGES: Final = ("llm-d-workload-variant-autoscaler", "llm-d/workload-variant-autoscaler")
_LABELS: Final = {"app.kubernetes.io/name": "workload-variant-autoscaler", "control-plane": "controller-manager"}
_LEASE_NAME: Final = str(Settings.model_fields["leader_election_id"].default)
_LEASE_SECONDS: Final = 60.0

_MAIN: Final = str(Settings.model_fields["config_map_name"].default)
_MAIN_SUFFIX: Final = _MAIN.removeprefix("wva-")
_POLICY_NAMES: Final = (*(kind.canonical for kind in MapKind), *(name for kind in MapKind for name in kind.aliases))
_STORED: Final = "the Go controller stored it and did not use it"
_UNREAD: Final = "the Go controller did not read it"
_HAD_NO_EFFECT: Final = {
    "GLOBAL_OPT_INTERVAL": "the Go controller decided every 30 s with any value",
    "LOG_LEVEL": _UNREAD,
    "WVA_SCALE_TO_ZERO": "the Go controller took it from the environment only",
    "PROMETHEUS_METRICS_CACHE_ENABLED": _STORED,
    "PROMETHEUS_METRICS_CACHE_TTL": _STORED,
    "PROMETHEUS_METRICS_CACHE_FETCH_INTERVAL": _STORED,
    "PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD": _STORED,
    "PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD": _STORED,
    "PROMETHEUS_METRICS_CACHE_UNAVAILABLE_THRESHOLD": _STORED,
    "PROMETHEUS_METRICS_CACHE_CLEANUP_INTERVAL": _STORED,
    "PROMETHEUS_METRICS_CACHE_MAX_SIZE": _UNREAD,
}


class FoundController(NamedTuple):
    """A Deployment of this or the Go controller. ``watches`` is the namespace that it watches, empty for all."""

    subject: Subject
    container: ManifestContainer
    instance: str
    watches: str


def variant_findings(objects: FoundObjects) -> Iterator[Finding]:
    """Yield the problems of each variant alone."""
    deployments = {deployment.metadata.key for deployment in objects.deployments}
    kind = DEFAULT.resource.kind
    for variant in objects.variants:
        subject, reference = about(variant), variant.spec.scale_target_ref
        if not reference.name:
            example = {"apiVersion": DEFAULT.resource.api_version, "kind": kind, "name": kind.upper()}
            change = subject.merge_patch({"spec": {"scaleTargetRef": example}})
            problem = "spec.scaleTargetRef is missing: nothing is decided for it, and the CRD accepts no change of it"
            yield subject.must(problem, f"{change}, with the name of its {kind}")
        elif reference.kind not in {target_kind.resource.kind for target_kind in KINDS}:
            problem = f"spec.scaleTargetRef.kind is {reference.kind!r}: only {kind}s are scaled"
            yield subject.must(problem, f"name a {kind}, or delete the variant")
        elif reference.kind != kind:
            problem = f"scales a {reference.kind}: the controller does that only where WVA_TARGET_KINDS names the kind"
            yield subject.note(problem)
        elif objects.whole and Key(variant.metadata.namespace, reference.name) not in deployments:
            problem = f"its {kind} {reference.name} does not exist"
            yield subject.should(problem, f"create the {kind}, or delete the variant")
        if not variant.metadata.labels.get(ACCELERATOR_LABEL):
            change = subject.kubectl("label", f"{ACCELERATOR_LABEL}=ACCELERATOR")
            yield subject.should(
                f"has no label {ACCELERATOR_LABEL}: its accelerator is unknown, so no GPU budget holds for it; "
                "the Go controller published nothing for it, this one publishes accelerator_type=unknown",
                f"{change}, for example H100",
            )
        cost = variant.spec.variant_cost
        if cost is not None and not (isinstance(cost, str) and _COST.fullmatch(cost)):
            change = subject.merge_patch({"spec": {"variantCost": DEFAULT_VARIANT_COST}})
            problem = f'spec.variantCost is {cost!r}: expected a quoted decimal number such as "10.0"'
            yield subject.must(problem, f"{change}, with its cost per replica")
        if not variant.spec.model_id:
            yield subject.must("spec.modelID is empty", "set it to the model that vLLM serves")


def shared_target_findings(objects: FoundObjects) -> Iterator[Finding]:
    """Yield the variants that share their target with others."""
    by_target: defaultdict[str | None, list[ManifestVariant]] = defaultdict(list)
    for variant in objects.variants:
        if variant.target:
            by_target[variant.target_key].append(variant)
    for variants in by_target.values():
        names = sorted(variant.metadata.name for variant in variants)
        for variant in variants if len(variants) > 1 else ():
            others = ", ".join(name for name in names if name != variant.metadata.name)
            problem = f"scales {variant.target} as {others} does: both say TargetConflict, neither is decided"
            change = f"keep one variant for each {variant.target.split()[0]}"
            yield about(variant).must(problem, change)


def known_controllers(objects: FoundObjects) -> Iterator[FoundController]:
    """Yield the Deployments that run a controller, this one or the Go controller."""
    for deployment in objects.deployments:
        template = deployment.spec.template
        labels = {**deployment.metadata.labels, **template.metadata.labels}
        labelled = labels.items() >= _LABELS.items()
        containers = [container for container in template.spec.containers if labelled or _runs_go(container)]
        if not containers or deployment.spec.replicas == 0:
            continue
        container = containers[0]
        environment = {variable.name: variable.value for variable in container.env}
        flags = [word.partition("=")[2] for word in container.args if word.startswith("--watch-namespace=")]
        watches = flags[0] if flags else environment.get("WATCH_NAMESPACE", "")
        if flags and watches == "$(POD_NAMESPACE)":
            watches = deployment.metadata.namespace
        yield FoundController(about(deployment), container, environment.get("CONTROLLER_INSTANCE", ""), watches)


def _runs_go(container: ManifestContainer) -> bool:
    """Whether the image is one of the Go controller."""
    return any(image in container.image.partition("@")[0] for image in _GO_IMAGES)


def controller_findings(objects: FoundObjects, now: float) -> Iterator[Finding]:
    """Yield controllers to swap or to keep apart, and Leases with an unknown holder. ``now`` is in seconds."""
    controllers = list(known_controllers(objects))
    for controller in controllers:
        if _runs_go(controller.container):
            namespace, name = controller.subject.key
            image = f"{controller.container.name}=IMAGE"
            command = shlex.join(("kubectl", "set", "image", f"deployment/{name}", "-n", namespace, image))
            change = f"{command}, with the image built from Containerfile"
            yield controller.subject.must(f"runs the image of the Go controller, {controller.container.image}", change)

    for first, second in combinations(controllers, 2):
        same_namespace = first.subject.key.namespace == second.subject.key.namespace
        disjoint = first.watches and second.watches and first.watches != second.watches
        if not same_namespace and first.instance == second.instance and not disjoint:
            instance = f"instance {first.instance}" if first.instance else "no instance"
            problem = (
                f"decides on the same variants as {second.subject.key}: both have {instance}, and their Leases lie in "
                "different namespaces"
            )
            yield first.subject.must(
                problem, f"scale one of them to 0: {second.subject.kubectl('scale', '--replicas=0')}"
            )
        if (
            same_namespace
            and first.instance != second.instance
            and (_runs_go(first.container) or _runs_go(second.container))
        ):
            problem = (
                f"shares the Lease {_LEASE_NAME} with {second.subject.key.name} although their instances differ: only "
                "one of them decides"
            )
            yield first.subject.must(problem, "swap the images: then each has its Lease")

    namespaces = {controller.subject.key.namespace for controller in controllers}
    for lease in objects.leases:
        key, holder = lease.metadata.key, lease.spec.holder_identity
        renewed = parse_time(lease.spec.renew_time)
        lasts = lease.spec.lease_duration_seconds or _LEASE_SECONDS
        if key.name != _LEASE_NAME or not holder or renewed is None or now - renewed >= lasts:
            continue  # another Lease, or one without a current holder
        if objects.whole and key.namespace not in namespaces:
            problem = f"is held by {holder}, and no Deployment in {key.namespace} is known as a controller"
            change = "find out who holds it, and stop it: two controllers would decide on the same variants"
            yield about(lease).must(problem, change)


def configuration_findings(objects: FoundObjects) -> Iterator[Finding]:
    """Yield the problems of each ConfigMap of a controller. Its name may have any prefix."""
    for config_map in objects.config_maps:
        key, data = config_map.metadata.key, config_map.data
        subject = about(config_map)
        if key.name != _MAIN and not key.name.endswith(f"-{_MAIN_SUFFIX}"):
            # It either holds a policy or belongs to another program.
            policy = next((name for name in _POLICY_NAMES if key.name == name or key.name.endswith(f"-{name}")), None)
            if policy is not None:
                settings = load(Inputs({}, {"POD_NAMESPACE": key.namespace}, {})).settings
                outcome = LiveConfiguration(settings).apply(Key(key.namespace, policy), data)
                for line in outcome.problems if outcome else ():
                    yield subject.should(line, "mend the entry; until then it is left out")
            continue
        loaded = load(Inputs({}, {}, data))
        for problem in loaded.problems:
            if problem.fatal:
                yield subject.must(problem.refusal, f"mend {problem.key}")
            else:
                yield subject.should(str(problem), f"mend {problem.key}")
        if loaded.settings.prometheus_base_url:
            for line in PrometheusSettings.of(loaded.settings).problems():
                yield subject.must(line, "mend it; nothing is decided without Prometheus")
        for line in loaded.without_effect:
            yield subject.note(line)
        for unknown in unknown_keys(data):
            yield subject.should(f"{unknown}: no such setting", "remove it, or mend its name")
        for name, reason in _HAD_NO_EFFECT.items():
            if data.get(name):
                yield subject.note(f"{name}={data[name]!r} takes effect: {reason}")
