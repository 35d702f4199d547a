"""Settings as text for people: in logs, events, ``wva config`` and ``/debug/config``. Secrets are masked."""

from __future__ import annotations

import re
from typing import Final

from pydantic import SecretStr

MASK: Final = "***"
_MAX_SHOWN_CHARACTERS: Final = 120
_USER: Final = re.compile(r"//[^/\s]*@")


def shown(value: object) -> str:
    """Return the value of a setting as it would be written in a ConfigMap: ``60s``, ``true``; a secret masked."""
    if value is None:
        return ""
    if isinstance(value, SecretStr):
        return MASK if value.get_secret_value() else ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.9f}".rstrip("0").rstrip(".") + "s"
    return without_user(str(value))


def without_user(text: str) -> str:
    """Return a text with the user and password of any URL in it masked."""
    return _USER.sub(f"//{MASK}@", text)


def shortened(text: str) -> str:
    """Return a text from outside as far as a line has room for it."""
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else text[:_MAX_SHOWN_CHARACTERS] + "..."
