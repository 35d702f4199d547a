"""What all Kubernetes objects share: metadata, conditions, lists, times, and the key of an object.

The structs have only the fields that some code reads. The decoder skips all others, which makes it cheap to decode
thousands of pods. The structs are frozen, so a cache may hand out its own instances.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec


class Key(NamedTuple):
    """Identifies an object inside its kind; ``namespace`` is empty for cluster-scoped kinds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return ``namespace/name``, or ``name`` alone for cluster-scoped kinds."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


MAX_ANNOTATION_CHARACTERS: Final = 1024
MAX_LABELS: Final = 256
_READ_ANNOTATIONS: Final = ("wva.llmd.ai/", "autoscaling.keda.sh/")
_FIRST_LABELS: Final = ("wva.llmd.ai/", "inference.optimization/", "nvidia.com/", "amd.com/", "intel.com/")
"""Labels that are kept first. The features of a node's CPU may be hundreds of other labels."""


class OwnerReference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One entry of ``metadata.ownerReferences``."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of ``metadata`` that WVA reads. Only ``is_older`` looks into ``resource_version``.

    An owner may write 256 KiB of annotations, and more than a MiB of labels, into each of thousands of objects. So this
    class keeps at most ``MAX_LABELS`` labels, and only the annotations that the controller reads, each up to the length
    that a message shows. No real object has more.
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
        """Drop the annotations that WVA does not read, and surplus labels."""
        if self.annotations:
            annotations = {
                name: text[:MAX_ANNOTATION_CHARACTERS]
                for name, text in self.annotations.items()
                if name.startswith(_READ_ANNOTATIONS)
            }
            msgspec.structs.force_setattr(self, "annotations", annotations)
        if len(self.labels) > MAX_LABELS:
            first = sorted(self.labels, key=lambda name: (not name.startswith(_FIRST_LABELS), name))[:MAX_LABELS]
            msgspec.structs.force_setattr(self, "labels", {name: self.labels[name] for name in first})

    @property
    def key(self) -> Key:
        """The key that identifies the object inside its kind."""
        return Key(self.namespace, self.name)

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that controls this object, if any."""
        return next((owner for owner in self.owner_references if owner.controller), None)

    @property
    def deleting(self) -> bool:
        """Whether the object is being deleted."""
        return self.deletion_timestamp is not None


class WholeMeta(ObjectMeta, frozen=True, rename="camel"):
    """``metadata`` of an object that is written back: it keeps all annotations and labels."""

    def __post_init__(self) -> None:
        """Drop nothing."""


class KubeObject(Protocol):
    """Anything with metadata."""

    @property
    def metadata(self) -> ObjectMeta:
        """The object's metadata."""
        ...


T = TypeVar("T", bound=KubeObject)


def is_older(version: str, than: str) -> bool:
    """Whether one resourceVersion is known to be older than another of the same kind.

    Servers write decimal numbers that grow with every change (KEP-5504). Any other text is neither older nor newer.
    """
    if not all(text.isascii() and text.isdecimal() and text[0] != "0" for text in (version, than)):
        return False
    return (len(version), version) < (len(than), than)


class _ListMeta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class RawList(msgspec.Struct, frozen=True, rename="camel"):
    """A list whose items are decoded one by one, so that one broken object does not hide the others."""

    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] = []


class ObjectList(msgspec.Struct, Generic[T], frozen=True):
    """A decoded list; ``undecodable`` counts the items that could not be decoded."""

    items: tuple[T, ...]
    resource_version: str
    undecodable: int = 0


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch stream. The reader decodes ``object`` when it knows the type."""

    type: str
    object: msgspec.Raw


class Condition(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """metav1.Condition. ``last_transition_time`` is when ``status`` last changed."""

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
    """Return the time in UTC. Unlike ``strftime``, ``isoformat`` writes four digits of every year."""
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat(timespec=precision) + "Z"


def parse_time(text: str | None) -> float | None:
    """Return an RFC 3339 text as seconds since the epoch; None for no text, and for any other text."""
    if not text:
        return None
    try:
        parsed = datetime.fromisoformat(text)
        # An offset can lead out of the years that datetime has. Every time that is returned can be written again.
        return (parsed.astimezone(UTC) if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
