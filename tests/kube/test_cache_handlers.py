"""Handlers and indexers of a store: what they are told, and that their exceptions affect nothing else."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest
from structlog.testing import capture_logs

from tests.kube.scripted import pod
from wva.api.core import Pod
from wva.api.meta import Key, ObjectMeta
from wva.kube.cache import Store


def test_handlers_of_a_list_see_the_whole_new_content() -> None:
    """The store has the whole list before it calls the first handler."""
    store: Store[Pod] = Store()
    store.replace([pod("a", "1"), pod("b", "1")], "1")
    seen: list[list[Key]] = []
    store.subscribe(lambda *_: seen.append(store.keys()))
    store.replace([pod("b", "2"), pod("c", "2")], "2")
    assert seen == [[Key("demo", "b"), Key("demo", "c")]] * 3


def test_a_first_list_lets_others_run_between_its_objects_and_tells_them_when_all_are_there() -> None:
    """A first list can be long, so it is stored in steps.

    Handlers are called after the last step, before the store counts as synced.
    """
    store: Store[Pod] = Store()
    told: list[tuple[int, bool]] = []
    store.subscribe(lambda *_: told.append((len(store), store.synced.is_set())))
    sizes = [len(store) for _ in store.replacing([pod("a", "1"), pod("b", "1"), pod("c", "1")], "1")]
    assert sorted(set(sizes)) == [0, 1, 2, 3]
    assert told == [(3, False)] * 3
    assert store.synced.is_set()


def test_a_later_list_is_taken_in_one_go() -> None:
    """The steps only compare. An object that is written meanwhile is newer than the list and stays."""
    store: Store[Pod] = Store()
    store.replace([pod("a", "1"), pod("b", "1")], "1")
    told: list[tuple[Pod | None, Pod | None]] = []
    store.subscribe(lambda old, new: told.append((old, new)))
    for _ in store.replacing([pod("a", "2"), pod("c", "2")], "2"):
        assert store.get(Key("demo", "b")) == pod("b", "1")
        store.learn(pod("a", "3"), replaces=pod("a", "1"))
        told.clear()
    assert told == [(pod("b", "1"), None), (None, pod("c", "2"))]
    assert store.get(Key("demo", "a")) == pod("a", "3")


def test_deletion_tells_the_last_stored_state() -> None:
    """Handlers get the stored object, not the one of the event. So a missed deletion looks the same."""
    store: Store[Pod] = Store()
    told: list[tuple[Pod | None, Pod | None]] = []
    store.upsert(pod("a", "1"))
    store.subscribe(lambda old, new: told.append((old, new)))
    store.delete(pod("a", "2"))
    assert told == [(pod("a", "1"), None)]
    assert store.resource_version == "2"


def test_the_answer_to_a_write_is_taken_before_the_watch_tells_it() -> None:
    """Handlers are called once, because the later event of the watch has the same version."""
    store: Store[Pod] = Store()
    told: list[tuple[Pod | None, Pod | None]] = []
    store.replace([pod("a", "1"), pod("b", "1")], "1")
    store.subscribe(lambda old, new: told.append((old, new)))
    store.learn(pod("a", "5"), replaces=pod("a", "1"))
    assert store.get(Key("demo", "a")) == pod("a", "5")
    assert store.resource_version == "1"
    store.upsert(pod("a", "5"))
    assert told == [(pod("a", "1"), pod("a", "5"))]


@pytest.mark.parametrize("here", [None, pod("a", "7"), pod("a", "1", uid="another"), pod("a", "5")])
def test_the_answer_to_a_write_does_not_undo_what_the_watch_has_told(here: Pod | None) -> None:
    """If the object was deleted, replaced or changed meanwhile, the store ignores the answer."""
    store: Store[Pod] = Store()
    store.replace([here] if here else [], "9")
    told: list[tuple[Pod | None, Pod | None]] = []
    store.subscribe(lambda old, new: told.append((old, new)))
    store.learn(pod("a", "5"), replaces=pod("a", "1"))
    assert store.get(Key("demo", "a")) == here
    assert told == []


def test_object_of_the_same_name_but_another_uid_is_a_change() -> None:
    """An object that was deleted and created again between two lists is a change, even with an equal version."""
    store: Store[Pod] = Store()
    told: list[tuple[Pod | None, Pod | None]] = []
    store.replace([pod("a", "1", uid="u1")], "1")
    store.subscribe(lambda old, new: told.append((old, new)))
    store.replace([pod("a", "1", uid="u2")], "2")
    assert told == [(pod("a", "1", uid="u1"), pod("a", "1", uid="u2"))]


def test_failing_handler_disturbs_nobody() -> None:
    """The other handlers are called, the store has the change, and the failure is counted."""
    store: Store[Pod] = Store(name="pods")
    called: list[str] = []

    def fail(old: Pod | None, new: Pod | None) -> None:
        raise RuntimeError(f"{old} {new}")

    store.subscribe(lambda *_: called.append("before"))
    store.subscribe(fail)
    store.subscribe(lambda *_: called.append("after"))
    with capture_logs() as logs:
        store.upsert(pod("a", "1"))
        store.delete(Key("demo", "a"))
    assert called == ["before", "after"] * 2
    assert len(store) == 0
    assert store.failures == 2
    assert [(entry["event"], entry["cache"], entry["object"]) for entry in logs] == [
        ("handler_failed", "pods", "demo/a")
    ] * 2


def test_failing_indexer_leaves_the_object_out_of_its_index_only() -> None:
    """The object is stored and in the other indexes. When its indexer works again, it is in that index, too."""
    store: Store[Pod] = Store()

    def fragile(obj: Pod) -> Iterable[str]:
        if obj.metadata.resource_version == "2":
            raise ValueError("broken state")
        return ["all"]

    store.add_index("fragile", fragile)
    store.add_index("name", lambda obj: [obj.metadata.name])
    store.upsert(pod("a", "1"))
    with capture_logs() as logs:
        store.upsert(pod("a", "2"))
    assert store.by_index("fragile", "all") == []
    assert store.by_index("name", "a") == [pod("a", "2")]
    assert [entry["event"] for entry in logs] == ["indexer_failed"]
    store.upsert(pod("a", "3"))
    assert store.by_index("fragile", "all") == [pod("a", "3")]


def test_generator_that_fails_half_way_indexes_nothing() -> None:
    """Values that an indexer yielded before it failed do not stay behind."""
    store: Store[Pod] = Store()

    def half(obj: Pod) -> Iterable[str]:
        yield obj.metadata.name
        raise ValueError("no more")

    store.add_index("half", half)
    with capture_logs():
        store.upsert(pod("a", "1"))
    assert store.by_index("half", "a") == []


def test_transform_decides_what_is_kept() -> None:
    """The transform drops fields that WVA does not read; store and handlers have the object without them."""

    def drop_labels(obj: Pod) -> Pod:
        return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, labels={}))

    store: Store[Pod] = Store(transform=drop_labels)
    told: list[Pod | None] = []
    store.subscribe(lambda _, new: told.append(new))
    labelled = Pod(metadata=ObjectMeta(name="a", namespace="demo", resource_version="1", labels={"big": "x"}))
    store.replace([labelled], "1")
    store.upsert(labelled)
    assert store.list() == told == [pod("a", "1")]


def test_index_names_are_unique() -> None:
    """A second index of the same name is an error, and so is a query of an unknown index."""
    store: Store[Pod] = Store()
    store.add_index("name", lambda obj: [obj.metadata.name])
    with pytest.raises(ValueError, match="exists"):
        store.add_index("name", lambda _: [])
    with pytest.raises(KeyError):
        store.by_index("nope", "a")


def test_answers_are_copies() -> None:
    """A caller that changes a returned list does not change the store."""
    store: Store[Pod] = Store()
    store.add_index("name", lambda obj: [obj.metadata.name])
    store.upsert(pod("a", "1"))
    store.keys().clear()
    store.list().clear()
    store.by_index("name", "a").clear()
    assert store.keys() == [Key("demo", "a")]
    assert store.by_index("name", "a") == store.list() == [pod("a", "1")]


def test_subscribing_while_a_change_is_told() -> None:
    """A handler may add a handler, which is called from the next change on."""
    store: Store[Pod] = Store()
    late: list[Pod | None] = []

    def once(old: Pod | None, _: Pod | None) -> None:
        if old is None:
            store.subscribe(lambda _, new: late.append(new))

    store.subscribe(once)
    store.upsert(pod("a", "1"))
    store.upsert(pod("a", "2"))
    assert late == [pod("a", "2")]
