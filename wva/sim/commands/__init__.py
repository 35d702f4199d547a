"""The commands of ``wva`` that need the simulator.

To add one, add its line to ``COMMANDS`` and a module of its name with ``add_arguments(parser)``, ``run(arguments)`` and
``EXAMPLES``. ``run`` returns the exit status or raises CommandError. Both functions import the simulator only in their
bodies, so that help comes at once and without the extras. The container image has the modules of ``emulator`` and
``loadgen`` only.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Final

from wva.command_error import CommandError

COMMANDS: Final[Mapping[str, Mapping[str, str]]] = {
    "config": {"demo": "run the controller on an embedded world"},
    "replay": {
        "backtest": "try policies on your own traffic",
        "tune": "propose thresholds for your own traffic",
        "emulator": "serve as one vLLM replica without a GPU",
        "loadgen": "send requests at a rate and measure them",
        "bench": "judge decisions in a simulated world",
        "prior": "say what a replica will carry before any traffic",
    },
}
"""By command of the controller: the commands that follow it in ``wva --help``, each with its line there."""


def load(command: str) -> ModuleType:
    """Return the module of a command. Raises CommandError where it is not installed, as in the container image."""
    name = f"{__name__}.{command}"
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise CommandError(
            f"`wva {command}` needs the whole simulator, which is not installed here: in a clone of WVA, pip install "
            "'.[bench]'"
        ) from None
