"""The store against a dict: content, indexes and calls of handlers agree after any operations."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.kube.scripted import pod
from wva.api.core import Pod
from wva.api.meta import Key
from wva.kube.cache import Store

NAMES = st.sampled_from(["a", "b", "c", "d"])
NAMESPACES = st.sampled_from(["", "x", "x-y", "y"])
VERSIONS = st.sampled_from(["1", "2", "10", "opaque"])
PODS = st.builds(lambda name, version, namespace: pod(name, version, namespace=namespace), NAMES, VERSIONS, NAMESPACES)


def older(version: str, than: str) -> bool:
    """Return whether both are numbers and the first is smaller."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


def by_name(obj: Pod) -> Iterable[str]:
    """Index by name. Names before "c" are also under "early", and "d" is not indexed at all."""
    name = obj.metadata.name
    if name == "d":
        return []
    return [name, "early"] if name < "c" else [name]


def by_version(obj: Pod) -> Iterable[str]:
    """Index by the version, which changes."""
    return [obj.metadata.resource_version]


class StoreMachine(RuleBasedStateMachine):
    """Applies the same operations to a store and a dict.

    ``follow`` rebuilds the content from the calls of the handler.
    """

    def __init__(self) -> None:
        """Start without objects, with one index."""
        super().__init__()
        self.store: Store[Pod] = Store()
        self.store.add_index("name", by_name)
        self.late_index = False
        self.model: dict[Key, Pod] = {}
        self.version = ""
        self.followed: dict[Key, Pod] = {}
        self.calls = 0
        self.store.subscribe(self.follow)

    def follow(self, old: Pod | None, new: Pod | None) -> None:
        """Rebuild the content. Each call must fit the calls before it and the content of the store."""
        self.calls += 1
        seen = new or old
        assert seen is not None
        key = seen.metadata.key
        assert self.followed.get(key) == old
        assert old != new
        assert self.store.get(key) == new
        if new is None:
            del self.followed[key]
        else:
            self.followed[key] = new

    @rule(items=st.lists(PODS, max_size=6), version=VERSIONS)
    def replace(self, items: list[Pod], version: str) -> None:
        """Apply a list."""
        before, self.model = self.model, {item.metadata.key: item for item in items}
        if not older(version, self.version):
            self.model |= {key: before[key] for key, item in self.model.items() if self.outdated(item, before)}
        self.version = version
        self.calls = 0
        self.store.replace(items, version)
        assert self.calls == sum(1 for key in before | self.model if before.get(key) != self.model.get(key))
        assert self.store.resource_version == version
        assert self.store.synced.is_set()

    @rule(obj=PODS)
    def upsert(self, obj: Pod) -> None:
        """Apply an added or changed object, or the same object again."""
        self.calls = 0
        outdated = self.outdated(obj, self.model)
        self.store.upsert(obj)
        assert self.calls == (not outdated and self.model.get(obj.metadata.key) != obj)
        if not outdated:
            self.model[obj.metadata.key] = obj
        self.advance(obj.metadata.resource_version)

    @rule(obj=PODS, by_key=st.booleans())
    def delete(self, obj: Pod, by_key: bool) -> None:  # noqa: FBT001 - hypothesis passes it
        """Delete an object, which may be unknown."""
        self.calls = 0
        outdated = not by_key and self.outdated(obj, self.model)
        self.store.delete(obj.metadata.key if by_key else obj)
        assert self.calls == (not outdated and self.model.pop(obj.metadata.key, None) is not None)
        if not by_key:
            self.advance(obj.metadata.resource_version)

    @precondition(lambda self: not self.late_index)
    @rule()
    def add_late_index(self) -> None:
        """Add an index to a store with objects."""
        self.store.add_index("version", by_version)
        self.late_index = True

    @rule(version=VERSIONS)
    def progress(self, version: str) -> None:
        """Apply a bookmark."""
        self.calls = 0
        self.store.progress(version)
        self.advance(version)
        assert self.calls == 0

    def outdated(self, obj: Pod, known: dict[Key, Pod]) -> bool:
        """Return whether a newer state is known."""
        old = known.get(obj.metadata.key)
        return old is not None and older(obj.metadata.resource_version, old.metadata.resource_version)

    def advance(self, version: str) -> None:
        """Take the version unless it is older."""
        if not older(version, self.version):
            self.version = version
        assert self.store.resource_version == self.version

    @invariant()
    def content_agrees(self) -> None:
        """Compare the content of the store with the model."""
        assert len(self.store) == len(self.model)
        assert self.store.keys() == sorted(self.model)
        assert self.store.list() == [self.model[key] for key in sorted(self.model)]
        for namespace in ("", "x", "x-y", "y", "z"):
            assert self.store.list(namespace) == [
                self.model[key] for key in sorted(self.model) if key.namespace == namespace
            ]
        assert self.followed == self.model
        assert self.store.failures == 0

    @invariant()
    def indexes_agree(self) -> None:
        """Each index finds exactly the objects that have the value, in order."""
        ordered = [self.model[key] for key in sorted(self.model)]
        for value in ("a", "b", "c", "d", "early"):
            assert self.store.by_index("name", value) == [obj for obj in ordered if value in by_name(obj)]
        for value in ("1", "2", "10", "opaque") if self.late_index else ():
            assert self.store.by_index("version", value) == [obj for obj in ordered if value in by_version(obj)]


StoreMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


class TestStore(StoreMachine.TestCase):  # type: ignore[misc,name-defined] # hypothesis builds this class at run time
    """Runs the state machine."""


async def test_synced_wakes_who_waits_for_it() -> None:
    """The first list sets the event, even if it is empty. Changes before it do not."""
    store: Store[Pod] = Store()
    waiting = asyncio.create_task(store.synced.wait())
    store.upsert(pod("a", "1"))
    await asyncio.sleep(0)
    assert not waiting.done()
    store.replace([], "5")
    assert await waiting
