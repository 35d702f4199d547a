"""Every policy by name. A module of this package registers its own policies while it is imported.

A policy with a target is also registered with each of the targets to try. Each of these is a policy of its own:
``NAME@TARGET``, or ``NAME@TARGET,TARGET`` for a policy of roles. ``docs/rivals.md`` has a row for each name without a
target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Any, Final

from wva.sim.stage.run import Policy

Target = float | tuple[float, float]
"""The target of a policy, or those of prefill and decode."""

_policies: Final[dict[str, Policy]] = {}
_families: Final[dict[str, tuple[str, ...]]] = {}
_defaults: Final[dict[str, Target]] = {}
_of_roles: Final[set[str]] = set()

POLICIES: Final[Mapping[str, Policy]] = MappingProxyType(_policies)
"""Every policy by name. A policy whose name has an ``@`` has the target that follows it, instead of the default."""
FAMILIES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(_families)
"""By name of a policy with a target: the names of the same policy with each of the targets to try."""
DEFAULTS: Final[Mapping[str, Target]] = MappingProxyType(_defaults)
"""By name of a policy with a target: the target that the policy has without an ``@`` in its name."""
OF_ROLES: Final[AbstractSet[str]] = _of_roles
"""Names, without a target, of the policies that know prefill and decode. Scenarios without roles do not run them."""


def with_target(name: str, target: Target) -> str:
    """Return the name of a policy with this target."""
    numbers = target if isinstance(target, tuple) else (target,)
    return f"{name}@{','.join(f'{number:g}' for number in numbers)}"


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
    _register_all(name, {target: of_target(target) for target in targets}, default, of_target(default))


def register_by_role(
    name: str,
    of_targets: Callable[[float, float], Policy],
    *,
    default: tuple[float, float],
    first: Sequence[float],
    second: Sequence[float],
) -> None:
    """Make a policy of roles known, with its two default targets and with each pair of the targets to try.

    Raises:
        ValueError: another policy has one of the names.

    """
    policies = {(prefill, decode): of_targets(prefill, decode) for prefill in first for decode in second}
    _register_all(name, policies, default, of_targets(*default))
    _of_roles.add(name)


def _register_all(name: str, policies: Mapping[Any, Policy], default: Target, policy: Policy) -> None:
    register(name, policy)
    for target, member in policies.items():
        register(with_target(name, target), member)
    _families[name] = tuple(with_target(name, target) for target in policies)
    _defaults[name] = default
