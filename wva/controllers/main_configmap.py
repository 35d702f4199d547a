"""The main ConfigMap: settings in force, or events that say what was not taken and why.

It is followed on every process, leader or not, because some settings concern every process, such as the log level.
Events are left to the process that leads, which begins with what there is to say of the ConfigMap as it finds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from wva import log
from wva.api.core import ConfigMap, ObjectReference
from wva.api.meta import Key
from wva.controllers.configmap import DELETED_EVENT, INVALID_EVENT, Recorder
from wva.instruments import Instruments
from wva.kube.cache import Store

IMMUTABLE_EVENT: Final = "ImmutableConfigChangeRejected"
_DELETED: Final = "The ConfigMap was deleted: the settings that it gave stay until the controller is restarted"


class Taken(Protocol):
    """What came of a main ConfigMap."""

    @property
    def problems(self) -> tuple[str, ...]:
        """What cannot be used, one line each."""
        ...

    @property
    def rejected(self) -> str:
        """What is to be told about changes that need a restart; empty when there is nothing new to tell."""
        ...


class SettingsConfiguration(Protocol):
    """Where the text goes."""

    main: Key

    @property
    def standing_main(self) -> Taken:
        """What is to be said of the main ConfigMap as it is, whether or not it has been said."""
        ...

    @property
    def started_with_main(self) -> bool:
        """Whether there was a main ConfigMap when the process started."""
        ...

    def apply_main(self, data: Mapping[str, str] | None) -> Taken:
        """Take the data of the main ConfigMap (None: it is gone)."""
        ...


class MainConfigMap:
    """Follows the main ConfigMap in the cache."""

    def __init__(
        self,
        store: Store[ConfigMap],
        *,
        configuration: SettingsConfiguration,
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
            self._tell(_reference(config_map), self._configuration.standing_main)
        elif self._configuration.started_with_main:
            self._configuration.apply_main(None)

    def _on_config_map(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        seen = new or old
        if seen is None or seen.metadata.key != self._configuration.main:
            return
        reference = _reference(seen)
        if new is None:
            self._configuration.apply_main(None)
            self._errors.labels(seen.metadata.name).set(0)
            self._event(reference, DELETED_EVENT, _DELETED)
            return
        taken = self._configuration.apply_main(new.data)
        standing = self._configuration.standing_main
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
