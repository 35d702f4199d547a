"""Entries for models: ``default``, one entry for each model, and the two places where they may be.

An entry is merged before it is checked: the entry of the model over ``default`` over the built-in values. A bad entry
is rejected alone, and the last good one under its key stays in force: a typing error must not move the thresholds of a
whole cluster.

A namespace may have a ConfigMap of its own, which goes before the global one, entry by entry. Its ``default`` replaces
the global ``default``, and its entry for a model replaces the global entries for that model. It takes over every other
global entry. ``wva.model.policy`` merges an entry that was taken over onto the ``default`` of the namespace when it is
asked for, so many global entries cost nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from wva.collect.config.entry import DEFAULT_ENTRY, MAX_ENTRIES, EntryError, EntryForm, Notes, keep_good, limited
from wva.collect.config.fields import ModelFields
from wva.collect.config.reading import BadEntryError
from wva.collect.promql import validate_namespace
from wva.slices import Steps, at_once

MAX_LOCAL_ENTRIES: Final = 1_000
"""In the ConfigMap of a namespace: a tenant who writes there must not delay the decisions for all others."""

BEFORE: Final = "what it said last, else the default"
"""What is in force of a field that is none of a merged value."""

M = TypeVar("M", bound=ModelFields)
P = TypeVar("P")

Layers = tuple[M, ...]
"""Fields of entries, the nearest first: what one leaves out is taken from the next."""


@dataclass(frozen=True, slots=True)
class Rules(Generic[M, P]):
    """How entries of one kind are read.

    ``merge`` makes a value of layers and raises BadEntryError when they contradict each other; ``in_force`` says in
    words what a value has in a field (of all of it for no field). ``remarks`` says what an entry has in vain, told its
    key and whether it stands in the ConfigMap of a namespace. ``unused`` names the values of a good entry that mean
    nothing, each with what is in force instead. ``pairs``: an entry must name model and namespace both.
    """

    form: EntryForm[M]
    merge: Callable[[Layers[M]], P]
    in_force: Callable[[str, P], str]
    remarks: Callable[[str, M, bool], Iterable[str]]
    pairs: bool = False
    unused: Callable[[M], Iterable[tuple[BadEntryError, str]]] = lambda _: ()


@dataclass(frozen=True, slots=True)
class Entry(Generic[M]):
    """A good entry; ``namespace`` None is for the model in every namespace. The default entry has no model."""

    key: str
    model_id: str
    namespace: str | None
    fields: M


@dataclass(frozen=True, slots=True)
class Reading(Generic[M]):
    """What a ConfigMap says: ``overrides`` has the winning entry of each model, ``good`` every good entry by key."""

    default: M | None
    overrides: tuple[Entry[M], ...]
    good: Mapping[str, Entry[M]]
    errors: tuple[EntryError, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Resolved(Generic[M, P]):
    """What holds in a place, merged; ``default`` is None when no entry of that name holds there."""

    default: P | None
    overrides: tuple[tuple[Entry[M], P], ...]
    errors: tuple[EntryError, ...] = ()


def read(
    data: Mapping[str, str],
    rules: Rules[M, P],
    *,
    previous: Reading[M] | None = None,
    beneath: M | None = None,
    namespace: str | None = None,
) -> Reading[M]:
    """Read a ConfigMap. Never raises, for any text.

    ``previous`` is what the same ConfigMap said before. For the ConfigMap of a namespace, ``namespace`` is its name and
    ``beneath`` the global ``default`` that its entries inherit from while it has none of its own.
    """
    return at_once(read_in_steps(data, rules, previous=previous, beneath=beneath, namespace=namespace))


def read_in_steps(
    data: Mapping[str, str],
    rules: Rules[M, P],
    *,
    previous: Reading[M] | None = None,
    beneath: M | None = None,
    namespace: str | None = None,
) -> Steps[Reading[M]]:
    """Do the same as ``read``, entry by entry."""
    return _Reader(rules, previous.good if previous else {}, beneath, namespace).read(data)


class _Reader(Generic[M, P]):
    """State of one pass over a ConfigMap."""

    def __init__(
        self, rules: Rules[M, P], previous: Mapping[str, Entry[M]], beneath: M | None, namespace: str | None
    ) -> None:
        self._rules = rules
        self._previous = previous
        self._default = beneath
        self._namespace = namespace
        self._notes = Notes()
        self._written: dict[str, str] = {}

    def read(self, data: Mapping[str, str]) -> Steps[Reading[M]]:
        namespace = self._namespace or ""
        most, where = (MAX_LOCAL_ENTRIES, "in a namespace") if namespace else (MAX_ENTRIES, "in a ConfigMap")
        data = limited(data, self._notes, most=most, where=where, namespace=namespace)
        first = {key: text for key, text in data.items() if key == DEFAULT_ENTRY}
        default = (yield from self._keep(first)).get(DEFAULT_ENTRY)
        if default is not None:
            self._default = default.fields
        good = yield from self._keep({key: text for key, text in data.items() if key != DEFAULT_ENTRY})
        overrides = self._first_of_each(good.values())
        if default is not None:
            good[DEFAULT_ENTRY] = default
        notes = self._notes
        own = default.fields if default else None
        return Reading(own, overrides, good, tuple(notes.errors), tuple(notes.warnings))

    def _keep(self, data: Mapping[str, str]) -> Steps[dict[str, Entry[M]]]:
        return keep_good(data, self._parse, previous=self._previous, reject=self._reject)

    def _parse(self, key: str, text: str) -> Entry[M]:
        self._written = {}
        self._written = self._rules.form.written(key, text, self._notes)
        fields = self._rules.form.validate(self._written)
        entry = Entry(key, "", None, fields) if key == DEFAULT_ENTRY else self._for_model(key, fields)
        self._rules.merge(self._layers(entry))
        for problem, in_force in self._rules.unused(fields):
            self._notes.reject(key, problem, in_force=in_force, concerning=self._concerning(key, {}))
        for remark in self._rules.remarks(key, fields, self._namespace is not None):
            self._notes.warn(key, remark)
        return entry

    def _for_model(self, key: str, fields: M) -> Entry[M]:
        if not fields.model_id:
            raise BadEntryError("the model that this entry is for", field_name="model_id")
        namespace = fields.namespace or self._namespace
        if namespace is None:
            if self._rules.pairs:
                raise BadEntryError("the namespace of the model", field_name="namespace")
            return Entry(key, fields.model_id, None, fields)
        try:
            return Entry(key, fields.model_id, validate_namespace(namespace), fields)
        except ValueError as error:
            raise BadEntryError("a namespace", field_name="namespace", value=namespace) from error

    def _layers(self, entry: Entry[M]) -> Layers[M]:
        return (entry.fields,) if entry.key == DEFAULT_ENTRY else _over(entry.fields, self._default)

    def _reject(self, key: str, problem: BadEntryError, kept: Entry[M] | None) -> None:
        beneath = _over(self._default)
        try:
            value = self._rules.merge(self._layers(kept) if kept else beneath)
        except BadEntryError:
            value = self._rules.merge(beneath)
        in_force = self._rules.in_force(problem.field_name, value)
        self._notes.reject(key, problem, in_force=in_force, concerning=self._concerning(key, problem.written))

    def _concerning(self, key: str, written: Mapping[str, str]) -> dict[str, str]:
        if key == DEFAULT_ENTRY:
            return {"namespace": self._namespace or ""}
        fields = {**self._written, **written}
        return {**fields, "namespace": fields.get("namespace", self._namespace or "")}

    def _first_of_each(self, entries: Iterable[Entry[M]]) -> tuple[Entry[M], ...]:
        """Keep the first entry (by key) of each model; the others are named in a warning."""
        first: dict[tuple[str, str | None], Entry[M]] = {}
        for entry in entries:
            if self._namespace is not None and entry.namespace != self._namespace:
                here = f"the ConfigMap of namespace {self._namespace}"
                self._notes.warn(entry.key, f"has no effect: {here} cannot speak for namespace {entry.namespace}")
                continue
            winner = first.setdefault((entry.model_id, entry.namespace), entry)
            if winner is not entry:
                self._notes.warn(entry.key, f"has no effect: {winner.key} is for the same model and comes first")
        return tuple(first.values())


def resolve(reading: Reading[M], rules: Rules[M, P], *, beneath: M | None = None) -> Resolved[M, P]:
    """Merge what a ConfigMap says; ``beneath`` is the global default for one of a namespace that has no default."""
    return at_once(resolve_in_steps(reading, rules, beneath=beneath))


def resolve_in_steps(reading: Reading[M], rules: Rules[M, P], *, beneath: M | None = None) -> Steps[Resolved[M, P]]:
    """Do the same as ``resolve``, entry by entry."""
    notes = Notes()
    under = _over(beneath if reading.default is None else reading.default)
    merged = []
    for entry in reading.overrides:
        yield
        try:
            merged.append((entry, rules.merge((entry.fields, *under))))
        except BadEntryError as problem:
            # Good when it was read; the default that it inherits from has changed since.
            in_force = rules.in_force(problem.field_name, rules.merge(under))
            concerning = {"model_id": entry.model_id, "namespace": entry.namespace or ""}
            notes.reject(entry.key, problem, in_force=in_force, concerning=concerning)
    own = None if reading.default is None else rules.merge(under)
    return Resolved(own, tuple(merged), tuple(notes.errors))


def _over(*layers: M | None) -> Layers[M]:
    return tuple(layer for layer in layers if layer is not None)
