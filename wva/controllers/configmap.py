"""ConfigMaps: text becomes configuration in force, or a Warning event that says why not.

Only the ConfigMaps of the controller's own namespace with the configured names are looked at. Whatever is wrong with
them, the last good state stays in force and the process goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

from wva import log
from wva.api.core import ConfigMap, ObjectReference
from wva.api.meta import Key
from wva.clock import Clock
from wva.instruments import Instruments
from wva.kube.cache import Store
from wva.kube.controller import Done, Result
from wva.kube.workqueue import WorkQueue

INVALID_EVENT = "InvalidConfiguration"
_TOLD_PROBLEMS = 100
"""How many problems of one ConfigMap are told one by one; a broken tool may write tens of thousands."""

Recorder = Callable[[ObjectReference, Literal["Normal", "Warning"], str, str], None]


class Configuration(Protocol):
    """Where the text goes."""

    def apply(self, key: Key, data: dict[str, str] | None) -> list[str] | None:
        """Take the data of a ConfigMap (None: it is gone); return what is wrong with it, None if it is not ours."""
        ...


class ConfigMapController:
    """Event mapping and reconcile of the ConfigMaps that configure the controller."""

    def __init__(
        self,
        store: Store[ConfigMap],
        *,
        configuration: Configuration,
        record: Recorder,
        clock: Clock,
        instruments: Instruments,
    ) -> None:
        """Prepare the queue; nothing is subscribed before ``watch``."""
        self._store = store
        self._configuration = configuration
        self._record = record
        self._instruments = instruments
        self._logger = log.get("configmap")
        self.queue: WorkQueue[Key] = WorkQueue("configmap", clock=clock, instruments=instruments)

    def watch(self) -> None:
        """Subscribe to the cache."""
        self._store.subscribe(self._on_config_map)

    def load_all(self) -> None:
        """Take every ConfigMap in the cache, before anything decides."""
        for config_map in self._store.list():
            self._apply(config_map.metadata.key)

    async def reconcile(self, key: Key) -> Result:
        """Take one ConfigMap as it is now."""
        self._apply(key)
        return Done()

    def _apply(self, key: Key) -> None:
        config_map = self._store.get(key)
        problems = self._configuration.apply(key, None if config_map is None else config_map.data)
        if problems is None:
            return
        self._instruments.config_errors.labels(key.name).set(len(problems))
        if len(problems) > _TOLD_PROBLEMS:
            self._logger.warning("configuration_rejected", config_map=str(key), problems=len(problems))
        for problem in problems[:_TOLD_PROBLEMS]:
            self._logger.warning("configuration_rejected", config_map=str(key), problem=problem)
            if config_map is not None:
                self._record(_reference(config_map), "Warning", INVALID_EVENT, problem)

    def _on_config_map(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        config_map = new or old
        if config_map is not None:
            self.queue.add(config_map.metadata.key)


def _reference(config_map: ConfigMap) -> ObjectReference:
    metadata = config_map.metadata
    return ObjectReference(
        "v1", "ConfigMap", metadata.name, metadata.namespace, metadata.uid, metadata.resource_version
    )
