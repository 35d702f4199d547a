"""How a kind maps to URLs and to a struct. The kinds that WVA uses are in ``kinds``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Generic
from urllib.parse import quote

import msgspec

from wva.api import wire
from wva.api.meta import Key, RawList, T

MAX_OBJECT_BYTES: Final = 4 * 1024 * 1024
"""Of JSON. Kubernetes stores up to 1.5 MiB of an object, and only escaped characters make its JSON longer."""

_raw_list_decoder = msgspec.json.Decoder(RawList)


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """One served kind. ``type`` is the struct of its objects."""

    group: str
    version: str
    plural: str
    kind: str
    type: type[T]
    namespaced: bool = True
    _decoder: msgspec.json.Decoder[T] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Build the decoder once, because building it takes far longer than using it."""
        object.__setattr__(self, "_decoder", msgspec.json.Decoder(self.type))

    @property
    def api_version(self) -> str:
        """``apps/v1``, or ``v1`` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def name(self) -> str:
        """The full name in logs and metrics: ``deployments.apps``, or ``pods`` in the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of a collection, or of one object when ``name`` is given.

        Every part is percent-encoded. An empty namespace stands for all namespaces.
        """
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if self.namespaced and namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        parts += [quote(part, safe="") for part in (name, subresource) if part]
        return "/".join(parts)

    def object_path(self, key: Key, subresource: str = "") -> str:
        """Return the URL path of one object.

        Raises ValueError on an empty name, because the API server would answer with the whole collection.
        """
        if not key.name or (self.namespaced and not key.namespace):
            raise ValueError(f"{self.kind} needs a name and a namespace, got {key!r}")
        return self.path(key.namespace, key.name, subresource)

    def decode(self, data: bytes | msgspec.Raw) -> T:
        """Decode one object. Raises msgspec.DecodeError (or its subclass ValidationError), also for one too large."""
        if memoryview(data).nbytes > MAX_OBJECT_BYTES:
            raise msgspec.ValidationError(f"object of more than {MAX_OBJECT_BYTES} bytes")
        return wire.decode_object(self._decoder, data)

    def decode_page(self, data: bytes) -> RawList:
        """Decode a list without its items. Raises msgspec.DecodeError when it is malformed."""
        return wire.decode_object(_raw_list_decoder, data)

    def decode_items(self, page: RawList) -> Iterator[T | None]:
        """Decode the items of a page one by one; None stands for one that does not decode."""
        for item in page.items:
            try:
                yield self.decode(item)
            except msgspec.DecodeError:
                yield None
