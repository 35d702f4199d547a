"""What the ConfigMaps of one kind say now, everywhere and in the namespaces that have their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from wva.collect.config.entry import EntryError
from wva.collect.config.fields import ModelFields
from wva.collect.config.layers import Entry, Reading, Resolved, Rules, read, read_in_steps, resolve, resolve_in_steps
from wva.model.failures import cause_of
from wva.slices import Steps, at_once

M = TypeVar("M", bound=ModelFields)
P = TypeVar("P")
R = TypeVar("R")


class Parsed(Protocol):
    """What a parser returns: what can be used, and what there is to say."""

    @property
    def good(self) -> Mapping[Any, object]:
        """The good entries, by their names."""
        ...

    @property
    def errors(self) -> tuple[EntryError, ...]:
        """Why entries were rejected."""
        ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """What accepted entries say in vain."""
        ...


S = TypeVar("S", bound=Parsed)


class Held(Protocol):
    """The state of one kind of ConfigMap; ``namespace`` is empty for the global one."""

    def take(self, namespace: str, data: Mapping[str, str]) -> Steps[None]:
        """Take what the ConfigMap says; where it is wrong, what it said last stays. In force after the last step."""
        ...

    def forget(self, namespace: str) -> None:
        """Go on as if there were no ConfigMap and never had been."""
        ...

    def good(self, namespace: str) -> Mapping[Any, object]:
        """Return the entries in force, by their names."""
        ...

    def errors(self, namespace: str) -> tuple[EntryError, ...]:
        """Return why entries are rejected now."""
        ...

    def warnings(self, namespace: str) -> tuple[str, ...]:
        """Return what accepted entries say in vain."""
        ...


class GlobalMap(Generic[S]):
    """A kind that there is only one ConfigMap of."""

    def __init__(self, parse: Callable[[Mapping[str, str], S | None], Steps[S]]) -> None:
        """``parse`` is told what came of the ConfigMap before."""
        self._parse = parse
        self.current = at_once(parse({}, None))

    def take(self, _namespace: str, data: Mapping[str, str]) -> Steps[None]:
        """Take what the ConfigMap says."""
        self.current = yield from self._parse(data, self.current)

    def forget(self, _namespace: str) -> None:
        """Go back to nothing."""
        self.current = at_once(self._parse({}, None))

    def good(self, _namespace: str) -> Mapping[Any, object]:
        """Return the entries in force."""
        return self.current.good

    def errors(self, _namespace: str) -> tuple[EntryError, ...]:
        """Return why entries are rejected now."""
        return self.current.errors

    def warnings(self, _namespace: str) -> tuple[str, ...]:
        """Return what entries say in vain."""
        return self.current.warnings


class LayeredMap(Generic[M, P, R]):
    """A kind that a namespace may have for itself, entry by entry over the global one."""

    def __init__(self, rules: Rules[M, P], rules_of: Callable[[Resolved[M, P]], R]) -> None:
        """``rules_of`` makes of what is resolved what a decision reads."""
        self._rules = rules
        self._rules_of = rules_of
        self._readings: dict[str, Reading[M]] = {"": read({}, rules)}
        self._errors: dict[str, tuple[EntryError, ...]] = {}
        self.everywhere: R = rules_of(resolve(self._readings[""], rules))
        self.local: dict[str, R] = {}

    @property
    def global_default(self) -> M | None:
        """The ``default`` entry of the global ConfigMap."""
        return self._readings[""].default

    def take(self, namespace: str, data: Mapping[str, str]) -> Steps[None]:
        """Take what a ConfigMap says."""
        beneath = self.global_default if namespace else None
        previous = self._readings.get(namespace)
        reading = yield from read_in_steps(
            data, self._rules, previous=previous, beneath=beneath, namespace=namespace or None
        )
        self._readings[namespace] = reading
        yield from self._resolve(namespace)

    def forget(self, namespace: str) -> None:
        """Drop what a ConfigMap said, and nothing else."""
        if namespace:
            for held in (self._readings, self._errors, self.local):
                held.pop(namespace, None)
        else:
            self._readings[""] = read({}, self._rules)
            at_once(self._resolve(""))

    def good(self, namespace: str) -> Mapping[str, Entry[M]]:
        """Return the entries in force."""
        reading = self._readings.get(namespace)
        return {} if reading is None else reading.good

    def errors(self, namespace: str) -> tuple[EntryError, ...]:
        """Return why entries are rejected now, also those that only do not fit together."""
        reading = self._readings.get(namespace)
        return () if reading is None else (*reading.errors, *self._errors.get(namespace, ()))

    def warnings(self, namespace: str) -> tuple[str, ...]:
        """Return what entries say in vain."""
        reading = self._readings.get(namespace)
        return () if reading is None else reading.warnings

    def _resolve(self, namespace: str) -> Steps[None]:
        """Merge one namespace anew; a global change changes every namespace."""
        beneath = self.global_default if namespace else None
        resolved = yield from resolve_in_steps(self._readings[namespace], self._rules, beneath=beneath)
        self._errors[namespace] = resolved.errors
        if namespace:
            self.local[namespace] = self._rules_of(resolved)
            return
        self.everywhere = self._rules_of(resolved)
        for other in list(self._readings):
            if other:
                try:
                    yield from self._resolve(other)
                except Exception as error:  # noqa: BLE001 - all other namespaces follow the global change
                    self.local.pop(other, None)
                    failed = EntryError("all entries", "", cause_of(error), "entries that can be merged", "nothing")
                    self._errors[other] = (failed,)
