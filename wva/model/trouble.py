"""What stands in the way of a variant beside its own configuration, in the words of a condition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Trouble:
    """A reason for machines and a message for people; both empty when nothing is wrong.

    The message names what is wrong, what was expected and what is in force meanwhile.
    """

    reason: str = ""
    message: str = ""

    def __bool__(self) -> bool:
        """Tell whether anything is wrong."""
        return bool(self.reason)


UNTROUBLED: Final = Trouble()
