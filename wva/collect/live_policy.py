"""The policy in force, changing with the ConfigMaps that say how to decide.

What does not parse leaves the last good value in force and is remembered as a problem, so that the variants it concerns
can say so.
"""

from __future__ import annotations

from collections.abc import Mapping

from wva import log
from wva.api.meta import Key
from wva.api.variantautoscaling import VariantAutoscaling
from wva.collect.config.entry import EntryError
from wva.collect.config.saturation import parse_saturation
from wva.model.policy import Policy
from wva.settings import Settings

_TOLD_PROBLEMS = 10
"""A ConfigMap has room for tens of thousands of bad entries; a condition has not."""


class LivePolicy:
    """What the policy ConfigMaps say."""

    def __init__(self, settings: Settings) -> None:
        """Start with the built-in values."""
        self._saturation = Key(settings.pod_namespace, settings.saturation_config_map_name)
        self._saturation_config = parse_saturation({})
        self._logger = log.get("configuration")

    @property
    def current(self) -> Policy:
        """What the decisions obey."""
        return self._saturation_config.policy

    @property
    def watched(self) -> frozenset[Key]:
        """The ConfigMaps that are looked at."""
        return frozenset({self._saturation})

    def problem_for(self, va: VariantAutoscaling) -> str:
        """Return what is wrong with the configuration of one variant, empty when nothing is."""
        concerning = [error for error in self._saturation_config.errors if _concerns(error, va)]
        told = [f"ConfigMap {self._saturation}: {error}" for error in concerning[:_TOLD_PROBLEMS]]
        if len(concerning) > len(told):
            told.append(f"and {len(concerning) - len(told)} more")
        return "; ".join(told)

    def apply(self, key: Key, data: Mapping[str, str] | None) -> list[str] | None:
        """Take the data of a ConfigMap (None: it is gone); return its problems, None if it is none of ours."""
        if key != self._saturation:
            return None
        old = self._saturation_config
        if data is None:
            self._saturation_config = parse_saturation({})
        else:
            self._saturation_config = parse_saturation(data, previous=old)
        new = self._saturation_config
        if old.policy != new.policy:
            self._logger.info(
                "Updated saturation config",
                event_name="saturation_config_updated",
                oldEntries=1 + len(old.policy.overrides),
                newEntries=1 + len(new.policy.overrides),
                old=repr(old.policy),
                new=repr(new.policy),
            )
        for warning in new.warnings:
            self._logger.warning("saturation_config_warning", config_map=str(self._saturation), warning=warning)
        return [str(error) for error in new.errors]


def _concerns(error: EntryError, va: VariantAutoscaling) -> bool:
    """Tell whether a rejected entry was meant for this variant; one that names no model may be meant for any."""
    if error.model_id and error.model_id != va.spec.model_id:
        return False
    return not error.namespace or error.namespace == va.metadata.namespace
