"""The flags of ``wva run`` and ``wva config``, made from the declarations of the settings.

A boolean flag may stand alone (``--leader-elect``), carry its value as pflag wants it (``--leader-elect=false``), or
have it as the next word (``--leader-elect false``). It takes no other word. Values go to the settings as text, like
those of the environment.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from wva.config import Settings
from wva.config.declare import SWITCH, declarations, shown
from wva.config.load import URL_KEY

_PREFIX = "setting:"
_REQUIRED = f"""required, in the environment or in the main ConfigMap:
  {URL_KEY}=https://prometheus.monitoring.svc:9090"""


def add_settings_flags(parser: argparse.ArgumentParser, model: type[Settings] = Settings) -> None:
    """Add the flags of every setting that has flags, in groups, and say which setting is required."""
    groups: dict[str, argparse._ArgumentGroup] = {}
    parser.usage = "%(prog)s [FLAG ...]"
    parser.description = f"{parser.description}\n\n{_REQUIRED}"
    for name, declared in sorted(declarations(model).items(), key=lambda item: bool(item[1].no_effect)):
        if not declared.flags:
            continue
        parts = [declared.meaning]
        if declared.no_effect:
            parts.append(f"No effect: {declared.no_effect}.")
        else:
            if declared.default not in {"", None}:
                parts.append(f"Default: {shown(declared.default)}.")
            if declared.places:
                parts.append(f"Also: {', '.join(declared.keys)}.")
        spellings = []
        for flag in declared.flags:  # pflag takes one letter with two dashes, too
            spellings += [f"-{flag}", f"--{flag}"] if len(flag) == 1 else [f"--{flag}"]
        if declared.group not in groups:
            groups[declared.group] = parser.add_argument_group(declared.group)
        groups[declared.group].add_argument(
            *spellings,
            dest=f"{_PREFIX}{name}",
            metavar=declared.metavar,
            default=None,
            help=" ".join(parts).replace("%", "%%"),
        )


def expand_booleans(argv: Sequence[str]) -> list[str]:
    """Join each boolean flag with its value: that of the next word if this is a boolean, else ``true``.

    An optional value of argparse would take any next word.
    """
    bare = {
        f"-{flag}" if len(flag) == 1 else f"--{flag}"
        for declared in declarations(Settings).values()
        for flag in declared.flags
        if declared.form is SWITCH
    }
    joined: list[str] = []
    last = ""
    for word in argv:
        if last in bare and _is_boolean(word):
            joined[-1] = f"{last}={word}"
        else:
            joined.append(f"{word}=true" if word in bare else word)
        last = word
    return joined


def _is_boolean(word: str) -> bool:
    try:
        SWITCH.read(word)
    except ValueError:
        return False
    return True


def given_flags(namespace: argparse.Namespace) -> dict[str, str]:
    """Return the flags on the command line, by field name."""
    values = vars(namespace).items()
    return {name.removeprefix(_PREFIX): text for name, text in values if name.startswith(_PREFIX) and text is not None}
