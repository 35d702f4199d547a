"""What comes of a cycle, whichever engine decided it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wva.decide.settle import Rule
from wva.model.decision import Decision
from wva.model.memory import Memory
from wva.model.variant import ModelKey, VariantKey


@dataclass(frozen=True, slots=True)
class FailedModel:
    """A model that could not be decided on, why in words, and the exception for the log."""

    model: ModelKey
    cause: str
    error: Exception = field(compare=False)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a cycle.

    Decisions and memory are sorted by variant. ``failures`` are the models that could not be decided on, sorted.
    ``refused`` are the namespaces that were decided on without their own configuration, because it makes decisions
    fail, each with the cause; sorted. ``rules`` says which rule of step 5 decided on a variant, where one did.
    """

    decisions: tuple[Decision, ...]
    memory: Memory
    failures: tuple[FailedModel, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    rules: Mapping[VariantKey, Rule] = field(default_factory=dict)
