"""argparse in pflag's manners: an unknown flag ends the process with status 2 and names the nearest flag.

Apart from ``flags``, because the settings need libraries that ``wva --help`` should not wait for.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from wva.numbers import Whole, shown

USAGE_ERROR: Final = 2
SEEDS: Final = Whole(1, 100)
"""How often a benchmark may run a policy."""
WORKERS: Final = Whole(1, 1024)
"""How many processes it may use."""
_UNKNOWN: Final = "unrecognized arguments: "


class Parser(argparse.ArgumentParser):
    """argparse that suggests the nearest flag and keeps its errors to one line."""

    def parse_known_args(  # type: ignore[override]  # argparse types it by overloads that say the same
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Refuse unknown words where the flags are known: in the sub-command, not in the program around it."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"{_UNKNOWN}{' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Print the usage error and exit with status 2."""
        line = "".join(character if character.isprintable() else "?" for character in message)
        self.exit(USAGE_ERROR, f"{self.prog}: error: {line}{self._suggestion(message)}\n")

    def _suggestion(self, message: str) -> str:
        if not message.startswith(_UNKNOWN):
            return f" (see {self.prog} --help)"
        unknown = message.removeprefix(_UNKNOWN).partition(" ")[0].partition("=")[0]
        known = [option for action in self._actions for option in action.option_strings]
        nearest = difflib.get_close_matches(unknown, known, n=1, cutoff=0.5)
        return f" (did you mean {nearest[0]}?)" if nearest else f" (see {self.prog} --help)"


def whole(border: Whole) -> Callable[[str], int]:
    """Return what reads a whole number of a range, and raises ArgumentTypeError for other texts."""

    def read(text: str) -> int:
        found = border.find(text)
        if found is None:
            raise argparse.ArgumentTypeError(f"{shown(text)}: expected {border.expected}")
        return found

    return read
