"""The ConfigMap of service classes: the objectives and the priority of each model.

It has two forms. A key like ``premium.yaml`` holds one class: ``name``, ``priority`` and ``data``, a list of models
with their objectives. The older form has a list of classes with one model each, under any key. An objective has two
possible names: ``slo-tpot`` or ``slo-itl`` per further token, ``slo-ttft`` or ``slo-ttw`` to the first one, in
milliseconds.

If a class cannot be read, the last good content of its key stays. If a model cannot be read, its last good objectives
stay. A model in several classes belongs to the most important one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from pydantic import Field

from wva.collect.config.entry import MAX_ENTRIES, EntryError, EntryForm, Notes, limited
from wva.collect.config.fields import COUNT, EXPECTED_WHOLE, Fields, QuotedCount, Text, WholeCount
from wva.collect.config.reading import BadEntryError, Tree, read_tree
from wva.model.service import HIGHEST_PRIORITY, LOWEST_PRIORITY, ServiceTarget
from wva.slices import Steps, at_once

T = TypeVar("T")

MAX_MODELS: Final = 1_000
"""In one key: a class of more is a broken tool's, and would keep everything else waiting."""

_PER_TOKEN: Final = ("slo-tpot", "slo-itl")
_FIRST_TOKEN: Final = ("slo-ttft", "slo-ttw")


class ClassFields(Fields):
    """What a class says of itself."""

    name: Text | None = None
    priority: WholeCount | None = None


class TargetFields(Fields):
    """What a class asks of one model."""

    model: Text | None = None
    slo_tpot: QuotedCount | None = Field(default=None, alias="slo-tpot")
    slo_itl: QuotedCount | None = Field(default=None, alias="slo-itl")
    slo_ttft: QuotedCount | None = Field(default=None, alias="slo-ttft")
    slo_ttw: QuotedCount | None = Field(default=None, alias="slo-ttw")
    slo_tps: QuotedCount | None = Field(default=None, alias="slo-tps")


EXPECTED: Final = {
    "name": "the name of the class",
    "priority": EXPECTED_WHOLE,
    "data": "a list of models with their objectives",
    "model": "a model id",
    **dict.fromkeys((*_PER_TOKEN, *_FIRST_TOKEN, "slo-tps"), COUNT.expected),
}
_CLASS: Final = EntryForm(ClassFields, EXPECTED)
_TARGET: Final = EntryForm(TargetFields, EXPECTED)

Place = tuple[str, str]
"""Key of the ConfigMap and model id."""


@dataclass(frozen=True, slots=True)
class ServiceClasses:
    """The target of each model, sorted by model, and every good target by its place."""

    targets: tuple[ServiceTarget, ...] = ()
    good: Mapping[Place, ServiceTarget] = field(default_factory=dict)
    errors: tuple[EntryError, ...] = ()
    warnings: tuple[str, ...] = ()


def parse_service_classes(data: Mapping[str, str], *, previous: ServiceClasses | None = None) -> ServiceClasses:
    """Return what a ConfigMap of service classes asks for. Never raises, for any text."""
    return at_once(read_service_classes(data, previous))


def read_service_classes(data: Mapping[str, str], previous: ServiceClasses | None) -> Steps[ServiceClasses]:
    """Do the same in steps."""
    return _Reader(previous.good if previous else {}).read(data)


class _Reader:
    """State of one pass over a ConfigMap."""

    def __init__(self, previous: Mapping[Place, ServiceTarget]) -> None:
        self._previous = previous
        self._notes = Notes()
        self._good: dict[Place, ServiceTarget] = {}
        self._previous_models: dict[str, list[str]] = {}
        for key, model_id in previous:
            self._previous_models.setdefault(key, []).append(model_id)

    def read(self, data: Mapping[str, str]) -> Steps[ServiceClasses]:
        data = limited(data, self._notes, most=MAX_ENTRIES, where="in a ConfigMap")
        for key in sorted(data):
            yield
            before = len(self._good)
            try:
                self._read_key(key, read_tree(data[key]))
            except BadEntryError as problem:
                places = [(key, model_id) for model_id in self._previous_models.get(key, ())]
                in_force = f"what it said last of {len(places)} models" if places else "nothing of it"
                self._notes.reject(key, problem, in_force=in_force, concerning={})
                while len(self._good) > before:
                    self._good.popitem()
                self._good |= {place: self._previous[place] for place in places}
        targets = self._most_important()
        return ServiceClasses(targets, self._good, tuple(self._notes.errors), tuple(self._notes.warnings))

    def _read_key(self, key: str, tree: Tree) -> None:
        if isinstance(tree, dict):
            self._read_class(key, tree)
        elif isinstance(tree, list):
            _limit(tree)
            for number, item in enumerate(tree):
                self._read_listed(key, f"[{number}]", item)
        else:
            raise BadEntryError("a service class, or a list of them", value="a single value")

    def _read_class(self, key: str, tree: dict[str, Tree]) -> None:
        fields = _CLASS.validate(_scalars(tree, ClassFields.names()))
        name = _needed(fields.name, "name")
        priority = self._priority(key, fields.priority)
        items = tree.get("data", [])
        if not isinstance(items, list):
            raise BadEntryError(EXPECTED["data"], field_name="data", value=_kind(items))
        _limit(items)
        self._warn_of_unknown(key, tree, ClassFields.names() | {"data"})
        for number, item in enumerate(items):
            self._read_target(key, f"data[{number}]", item, ServiceTarget(name, priority))

    def _read_listed(self, key: str, place: str, item: Tree) -> None:
        """Read a class of the list form, which has its model beside its name."""
        try:
            fields = _CLASS.validate(_scalars(_mapping(item), ClassFields.names()))
            whose = ServiceTarget(_needed(fields.name, "name"), self._priority(key, fields.priority))
        except BadEntryError as problem:
            self._reject_target(key, place, item, problem)
            return
        self._read_target(key, place, item, whose)

    def _read_target(self, key: str, place: str, item: Tree, whose: ServiceTarget) -> None:
        try:
            tree = _mapping(item)
            fields = _TARGET.validate(_scalars(tree, TargetFields.names()))
            model_id = _needed(fields.model, "model")
        except BadEntryError as problem:
            self._reject_target(key, place, item, problem)
            return
        self._warn_of_unknown(f"{key}.{place}", tree, TargetFields.names() | ClassFields.names())
        target = ServiceTarget(
            whose.class_name,
            whose.priority,
            ttft_milliseconds=_given(fields.slo_ttft, fields.slo_ttw),
            itl_milliseconds=_given(fields.slo_tpot, fields.slo_itl),
            tps=fields.slo_tps or 0.0,
            model_id=model_id,
        )
        known = self._good.get((key, model_id))
        if known is None or target.priority < known.priority:
            self._good[key, model_id] = target
        if known is not None:
            self._warn_of_rival(f"{key}.{place}", model_id, winner=self._good[key, model_id])

    def _reject_target(self, key: str, place: str, item: Tree, problem: BadEntryError) -> None:
        model = item.get("model", "") if isinstance(item, dict) else ""
        model_id = model if isinstance(model, str) else ""
        kept = self._previous.get((key, model_id))
        if kept is not None:
            self._good.setdefault((key, model_id), kept)
        in_force = "nothing of it" if kept is None else _shown_target(kept)
        field_name = f"{place}.{problem.field_name}" if problem.field_name else place
        located = BadEntryError(problem.expected, field_name=field_name, value=problem.value)
        self._notes.reject(key, located, in_force=in_force, concerning={"model_id": model_id})

    def _most_important(self) -> tuple[ServiceTarget, ...]:
        """Return the target of each model in its most important class; of equal ones the first key's."""
        chosen: dict[str, tuple[str, ServiceTarget]] = {}
        for (key, model_id), target in sorted(self._good.items(), key=lambda item: (item[1].priority, item[0])):
            _, winner = chosen.setdefault(model_id, (key, target))
            if winner is not target:
                self._warn_of_rival(key, model_id, winner=winner)
        return tuple(chosen[model_id][1] for model_id in sorted(chosen))

    def _warn_of_rival(self, where: str, model_id: str, *, winner: ServiceTarget) -> None:
        text = f"model {model_id} is in several classes; {winner.class_name} with priority {winner.priority} decides"
        self._notes.warn(where, text)

    def _warn_of_unknown(self, where: str, tree: Mapping[str, Tree], known: frozenset[str]) -> None:
        unknown = sorted(tree.keys() - known)
        if unknown:
            self._notes.warn(where, f"unknown fields are ignored: {', '.join(unknown)}")

    def _priority(self, key: str, given: int | None) -> int:
        if given is not None and HIGHEST_PRIORITY <= given <= LOWEST_PRIORITY:
            return given
        found = "none is given" if given is None else f"{given} is outside of {HIGHEST_PRIORITY} to {LOWEST_PRIORITY}"
        self._notes.warn(key, f"priority: {found}, {LOWEST_PRIORITY} is taken")
        return LOWEST_PRIORITY


def _limit(items: list[Tree]) -> None:
    if len(items) > MAX_MODELS:
        raise BadEntryError(f"at most {MAX_MODELS:,} models", value=f"{len(items)}")


def _scalars(tree: Mapping[str, Tree], names: frozenset[str]) -> dict[str, str]:
    """Return the known fields of a mapping. Raises BadEntryError when one is no scalar."""
    return {name: _scalar(name, tree[name]) for name in sorted(names & tree.keys())}


def _scalar(name: str, value: Tree) -> str:
    if not isinstance(value, str):
        raise BadEntryError("a single value", field_name=name, value=_kind(value))
    return value


def _mapping(item: Tree) -> dict[str, Tree]:
    if not isinstance(item, dict):
        raise BadEntryError("a mapping", value=_kind(item))
    return item


def _needed(value: str | None, name: str) -> str:
    if not value:
        raise BadEntryError(EXPECTED[name], field_name=name)
    return value


def _given(*values: float | None) -> float:
    return next(_known(values), 0.0)


def _known(values: tuple[T | None, ...]) -> Iterator[T]:
    return (value for value in values if value is not None)


def _kind(value: Tree) -> str:
    return "a mapping" if isinstance(value, dict) else "a list" if isinstance(value, list) else "a single value"


def _shown_target(target: ServiceTarget) -> str:
    milliseconds = f"ttft {target.ttft_milliseconds:g} ms, itl {target.itl_milliseconds:g} ms"
    return f"class {target.class_name}, priority {target.priority}, {milliseconds}"
