"""Follows the ConfigMaps: puts their texts into force, or records an event that says why not.

Every process follows the main ConfigMap, because some settings, such as the log level, concern every process. Only the
leader records events. The leader also takes the ConfigMaps that say how to decide, under the configured names, in the
controller's own namespace and in namespaces that may have their own. With any fault in them the last good state stays
in force, and the process goes on. The result depends only on the ConfigMaps that exist, so the order of events does not
matter.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from wva import log
from wva.api.core import ConfigMap, ObjectReference
from wva.api.meta import Key
from wva.clock import Clock
from wva.config.live import LiveConfiguration
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
_SHOWN_PROBLEMS = 100
"""How many problems of one ConfigMap get an event and a log line each; a broken tool may write tens of thousands."""

Recorder = Callable[[ObjectReference, Literal["Normal", "Warning"], str, str], None]


@dataclass(frozen=True, slots=True)
class ConfigMapStores:
    """The ConfigMaps of our own namespace, and those of other namespaces by their name."""

    own_namespace: str
    own: Store[ConfigMap]
    local: Mapping[str, Store[ConfigMap]]

    def get(self, key: Key) -> ConfigMap | None:
        """Return a ConfigMap, None when there is none."""
        store = self.own if key.namespace == self.own_namespace else self.local.get(key.name)
        return None if store is None else store.get(key)

    def list(self) -> builtins.list[ConfigMap]:
        """Return the ConfigMaps of our own namespace, then the others."""
        others = [
            config_map for store in self.local.values() for config_map in store.list() if not self._is_own(config_map)
        ]
        return [*self.own.list(), *others]

    def of(self, namespace: str) -> builtins.list[Key]:
        """Return the keys of the ConfigMaps in a namespace other than our own."""
        keys = (Key(namespace, name) for name in self.local)
        return [key for key in keys if namespace != self.own_namespace and self.local[key.name].get(key) is not None]

    def subscribe(self, handler: Handler[ConfigMap]) -> None:
        """Call a handler on each change; a ConfigMap of our own namespace is in both caches, and counts once."""

        def elsewhere(old: ConfigMap | None, new: ConfigMap | None) -> None:
            config_map = new or old
            if config_map is not None and not self._is_own(config_map):
                handler(old, new)

        self.own.subscribe(handler)
        for store in self.local.values():
            store.subscribe(elsewhere)

    def _is_own(self, config_map: ConfigMap) -> bool:
        return config_map.metadata.namespace == self.own_namespace


class ConfigMapController:
    """Follows the ConfigMaps: the main one at each event, and through a queue those that say how to decide."""

    def __init__(
        self,
        config_maps: ConfigMapStores,
        *,
        configuration: LiveConfiguration,
        record: Recorder,
        clock: Clock,
        instruments: Instruments,
    ) -> None:
        """Follow the main ConfigMap, without events; the others are followed from ``watch`` on."""
        self._config_maps = config_maps
        self._configuration = configuration
        self._record = record
        self._errors = instruments.config_errors
        self._gone: dict[Key, ObjectReference] = {}
        self._counted: set[Key] = set()
        self._leads = False
        self._logger = log.get("configmap")
        self.queue: WorkQueue[Key] = WorkQueue("configmap", clock=clock, instruments=instruments)
        config_maps.subscribe(self._on_config_map)

    def watch(self) -> None:
        """Follow all ConfigMaps, and record events from now on. The leader calls it after the caches have synced."""
        self._leads = True
        main = self._config_maps.get(self._configuration.main)
        if main is not None:
            self._tell_main(_reference(main), self._configuration.settings.standing)
        elif self._configuration.settings.inputs.config_map:
            self._configuration.apply_main(None)

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
        own = key.namespace == self._configuration.main.namespace
        name = key.name if own else str(key)
        if own or outcome.problems:
            self._errors.labels(name).set(len(outcome.problems))
            self._counted.add(key)
        elif key in self._counted:
            self._errors.remove(name)
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
        if len(outcome.problems) > _SHOWN_PROBLEMS:
            logger.warning("configuration_rejected", problems=len(outcome.problems))
        for problem in outcome.problems[:_SHOWN_PROBLEMS]:
            logger.warning("configuration_rejected", problem=problem)
            self._record(reference, "Warning", INVALID_EVENT, problem)

    def _on_config_map(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        config_map = new or old
        if config_map is None:
            return
        key = config_map.metadata.key
        if key == self._configuration.main:
            taken = self._configuration.apply_main(None if new is None else new.data)
            errors, standing = self._errors.labels(key.name), self._configuration.settings.standing
            errors.set(0 if new is None else len(standing.problems) + bool(standing.rejected))
            for problem in taken.problems:
                self._logger.warning("configuration_rejected", config_map=str(key), problem=problem)
            if self._leads and new is None:
                text = "The ConfigMap was deleted: the settings that it gave stay until the controller is restarted"
                self._record(_reference(config_map), "Warning", DELETED_EVENT, text)
            elif self._leads:
                self._tell_main(_reference(config_map), taken)
        if not self._leads:
            return
        if new is None:
            self._gone[key] = _reference(config_map)
        self.queue.add(key)
        if old is None or new is None:
            for rival in self._configuration.rivals(key):
                if self._config_maps.get(rival) is not None:
                    self.queue.add(rival)

    def _tell_main(self, reference: ObjectReference, taken: Taken) -> None:
        for problem in taken.problems:
            self._record(reference, "Warning", INVALID_EVENT, problem)
        if taken.rejected:
            self._record(reference, "Warning", IMMUTABLE_EVENT, taken.rejected)


def _reference(config_map: ConfigMap) -> ObjectReference:
    metadata = config_map.metadata
    return ObjectReference(
        "v1", "ConfigMap", metadata.name, metadata.namespace, metadata.uid, metadata.resource_version
    )
