"""The main ConfigMap: settings in force, or events that say what was not taken and why.

It is followed on every process, leader or not, because some settings concern every process, such as the log level. The
events of a standby are not posted: the leader tells the same story.
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


class Configuration(Protocol):
    """Where the text goes."""

    main: Key

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
        self, store: Store[ConfigMap], *, configuration: Configuration, record: Recorder, instruments: Instruments
    ) -> None:
        """Subscribe to the cache."""
        self._store = store
        self._configuration = configuration
        self._record = record
        self._errors = instruments.config_errors
        self._logger = log.get("configmap")
        store.subscribe(self._on_config_map)

    def confirm(self) -> None:
        """Say so when the ConfigMap that the process was started with is not there any more; the cache has synced."""
        if self._configuration.started_with_main and self._store.get(self._configuration.main) is None:
            self._configuration.apply_main(None)

    def _on_config_map(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        seen = new or old
        if seen is None or seen.metadata.key != self._configuration.main:
            return
        reference = _reference(seen)
        if new is None:
            self._configuration.apply_main(None)
            message = "The ConfigMap was deleted: the settings that it gave stay until the controller is restarted"
            self._record(reference, "Warning", DELETED_EVENT, message)
            return
        taken = self._configuration.apply_main(new.data)
        self._errors.labels(seen.metadata.name).set(len(taken.problems))
        for problem in taken.problems:
            self._logger.warning("configuration_rejected", config_map=str(seen.metadata.key), problem=problem)
            self._record(reference, "Warning", INVALID_EVENT, problem)
        if taken.rejected:
            self._record(reference, "Warning", IMMUTABLE_EVENT, taken.rejected)


def _reference(config_map: ConfigMap) -> ObjectReference:
    metadata = config_map.metadata
    return ObjectReference(
        "v1", "ConfigMap", metadata.name, metadata.namespace, metadata.uid, metadata.resource_version
    )
