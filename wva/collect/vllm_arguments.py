"""From the containers of a pod template to the parameters of vLLM in it.

Of the environment one variable is read and nothing is kept: others may hold secrets.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from wva.api.apps import Container
from wva.model.vllm_parameters import EngineCommand, VllmParameters, read_parameters

_USE_V1: Final = "VLLM_USE_V1"
_KEPT: Final = 4096


def vllm_parameters(containers: Iterable[Container]) -> VllmParameters:
    """Return what the arguments of the containers say; init containers are not among them."""
    return _parameters(tuple(EngineCommand((*one.command, *one.args), _use_v1(one)) for one in containers))


def _use_v1(container: Container) -> str | None:
    """Return the value in force: of several entries for one variable the last one counts."""
    values = [variable.value for variable in container.env if variable.name == _USE_V1]
    return values[-1] if values else None


@lru_cache(maxsize=_KEPT)
def _parameters(commands: tuple[EngineCommand, ...]) -> VllmParameters:
    """Read a template once, not in every cycle."""
    return read_parameters(commands)
