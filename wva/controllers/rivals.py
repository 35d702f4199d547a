"""Variants that this controller would take and leaves to another one: visible, looked at again, never fought over."""

from __future__ import annotations

from collections.abc import Callable

from wva import log
from wva.api.claims import Claimant
from wva.api.meta import Key
from wva.api.variantautoscaling import CONTROLLER_INSTANCE_LABEL, VariantAutoscaling
from wva.clock import Clock
from wva.collect.claims import Claims
from wva.kube.controller import After, Done, Result
from wva.model.variant import VariantKey
from wva.publish.announce import CLAIMED_TWICE_EVENT

_log = log.get("rivals")


class Rivals:
    """Who else has which variant; says so once for each variant and rival."""

    def __init__(self, claims: Claims, *, announce: Callable[[VariantKey, str, str, str], None], clock: Clock) -> None:
        """Start without rivals."""
        self._claims = claims
        self._announce = announce
        self._clock = clock
        self._known: dict[Key, Claimant] = {}

    def __len__(self) -> int:
        """Return how many variants are left to others."""
        return len(self._known)

    def look(self, key: Key, va: VariantAutoscaling | None) -> Result:
        """Note why a VA is not handled; return when to look again: at the latest when the rival's claim has run out."""
        now = self._clock.now()
        if va is None or va.metadata.deleting or not self._claims.wanted(va):
            self.forget(key)
            return Done()
        rival = self._claims.rival(va, now)
        if rival is None:  # it has just gone
            return After(1.0)
        if self._known.get(key) != rival:
            self._known[key] = rival
            self._say(key, va, rival)
        return After(self._claims.free_in_seconds(va, now))

    def forget(self, key: Key) -> None:
        """Note that no other controller has the VA."""
        self._known.pop(key, None)

    def _say(self, key: Key, va: VariantAutoscaling, rival: Claimant) -> None:
        """Tell it as it is: an instance taking what is labelled for it is in order, anything else is a mistake."""
        label = va.metadata.labels.get(CONTROLLER_INSTANCE_LABEL, "")
        expected = bool(label) and rival.instance == label and not self._claims.me.instance
        message = f"left to controller {rival}, which decides on it; controller {self._claims.me} would take it, too"
        if not expected:
            message += (
                f": give each controller an instance of its own, and the variant the label {CONTROLLER_INSTANCE_LABEL}"
            )
        self._announce(VariantKey(*key), "Normal" if expected else "Warning", CLAIMED_TWICE_EVENT, message)
        say = _log.info if expected else _log.warning
        say("variant_claimed_twice", variant=str(key), decides=str(rival), yields=str(self._claims.me))
