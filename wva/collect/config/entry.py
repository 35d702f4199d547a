"""What an entry is, why one is rejected, and reading all entries of a ConfigMap with the last good ones at hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from pydantic import ValidationError

from wva.collect.config.fields import Fields
from wva.collect.config.reading import BadEntryError, PlainScalar, read_mapping
from wva.model.records import replace
from wva.slices import Steps

DEFAULT_ENTRY: Final = "default"
MAX_ENTRIES: Final = 10_000
"""In one ConfigMap: its megabyte has room for three times as many that are empty."""

_SHOWN_CHARACTERS: Final = 200

F = TypeVar("F", bound=Fields)
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

    def reject(self, key: str, problem: BadEntryError, *, in_force: str, concerning: Mapping[str, str]) -> None:
        """Note why an entry cannot be used; ``concerning`` has ``model_id`` and ``namespace`` as far as known."""
        error = EntryError(shown(key), shown(problem.field_name), shown(problem.value), problem.expected, in_force)
        named = {name: shown(concerning.get(name, "")) for name in ("model_id", "namespace")}
        self.errors.append(replace(error, **named))

    def warn(self, key: str, text: str) -> None:
        """Note what an entry says in vain."""
        self.warnings.append(f"{shown(key)}: {shown(text)}")


@dataclass(frozen=True, slots=True)
class EntryForm(Generic[F]):
    """The fields of one kind of entry, and for each of them what it takes, in words for people."""

    fields: type[F]
    expected: Mapping[str, str]

    def written(self, key: str, text: str, notes: Notes) -> dict[str, str]:
        """Return the known fields as they are written. Raises BadEntryError."""
        fields, unknown = read_mapping(text, fields=self.fields.names())
        if unknown:
            notes.warn(key, f"unknown fields are ignored: {', '.join(unknown)}")
        return fields

    def validate(self, written: Mapping[str, str]) -> F:
        """Return the entry with these fields. Raises BadEntryError for the first field that does not fit."""
        try:
            return self.fields.model_validate(written)
        except ValidationError as error:
            name = str(error.errors(include_url=False, include_context=False)[0]["loc"][0])
            found = as_written(written.get(name, ""))
            raise BadEntryError(self.expected[name], field_name=name, value=found) from error


def keep_good(
    data: Mapping[str, str],
    parse: Callable[[str, str], V],
    *,
    previous: Mapping[str, V],
    reject: Callable[[str, BadEntryError, V | None], None],
) -> Steps[dict[str, V]]:
    """Return the value of each entry in the order of the keys, for a bad one the last good value if there is any."""
    good: dict[str, V] = {}
    for key in sorted(data):
        yield
        try:
            good[key] = parse(key, data[key])
        except BadEntryError as problem:
            kept = previous.get(key)
            reject(key, problem, kept)
            if kept is not None:
                good[key] = kept
    return good


def limited(data: Mapping[str, str], notes: Notes, *, most: int, where: str, namespace: str = "") -> Mapping[str, str]:
    """Return the entries that are read: ``default`` and the first ones by key; that there are more is noted."""
    if len(data) <= most:
        return data
    keys = sorted(data, key=lambda key: (key != DEFAULT_ENTRY, key))
    problem = BadEntryError(f"at most {most:,} {where}", value=f"{len(data)} entries")
    notes.reject(keys[most], problem, in_force=f"the first {most:,} by key", concerning={"namespace": namespace})
    return {key: data[key] for key in keys[:most]}


def as_written(value: str) -> str:
    """Return a value with its quotes, which may be what is wrong with it."""
    return value if isinstance(value, PlainScalar) or not value else f'"{value}"'


def shown(text: str) -> str:
    """Return a text of others in a form that is safe and short enough for a message."""
    cut = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
    return "".join(character if character.isprintable() else "?" for character in cut)
