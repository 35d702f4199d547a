"""What every Kubernetes object shares: metadata, conditions, lists, Status, and the key of an object.

The structs are partial on purpose: the decoder skips every field that no code reads, which is what makes decoding
thousands of pods cheap. They are frozen, so a cache may hand out its own instances.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec


class Key(NamedTuple):
    """Identity of an object inside its kind; ``namespace`` is empty for cluster-scoped kinds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return ``namespace/name``, or ``name`` alone for cluster-scoped kinds."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


MAX_ANNOTATION_CHARACTERS: Final = 1024
MAX_LABELS: Final = 256
_READ_ANNOTATIONS: Final = ("wva.llmd.ai/", "autoscaling.keda.sh/")
_FIRST_LABELS: Final = ("wva.llmd.ai/", "inference.optimization/", "nvidia.com/", "amd.com/", "intel.com/")
"""Our own, and those with the product of a node's GPUs: the features of its CPU may be hundreds of labels."""


class OwnerReference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One entry of ``metadata.ownerReferences``."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(msgspec.Struct, frozen=True, rename="camel"):
    """``metadata`` as far as it is read. ``resource_version`` is opaque but for ``is_older``.

    An owner may write 256 KiB of annotations, and more than a MiB of labels, into each of thousands of objects. This
    class keeps only the annotations that the controller reads, each up to the length that a message shows, and
    ``MAX_LABELS`` labels. No real object has more.
    """

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()

    def __post_init__(self) -> None:
        """Leave out what is not read."""
        if self.annotations:
            read = {
                name: text[:MAX_ANNOTATION_CHARACTERS]
                for name, text in self.annotations.items()
                if name.startswith(_READ_ANNOTATIONS)
            }
            msgspec.structs.force_setattr(self, "annotations", read)
        if len(self.labels) > MAX_LABELS:
            first = sorted(self.labels, key=lambda name: (not name.startswith(_FIRST_LABELS), name))[:MAX_LABELS]
            msgspec.structs.force_setattr(self, "labels", {name: self.labels[name] for name in first})

    @property
    def key(self) -> Key:
        """Identity inside the kind."""
        return Key(self.namespace, self.name)

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that controls this object, if any."""
        return next((owner for owner in self.owner_references if owner.controller), None)

    @property
    def deleting(self) -> bool:
        """Whether deletion has been asked for."""
        return self.deletion_timestamp is not None


class WholeMeta(ObjectMeta, frozen=True, rename="camel"):
    """``metadata`` of an object that is written back: with all annotations and labels."""

    def __post_init__(self) -> None:
        """Leave out nothing."""


class KubeObject(Protocol):
    """Anything with metadata."""

    @property
    def metadata(self) -> ObjectMeta:
        """The object's metadata."""
        ...


T = TypeVar("T", bound=KubeObject)


def is_older(version: str, than: str) -> bool:
    """Whether one resourceVersion is known to be older than another of the same kind.

    Servers write them as decimal numbers that grow with every change (KEP-5504). Any other text is neither older nor
    newer than anything.
    """
    return _is_number(version) and _is_number(than) and (len(version), version) < (len(than), than)


def _is_number(version: str) -> bool:
    return version.isascii() and version.isdecimal() and version[0] != "0"


class ListMeta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """``metadata`` of a list."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class RawList(msgspec.Struct, frozen=True, rename="camel"):
    """A list whose items are decoded one by one, so that one broken object does not hide the others."""

    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] = []


class ObjectList(msgspec.Struct, Generic[T], frozen=True):
    """A decoded list; ``undecodable`` counts the items that did not fit their struct."""

    items: tuple[T, ...]
    resource_version: str
    undecodable: int = 0


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch stream. The reader decodes ``object``, once it knows the type from ``type``."""

    type: str
    object: msgspec.Raw


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """The API server's answer when a request did not succeed."""

    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0


class Condition(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """metav1.Condition. ``last_transition_time`` moves only when ``status`` changes."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


def format_time(seconds: float) -> str:
    """Return RFC 3339 with seconds, the form of metav1.Time."""
    return _written(seconds, "seconds")


def format_micro_time(seconds: float) -> str:
    """Return RFC 3339 with microseconds, the form of metav1.MicroTime."""
    return _written(seconds, "microseconds")


def _written(seconds: float, precision: str) -> str:
    """Return the time in UTC; unlike ``strftime`` this writes four digits of the year 1 as well."""
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat(timespec=precision) + "Z"


def parse_time(text: str | None) -> float | None:
    """Return seconds since the epoch of an RFC 3339 text, or None when there is none or it is not one."""
    if not text:
        return None
    try:
        parsed = datetime.fromisoformat(text)
        # An offset can lead out of the years that there are; what comes out of here can be written again.
        return (parsed.astimezone(UTC) if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
