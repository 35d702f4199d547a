"""The parser of the command line: the commands, their help, and the words that people leave out or mistype.

``wva`` followed by a flag is ``wva run``: manifests written for the original image start it with flags only.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, Final, NoReturn

from wva import __version__
from wva.command_error import UsageError
from wva.command_line import HelpFormatter, with_examples

COMMANDS: Final = {
    "run": "run the controller against a cluster",
    "config": "print every setting with its value and source",
    "decide": "print the decisions of a recorded cycle",
    "explain": "say why a variant has its number",
    "replay": "replay recorded cycles",
    "doctor": "find where the chain to the replicas is broken",
    "report": "say what WVA in shadow mode would have run",
    "migrate": "say what to change before the swap",
    "completion": "print the script for tab completion",
    "crd": "print the CustomResourceDefinition as YAML",
    "version": "print the version",
}
"""The commands of the controller, with their lines in ``wva --help``; ``wva.sim.commands`` has those of the simulator.

A command is a module of this package with ``add_arguments(parser)``, ``run(arguments)``, which returns the exit status
or raises CommandError, and ``EXAMPLES`` for its help. The module is imported only when the command is called.
"""
_PRINTED: Final = {"crd": ("wva crd | kubectl apply -f -",), "version": ("wva version",)}
"""The commands without a module, with their examples: ``main`` prints their output."""
_EXAMPLES: Final = (
    "wva demo",
    "wva doctor",
    "wva explain models/chat --service-account monitoring/prometheus-k8s",
    "PROMETHEUS_BASE_URL=https://prometheus.monitoring.svc:9090 wva run",
)
_DESCRIPTION: Final = (
    "Workload Variant Autoscaler: decides how many replicas each variant of an LLM service should have, "
    "so that the load is served at the lowest cost."
)
_HELP_FLAGS: Final = ("-h", "--help", "--version")


class Parser(argparse.ArgumentParser):
    """An argument parser that suggests the nearest word, as pflag and kubectl do, and prints errors on one line."""

    def __init__(self, **more: Any) -> None:
        """Take no abbreviated flags: one that is added later could change the meaning of a manifest."""
        options: dict[str, Any] = {"allow_abbrev": False, "formatter_class": HelpFormatter}
        super().__init__(**(options | more))

    def parse_known_args(  # type: ignore[override]  # argparse types it by overloads that say the same
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Refuse unknown words in the sub-command, whose flags the advice needs, and not in the main parser."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            flags = [flag for action in self._actions for flag in action.option_strings]
            self._refuse(f"unrecognized arguments: {' '.join(unknown)}", unknown[0].partition("=")[0], flags)
        return parsed, unknown

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Refuse a word that is none of the choices; argparse alone would not name the nearest."""
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            name = "/".join(action.option_strings) or str(action.metavar or action.dest)
            self._refuse(f"argument {name}: {value!r} is none of {', '.join(choices)}", str(value), choices)

    def error(self, message: str) -> NoReturn:
        """Print the usage error and exit with status 2."""
        self._refuse(message)

    def _refuse(self, message: str, typed: str = "", candidates: Iterable[str] = ()) -> NoReturn:
        line = "".join(character if character.isprintable() else "?" for character in message)
        advice = f"see {self.prog} --help"
        for nearest in difflib.get_close_matches(typed, list(candidates), n=1, cutoff=0.5):
            advice = f"did you mean {nearest}?"
        self.exit(UsageError.status, f"{self.prog}: error: {line} ({advice})\n")


def build_parser(only: str | None = None) -> Parser:
    """Return the parser of all commands. With ``only``, no other command gets its arguments.

    Raises CommandError when the module of a command is not installed.
    """
    parser = Parser(prog="wva", description=_DESCRIPTION, epilog=with_examples(None, _EXAMPLES))
    parser.add_argument("--version", action="version", version=f"wva {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    lines = dict(COMMANDS)
    if only not in COMMANDS:
        # The controller runs without the simulator, so no other place imports it.
        from wva.sim import commands as simulated  # noqa: PLC0415 - see above

        lines = {}
        for name, line in COMMANDS.items():
            lines |= {name: line, **simulated.COMMANDS.get(name, {})}
    for name, line in lines.items():
        command = commands.add_parser(name, help=line)
        if name in _PRINTED:
            command.epilog = with_examples(None, _PRINTED[name])
        elif only in (None, name):
            module = import_module(f"wva.cli.{name}") if name in COMMANDS else simulated.load(name)
            module.add_arguments(command)
            command.epilog = with_examples(command.epilog, module.EXAMPLES)
            command.set_defaults(run=module.run)
    return parser


def with_command(words: Sequence[str]) -> list[str]:
    """Return the words with the command that they leave out: a flag comes alone in manifests of the original image."""
    if words and words[0].startswith("-") and words[0] not in _HELP_FLAGS:
        return ["run", *words]
    return list(words)
