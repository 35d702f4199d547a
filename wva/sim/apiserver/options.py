"""Options of a store and of its writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from wva.sim.apiserver.objects import Json
from wva.sim.apiserver.patches import PatchType


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """Settings of a store.

    ``history_limit`` is the number of changes kept per kind for watches; ``seed`` decides uids and generated names.
    With ``require_namespaces`` an object cannot be created in a namespace that does not exist; ``namespaces`` exist
    from the start.
    """

    history_limit: int = 4096
    seed: int = 0
    require_namespaces: bool = True
    namespaces: tuple[str, ...] = ("default", "kube-system")


def ignore(paths: list[str]) -> None:
    """Drop unknown fields silently."""
    del paths


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of a write: its field manager, whether it is a dry run, and the treatment of unknown fields."""

    manager: str = "simulation"
    dry_run: bool = False
    force: bool = False
    on_unknown_fields: Callable[[list[str]], None] = ignore


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """How an object is deleted.

    ``propagation`` is ``Background``, ``Foreground`` (here: dependents first) or ``Orphan``. A positive
    ``grace_period_seconds`` only marks the object, as the server does with running pods; the simulated kubelet deletes
    it again, without a grace period.
    """

    propagation: str = "Background"
    uid: str = ""
    resource_version: str = ""
    grace_period_seconds: int = 0
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """A patch: its body, its format, and the subresource it goes through."""

    body: Json
    type: PatchType = PatchType.MERGE
    subresource: str = ""
    options: WriteOptions = field(default_factory=WriteOptions)
