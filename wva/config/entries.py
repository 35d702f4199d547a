"""Reads the ConfigMaps of one kind entry by entry; if a new entry is wrong, the last good one stays in force.

A kind is an ``EntryMap``. Most are made of entries for models (``LayeredMap``): ``default``, and one entry for each
model. Such an entry is merged before it is checked: the entry of the model over ``default`` over the built-in values.
WVA rejects only the bad entry, and the last good one under its key stays in force: a typing error must not move the
thresholds of a whole cluster.

A namespace may have a ConfigMap of its own, which goes before the global one, entry by entry. Its ``default`` replaces
the global ``default``, and its entry for a model replaces the global entries for that model. It takes over every other
global entry. ``wva.model.policy`` merges an entry that was taken over onto the ``default`` of the namespace only when
that entry is asked for, so many global entries cost nothing here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar, Final, Generic, TypeVar

from wva.api.core import is_namespace
from wva.config.declare import GLOBAL_DEFAULT, Declaration, PlainScalar, by_key, declarations, printable
from wva.config.keys import EntryFields, ModelFields
from wva.config.yaml_text import BadEntryError, Tree, is_null, kind_of, read_tree
from wva.model.policy import Merged
from wva.model.trouble import cause_of
from wva.slices import Steps, at_once

DEFAULT_ENTRY: Final = "default"
MAX_ENTRIES: Final = 10_000
"""The limit of one ConfigMap: its megabyte has room for three times as many empty entries."""
MAX_LOCAL_ENTRIES: Final = 1_000
"""The limit in a namespace: a tenant who writes there must not delay the decisions for all others."""

_NOTHING: Final = "nothing of this entry"

F = TypeVar("F", bound=EntryFields)
E = TypeVar("E", bound=ModelFields)
P = TypeVar("P", bound=Merged)
R = TypeVar("R")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class EntryError:
    """What is wrong with an entry; all texts are for people.

    ``field`` is empty when the whole entry is wrong, ``model_id`` and ``namespace`` when the error may be about any. An
    entry that is not ``refused`` is in force, but for what ``in_force`` says.
    """

    key: str
    field: str
    value: str
    expected: str
    in_force: str
    model_id: str = ""
    namespace: str = ""
    refused: bool = True

    @classmethod
    def of(cls, key: str, problem: BadEntryError, in_force: str, model_id: str = "", namespace: str = "") -> EntryError:
        """Return why an entry cannot be used; ``model_id`` and ``namespace`` as far as known."""
        texts = (key, problem.field_name, problem.value, model_id, namespace)
        key, name, value, model_id, namespace = map(printable, texts)
        return cls(key, name, value, problem.expected, in_force, model_id, namespace)

    def __str__(self) -> str:
        """Return one sentence."""
        path = f"{self.key}.{self.field}" if self.field else self.key
        return f"{path}: got {self.value or 'nothing'}, expected {self.expected}; in force: {self.in_force}"


@dataclass(slots=True)
class MapContent(Generic[V]):
    """What a ConfigMap says: every good entry by its name, the values that count, and what WVA reports.

    ``rejected`` says why entries cannot be used, ``misfits`` what of good ones is not in force, or does not fit.
    """

    namespace: str = ""
    good: dict[str, V] = field(default_factory=dict)
    values: tuple[Any, ...] = ()
    rejected: list[EntryError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    misfits: list[EntryError] = field(default_factory=list)

    @property
    def errors(self) -> list[EntryError]:
        """Why entries are not in force."""
        return self.rejected + self.misfits

    def reject(self, key: str, problem: BadEntryError, in_force: str, model_id: str = "", namespace: str = "") -> None:
        """Note why an entry cannot be used, and its model and namespace as far as known."""
        self.rejected.append(EntryError.of(key, problem, in_force, model_id, namespace))

    def warn(self, key: str, text: str) -> None:
        """Note what has no effect in an entry."""
        self.warnings.append(f"{printable(key)}: {printable(text)}")

    def warn_of_unknown(self, key: str, tree: Tree, known: Collection[str]) -> None:
        """Note the fields of a mapping that WVA does not read."""
        unknown = sorted(set(tree).difference(known)) if isinstance(tree, dict) else []
        if unknown:
            self.warn(key, f"unknown fields are ignored: {', '.join(unknown)}")


def read_fields(fields: type[F], tree: Tree) -> F:
    """Return the known fields of a mapping. Raises BadEntryError for the first one that does not fit."""
    if not isinstance(tree, dict):
        raise BadEntryError("a YAML mapping", value=kind_of(tree))
    values: dict[str, Any] = {}
    for name, declared in by_key(fields).items():
        written = tree.get(name)
        if written is None or is_null(written):
            continue
        if not isinstance(written, str):
            raise BadEntryError("a single value", field_name=name, value=kind_of(written))
        try:
            values[declared.attribute] = declared.form.read(written)
        except ValueError as error:
            if declared.form.instead is None:
                # The message shows the quotes, since they may be the error.
                value = written if isinstance(written, PlainScalar) or not written else f'"{written}"'
                raise BadEntryError(declared.form.expected, field_name=name, value=value) from error
            values[declared.attribute] = declared.form.instead
    return fields.model_construct(**values)


def needed(entry: EntryFields, attribute: str, *others: str) -> Any:
    """Return the value of the first of these attributes that an entry has. Raises BadEntryError when it has none."""
    values = [value for name in (attribute, *others) if (value := getattr(entry, name)) not in {None, ""}]
    if not values:
        declared = declarations(type(entry))[attribute]
        raise BadEntryError(declared.form.expected, field_name=declared.key)
    return values[0]


@cache
def settable(fields: type[ModelFields]) -> Mapping[str, Declaration]:
    """Return the fields of an entry that become part of a policy for a model, by attribute."""
    return {
        name: declared
        for name, declared in declarations(fields).items()
        if name not in ModelFields.model_fields and GLOBAL_DEFAULT not in declared.places
    }


def policy_fields(entry: ModelFields) -> dict[str, Any]:
    """Return the parts of a policy that an entry itself gives, by attribute."""
    return {name: value for name in settable(type(entry)) if (value := getattr(entry, name)) is not None}


def text_of(tree: Tree, name: str) -> str:
    """Return the field of a mapping if it is a single value, else an empty text."""
    value = tree.get(name, "") if isinstance(tree, dict) else ""
    return value if isinstance(value, str) and not is_null(value) else ""


# --- what ConfigMaps of a kind say ------------------------------------------------------------------------------------


class EntryMap(ABC, Generic[V]):
    """The ConfigMaps of one kind by namespace, which is empty for the global one."""

    known: Collection[str] = ()
    """The fields of an entry."""
    nested: ClassVar[bool] = False
    """Whether entries may have lists and mappings in them."""

    def __init__(self) -> None:
        """Start without any ConfigMap."""
        self._contents: dict[str, MapContent[V]] = {}

    def of(self, namespace: str) -> MapContent[V]:
        """Return what a ConfigMap says now."""
        return self._contents.get(namespace) or MapContent(namespace)

    def entries(self, namespace: str) -> Mapping[str, object]:
        """Return the good entries of a ConfigMap by name, for the log."""
        return self.of(namespace).good

    def forget(self, namespace: str) -> None:
        """Drop all that the ConfigMap of a namespace said."""
        self._contents.pop(namespace, None)

    def take(self, namespace: str, data: Mapping[str, str]) -> Steps[None]:
        """Take what a ConfigMap says, in force after the last step. A wrong entry keeps its last good content."""
        before = self.of(namespace).good
        content: MapContent[V] = MapContent(namespace)
        most, where = (MAX_LOCAL_ENTRIES, "in a namespace") if namespace else (MAX_ENTRIES, "in a ConfigMap")
        keys = sorted(data, key=lambda key: (key != DEFAULT_ENTRY, key))
        if len(keys) > most:
            surplus = BadEntryError(f"at most {most:,} {where}", value=f"{len(keys)} entries")
            content.reject(keys[most], surplus, f"the first {most:,} by key", namespace=namespace)
        for key in keys[:most]:
            yield
            tree: Tree = {}
            last = before.get(key)
            try:
                tree = read_tree(data[key], nested=self.nested)
                content.warn_of_unknown(key, tree, self.known)
                content.good[key] = self.read(key, tree, last, content)
            except BadEntryError as problem:
                in_force = self.in_force(key, problem, last, content)
                content.reject(key, problem, in_force, *self.model_and_namespace(key, tree, last, content))
                if last is not None:
                    content.good[key] = last
        content.values = self.values(content)
        self._contents[namespace] = content

    @abstractmethod
    def read(self, key: str, tree: Tree, last: V | None, content: MapContent[V]) -> V:
        """Return what an entry says; ``last`` is what it said before. Raises BadEntryError."""

    def values(self, content: MapContent[V]) -> tuple[Any, ...]:
        """Return what counts of the good entries."""
        return tuple(content.good[key] for key in sorted(content.good))

    def in_force(self, _key: str, _problem: BadEntryError, last: V | None, _content: MapContent[V]) -> str:
        """Return in words what is in force instead of a bad entry."""
        return "nothing of it" if last is None else "what it said last"

    def model_and_namespace(self, _key: str, _tree: Tree, _last: V | None, _content: MapContent[V]) -> tuple[str, str]:
        """Return the model and the namespace that an entry is for, as far as known."""
        return "", ""


@dataclass(frozen=True, slots=True)
class Entry(Generic[E]):
    """A good entry; ``namespace`` None is for the model in every namespace. The default entry has no model."""

    key: str
    model_id: str
    namespace: str | None
    fields: E


class LayeredMap(EntryMap[Entry[E]], Generic[E, P, R]):
    """A kind that a namespace may have for itself, entry by entry over the global one.

    ``base`` holds without any entry. ``override`` makes the record that decisions read, from the name, the model, the
    namespace, the merged policy and the own fields of an entry. ``rules`` puts the merged ``default`` (None without
    one) and the overrides together. ``pairs``: an entry must name both model and namespace. ``fields_shown`` is how
    many fields a message about a whole entry shows, None for all. ``said_elsewhere`` are fields that other kinds and
    annotations may say, too: what is in force of them for a model cannot be told from here.
    """

    fields: type[E]
    base: P
    override: Callable[[str, str, str | None, P, tuple[tuple[str, Any], ...]], Any]
    rules: Callable[[P | None, tuple[Any, ...]], R]
    pairs = False
    fields_shown: int | None = None
    said_elsewhere: Collection[str] = ()

    def __init__(self) -> None:
        """Start with the rules that hold without entries."""
        super().__init__()
        self.known = self.fields.names()
        self.everywhere: R = self.rules(None, ())
        self.local: dict[str, R] = {}

    def merge(self, *layers: E | None) -> P:
        """Return the policy of entries, the nearest first. Raises BadEntryError when they contradict each other."""
        merged = self.base
        for layer in reversed(layers):
            merged = merged if layer is None else merged.overlaid(policy_fields(layer))
        wrong = merged.contradiction()
        if wrong is not None:
            attribute, expected = wrong
            value = getattr(merged, attribute)
            text = f"{value:g}" if isinstance(value, float) else str(value)
            raise BadEntryError(expected, field_name=declarations(self.fields)[attribute].key, value=text)
        return merged

    def excess(self, key: str, policy: P, model_id: str = "", namespace: str = "") -> EntryError | None:
        """Return what the policy of an entry says that makes a model grow at any load; it is in force all the same."""
        excess = policy.excess()
        if excess is None:
            return None
        attribute, expected = excess
        name, value = declarations(self.fields)[attribute].key, f"{getattr(policy, attribute):.12g}"
        problem = BadEntryError(expected, field_name=name, value=value)
        in_force = f"{value}: the model grows to its maximum at any load"
        return replace(EntryError.of(key, problem, in_force, model_id, namespace), refused=False)

    def words(self, name: str, policy: P) -> str:
        """Return in words the value of a field in a policy, or the whole policy if no field has this name."""
        values = [
            (declaration, getattr(policy, declaration.attribute)) for declaration in settable(self.fields).values()
        ]
        words = {
            declaration.key: declaration.unset if value is None else declaration.form.show(value)
            for declaration, value in values
        }
        return words.get(name) or ", ".join(f"{key} {word}" for key, word in list(words.items())[: self.fields_shown])

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
        """Read the ConfigMap entry by entry, and merge the entries."""
        yield from super().take(namespace, data)
        yield from self._resolve(namespace)

    def read(self, key: str, tree: Tree, _last: Entry[E] | None, content: MapContent[Entry[E]]) -> Entry[E]:
        """Return the entry if it fits its ``default``; note the values of it that mean nothing."""
        fields, for_all = read_fields(self.fields, tree), key == DEFAULT_ENTRY
        namespace = None if for_all else fields.namespace or content.namespace
        if not for_all and not fields.model_id:
            raise BadEntryError("the model that this entry is for", field_name="model_id")
        if namespace == "" and self.pairs:
            raise BadEntryError("the namespace of the model", field_name="namespace")
        if namespace and not is_namespace(namespace):
            raise BadEntryError("a namespace", field_name="namespace", value=namespace)
        self.merge(fields, None if for_all else self._beneath(content))
        for name, declared in by_key(self.fields).items():
            form, value = declared.form, getattr(fields, declared.attribute)
            if value is not None and form.instead is not None and text_of(tree, name) not in form.words:
                problem = BadEntryError(form.expected, field_name=name, value=text_of(tree, name))
                in_force = f"{form.show(form.instead)}, with the rest of the entry"
                content.reject(key, problem, in_force, *self.model_and_namespace(key, tree, None, content))
            if value is not None and GLOBAL_DEFAULT in declared.places and (content.namespace or not for_all):
                which_map = "the global" if content.namespace else "this"
                content.warn(
                    key, f"{name} has no effect here: it is read from {DEFAULT_ENTRY} of {which_map} ConfigMap only"
                )
        if for_all and (fields.model_id is not None or fields.namespace is not None):
            content.warn(key, "model_id and namespace have no effect: this entry applies to every model")
        return Entry(key, "" if for_all else fields.model_id or "", namespace or None, fields)

    def _beneath(self, content: MapContent[Entry[E]]) -> E | None:
        """Return the ``default`` that the entries of models inherit from."""
        own = content.good.get(DEFAULT_ENTRY)
        return own.fields if own else self.default() if content.namespace else None

    def values(self, content: MapContent[Entry[E]]) -> tuple[Entry[E], ...]:
        """Return the first entry (by key) of each model; the others are named in a warning."""
        first: dict[tuple[str, str | None], Entry[E]] = {}
        for key, entry in content.good.items():
            if key == DEFAULT_ENTRY:
                continue
            if content.namespace and entry.namespace != content.namespace:
                here = f"the ConfigMap of namespace {content.namespace}"
                content.warn(key, f"has no effect: {here} cannot speak for namespace {entry.namespace}")
                continue
            winner = first.setdefault((entry.model_id, entry.namespace), entry)
            if winner is not entry:
                content.warn(key, f"has no effect: {winner.key} is for the same model and comes first")
        return tuple(first.values())

    def in_force(self, key: str, problem: BadEntryError, last: Entry[E] | None, content: MapContent[Entry[E]]) -> str:
        """Return what the last good entry says about a bad field, or the default if both now contradict each other.

        An entry counts as a whole, so the words also say what is in force of its other fields.
        """
        beneath = self._beneath(content)
        try:
            inherited = None if last and key == DEFAULT_ENTRY else beneath
            policy = self.merge(last.fields if last else None, inherited)
        except BadEntryError:
            last, policy = None, self.merge(beneath)
        if problem.field_name in self.said_elsewhere:
            return self._said_here(problem.field_name, last)
        rest = f"and {_NOTHING}" if last is None else "with the last valid text of this entry"
        declared = by_key(self.fields).get(problem.field_name)
        if declared is None or GLOBAL_DEFAULT not in declared.places:
            return f"{self.words(problem.field_name, policy)}, {rest}"
        everywhere = self.of("") if content.namespace else content
        default = last if everywhere is content and key == DEFAULT_ENTRY else everywhere.good.get(DEFAULT_ENTRY)
        value = None if default is None else getattr(default.fields, declared.attribute)
        unset = "none" if declared.unset == "-" else declared.unset
        return f"{unset if value is None else declared.form.show(value)}, {rest}"

    def _said_here(self, name: str, last: Entry[E] | None) -> str:
        """Return in words what of an entry is in force, without a number that another place may replace."""
        if last is None:
            return _NOTHING
        declared = by_key(self.fields)[name]
        value = getattr(last.fields, declared.attribute)
        has = f"with {name} {declared.form.show(value)}" if value is not None else f"which has no {name}"
        return f"the last valid text of this entry, {has}"

    def model_and_namespace(
        self, key: str, tree: Tree, _last: Entry[E] | None, content: MapContent[Entry[E]]
    ) -> tuple[str, str]:
        """Return the model and namespace that the entry names; the ``default`` is for every model."""
        if key == DEFAULT_ENTRY:
            return "", content.namespace
        return text_of(tree, "model_id"), text_of(tree, "namespace") or content.namespace

    def _resolve(self, namespace: str) -> Steps[None]:
        """Merge one namespace anew; a global change changes every namespace."""
        content, own = self.of(namespace), self.default(namespace)
        default = self._beneath(content)
        merged, misfits = [], []
        inherited = self.merge(default)
        excess = None if own is None else self.excess(DEFAULT_ENTRY, inherited, namespace=namespace)
        if excess is not None:
            misfits.append(excess)
        for entry in content.values:
            yield
            try:
                policy, own_fields = self.merge(entry.fields, default), tuple(policy_fields(entry.fields).items())
                merged.append(self.override(entry.key, entry.model_id, entry.namespace, policy, own_fields))
                excess = self.excess(entry.key, policy, entry.model_id, entry.namespace or "")
                if excess is not None and policy.excess() != inherited.excess():  # else ``default`` reports it
                    misfits.append(excess)
            except BadEntryError as problem:
                # The entry was good when it was read; the default that it inherits from has changed since.
                in_force = f"{self.words(problem.field_name, inherited)}, and {_NOTHING}"
                misfits.append(EntryError.of(entry.key, problem, in_force, entry.model_id, entry.namespace or ""))
        content.misfits = misfits
        value = self.rules(None if own is None else self.merge(own), tuple(merged))
        if namespace:
            self.local[namespace] = value
            return
        self.everywhere = value
        for local_namespace in [name for name in self._contents if name]:
            try:
                yield from self._resolve(local_namespace)
            except Exception as error:  # noqa: BLE001 - all other namespaces follow the global change
                self.local.pop(local_namespace, None)
                failed = EntryError("all entries", "", cause_of(error), "entries that can be merged", "nothing")
                self.of(local_namespace).misfits = [failed]
