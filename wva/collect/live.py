"""The configuration in force, changing while the process runs: one face for the settings and the policy.

ConfigMap text comes in through ``apply`` and ``apply_main``, parsed values are read by the loop and the collector.
Everything about the main ConfigMap is in ``live_settings``, everything about the others in ``live_policy``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from wva.api.meta import Key
from wva.api.variantautoscaling import VariantAutoscaling
from wva.collect.live_policy import AppliedConfigMap, LivePolicy, nowhere
from wva.collect.live_settings import LiveSettings, Taken
from wva.model.metrics import Freshness
from wva.model.policy import Policy
from wva.model.records import replace
from wva.settings import Given, Settings
from wva.settings.describe import SettingInForce
from wva.slices import Steps, at_once


class LiveConfiguration:
    """Policy, interval and freshness limits in force."""

    def __init__(self, settings: Settings, given: Given, *, refusal: Callable[[str], str] = nowhere) -> None:
        """Start with what the process was started with.

        ``refusal`` says why a namespace may not have ConfigMaps of its own now; empty when it may.
        """
        self.main = Key(settings.pod_namespace, settings.config_map_name)
        """The main ConfigMap."""
        self.settings = LiveSettings(settings, given)
        self._maps = LivePolicy(settings, refusal=refusal)
        self._policy: Policy | None = None
        self._listeners: list[Callable[[str | None], None]] = []
        self.changed = asyncio.Event()

    def subscribe(self, listener: Callable[[str | None], None]) -> None:
        """Call ``listener`` after every ConfigMap that was taken, with its namespace, None if it is for all of them."""
        self._listeners.append(listener)

    @property
    def policy(self) -> Policy:
        """What the decisions obey: what the ConfigMaps say, with the settings that decisions need."""
        if self._policy is None:
            settings = self.settings.current
            self._policy = replace(
                self._maps.current,
                limited_mode=settings.limited_mode,
                proactive_model=settings.proactive_model,
                scale_to_zero_default=settings.scale_to_zero,
            )
        return self._policy

    @property
    def interval_seconds(self) -> float:
        """Time between the starts of two cycles."""
        return self.settings.current.global_opt_interval

    @property
    def freshness(self) -> Freshness:
        """Age limits of samples."""
        return self.settings.freshness

    def problem_for(self, va: VariantAutoscaling) -> str:
        """Return what is wrong with the configuration of one variant, empty when nothing is."""
        return self._maps.problem_for(va)

    def apply(self, key: Key, data: Mapping[str, str] | None) -> AppliedConfigMap | None:
        """Take the data of a policy ConfigMap (None: it is gone); return what came of it, None if it is not ours."""
        return at_once(self.apply_in_steps(key, data))

    def apply_in_steps(self, key: Key, data: Mapping[str, str] | None) -> Steps[AppliedConfigMap | None]:
        """Do the same as ``apply``, entry by entry. No other policy ConfigMap may be taken before the last step."""
        outcome = yield from self._maps.apply_in_steps(key, data)
        if outcome is not None:
            self._announce(None if key.namespace == self.main.namespace else key.namespace)
        return outcome

    def give_up(self, namespace: str, cause: str) -> list[Key]:
        """Put the ConfigMaps of a namespace out of force until one of their texts changes; return them.

        ``cause`` says in words what fails with them.
        """
        keys = self._maps.give_up(namespace, cause)
        self._announce(namespace)
        return keys

    def config_maps_in_effect(self) -> dict[str, str]:
        """Return, for each kind of policy ConfigMap, which one is in force."""
        return self._maps.in_effect()

    def rivals(self, key: Key) -> list[Key]:
        """Return the other names under which the same may be said in the namespace of a ConfigMap."""
        return self._maps.rivals(key)

    def apply_main(self, data: Mapping[str, str] | None) -> Taken:
        """Take the data of the main ConfigMap (None: it is gone)."""
        if data is None:
            self.settings.keep()
            return Taken()
        taken = self.settings.take(data)
        self._announce()
        return taken

    @property
    def standing_main(self) -> Taken:
        """What is to be said of the main ConfigMap as it is, whether or not it has been said."""
        return self.settings.standing

    @property
    def started_with_main(self) -> bool:
        """Whether there was a main ConfigMap when the process started."""
        return self.settings.started_with_config_map

    def describe(self) -> list[SettingInForce]:
        """Return every setting with its value and source; secrets are masked."""
        return self.settings.describe()

    def _announce(self, namespace: str | None = None) -> None:
        self._policy = None
        self.changed.set()
        for listener in self._listeners:
            listener(namespace)
