"""Names and uids the server gives: unique, and the same in every run with the same seed."""

from __future__ import annotations

from typing import Final
from uuid import NAMESPACE_OID, uuid5

_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH: Final = 5
# Coprime to the number of suffixes: consecutive ones look different, and all are used before one comes again.
_SPREAD: Final = 7_919_117


class Identities:
    """A deterministic source of uids and name suffixes."""

    def __init__(self, seed: int) -> None:
        """Start the sequence of ``seed``."""
        self._seed = seed
        self._uids = 0
        self._suffixes = seed

    def uid(self) -> str:
        """Return the next uid."""
        self._uids += 1
        return str(uuid5(NAMESPACE_OID, f"{self._seed}/{self._uids}"))

    def suffix(self) -> str:
        """Return the next five characters for ``generateName``."""
        self._suffixes += 1
        number = self._suffixes * _SPREAD
        letters = []
        for _ in range(_SUFFIX_LENGTH):
            number, digit = divmod(number, len(_ALPHABET))
            letters.append(_ALPHABET[digit])
        return "".join(letters)
