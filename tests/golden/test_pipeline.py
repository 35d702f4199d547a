"""Enforcer, limiter and their inputs give the recorded results in compatibility mode."""

from __future__ import annotations

import pytest
import yaml

from tests.builders import standing, variant
from tests.golden.vectors import Better, Case, parameters, tally
from wva.api.core import Container, PodTemplate, ResourceRequirements, TemplateSpec
from wva.api.meta import Key
from wva.collect.inventory import gpus_per_replica
from wva.config import Settings
from wva.config.live import LiveConfiguration
from wva.decide.v05 import enforced, grants, unchanged, used
from wva.godurations import parse_positive_duration
from wva.model.decision import Decision
from wva.model.inventory import normalize_accelerator
from wva.model.records import replace
from wva.model.variant import ModelKey, Variant

NAME = "pipeline"
UNKNOWN_COST = 10.0
"""The cost that the original assumed for a replica without one; in WVA every variant has a cost."""


def entries(case: Case) -> list[dict]:
    """Return the recorded entries that are YAML mappings."""
    found = []
    for text in case["scale_to_zero_configmap"].values():
        try:
            entry = yaml.safe_load(text)
        except yaml.YAMLError:
            continue
        if isinstance(entry, dict):
            found.append(entry)
    return found


def positive(text: object) -> bool:
    """Tell whether a text is a duration above zero."""
    try:
        return parse_positive_duration(str(text)) > 0
    except ValueError:
        return False


def better(case: Case) -> Better | None:
    """Tell whether WVA reads the ConfigMap differently on purpose."""
    if any(entry.get("namespace") for entry in entries(case)):
        return Better(
            "the namespace of an entry is obeyed",
            "config/test_config_parsers.py::test_the_namespace_of_a_scale_to_zero_entry_is_honoured",
        )
    if any(not positive(entry["retention_period"]) for entry in entries(case) if entry.get("retention_period")):
        return Better(
            "an entry whose retention is no positive duration is rejected whole",
            "config/test_config_parsers.py::test_a_retention_period_that_is_none_rejects_its_entry",
        )
    return None


@pytest.mark.parametrize("case", parameters(NAME, section="enforcer", better=better))
def test_recorded_enforcer(case):
    """Targets, whether they change, whether requests are counted, and over what time, are as recorded."""
    tally(NAME, "enforcer").run += 1
    settings = Settings()
    live = LiveConfiguration(settings)
    live.apply(Key(settings.pod_namespace, settings.scale_to_zero_config_map_name), case["scale_to_zero_configmap"])
    default = case["env_WVA_SCALE_TO_ZERO"].lower() == "true"
    policy = replace(live.policy, scale_to_zero_default=default).scale_to_zero_for(
        ModelKey(case["namespace"], case["model"])
    )
    costs = dict.fromkeys(case["targets"], UNKNOWN_COST) | case["variant_costs"]
    changed = enforced(case["targets"], costs, policy, case["request_count"])
    assert case["expected"] == {
        "targets": case["targets"] if changed is None else changed,
        "applied": changed is not None,
        "request_count_queried": policy.enabled,
        "retention_seconds_used": policy.retention_seconds if policy.enabled else 0,
    }


def claim_of(row: Case, accelerator: str) -> tuple[Decision, Variant]:
    """Return a recorded decision as the limiter's input."""
    given = variant(row["variant"], accelerator=accelerator, gpus_per_replica=row["gpus_per_replica"], cost=row["cost"])
    draft = unchanged(standing(given), "")
    wanted = replace(
        draft, current=row["current"], desired=row["target"], spare_capacity=row["spare_capacity"], steps=()
    )
    return wanted, given


def grant_of(decision: Decision, given: Variant) -> tuple[int, int, bool, str]:
    """Return a limited decision as recorded: target, additional GPUs, whether it is limited, and why."""
    gpus = max(0, decision.desired - decision.current) * max(1, given.gpus_per_replica)
    return decision.desired, gpus, bool(decision.limits), decision.steps[-1].reason


@pytest.mark.parametrize("case", parameters(NAME, section="greedy_single_pool"))
def test_recorded_allocation_from_one_pool(case):
    """Each variant gets the recorded number of GPUs, and the recorded number is left."""
    tally(NAME, "greedy_single_pool").run += 1
    free = {"pool": case["pool"]}
    claims = [claim_of(row, "pool") for row in case["decisions"]]
    granted = [grant_of(decision, given) for decision, (_, given) in zip(grants(claims, free), claims, strict=True)]
    assert [grant[:3] for grant in granted] == [
        (row["target"], row["gpus_allocated"], row["was_limited"]) for row in case["expected"]
    ]
    assert free["pool"] == case["expected_remaining"]


@pytest.mark.parametrize("case", parameters(NAME, section="limiter"))
def test_recorded_limiter(case):
    """Limits, used and available GPUs by type, and the grants are as recorded; without an inventory nothing changes."""
    tally(NAME, "limiter").run += 1
    if case["discovery_error"]:
        assert [row["target"] for row in case["expected"]] == [row["target"] for row in case["decisions"]]
        return
    limit: dict[str, int] = {}
    for products in case["discovered"].values():
        for product, count in products.items():
            name = normalize_accelerator(product)
            limit[name] = limit.get(name, 0) + count
    claims = [claim_of(row, row["accelerator"]) for row in case["decisions"]]
    taken = used(claims)
    available = {name: max(0, count - taken.get(name, 0)) for name, count in limit.items()}
    assert (limit, taken, available) == (
        case["expected_limit_by_type"],
        case["expected_used_by_type"],
        case["expected_available_by_type_before"],
    )
    granted = [
        grant_of(decision, given) for decision, (_, given) in zip(grants(claims, available), claims, strict=True)
    ]
    assert granted == [
        (row["target"], row["gpus_allocated"], row["was_limited"], row["step_reason"]) for row in case["expected"]
    ]


@pytest.mark.parametrize("case", parameters(NAME, section="normalize_accelerator_name"))
def test_recorded_product_name(case):
    """The normalized names of GPU products are as recorded."""
    tally(NAME, "normalize_accelerator_name").run += 1
    assert normalize_accelerator(case["in"]) == case["expected"]


def limits_only(case: Case) -> Better | None:
    """Tell whether a template has limits: Kubernetes fills in missing requests from them, so WVA counts limits."""
    limits = any(limits for limits in case.get("container_limits") or [])
    tested = "collect/test_variants.py::test_gpus_are_summed_over_containers_and_vendors"
    return Better("limits count as requests", tested) if limits else None


@pytest.mark.parametrize("case", parameters(NAME, section="gpus_per_replica", better=limits_only))
def test_recorded_gpus_per_replica(case):
    """The GPUs of a replica are the sum over containers and vendors, and at least 1."""
    tally(NAME, "gpus_per_replica").run += 1
    containers = [Container(resources=ResourceRequirements(requests, {})) for requests in case["container_requests"]]
    template = PodTemplate(spec=TemplateSpec(tuple(containers)))
    assert gpus_per_replica([(template, 1)]) == case["expected"]
