"""ConfigMaps as they come and go: text becomes configuration in force, or an event that says why not.

``MainConfigMap`` follows the main ConfigMap on every process, leader or not, because some settings concern every
process, such as the log level; events are left to the process that leads. ``ConfigMapController`` takes those that say
how to decide, under the configured names, in the controller's own namespace and in namespaces that may have their own.
With any fault in them the last good state stays in force, and the process goes on. The result depends only on the
ConfigMaps that exist, so the order of events does not matter.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Final, Literal, Protocol

from wva import log
from wva.api.core import ConfigMap, ObjectReference
from wva.api.meta import Key
from wva.clock import Clock
from wva.config.live import LiveConfiguration, LivePolicy
from wva.config.load import Taken
from wva.instruments import Instruments
from wva.kube.cache import Handler, Store
from wva.kube.controller import Done, Result
from wva.kube.workqueue import WorkQueue
from wva.slices import Steps, in_slices

INVALID_EVENT: Final = "InvalidConfiguration"
DELETED_EVENT: Final = "ConfigurationDeleted"
IGNORED_EVENT: Final = "ConfigurationIgnored"
IMMUTABLE_EVENT: Final = "ImmutableConfigChangeRejected"
_TOLD_PROBLEMS = 100
"""How many problems of one ConfigMap are told one by one; a broken tool may write tens of thousands."""

Recorder = Callable[[ObjectReference, Literal["Normal", "Warning"], str, str], None]


class ConfigMaps(Protocol):
    """Where the ConfigMaps are."""

    def get(self, key: Key) -> ConfigMap | None:
        """Return a ConfigMap, None when there is none."""
        ...

    def list(self) -> builtins.list[ConfigMap]:
        """Return all that may be of interest."""
        ...

    def subscribe(self, handler: Handler[ConfigMap]) -> None:
        """Call a handler on each change."""
        ...


class ConfigMapController:
    """Event mapping and reconcile of the ConfigMaps that say how to decide."""

    def __init__(
        self,
        config_maps: ConfigMaps,
        *,
        configuration: LivePolicy,
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
        gone, logger = self._gone.pop(key, None), self._logger.bind(config_map=str(key))
        if outcome is None:
            return
        # The number of rejected entries; a namespace has a series only while there are any.
        own, errors = key.namespace == self._own, self._instruments.config_errors
        name = key.name if own else str(key)
        if own or outcome.problems:
            errors.labels(name).set(len(outcome.problems))
            self._counted.add(key)
        elif key in self._counted:
            errors.remove(name)
            self._counted.discard(key)
        if config_map is None:
            if outcome.gone:
                logger.warning("config_map_deleted", in_force=outcome.gone)
                if gone is not None:
                    self._record(gone, "Warning", DELETED_EVENT, f"The ConfigMap was deleted: {outcome.gone}")
            return
        reference = _reference(config_map)
        if outcome.refused:
            # No event: it may be the global ConfigMap of another controller, or wait for its first variant.
            logger.info("config_map_not_used", reason=outcome.refused)
        if outcome.ignored:
            logger.warning("config_map_ignored", reason=outcome.ignored)
            self._record(reference, "Warning", IGNORED_EVENT, f"Not used: {outcome.ignored}")
        if len(outcome.problems) > _TOLD_PROBLEMS:
            logger.warning("configuration_rejected", problems=len(outcome.problems))
        for problem in outcome.problems[:_TOLD_PROBLEMS]:
            logger.warning("configuration_rejected", problem=problem)
            self._record(reference, "Warning", INVALID_EVENT, problem)

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


class MainConfigMap:
    """Follows the main ConfigMap in the cache."""

    def __init__(
        self,
        store: Store[ConfigMap],
        *,
        configuration: LiveConfiguration,
        record: Recorder,
        instruments: Instruments,
    ) -> None:
        """Subscribe to the cache."""
        self._store = store
        self._configuration = configuration
        self._record = record
        self._errors = instruments.config_errors
        self._logger = log.get("configmap")
        self._leads = False
        store.subscribe(self._on_config_map)

    def begin(self) -> None:
        """Tell events from now on, first of the ConfigMap as it is; the cache has synced, and this process leads."""
        self._leads = True
        config_map = self._store.get(self._configuration.main)
        if config_map is not None:
            self._tell(_reference(config_map), self._configuration.settings.standing)
        elif self._configuration.settings.started_with_config_map:
            self._configuration.apply_main(None)

    def _on_config_map(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        seen = new or old
        if seen is None or seen.metadata.key != self._configuration.main:
            return
        reference = _reference(seen)
        if new is None:
            self._configuration.apply_main(None)
            self._errors.labels(seen.metadata.name).set(0)
            text = "The ConfigMap was deleted: the settings that it gave stay until the controller is restarted"
            self._event(reference, DELETED_EVENT, text)
            return
        taken = self._configuration.apply_main(new.data)
        standing = self._configuration.settings.standing
        self._errors.labels(seen.metadata.name).set(len(standing.problems) + bool(standing.rejected))
        for problem in taken.problems:
            self._logger.warning("configuration_rejected", config_map=str(seen.metadata.key), problem=problem)
        self._tell(reference, taken)

    def _tell(self, reference: ObjectReference, taken: Taken) -> None:
        for problem in taken.problems:
            self._event(reference, INVALID_EVENT, problem)
        if taken.rejected:
            self._event(reference, IMMUTABLE_EVENT, taken.rejected)

    def _event(self, reference: ObjectReference, reason: str, message: str) -> None:
        if self._leads:
            self._record(reference, "Warning", reason, message)


def _reference(config_map: ConfigMap) -> ObjectReference:
    metadata = config_map.metadata
    return ObjectReference(
        "v1", "ConfigMap", metadata.name, metadata.namespace, metadata.uid, metadata.resource_version
    )
