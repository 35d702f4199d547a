"""ConfigMaps: text becomes configuration in force, or an event that says why not.

Only ConfigMaps with the configured names count, in the controller's own namespace and in namespaces that may have their
own. With any fault in them the last good state stays in force, and the process goes on. The result depends only on the
ConfigMaps that exist, so the order of events does not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, Protocol

from wva import log
from wva.api.core import ConfigMap, ObjectReference
from wva.api.meta import Key
from wva.clock import Clock
from wva.instruments import Instruments
from wva.kube.cache import Handler
from wva.kube.controller import Done, Result
from wva.kube.workqueue import WorkQueue
from wva.slices import Steps, in_slices

INVALID_EVENT: Final = "InvalidConfiguration"
DELETED_EVENT: Final = "ConfigurationDeleted"
IGNORED_EVENT: Final = "ConfigurationIgnored"
_TOLD_PROBLEMS = 100
"""How many problems of one ConfigMap are told one by one; a broken tool may write tens of thousands."""

Recorder = Callable[[ObjectReference, Literal["Normal", "Warning"], str, str], None]


class ConfigMaps(Protocol):
    """Where the ConfigMaps are."""

    def get(self, key: Key) -> ConfigMap | None:
        """Return a ConfigMap, None when there is none."""
        ...

    def list(self) -> list[ConfigMap]:
        """Return all that may be of interest."""
        ...

    def subscribe(self, handler: Handler[ConfigMap]) -> None:
        """Call a handler on each change."""
        ...


class ConfigMapResult(Protocol):
    """What came of a ConfigMap."""

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with it."""
        ...

    @property
    def ignored(self) -> str:
        """Which other one is in force instead, though this one might be; empty when none is."""
        ...

    @property
    def refused(self) -> str:
        """Why its namespace may not have its own; empty when it may."""
        ...

    @property
    def gone(self) -> str:
        """What is in force now that it is gone; empty when that changes nothing."""
        ...


class PolicyConfiguration(Protocol):
    """Where the text goes."""

    def apply_in_steps(self, key: Key, data: dict[str, str] | None) -> Steps[ConfigMapResult | None]:
        """Take the data of a ConfigMap (None: it is gone), entry by entry; return what came of it.

        None if it is not ours.
        """
        ...

    def rivals(self, key: Key) -> list[Key]:
        """Return the ConfigMaps that may be in force instead of one, or no longer, when it comes or goes."""
        ...

    def config_maps_in_effect(self) -> dict[str, str]:
        """Return, for each kind of ConfigMap, which one is in force."""
        ...


class ConfigMapController:
    """Event mapping and reconcile of the ConfigMaps that configure the controller."""

    def __init__(
        self,
        config_maps: ConfigMaps,
        *,
        configuration: PolicyConfiguration,
        record: Recorder,
        clock: Clock,
        instruments: Instruments,
        own_namespace: str,
    ) -> None:
        """Prepare the queue; nothing is subscribed before ``watch``."""
        self._own = own_namespace
        self._config_maps = config_maps
        self._gone: dict[Key, ObjectReference] = {}
        self._counted: set[Key] = set()
        self._configuration = configuration
        self._record = record
        self._instruments = instruments
        self._logger = log.get("configmap")
        self.queue: WorkQueue[Key] = WorkQueue("configmap", clock=clock, instruments=instruments)

    def watch(self) -> None:
        """Subscribe to the cache."""
        self._config_maps.subscribe(self._on_config_map)

    async def load_all(self) -> None:
        """Take every ConfigMap in the cache, before anything decides."""
        for config_map in self._config_maps.list():
            key = config_map.metadata.key
            try:
                await in_slices(self._apply(key))
            except Exception:
                self._logger.exception("config_map_failed", config_map=str(key), in_force="what was said before")
                self.queue.add(key)
        self._logger.info("config_maps_in_effect", **self._configuration.config_maps_in_effect())

    async def reconcile(self, key: Key) -> Result:
        """Take one ConfigMap as it is now."""
        await in_slices(self._apply(key))
        return Done()

    def _apply(self, key: Key) -> Steps[None]:
        config_map = self._config_maps.get(key)
        outcome = yield from self._configuration.apply_in_steps(key, None if config_map is None else config_map.data)
        if outcome is None:
            self._gone.pop(key, None)
            return
        self._count(key, len(outcome.problems))
        if config_map is None:
            self._tell_gone(key, outcome.gone)
            return
        self._gone.pop(key, None)
        reference = _reference(config_map)
        if outcome.refused:
            # No event: it may be the global ConfigMap of another controller, or wait for its first variant.
            self._logger.info("config_map_not_used", config_map=str(key), reason=outcome.refused)
        if outcome.ignored:
            self._logger.warning("config_map_ignored", config_map=str(key), reason=outcome.ignored)
            self._record(reference, "Warning", IGNORED_EVENT, f"Not used: {outcome.ignored}")
        self._tell_problems(key, outcome.problems, reference)

    def _tell_problems(self, key: Key, problems: tuple[str, ...], reference: ObjectReference) -> None:
        if len(problems) > _TOLD_PROBLEMS:
            self._logger.warning("configuration_rejected", config_map=str(key), problems=len(problems))
        for problem in problems[:_TOLD_PROBLEMS]:
            self._logger.warning("configuration_rejected", config_map=str(key), problem=problem)
            self._record(reference, "Warning", INVALID_EVENT, problem)

    def _tell_gone(self, key: Key, in_force: str) -> None:
        reference = self._gone.pop(key, None)
        if not in_force:
            return
        self._logger.warning("config_map_deleted", config_map=str(key), in_force=in_force)
        if reference is not None:
            self._record(reference, "Warning", DELETED_EVENT, f"The ConfigMap was deleted: {in_force}")

    def _count(self, key: Key, problems: int) -> None:
        """Set the number of rejected entries; a namespace has a series only while there are any."""
        own = key.namespace == self._own
        name = key.name if own else str(key)
        if own or problems:
            self._instruments.config_errors.labels(name).set(problems)
            self._counted.add(key)
        elif key in self._counted:
            self._instruments.config_errors.remove(name)
            self._counted.discard(key)

    def _on_config_map(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        config_map = new or old
        if config_map is None:
            return
        key = config_map.metadata.key
        if new is None:
            self._gone[key] = _reference(config_map)
        self.queue.add(key)
        if old is None or new is None:
            for rival in self._configuration.rivals(key):
                if self._config_maps.get(rival) is not None:
                    self.queue.add(rival)


def _reference(config_map: ConfigMap) -> ObjectReference:
    metadata = config_map.metadata
    return ObjectReference(
        "v1", "ConfigMap", metadata.name, metadata.namespace, metadata.uid, metadata.resource_version
    )
