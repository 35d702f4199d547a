"""The parts of a Kubernetes URL, and the log of all requests, which tests count."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

_NAMESPACE_SUBRESOURCES: Final = frozenset({"status", "finalize"})
_TRUE: Final = frozenset({"1", "true", "True"})


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """One request as authorization sees it. ``resource`` is empty for paths that name none."""

    verb: str
    method: str
    path: str
    group: str = ""
    version: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def resource_name(self) -> str:
        """``deployments.apps``, or ``pods`` in the core group; empty when the path names no resource."""
        return f"{self.resource}.{self.group}" if self.group and self.resource else self.resource


def parse(method: str, raw_path: str, query: Mapping[str, str]) -> RequestInfo:
    """Read a request line. When the path names no resource, the verb is the method in lower case."""
    segments = [unquote(part) for part in raw_path.strip("/").split("/")]
    resource_path = _resource_place(segments)
    if resource_path is None:
        return RequestInfo(method.lower(), method, raw_path)
    group, version, rest = resource_path
    namespace = ""
    minimum = 3
    if rest[0] == "namespaces" and len(rest) >= minimum and rest[2] not in _NAMESPACE_SUBRESOURCES:
        namespace, rest = rest[1], rest[2:]
    resource, name, subresource = (*rest, "", "", "")[:3]
    if len(rest) > minimum:
        subresource = "/".join(rest[2:])
    verb = _verb(method, named=bool(name), watch=query.get("watch", "") in _TRUE)
    return RequestInfo(verb, method, raw_path, group, version, resource, namespace, name, subresource)


def _resource_place(segments: list[str]) -> tuple[str, str, list[str]] | None:
    """Return group, version and the rest of a resource path, None for discovery and other paths."""
    root = segments[0]
    offset = {"api": 2, "apis": 3}.get(root, 0)
    if not offset or len(segments) <= offset:
        return None
    group = segments[1] if root == "apis" else ""
    return group, segments[offset - 1], segments[offset:]


def _verb(method: str, *, named: bool, watch: bool) -> str:
    if method == "GET":
        return "watch" if watch else "get" if named else "list"
    if method == "DELETE" and not named:
        return "deletecollection"
    return {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}.get(method, method.lower())


class ApiRequestLog:
    """All requests since the last ``reset``: the log counts every one, and remembers the last ``limit`` of them."""

    def __init__(self, *, limit: int = 10_000) -> None:
        """Remember the last ``limit`` requests one by one."""
        self.entries: deque[RequestInfo] = deque(maxlen=limit)
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def add(self, info: RequestInfo) -> None:
        """Count a request."""
        self.entries.append(info)
        self._counts[info.verb, info.resource_name, info.subresource] += 1

    def count(self, verb: str = "", *, resource: str = "", subresource: str | None = None) -> int:
        """Return the number of matching requests. ``subresource=""`` means the object itself."""
        return sum(
            number
            for (known_verb, known_resource, known_subresource), number in self._counts.items()
            if verb in ("", known_verb)
            and resource in ("", known_resource)
            and subresource in (None, known_subresource)
        )

    def reset(self) -> None:
        """Forget everything."""
        self.entries.clear()
        self._counts.clear()
