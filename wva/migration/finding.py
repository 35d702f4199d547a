"""One thing that does not fit, and what to do about it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from wva.api.meta import Key

_ORDER: Final = ("must", "should", "note")


class Severity(StrEnum):
    """How bad it is."""

    MUST = "must"
    """It does not work, or it works on a wrong number, until it is changed."""
    SHOULD = "should"
    """It works, and will fail in a situation that comes."""
    NOTE = "note"
    """It behaves otherwise than before; nothing has to be done."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What is the matter with one object. ``change`` is one command or one sentence; empty for a note."""

    severity: Severity
    kind: str
    key: Key
    problem: str
    change: str = ""

    @property
    def order(self) -> tuple[int, str, Key, str]:
        """Sort the worst first, then by object."""
        return (_ORDER.index(self.severity.value), self.kind, self.key, self.problem)


def kubectl(verb: str, kind: str, key: Key, *words: str) -> str:
    """Return a kubectl command on one object, quoted for a shell."""
    namespace = ("-n", key.namespace) if key.namespace else ()
    return shlex.join(("kubectl", verb, kind.lower(), key.name, *namespace, *words))


def merge_patch(kind: str, key: Key, patch: Mapping[str, object]) -> str:
    """Return the kubectl command that merges ``patch`` into an object."""
    return kubectl("patch", kind, key, "--type", "merge", "-p", msgspec.json.encode(patch).decode())
