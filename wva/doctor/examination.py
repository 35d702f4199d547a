"""One examination: reads the cluster, asks the controller, and looks at the links in their order."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from wva.api.meta import Key
from wva.api.scalers import SCALED_OBJECT_KIND
from wva.api.variantautoscaling import GROUP, PLURAL, VERSION
from wva.command_error import CommandError
from wva.config.declare import declarations
from wva.config.keys import Settings
from wva.doctor import installation as installed
from wva.doctor import variants as looked
from wva.doctor.cluster import Cluster, Item, key_of, mapping, mappings, path_of
from wva.doctor.diagnosis import Diagnosis, Link
from wva.doctor.roles import role_labels_of, role_links
from wva.kube.client import KubeClient
from wva.migration import checks, scalers
from wva.migration.objects import Finding, FoundObjects, Severity, Subject, read_cluster
from wva.model.metrics import Coverage
from wva.model.trouble import cause_of
from wva.model.variant import VariantKey
from wva.serve.decisions import DECISIONS_PATH, explain_path
from wva.serve.pages import CONFIG_PAGE

Ask = Callable[[str], Awaitable[bytes]]
"""Returns a page of the controller that leads. Raises CommandError."""

_MOST_VARIANTS: Final = 500
_ASKED: Final = {
    name: declarations(Settings)[name].key
    for name in ("controller_instance", "watch_namespace", "role_labels", "role_values")
}
"""The settings of the controller that count here, each with the name that its page gives it."""
CHECKS: Final = {
    Link.SCALER: (scalers.autoscaler_findings, scalers.scaled_object_findings, scalers.pair_findings),
    Link.PUBLICATION: (scalers.adapter_findings,),
    Link.CONFIGURATION: (checks.configuration_findings,),
    Link.TARGET: (checks.shared_target_findings,),
    Link.VARIANT: (checks.variant_findings,),
}
"""Checks of the migration that hold for any installation, by link."""


class _Decided(msgspec.Struct, frozen=True):
    key: VariantKey
    coverage: Coverage


class _Decisions(msgspec.Struct, frozen=True):
    decisions: list[_Decided] = []


@dataclass(slots=True)
class Examination:
    """What was found. ``unread`` has the parts that could not be looked at; ``listed``: the variants were listed."""

    diagnoses: list[Diagnosis] = field(default_factory=list)
    variants: list[Key] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    listed: bool = True


async def examine(
    client: KubeClient,
    *,
    ask: Ask | None,
    namespace: str,
    lease: str,
    only: Key | None,
    now: float | None = None,
) -> Examination:
    """Look at the whole chain, of all variants or of one.

    ``ask`` asks the controller in ``namespace``, None where that is not possible. Raises ApiError when the API server
    does not answer.
    """
    now = time.time() if now is None else now
    cluster, examination = Cluster(client), Examination()
    installation = installed.InstalledController(namespace)
    with _looking(examination, "the definition"):
        examination.diagnoses += [diagnosis async for diagnosis in installed.definition_links(cluster)]
    with _looking(examination, "the controller"):
        links = installed.controller_links(cluster, installation, lease=lease, now=now)
        examination.diagnoses += [diagnosis async for diagnosis in links]
    settings, page, explain = await _of_controller(ask, only, examination)
    watched = settings.get("watch_namespace", "")
    groups = frozenset(str(group.get("name")) for group in mappings(((await cluster.get("/apis")) or {}).get("groups")))
    path = path_of(f"{GROUP}/{VERSION}", PLURAL, only.namespace if only else "")
    items = await cluster.list(path)
    examination.listed = bool(items) or cluster.knows(path)
    chosen = [item for item in items if only is None or key_of(item) == only]
    namespaces = sorted({key_of(item).namespace for item in chosen})
    with _looking(examination, "the rights of the controller"):
        rights = installed.rights_links(cluster, installation, groups, watched=watched, namespaces=namespaces)
        examination.diagnoses += [diagnosis async for diagnosis in rights]
    objects, unread = await read_cluster(client)
    for link, functions in CHECKS.items():
        for function in functions:
            with _looking(examination, f"{link.value} of all variants"):
                examination.diagnoses += [
                    Diagnosis(link, f"{link.value}-wrong", finding)
                    for finding in function(objects)
                    if finding.severity is not Severity.NOTE and _concerns(finding, objects, only, namespace)
                ]
    if (left_out := len(chosen) - _MOST_VARIANTS) > 0:
        examination.unread.append(
            f"{left_out} of {len(chosen)} VariantAutoscalings: at most {_MOST_VARIANTS} are looked at"
        )
    if only is not None and not chosen:
        subject = Subject("VariantAutoscaling", only)
        change = "create it: see deploy/samples"
        examination.diagnoses.append(Diagnosis(Link.VARIANT, "variant-missing", subject.must("does not exist", change)))
    views: dict[Key, looked.ExaminedVariant] = {}
    for item in chosen[:_MOST_VARIANTS]:
        key = key_of(item)
        examination.variants.append(key)
        with _looking(examination, f"VariantAutoscaling {key}"):
            view = await looked.view_of(cluster, item)
            view.page_read, view.published = page is not None, (page or {}).get(key)
            view.shown = await explain(key)
            instance = settings.get("controller_instance")
            for links_of in (
                partial(looked.own_links, instance=instance, watched=watched, now=now),
                looked.condition_links,
                looked.pod_links,
                looked.sample_links,
                looked.publication_links,
                looked.replica_links,
            ):
                with _looking(examination, f"VariantAutoscaling {key}"):
                    examination.diagnoses += links_of(view)
            examination.diagnoses += await looked.scaler_links(cluster, view)
            views[key] = view
    await _look_at_roles(cluster, examination, items, views, settings)
    examination.diagnoses.sort(key=lambda diagnosis: diagnosis.order)
    examination.unread += [f"{path}: {reason}" for path, reason in sorted(cluster.unread.items())]
    examination.unread += [f"{finding.kind}: {finding.problem}" for finding in unread]
    return examination


async def _look_at_roles(
    cluster: Cluster,
    examination: Examination,
    items: list[Item],
    views: Mapping[Key, looked.ExaminedVariant],
    settings: Mapping[str, str],
) -> None:
    """Look at the roles of each model with an examined variant, and read the model's other variants for that."""
    models: dict[tuple[str, str], list[Item]] = {_model_of(view.item): [] for view in views.values()}
    for item in items:
        if (model_items := models.get(_model_of(item))) is not None:
            model_items.append(item)
    for (namespace, model), model_items in models.items():
        with _looking(examination, f"the roles of model {model} in {namespace}"):
            members = [views.get(key_of(item)) or await looked.with_target(cluster, item) for item in model_items]
            examination.diagnoses += role_links(model, members, role_labels_of(settings))


def _model_of(item: Item) -> tuple[str, str]:
    return key_of(item).namespace, str(mapping(item.get("spec")).get("modelID") or "")


@contextmanager
def _looking(examination: Examination, part: str) -> Iterator[None]:
    """Note in ``unread`` a part that could not be looked at, because a field of an object has a wrong type.

    No schema holds for all objects of all clusters, and the objects of one variant must not hide the findings about the
    others.
    """
    try:
        yield
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        examination.unread.append(f"{part}: an object has a field of a wrong type ({cause_of(error)})")


def _concerns(finding: Finding, objects: FoundObjects, only: Key | None, namespace: str) -> bool:
    """Tell whether a finding is about a variant or about what serves it."""
    if finding.kind == "ConfigMap":
        return only is None or finding.key.namespace in {only.namespace, namespace}
    if only is None:
        return True
    if finding.kind == "VariantAutoscaling":
        return finding.key == only
    target = next((variant.target_key for variant in objects.variants if variant.metadata.key == only), None)
    scalers_ = objects.scaled_objects if finding.kind == SCALED_OBJECT_KIND else objects.autoscalers
    return any(scaler.metadata.key == finding.key and scaler.target_key == target for scaler in scalers_)


async def _of_controller(
    ask: Ask | None, only: Key | None, examination: Examination
) -> tuple[dict[str, Any], dict[Key, float] | None, Callable[[Key], Awaitable[Item]]]:
    """Return settings, published numbers and a way to explain, as far as the controller answers.

    Without ``only``, a variant is explained only if some of its replicas do not report: the API server has to review
    each right to an explanation, and a fleet has hundreds of variants.
    """

    async def silent(_: Key) -> Item:
        return {}

    if ask is None:
        return {}, None, silent
    pages: dict[str, bytes] = {}
    for path in (CONFIG_PAGE, "/metrics", *((DECISIONS_PATH,) if only is None else ())):
        try:
            pages[path] = await ask(path)
        except CommandError as error:
            examination.unread.append(f"controller {path}: {error}")

    # A page that was not read, or that does not decode, tells nothing.
    settings: dict[str, str] = {}
    if CONFIG_PAGE in pages:
        with suppress(msgspec.DecodeError):
            rows = msgspec.json.decode(pages[CONFIG_PAGE], type=list[dict[str, Any]])
            values = {str(row.get("name")): str(row.get("value") or "") for row in rows}
            settings = {name: values.get(key, "") for name, key in _ASKED.items()}

    published: dict[Key, float] | None = None
    if "/metrics" in pages:
        lines = [line for line in pages["/metrics"].decode("utf-8", "replace").splitlines() if scalers.DESIRED in line]
        with suppress(ValueError):
            published = {
                Key(sample.labels.get("namespace", ""), sample.labels.get("variant_name", "")): sample.value
                for family in text_string_to_metric_families("\n".join(lines) + "\n")
                for sample in family.samples
            }

    to_explain: set[Key] = set() if only is None else {only}
    if DECISIONS_PATH in pages:
        with suppress(msgspec.DecodeError):
            decisions = msgspec.json.decode(pages[DECISIONS_PATH], type=_Decisions).decisions
            incomplete = [
                decision.key for decision in decisions if decision.coverage.fresh < decision.coverage.expected
            ]
            to_explain = {Key(key.namespace, key.name) for key in incomplete}

    async def explain(key: Key) -> Item:
        if key not in to_explain:
            return {}
        try:
            answer = msgspec.json.decode(await ask(f"{explain_path(*key)}?changes=false"))
        except (CommandError, msgspec.DecodeError) as error:
            examination.unread.append(f"controller explain {key}: {error}")
            return {}
        return answer if isinstance(answer, dict) else {}

    return settings, published, explain
