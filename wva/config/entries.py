"""What the ConfigMaps of one kind say: read entry by entry, with the last good entry in force where a new one is wrong.

A kind is either global (``GlobalMap``), or made of entries for models (``LayeredMap``): ``default``, one entry for each
model, and the two places where they may be. Such an entry is merged before it is checked: the entry of the model over
``default`` over the built-in values. A bad entry is rejected alone, and the last good one under its key stays in force:
a typing error must not move the thresholds of a whole cluster.

A namespace may have a ConfigMap of its own, which goes before the global one, entry by entry. Its ``default`` replaces
the global ``default``, and its entry for a model replaces the global entries for that model. It takes over every other
global entry. ``wva.model.policy`` merges an entry that was taken over onto the ``default`` of the namespace when it is
asked for, so many global entries cost nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Generic, TypeVar

from pydantic import ValidationError

from wva.api.core import is_namespace
from wva.config.declare import GLOBAL_DEFAULT, Declaration, PlainScalar, by_key, declarations, printable
from wva.config.keys import EntryFields, ModelFields
from wva.config.yaml_text import BadEntryError, read_mapping
from wva.model.records import replace
from wva.model.service import PerformanceProfile
from wva.model.trouble import cause_of
from wva.slices import Steps, at_once

DEFAULT_ENTRY: Final = "default"
MAX_ENTRIES: Final = 10_000
"""In one ConfigMap: its megabyte has room for three times as many that are empty."""
MAX_LOCAL_ENTRIES: Final = 1_000
"""In the ConfigMap of a namespace: a tenant who writes there must not delay the decisions for all others."""

F = TypeVar("F", bound=EntryFields)
E = TypeVar("E", bound=ModelFields)
P = TypeVar("P")
R = TypeVar("R")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class EntryError:
    """Why an entry was rejected; all texts are for people.

    ``field`` is empty when it is about all of the entry. ``model_id`` and ``namespace`` are what the entry is for, as
    far as it could be read: empty for the default entry, and for an entry that is no YAML mapping.
    """

    key: str
    field: str
    value: str
    expected: str
    in_force: str
    model_id: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        """Return one sentence."""
        place = f"{self.key}.{self.field}" if self.field else self.key
        return f"{place}: got {self.value or 'nothing'}, expected {self.expected}; in force: {self.in_force}"


@dataclass(slots=True)
class Notes:
    """What there is to say about a ConfigMap."""

    errors: list[EntryError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def reject(
        self, key: str, problem: BadEntryError, *, in_force: str, model_id: str = "", namespace: str = ""
    ) -> None:
        """Note why an entry cannot be used; ``model_id`` and ``namespace`` as far as known."""
        texts = (key, problem.field_name, problem.value, model_id, namespace)
        key, field_name, value, model_id, namespace = map(printable, texts)
        self.errors.append(EntryError(key, field_name, value, problem.expected, in_force, model_id, namespace))

    def warn(self, key: str, text: str) -> None:
        """Note what has no effect in an entry."""
        self.warnings.append(f"{printable(key)}: {printable(text)}")

    def limit(
        self, data: Mapping[str, str], *, most: int = MAX_ENTRIES, where: str = "in a ConfigMap", namespace: str = ""
    ) -> list[str]:
        """Return the keys that are read: ``default`` and the first ones by name; that there are more is noted."""
        keys = sorted(data, key=lambda key: (key != DEFAULT_ENTRY, key))
        if len(keys) > most:
            problem = BadEntryError(f"at most {most:,} {where}", value=f"{len(keys)} entries")
            self.reject(keys[most], problem, in_force=f"the first {most:,} by key", namespace=namespace)
        return keys[:most]


def read_fields(fields: type[F], written: Mapping[str, str]) -> F:
    """Return an entry of what is written. Raises BadEntryError for the first field that does not fit."""
    try:
        return fields.model_validate(written)
    except ValidationError as error:
        name = str(error.errors(include_url=False, include_context=False)[0]["loc"][0])
        value = written[name]
        # The quotes may be what is wrong with it.
        found = value if isinstance(value, PlainScalar) or not value else f'"{value}"'
        raise BadEntryError(by_key(fields)[name].form.expected, field_name=name, value=found) from error


def written_fields(fields: type[EntryFields], key: str, text: str, notes: Notes) -> dict[str, str]:
    """Return the known fields of an entry as they are written. Raises BadEntryError."""
    found, unknown = read_mapping(text, fields=fields.names())
    if unknown:
        notes.warn(key, f"unknown fields are ignored: {', '.join(unknown)}")
    return found


def needed(entry: EntryFields, attribute: str, *others: str) -> Any:
    """Return the first value that an entry has of a few attributes. Raises BadEntryError when it has none."""
    for name in (attribute, *others):
        if getattr(entry, name) not in {None, ""}:
            return getattr(entry, name)
    declared = declarations(type(entry))[attribute]
    raise BadEntryError(declared.form.expected, field_name=declared.key)


@cache
def settable(fields: type[ModelFields]) -> Mapping[str, Declaration]:
    """Return the fields of an entry that become part of a policy for a model, by attribute."""
    return {
        name: declared
        for name, declared in declarations(fields).items()
        if name not in ModelFields.model_fields and GLOBAL_DEFAULT not in declared.places
    }


def given(entry: ModelFields) -> dict[str, Any]:
    """Return what an entry says itself of a policy, by attribute."""
    return {name: value for name in settable(type(entry)) if (value := getattr(entry, name)) is not None}


# --- what ConfigMaps of a kind say ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Said(Generic[V]):
    """What a ConfigMap says: the values that count, every good entry by its name, and what there is to tell.

    ``rejected`` says why entries cannot be used, ``misfits`` why good ones do not fit together.
    """

    values: tuple[V, ...] = ()
    good: Mapping[Any, V] = field(default_factory=dict)
    rejected: tuple[EntryError, ...] = ()
    warnings: tuple[str, ...] = ()
    misfits: tuple[EntryError, ...] = ()

    @property
    def errors(self) -> tuple[EntryError, ...]:
        """Why entries are not in force."""
        return self.rejected + self.misfits


class EntryMap(Generic[V]):
    """The ConfigMaps of one kind; ``namespace`` is empty for the global one."""

    def __init__(self) -> None:
        """Start without any ConfigMap."""
        self._said: dict[str, Said[V]] = {}

    def of(self, namespace: str) -> Said[V]:
        """Return what a ConfigMap says now."""
        return self._said.get(namespace) or Said()

    def take(self, namespace: str, data: Mapping[str, str]) -> Steps[None]:
        """Take what a ConfigMap says; where it is wrong, what it said last stays. In force after the last step."""
        raise NotImplementedError

    def forget(self, namespace: str) -> None:
        """Drop all that the ConfigMap of a namespace said."""
        self._said.pop(namespace, None)


class GlobalMap(EntryMap[V]):
    """A kind with one ConfigMap, the global one."""

    def __init__(
        self,
        read: Callable[[Mapping[str, str], Mapping[Any, V], Notes], Steps[dict[Any, V]]],
        values_of: Callable[[Mapping[Any, V], Notes], tuple[V, ...]],
    ) -> None:
        """``read`` returns the good entries, and is told the good ones before; ``values_of`` picks what counts."""
        super().__init__()
        self._read, self._values_of = read, values_of

    def take(self, namespace: str, data: Mapping[str, str]) -> Steps[None]:
        """Read the ConfigMap again."""
        notes = Notes()
        good = yield from self._read(data, self.of(namespace).good, notes)
        self._said[namespace] = Said(self._values_of(good, notes), good, tuple(notes.errors), tuple(notes.warnings))


def read_each(
    fields: type[F],
    make: Callable[[str, F], V],
    data: Mapping[str, str],
    before: Mapping[Any, V],
    notes: Notes,
) -> Steps[dict[Any, V]]:
    """Return the value that ``make`` builds from each entry, by key; a bad entry keeps its last good value, if any."""
    good: dict[Any, V] = {}
    for key in sorted(notes.limit(data)):
        yield
        written: dict[str, str] = {}
        try:
            written = written_fields(fields, key, data[key], notes)
            good[key] = make(key, read_fields(fields, written))
        except BadEntryError as problem:
            said, kept = written or problem.written, before.get(key)
            model_id = said.get("model_id") or said.get("name", "")
            model_id = kept.model_id if isinstance(kept, PerformanceProfile) else model_id
            in_force = "nothing of it" if kept is None else "what it said last"
            notes.reject(key, problem, in_force=in_force, model_id=model_id)
            good |= {} if kept is None else {key: kept}
    return good


@dataclass(frozen=True, slots=True)
class Entry(Generic[E]):
    """A good entry; ``namespace`` None is for the model in every namespace. The default entry has no model."""

    key: str
    model_id: str
    namespace: str | None
    fields: E


@dataclass(frozen=True, slots=True)
class Rules(Generic[E, P, R]):
    """How entries for models of one kind are merged.

    ``base`` holds without any entry. ``over`` lays an entry over a policy, and ``check`` raises BadEntryError when the
    result contradicts itself. ``made_of`` makes of the merged ``default`` and the merged entries what a decision reads.
    ``remarks`` returns warnings on an entry. ``unused`` names the values of a good entry that mean nothing, each with
    what is in force instead. ``pairs``: an entry must name model and namespace both. ``told`` are the first fields that
    say what is in force of all of an entry, 0 for all.
    """

    fields: type[E]
    base: P
    over: Callable[[P, E], P]
    made_of: Callable[[P | None, Sequence[tuple[Entry[E], P]]], R]
    check: Callable[[P], None] = lambda _: None
    remarks: Callable[[E], Iterable[str]] = lambda _: ()
    unused: Callable[[E], Iterable[tuple[BadEntryError, str]]] = lambda _: ()
    pairs: bool = False
    told: int | None = None

    def merge(self, *layers: E | None) -> P:
        """Return the policy of entries, the nearest first: what one leaves out is taken from the next.

        Raises BadEntryError.
        """
        merged = self.base
        for layer in reversed(layers):
            merged = merged if layer is None else self.over(merged, layer)
        self.check(merged)
        return merged

    def in_force(self, name: str, policy: P) -> str:
        """Return in words what a policy has in a field, of the whole policy for any other name."""
        declared = by_key(self.fields).get(name)
        fields = list(settable(self.fields).values())
        if declared is not None and GLOBAL_DEFAULT in declared.places:
            return "what it said last, else the default"
        values = ((each, getattr(policy, each.attribute)) for each in fields)
        words = {each.key: each.unset if value is None else each.form.show(value) for each, value in values}
        return words.get(name) or ", ".join(f"{each.key} {words[each.key]}" for each in fields[: self.told])


class LayeredMap(EntryMap[Entry[E]], Generic[E, P, R]):
    """A kind that a namespace may have for itself, entry by entry over the global one."""

    def __init__(self, rules: Rules[E, P, R]) -> None:
        """Start with what holds without entries."""
        super().__init__()
        self._rules = rules
        self.everywhere: R = rules.made_of(None, ())
        self.local: dict[str, R] = {}

    def default(self, namespace: str = "") -> E | None:
        """Return the ``default`` entry of a ConfigMap."""
        entry = self.of(namespace).good.get(DEFAULT_ENTRY)
        return None if entry is None else entry.fields

    def forget(self, namespace: str) -> None:
        """Drop the ConfigMap of a namespace. After the global one is gone, merge every namespace again."""
        self.local.pop(namespace, None)
        super().forget(namespace)
        if not namespace:
            at_once(self._resolve(""))

    def take(self, namespace: str, data: Mapping[str, str]) -> Steps[None]:
        """Read the ConfigMap entry by entry. A bad entry keeps its last good value, if any."""
        rules, notes, previous = self._rules, Notes(), self.of(namespace).good
        default = self.default() if namespace else None
        most, where = (MAX_LOCAL_ENTRIES, "in a namespace") if namespace else (MAX_ENTRIES, "in a ConfigMap")
        defaults_from = "the global ConfigMap" if namespace else "this ConfigMap"
        good: dict[str, Entry[E]] = {}
        first: dict[tuple[str, str | None], Entry[E]] = {}
        for key in notes.limit(data, most=most, where=where, namespace=namespace):
            yield
            for_all = key == DEFAULT_ENTRY
            under = None if for_all else default
            written: dict[str, str] = {}
            whose = {"model_id": "", "namespace": namespace}
            try:
                written = written_fields(rules.fields, key, data[key], notes)
                fields = read_fields(rules.fields, written)
                place = None if for_all else fields.namespace or namespace
                if not for_all and not fields.model_id:
                    raise BadEntryError("the model that this entry is for", field_name="model_id")
                if place == "" and rules.pairs:
                    raise BadEntryError("the namespace of the model", field_name="namespace")
                if place and not is_namespace(place):
                    raise BadEntryError("a namespace", field_name="namespace", value=place)
                entry = Entry(key, "" if for_all else fields.model_id or "", place or None, fields)
                rules.merge(fields, under)
            except BadEntryError as problem:
                written |= problem.written
                whose |= {} if for_all else {name: written[name] for name in whose.keys() & written.keys()}
                kept = previous.get(key)
                try:
                    value = rules.merge(kept.fields, under) if kept else rules.merge(default)
                except BadEntryError:
                    value = rules.merge(default)
                notes.reject(key, problem, in_force=rules.in_force(problem.field_name, value), **whose)
                good |= {} if kept is None else {key: kept}
            else:
                good[key] = entry
                whose |= {} if for_all else {name: written[name] for name in whose.keys() & written.keys()}
                for unused, in_force in rules.unused(fields):
                    notes.reject(key, unused, in_force=in_force, **whose)
                if for_all and (fields.model_id is not None or fields.namespace is not None):
                    notes.warn(key, "model_id and namespace have no effect: this entry applies to every model")
                for name, declared in declarations(type(fields)).items() if namespace or not for_all else ():
                    if GLOBAL_DEFAULT in declared.places and getattr(fields, name) is not None:
                        read = f"it is read from {DEFAULT_ENTRY} of {defaults_from} only"
                        notes.warn(key, f"{declared.key} has no effect here: {read}")
                for remark in rules.remarks(fields):
                    notes.warn(key, remark)
            if for_all and key in good:
                default = good[key].fields
        # The first entry (by key) of each model counts; the others are named in a warning.
        for key, entry in good.items():
            if key == DEFAULT_ENTRY:
                continue
            if namespace and entry.namespace != namespace:
                here = f"the ConfigMap of namespace {namespace}"
                notes.warn(key, f"has no effect: {here} cannot speak for namespace {entry.namespace}")
                continue
            winner = first.setdefault((entry.model_id, entry.namespace), entry)
            if winner is not entry:
                notes.warn(key, f"has no effect: {winner.key} is for the same model and comes first")
        self._said[namespace] = Said(tuple(first.values()), good, tuple(notes.errors), tuple(notes.warnings))
        yield from self._resolve(namespace)

    def _resolve(self, namespace: str) -> Steps[None]:
        """Merge one namespace anew; a global change changes every namespace."""
        notes, own = Notes(), self.default(namespace)
        default = own or (self.default() if namespace else None)
        merged = []
        for entry in self.of(namespace).values:
            yield
            try:
                merged.append((entry, self._rules.merge(entry.fields, default)))
            except BadEntryError as problem:
                # Good when it was read; the default that it inherits from has changed since.
                in_force = self._rules.in_force(problem.field_name, self._rules.merge(default))
                whose = {"model_id": entry.model_id, "namespace": entry.namespace or ""}
                notes.reject(entry.key, problem, in_force=in_force, **whose)
        self._said[namespace] = replace(self.of(namespace), misfits=tuple(notes.errors))
        value = self._rules.made_of(None if own is None else self._rules.merge(own), merged)
        if namespace:
            self.local[namespace] = value
            return
        self.everywhere = value
        for other in [each for each in self._said if each]:
            try:
                yield from self._resolve(other)
            except Exception as error:  # noqa: BLE001 - all other namespaces follow the global change
                self.local.pop(other, None)
                failed = EntryError("all entries", "", cause_of(error), "entries that can be merged", "nothing")
                self._said[other] = replace(self._said[other], misfits=(failed,))
