"""What later versions of the original made of required and spare capacity: the same targets from the same needs.

The cases are fed to the arithmetic in the order given, since ties go to the first; the pipeline sorts beforehand, and
shares the change of equal variants among them afterwards.
"""

from __future__ import annotations

import pytest

from tests.golden.vectors import Case, parameters, tally
from wva.decide.optimize.cost_aware import Candidate, grow, shrink
from wva.decide.optimize.greedy import Need, share
from wva.model.variant import ModelKey, VariantKey

NAME = "optimizer_v080"


@pytest.mark.parametrize("case", parameters(NAME))
def test_recorded_targets(case):
    """Target and action of every variant of every model."""
    tally(NAME).run += 1
    models = {key(row): row for row in case["models"]}
    grown = shared(case, models) if case["optimizer"] == "greedy-by-score" else {}
    found = {}
    for model, row in models.items():
        for before, after in zip(candidates(row), grown.get(model) or alone(row), strict=True):
            name = f"{model.namespace}/{model.model_id}/{before.key.name}"
            found[name] = {"target": after.number, "action": action(before.number, after.number)}
    assert found == case["expected"]


def key(row: Case) -> ModelKey:
    """Return the model of a recorded row."""
    return ModelKey(row["namespace"], row["model"])


def candidates(row: Case) -> tuple[Candidate, ...]:
    """Return the variants of a recorded model; a maximum of 0 is none."""
    return tuple(
        Candidate(
            key=VariantKey(row["namespace"], variant["variant"]),
            cost=variant["cost"],
            per_replica=variant["per_replica_capacity"],
            number=variant["current"],
            minimum=variant["min_replicas"] or 0,
            maximum=variant["max_replicas"] or None,
            accelerator=variant["accelerator"],
            gpus_per_replica=variant["gpus_per_replica"],
        )
        for variant in row["variants"]
    )


def alone(row: Case) -> list[Candidate]:
    """Decide on one model for itself."""
    if row["required_capacity"] > 0:
        return grow(candidates(row), row["required_capacity"])
    return shrink(candidates(row), row["spare_capacity"])


def shared(case: Case, models: dict[ModelKey, Case]) -> dict[ModelKey, tuple[Candidate, ...]]:
    """Share the GPUs among the models in need."""
    needs = [
        Need(model, row["required_capacity"], candidates(row), row["priority"] * row["score"])
        for model, row in models.items()
        if row["required_capacity"] > 0
    ]
    return share(needs, case["available_gpus"] or {})


def action(before: int, after: int) -> str:
    """Return the recorded word for a change."""
    return "no-change" if after == before else "scale-up" if after > before else "scale-down"
