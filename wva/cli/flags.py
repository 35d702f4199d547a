"""Flags of ``wva run``, made from the table of settings; pflag's manners on top of argparse.

A boolean flag may stand alone (``--leader-elect``) or carry its value (``--leader-elect=false``), and never swallows
the next word. Values are not interpreted: they go to the settings as text, like those of the environment.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from wva.settings import Origin, Settings, origin_of

_BOOL: Final = "BOOL"


def add_settings_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of every setting that has some."""
    for name, field in Settings.model_fields.items():
        origin = origin_of(field)
        if origin.flags:
            parser.add_argument(
                *(spelling for flag in origin.flags for spelling in _spellings(flag)),
                dest=f"setting:{name}",
                metavar=origin.metavar,
                default=None,
                help=_help(field.description or "", origin, field.default),
            )


def expand_booleans(argv: Sequence[str]) -> list[str]:
    """Turn a bare boolean flag into ``--flag=true``: an optional value of argparse would swallow the next word."""
    bare = {
        _dashed(flag)
        for field in Settings.model_fields.values()
        for flag in origin_of(field).flags
        if origin_of(field).metavar == _BOOL
    }
    return [f"{word}=true" if word in bare else word for word in argv]


def given_flags(namespace: argparse.Namespace) -> dict[str, str]:
    """Return the flags that were really given, by field name."""
    prefix = "setting:"
    values = vars(namespace).items()
    return {name.removeprefix(prefix): text for name, text in values if name.startswith(prefix) and text is not None}


def _dashed(flag: str) -> str:
    return f"-{flag}" if len(flag) == 1 else f"--{flag}"


def _spellings(flag: str) -> tuple[str, ...]:
    """Return how a flag may be written; pflag takes one letter with two dashes, too."""
    return (f"-{flag}", f"--{flag}") if len(flag) == 1 else (f"--{flag}",)


def _help(description: str, origin: Origin, default: object) -> str:
    parts = [description]
    if origin.no_effect:
        parts.append(f"No effect: {origin.no_effect}.")
    else:
        if default not in {"", None}:
            shown = f"{default:g}s" if origin.metavar == "DURATION" else str(default).lower()
            parts.append(f"Default: {shown}.")
        if origin.places:
            parts.append(f"Also: {', '.join(origin.keys)}.")
    return " ".join(parts).replace("%", "%%")


def fail(line: str) -> int:
    """Print one line to stderr and return the status of a process that could never work."""
    sys.stderr.write(f"wva: {line}\n")
    return 1


def fail_on_system(error: OSError) -> int:
    """Print what the system refused, of which file if it says so, and return the status of ``fail``."""
    return fail(f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error))
