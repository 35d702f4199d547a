"""ConfigMaps on their way into the configuration: taken, told about when wrong, taken back when deleted."""

from __future__ import annotations

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from wva.api.core import ConfigMap
from wva.api.meta import Key
from wva.controllers.configmap import ConfigMapController
from wva.instruments import Instruments
from wva.kube.cache import Store
from wva.kube.controller import Done
from wva.sim.world.clock import VirtualClock

OURS = Key("wva", "ours")


class FakeConfiguration:
    """Takes the ConfigMap ``ours``; its value ``problems`` says how many there are."""

    def __init__(self):
        """Start with nothing."""
        self.applied = []

    def apply(self, key, data):
        """Note the call."""
        self.applied.append((key, data))
        if key != OURS:
            return None
        return [f"problem {number}" for number in range(int((data or {}).get("problems", 0)))]


class Scene:
    """A store, a controller and what it recorded."""

    def __init__(self):
        """Prepare a controller that does not watch yet."""
        self.store = Store()
        self.configuration = FakeConfiguration()
        self.events = []
        self.instruments = Instruments(CollectorRegistry())
        self.controller = ConfigMapController(
            self.store,
            configuration=self.configuration,
            record=lambda *event: self.events.append(event),
            clock=VirtualClock(),
            instruments=self.instruments,
        )

    def put(self, name, data, *, version="1"):
        """Put a ConfigMap into the cache."""
        metadata = {"name": name, "namespace": "wva", "uid": f"uid-{name}", "resourceVersion": version}
        self.store.upsert(msgspec.convert({"metadata": metadata, "data": data}, ConfigMap))

    def invalid(self):
        """Return the gauge of rejected entries."""
        return self.instruments.registry.get_sample_value("wva_config_invalid_entries", {"config_map": "ours"})


@pytest.fixture
def scene():
    """Return a scene."""
    return Scene()


async def test_everything_there_is_taken_before_anything_decides(scene):
    """``load_all`` needs no event and no worker."""
    scene.put("ours", {"problems": "0"})
    scene.put("theirs", {})
    scene.controller.load_all()
    assert scene.configuration.applied == [(OURS, {"problems": "0"}), (Key("wva", "theirs"), {})]


async def test_each_problem_is_an_event_on_the_config_map(scene):
    """A Warning with the object's identity, one for each problem; the gauge counts them."""
    scene.put("ours", {"problems": "2"}, version="5")
    assert await scene.controller.reconcile(OURS) == Done()
    assert [(type_, reason, message) for _, type_, reason, message in scene.events] == [
        ("Warning", "InvalidConfiguration", "problem 0"),
        ("Warning", "InvalidConfiguration", "problem 1"),
    ]
    reference = scene.events[0][0]
    assert (reference.api_version, reference.kind, reference.namespace) == ("v1", "ConfigMap", "wva")
    assert (reference.name, reference.uid, reference.resource_version) == ("ours", "uid-ours", "5")
    assert scene.invalid() == 2


async def test_a_repaired_config_map_clears_the_gauge(scene):
    """It counts what is rejected now."""
    scene.put("ours", {"problems": "2"})
    await scene.controller.reconcile(OURS)
    scene.put("ours", {"problems": "0"}, version="2")
    await scene.controller.reconcile(OURS)
    assert scene.invalid() == 0
    assert len(scene.events) == 2


async def test_a_deleted_config_map_is_taken_back(scene):
    """None as its data, and nothing is recorded on what is gone."""
    await scene.controller.reconcile(OURS)
    assert scene.configuration.applied == [(OURS, None)]
    assert scene.events == []
    assert scene.invalid() == 0


async def test_a_problem_without_a_config_map_is_only_logged(scene):
    """There is no object to record an event on."""
    scene.configuration.apply = lambda _, data: ["still wrong"] if data is None else []
    assert await scene.controller.reconcile(OURS) == Done()
    assert scene.events == []
    assert scene.invalid() == 1


async def test_a_config_map_of_others_leaves_no_trace(scene):
    """Neither gauge nor event."""
    scene.put("theirs", {"problems": "3"})
    await scene.controller.reconcile(Key("wva", "theirs"))
    assert scene.events == []
    assert scene.instruments.registry.get_sample_value("wva_config_invalid_entries", {"config_map": "theirs"}) is None


async def test_changes_wake_the_worker(scene):
    """Additions, changes and deletions alike, once watched."""
    scene.put("ours", {})
    scene.controller.watch()
    assert len(scene.controller.queue) == 0
    for version in ("2", "3"):
        scene.put("ours", {}, version=version)
        assert await scene.controller.queue.get() == OURS
        scene.controller.queue.done(OURS)
    scene.store.delete(OURS)
    assert await scene.controller.queue.get() == OURS
    scene.controller.queue.done(OURS)
