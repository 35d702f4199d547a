"""Flags of ``wva run``, made from the table of settings; pflag's manners on top of argparse.

A boolean flag may stand alone (``--leader-elect``) or carry its value (``--leader-elect=false``), and never swallows
the next word. Values are not interpreted: they go to the settings as text, like those of the environment.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from wva.config import Settings
from wva.config.declare import SWITCH, Declaration, declarations, shown


def add_settings_flags(parser: argparse.ArgumentParser, model: type[Settings] = Settings) -> None:
    """Add the flags of every setting that has some."""
    for name, declared in declarations(model).items():
        if declared.flags:
            parser.add_argument(
                *(spelling for flag in declared.flags for spelling in _spellings(flag)),
                dest=f"setting:{name}",
                metavar=declared.metavar,
                default=None,
                help=_help(declared),
            )


def expand_booleans(argv: Sequence[str]) -> list[str]:
    """Turn a bare boolean flag into ``--flag=true``: an optional value of argparse would swallow the next word."""
    bare = {
        f"-{flag}" if len(flag) == 1 else f"--{flag}"
        for declared in declarations(Settings).values()
        for flag in declared.flags
        if declared.form is SWITCH
    }
    return [f"{word}=true" if word in bare else word for word in argv]


def given_flags(namespace: argparse.Namespace) -> dict[str, str]:
    """Return the flags that were really given, by field name."""
    prefix = "setting:"
    values = vars(namespace).items()
    return {name.removeprefix(prefix): text for name, text in values if name.startswith(prefix) and text is not None}


def _spellings(flag: str) -> tuple[str, ...]:
    """Return how a flag may be written; pflag takes one letter with two dashes, too."""
    return (f"-{flag}", f"--{flag}") if len(flag) == 1 else (f"--{flag}",)


def _help(declared: Declaration) -> str:
    parts = [declared.meaning]
    if declared.no_effect:
        parts.append(f"No effect: {declared.no_effect}.")
    else:
        if declared.default not in {"", None}:
            parts.append(f"Default: {shown(declared.default)}.")
        if declared.places:
            parts.append(f"Also: {', '.join(declared.keys)}.")
    return " ".join(parts).replace("%", "%%")


def fail(line: str) -> int:
    """Print one line to stderr and return the status of a process that could never work."""
    sys.stderr.write(f"wva: {line}\n")
    return 1


def fail_on_system(error: OSError) -> int:
    """Print what the system refused, of which file if it says so, and return the status of ``fail``."""
    return fail(f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error))
