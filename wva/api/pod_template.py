"""Pod templates, as far as they are read."""

from __future__ import annotations

import msgspec

from wva.api.meta import ObjectMeta


class ResourceRequirements(msgspec.Struct, frozen=True, rename="camel"):
    """Requests and limits of a container; quantities are kept as text."""

    requests: dict[str, str | int | float] = {}
    limits: dict[str, str | int | float] = {}


class EnvVar(msgspec.Struct, frozen=True, gc=False):
    """An environment variable of a container; one whose value comes from elsewhere has an empty one here."""

    name: str = ""
    value: str = ""


class Container(msgspec.Struct, frozen=True, rename="camel"):
    """A container of a pod template.

    ``argument_bytes`` is no field of Kubernetes: the size of command and args that a cache has left out.
    """

    name: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    argument_bytes: int = 0


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """``spec`` of a pod template.

    ``containers_left_out`` is no field of Kubernetes: how many containers a cache has left out.
    """

    containers: tuple[Container, ...] = ()
    containers_left_out: int = 0


class PodTemplate(msgspec.Struct, frozen=True, rename="camel"):
    """A pod template of a scale target."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
