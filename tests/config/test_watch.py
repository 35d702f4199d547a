"""How the controller applies ConfigMaps, reports bad ones, and undoes deleted ones."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from wva.api.core import ConfigMap
from wva.api.meta import Key
from wva.config.live import AppliedConfigMap
from wva.config.load import NO_INPUTS
from wva.config.watch import ConfigMapController
from wva.instruments import Instruments
from wva.kube.cache import Store
from wva.kube.controller import Done
from wva.sim.world.clock import VirtualClock

OURS = Key("wva", "ours")
ALIAS = Key("wva", "alias")


class FakeConfigMapSource:
    """Takes the ConfigMaps ``ours`` and ``alias``; the value ``problems`` is the number of their problems."""

    def __init__(self):
        """Start with nothing."""
        self.applied = []
        self.gone = ""
        self.main = Key("wva", "main")
        self.settings = SimpleNamespace(inputs=NO_INPUTS)

    def apply_in_steps(self, key, data):
        """Note the call."""
        yield
        self.applied.append((key, data))
        if key.name not in {"ours", "alias"}:
            return None
        if data is None:
            return AppliedConfigMap(gone=self.gone)
        problems = tuple(f"problem {number}" for number in range(int(data.get("problems", 0))))
        return AppliedConfigMap(problems, ignored=data.get("ignored", ""), refused=data.get("refused", ""))

    def rivals(self, key):
        """Return the other of the two names."""
        return {OURS: [ALIAS], ALIAS: [OURS]}.get(key, [])

    def config_maps_in_effect(self):
        """Return nothing of interest."""
        return {}


class WatchScene:
    """A store, a controller and the events that it recorded."""

    def __init__(self):
        """Prepare a controller that does not watch yet."""
        self.store = Store()
        self.configuration = FakeConfigMapSource()
        self.events = []
        self.instruments = Instruments(CollectorRegistry())
        self.controller = ConfigMapController(
            self.store,
            configuration=self.configuration,
            record=lambda *event: self.events.append(event),
            clock=VirtualClock(),
            instruments=self.instruments,
        )

    def put(self, name, data, *, version="1", namespace="wva"):
        """Put a ConfigMap into the cache."""
        metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": version}
        self.store.upsert(msgspec.convert({"metadata": metadata, "data": data}, ConfigMap))

    def invalid(self, name="ours"):
        """Return the gauge of rejected entries."""
        return self.instruments.registry.get_sample_value("wva_config_invalid_entries", {"config_map": name})


@pytest.fixture
def scene():
    """Return a scene."""
    return WatchScene()


async def test_everything_there_is_taken_before_anything_decides(scene):
    """``load_all`` applies every ConfigMap without an event and without a worker."""
    scene.put("ours", {"problems": "0"})
    scene.put("theirs", {})
    await scene.controller.load_all()
    assert scene.configuration.applied == [(OURS, {"problems": "0"}), (Key("wva", "theirs"), {})]


async def test_each_problem_is_an_event_on_the_config_map(scene):
    """The controller records a Warning on the ConfigMap for each problem, and the gauge counts them."""
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
    """The gauge counts the entries that are rejected now."""
    scene.put("ours", {"problems": "2"})
    await scene.controller.reconcile(OURS)
    scene.put("ours", {"problems": "0"}, version="2")
    await scene.controller.reconcile(OURS)
    assert scene.invalid() == 0
    assert len(scene.events) == 2


async def test_a_deleted_config_map_is_taken_back(scene):
    """The configuration gets None as its data. No event is recorded on an object that was never seen."""
    await scene.controller.reconcile(OURS)
    assert scene.configuration.applied == [(OURS, None)]
    assert scene.events == []
    assert scene.invalid() == 0


async def test_a_deleted_config_map_is_told_on_what_it_was(scene):
    """The event refers to the deleted object and says what is in force without it."""
    scene.put("ours", {}, version="7")
    scene.controller.watch()
    scene.store.delete(OURS)
    scene.configuration.gone = "the built-in defaults are in force"
    await scene.controller.reconcile(OURS)
    ((reference, type_, reason, message),) = scene.events
    assert (reference.name, reference.uid, type_, reason) == ("ours", "uid-ours", "Warning", "ConfigurationDeleted")
    assert message == "The ConfigMap was deleted: the built-in defaults are in force"


async def test_a_deletion_that_changes_nothing_is_not_told(scene):
    """The controller records no event if the ConfigMap was not in force."""
    scene.put("ours", {})
    scene.controller.watch()
    scene.store.delete(OURS)
    await scene.controller.reconcile(OURS)
    assert scene.events == []


async def test_a_config_map_that_is_not_used_is_told_why(scene):
    """The author of the ConfigMap would believe that it is in force."""
    scene.put("ours", {"ignored": "another comes first"})
    await scene.controller.reconcile(OURS)
    ((_, type_, reason, message),) = scene.events
    assert (type_, reason, message) == ("Warning", "ConfigurationIgnored", "Not used: another comes first")


async def test_a_config_map_of_a_namespace_that_may_not_have_one_is_left_alone(scene):
    """The controller records no event, because the ConfigMap may belong to another controller."""
    scene.put("ours", {"refused": "not opted in"})
    with capture_logs() as lines:
        await scene.controller.reconcile(OURS)
    assert scene.events == []
    assert [(line["event"], line["reason"]) for line in lines] == [("config_map_not_used", "not opted in")]


async def test_a_config_map_that_comes_or_goes_wakes_its_rivals(scene):
    """A ConfigMap of another name may come into force or lose it. A change of content wakes no rival."""
    scene.put("alias", {})
    scene.controller.watch()
    scene.put("ours", {})
    assert [await scene.controller.queue.get() for _ in range(2)] == [OURS, ALIAS]
    scene.controller.queue.done(OURS)
    scene.controller.queue.done(ALIAS)
    scene.put("ours", {}, version="2")
    assert await scene.controller.queue.get() == OURS
    scene.controller.queue.done(OURS)
    assert len(scene.controller.queue) == 0


async def test_a_namespace_has_a_gauge_only_while_entries_are_rejected(scene):
    """The gauge has the name of the namespace and of the ConfigMap."""
    scene.put("ours", {"problems": "2"}, namespace="team")
    await scene.controller.reconcile(Key("team", "ours"))
    assert (scene.invalid("team/ours"), scene.invalid()) == (2, None)
    scene.put("ours", {}, version="2", namespace="team")
    await scene.controller.reconcile(Key("team", "ours"))
    assert scene.invalid("team/ours") is None


async def test_a_config_map_of_others_leaves_no_trace(scene):
    """The controller sets no gauge and records no event."""
    scene.put("theirs", {"problems": "3"})
    await scene.controller.reconcile(Key("wva", "theirs"))
    assert scene.events == []
    assert scene.instruments.registry.get_sample_value("wva_config_invalid_entries", {"config_map": "theirs"}) is None


async def test_changes_wake_the_worker(scene):
    """Additions, changes and deletions wake it once ``watch`` was called."""
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
