"""Changes in a new main ConfigMap that need a restart.

A static setting counts as changed when the ConfigMap gives another value now than when the process started. This holds
also if a flag or the environment overrides it: the value in force stays in any case, and the next start would read the
new one. Removing a key is a change too. Texts that mean the same value (``60s`` and ``1m``) are no change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from wva.settings.load import SECRETS, config_map_text, validate
from wva.settings.model import Settings
from wva.settings.origin import Origin, origin_of
from wva.settings.text import MASK, shortened, shown, without_user

NOT_SET: Final = "(not set)"
_MAX_LISTED_CHARACTERS: Final = 700
_STATIC: Final[dict[str, Origin]] = {
    name: origin
    for name, field in Settings.model_fields.items()
    if not (origin := origin_of(field)).dynamic and "configmap" in origin.places
}


class Change(NamedTuple):
    """One static setting that the ConfigMap gives another value; the texts show no secret."""

    parameter: str
    old: str
    new: str

    def __str__(self) -> str:
        """Return the change as part of a sentence."""
        return f"{self.parameter}: {shortened(self.old)} -> {shortened(self.new)}"


def static_changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[Change]:
    """Return the static settings for which two states of the main ConfigMap give different values."""
    changes = []
    for name, origin in _STATIC.items():
        old, new = _given(name, origin, before), _given(name, origin, now)
        if old[0] != new[0]:
            changes.append(Change(new[2] or old[2], old[1], new[1]))
    return changes


def summary(changes: list[Change]) -> str:
    """Return the changes as one sentence of bounded length."""
    listed: list[str] = []
    for change in changes:
        if sum(map(len, listed)) + len(str(change)) > _MAX_LISTED_CHARACTERS:
            listed.append(f"and {len(changes) - len(listed)} more")
            break
        listed.append(str(change))
    return (
        f"Attempted to change immutable parameters: {'; '.join(listed)}. The running values stay until the controller "
        "is restarted; the other changes of the ConfigMap are applied."
    )


def _given(name: str, origin: Origin, data: Mapping[str, str]) -> tuple[object, str, str]:
    """Return what a ConfigMap gives for a setting: something to compare, a text to show, the key."""
    found = config_map_text(origin, data)
    if found is None:
        return None, NOT_SET, ""
    key, text = found
    value, error, _ = validate(name, text)
    if error is not None:
        return ("unusable", text), MASK if name in SECRETS else without_user(text), key
    return value, shown(value) or repr(""), key
