"""The ConfigMaps with the cost of accelerators and the measured performance of models on them.

``accelerator-unit-costs`` has a key for each accelerator, with the device's product name and its cost per hour as JSON
or YAML. The performance ConfigMap has entries under any keys. Their field names are those in the logs and system
descriptions of the Go controller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from pydantic import Field

from wva.collect.config.entry import MAX_ENTRIES, EntryError, EntryForm, Notes, keep_good, limited
from wva.collect.config.fields import (
    BATCH_SIZE,
    COUNT,
    WHOLE_COUNT,
    BatchSize,
    Fields,
    QuotedCount,
    Text,
    WholeCount,
)
from wva.collect.config.reading import BadEntryError, read_mapping
from wva.model.service import AcceleratorCost, PerformanceProfile
from wva.slices import Steps, at_once

V = TypeVar("V")

MAX_STEP_MILLISECONDS: Final = 1_000_000.0
MIN_STEP_MILLISECONDS: Final = 1e-3
"""Of a step of any engine: beyond, a request of usual length would take no time at all, or years."""


class CostFields(Fields):
    """The cost of one accelerator."""

    device: Text | None = None
    cost: QuotedCount | None = None


class ProfileFields(Fields):
    """The parameters of one model on one accelerator."""

    model_id: Text | None = None
    name: Text | None = None
    acc: Text | None = None
    acc_count: WholeCount | None = Field(default=None, alias="accCount")
    alpha: QuotedCount | None = None
    beta: QuotedCount | None = None
    gamma: QuotedCount | None = None
    delta: QuotedCount | None = None
    max_batch_size: BatchSize | None = Field(default=None, alias="maxBatchSize")
    at_tokens: WholeCount | None = Field(default=None, alias="atTokens")


EXPECTED: Final = {
    "device": "the product name of the device",
    "cost": COUNT.expected,
    "model_id": "a model id",
    "name": "a model id",
    "acc": "the name of an accelerator",
    "accCount": WHOLE_COUNT.expected,
    **dict.fromkeys(("alpha", "beta", "gamma", "delta"), COUNT.expected),
    "maxBatchSize": BATCH_SIZE.expected,
    "atTokens": WHOLE_COUNT.expected,
}
COST_FORM: Final = EntryForm(CostFields, EXPECTED)
PROFILE_FORM: Final = EntryForm(ProfileFields, EXPECTED)


@dataclass(frozen=True, slots=True)
class Found(Generic[V]):
    """The values of a ConfigMap in canonical order, and the good ones by key."""

    values: tuple[V, ...] = ()
    good: Mapping[str, V] = field(default_factory=dict)
    errors: tuple[EntryError, ...] = ()
    warnings: tuple[str, ...] = ()


def parse_costs(data: Mapping[str, str], *, previous: Found[AcceleratorCost] | None = None) -> Found[AcceleratorCost]:
    """Return the costs, sorted by accelerator. Never raises, for any text."""
    return at_once(read_costs(data, previous))


def read_costs(data: Mapping[str, str], previous: Found[AcceleratorCost] | None) -> Steps[Found[AcceleratorCost]]:
    """Do the same in steps."""
    notes = Notes()

    def parse(key: str, text: str) -> AcceleratorCost:
        fields = COST_FORM.validate(COST_FORM.written(key, text, notes))
        return AcceleratorCost(key, _needed(fields.cost, "cost"), fields.device or "")

    good = yield from _keep(data, parse, previous=previous, notes=notes)
    return Found(tuple(good[key] for key in sorted(good)), good, tuple(notes.errors), tuple(notes.warnings))


def parse_profiles(
    data: Mapping[str, str], *, previous: Found[PerformanceProfile] | None = None
) -> Found[PerformanceProfile]:
    """Return the profiles, sorted by model id and accelerator. Never raises, for any text."""
    return at_once(read_profiles(data, previous))


def read_profiles(
    data: Mapping[str, str], previous: Found[PerformanceProfile] | None
) -> Steps[Found[PerformanceProfile]]:
    """Do the same in steps."""
    notes = Notes()
    good = yield from _keep(data, lambda key, text: _profile(key, text, notes), previous=previous, notes=notes)
    first: dict[tuple[str, str], tuple[str, PerformanceProfile]] = {}
    for key, profile in good.items():
        winner, _ = first.setdefault((profile.model_id, profile.accelerator), (key, profile))
        if winner != key:
            notes.warn(key, f"has no effect: {winner} is for the same model and accelerator and comes first")
    values = tuple(first[place][1] for place in sorted(first))
    return Found(values, good, tuple(notes.errors), tuple(notes.warnings))


def _keep(
    data: Mapping[str, str], parse: Callable[[str, str], V], *, previous: Found[V] | None, notes: Notes
) -> Steps[dict[str, V]]:
    data = limited(data, notes, most=MAX_ENTRIES, where="in a ConfigMap")

    def reject(key: str, problem: BadEntryError, kept: V | None) -> None:
        in_force = "nothing of it" if kept is None else "what it said last"
        whose = kept.model_id if isinstance(kept, PerformanceProfile) else _model_named(data[key])
        notes.reject(key, problem, in_force=in_force, concerning={"model_id": whose})

    return (yield from keep_good(data, parse, previous=previous.good if previous else {}, reject=reject))


def _model_named(text: str) -> str:
    """Return the model that a bad entry is for as far as it can be read; empty when it cannot, or names none."""
    try:
        written, _ = read_mapping(text, fields=ProfileFields.names())
    except BadEntryError as problem:
        written = problem.written
    return written.get("model_id") or written.get("name", "")


def _profile(key: str, text: str, notes: Notes) -> PerformanceProfile:
    fields = PROFILE_FORM.validate(PROFILE_FORM.written(key, text, notes))
    profile = PerformanceProfile(
        alpha=_needed(fields.alpha, "alpha"),
        beta=_needed(fields.beta, "beta"),
        gamma=fields.gamma or 0.0,
        delta=fields.delta or 0.0,
        max_batch_size=fields.max_batch_size or 0,
        accelerator_count=fields.acc_count or 1,
        at_tokens=fields.at_tokens or 0,
        model_id=_needed(fields.model_id or fields.name, "model_id"),
        accelerator=_needed(fields.acc, "acc"),
    )
    if profile.alpha <= 0 and profile.gamma <= 0:
        raise BadEntryError("above 0, or gamma above 0", field_name="alpha", value=f"{profile.alpha:g}")
    _check_stable(profile)
    return profile


def _check_stable(profile: PerformanceProfile) -> None:
    """Raise BadEntryError for times with which a queue has no meaningful state for any requests."""
    batch = max(1, profile.max_batch_size)
    step, token = profile.alpha + profile.beta * batch, profile.delta * batch
    limit = f"at most {MAX_STEP_MILLISECONDS:,.0f} ms"
    if step > MAX_STEP_MILLISECONDS:
        raise BadEntryError(f"alpha + beta * maxBatchSize {limit}", field_name="beta", value=f"{step:g} ms")
    if token > MAX_STEP_MILLISECONDS:
        raise BadEntryError(f"delta * maxBatchSize {limit}", field_name="delta", value=f"{token:g} ms")
    if max(step, profile.gamma) < MIN_STEP_MILLISECONDS:
        least = f"a step, or gamma, of at least {MIN_STEP_MILLISECONDS:g} ms"
        raise BadEntryError(least, field_name="alpha", value=f"{step:g} ms")


def _needed(value: V | None, name: str) -> V:
    if value is None or value == "":
        raise BadEntryError(EXPECTED[name], field_name=name)
    return value
