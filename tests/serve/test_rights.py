"""The shipped roles: the controller may create reviews, and a scraper may read the metrics."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from wva.api.kinds import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS
from wva.serve.pages import METRICS_PATH

RBAC = Path(__file__).resolve().parents[2] / "deploy" / "rbac"


@pytest.fixture
def shipped():
    """Return all objects of the files in the kustomization, by kind and name."""
    files = yaml.safe_load((RBAC / "kustomization.yaml").read_text())["resources"]
    items = [item for name in files for item in yaml.safe_load_all((RBAC / name).read_text()) if item]
    return {(item["kind"], item["metadata"]["name"]): item for item in items}


def test_the_controller_may_ask_and_nothing_else_by_that_role(shipped):
    """The role allows only ``create`` on both reviews, and is bound to the controller's ServiceAccount."""
    assert shipped["ClusterRole", "metrics-auth-role"]["rules"] == [
        {"apiGroups": [review.group], "resources": [review.plural], "verbs": ["create"]}
        for review in (TOKEN_REVIEWS, SUBJECT_ACCESS_REVIEWS)
    ]
    binding = shipped["ClusterRoleBinding", "metrics-auth-rolebinding"]
    assert binding["roleRef"]["name"] == "metrics-auth-role"
    (subject,) = binding["subjects"]
    account = shipped["ServiceAccount", "controller-manager"]["metadata"]
    assert (subject["kind"], subject["name"], subject["namespace"]) == (
        "ServiceAccount",
        account["name"],
        account["namespace"],
    )


def test_a_scraper_may_read_the_metrics_and_is_chosen_by_the_operator(shipped):
    """The role exists, and no shipped binding refers to it."""
    assert shipped["ClusterRole", "metrics-reader"]["rules"] == [{"nonResourceURLs": [METRICS_PATH], "verbs": ["get"]}]
    bound = [item["roleRef"]["name"] for (kind, _), item in shipped.items() if kind.endswith("Binding")]
    assert "metrics-reader" not in bound
