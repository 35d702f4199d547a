"""Every policy by name. A module of this package registers its own policies while it is imported.

A policy with a target is registered with the targets to try as well, and each of them is a policy of its own:
``NAME@TARGET``. ``docs/rivals.md`` has a row for each name without a target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from wva.sim.stage.run import Policy

_policies: Final[dict[str, Policy]] = {}
_families: Final[dict[str, tuple[str, ...]]] = {}
_defaults: Final[dict[str, float]] = {}

POLICIES: Final[Mapping[str, Policy]] = MappingProxyType(_policies)
"""Every policy by name. A name with ``@`` has the target behind it instead of the default."""
FAMILIES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(_families)
"""By name of a policy with a target: the names of the same policy with each of the targets to try."""
DEFAULTS: Final[Mapping[str, float]] = MappingProxyType(_defaults)
"""By name of a policy with a target: the target without an ``@``."""


def register(name: str, policy: Policy) -> None:
    """Make a policy known by its name.

    Raises:
        ValueError: another policy has this name.

    """
    if name in _policies:
        raise ValueError(f"{name}: two policies have this name")
    _policies[name] = policy


def register_with_targets(
    name: str,
    of_target: Callable[[float], Policy],
    *,
    default: float,
    targets: Sequence[float],
) -> None:
    """Make a policy known with its default target and with each of the targets to try.

    A suite of the scorecard runs it with all of them, and shows the best as tuned in hindsight.

    Raises:
        ValueError: another policy has one of the names.

    """
    register(name, of_target(default))
    for target in targets:
        register(f"{name}@{target:g}", of_target(target))
    _families[name] = tuple(f"{name}@{target:g}" for target in targets)
    _defaults[name] = default
