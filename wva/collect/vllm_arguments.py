"""From the containers of a pod template to the parameters of vLLM in it.

Of the environment one variable is read and nothing is kept: others may hold secrets.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from wva.api.pod_template import Container
from wva.collect.surplus import ENGINE_SWITCH
from wva.model.vllm_parameters import EngineCommand, VllmParameters, argument_problems, read_parameters
from wva.targets import ScaleTarget

_KEPT: Final = 4096
_KEPT_CHARACTERS: Final = 4096
"""Of the words of one template. Longer ones are read again each time, so that what is kept stays below 16 MiB."""


def vllm_parameters(containers: Iterable[Container]) -> VllmParameters:
    """Return what the arguments of the containers say; init containers are not among them."""
    commands = _commands(containers)
    characters = sum(len(word) for command in commands for word in command.words)
    return _parameters(commands) if characters <= _KEPT_CHARACTERS else read_parameters(commands)


def vllm_problems(target: ScaleTarget | None) -> list[str]:
    """Return a line for people about the first arguments of a target that are no numbers of their range."""
    return [] if target is None else argument_problems(_commands(target.template.spec.containers))


def _commands(containers: Iterable[Container]) -> tuple[EngineCommand, ...]:
    return tuple(EngineCommand((*one.command, *one.args), _use_v1(one)) for one in containers)


def _use_v1(container: Container) -> str | None:
    """Return the value in force: of several entries for one variable the last one counts."""
    values = [variable.value for variable in container.env if variable.name == ENGINE_SWITCH]
    return values[-1] if values else None


@lru_cache(maxsize=_KEPT)
def _parameters(commands: tuple[EngineCommand, ...]) -> VllmParameters:
    """Read a template once, not in every cycle."""
    return read_parameters(commands)
