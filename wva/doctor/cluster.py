"""What the doctor reads of a cluster, as JSON: fields that no controller reads have no types in ``wva.api``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from wva.api.meta import Key
from wva.kube.client import KubeClient
from wva.kube.errors import ApiError, Forbidden, NotFound, TooLarge

Item = Mapping[str, Any]

_AT_A_TIME: Final = 8
_MOST_ITEMS: Final = 10_000
"""Of one list: more than a cluster has of anything that the doctor looks at, all pods of one namespace included."""


class Cluster:
    """Reads objects. What may not be read is noted in ``unread``, and counts as unknown, never as missing."""

    def __init__(self, client: KubeClient) -> None:
        """Read through ``client``."""
        self._client = client
        self._turns = asyncio.Semaphore(_AT_A_TIME)
        self.unread: dict[str, str] = {}

    async def get(self, path: str) -> Item | None:
        """Return an object or a list; None if there is none, or if it may not be read. Raises ApiError."""
        try:
            async with self._turns:
                body = await self._client.request_json("GET", path)
        except NotFound:
            return None
        except (Forbidden, TooLarge) as error:
            self.unread[path] = str(error)
            return None
        return self._decoded(path, body)

    async def failure(self, path: str) -> ApiError | None:
        """Return the error with which the API server answers a request; None if it answers well."""
        try:
            async with self._turns:
                await self._client.request_json("GET", path)
        except ApiError as error:
            return error
        return None

    async def list(self, path: str, **query: str) -> list[Item]:
        """Return the items of a collection, none if the kind is not served. Raises ApiError."""
        document = await self.get(f"{path}?{urlencode(query)}" if query else path)
        items = [] if document is None else mappings(document.get("items"))
        if len(items) > _MOST_ITEMS:
            self.unread[path] = f"{len(items)} objects: the first {_MOST_ITEMS} are looked at"
        return items[:_MOST_ITEMS]

    def knows(self, path: str) -> bool:
        """Tell whether a path was read or could have been."""
        return path not in self.unread

    async def may(self, user: str, namespace: str, group: str, resource: str, verb: str, name: str = "") -> bool | None:
        """Return whether a user has a right; None if the caller may not ask that. Raises ApiError."""
        plural, _, subresource = resource.partition("/")
        attributes = {
            "namespace": namespace,
            "verb": verb,
            "group": group,
            "resource": plural,
            "subresource": subresource,
            "name": name,
        }
        account = user.removeprefix("system:serviceaccount:").partition(":")[0]
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{account}", "system:authenticated"]
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "groups": groups, "resourceAttributes": attributes},
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        try:
            async with self._turns:
                answer = self._decoded(path, await self._client.request_json("POST", path, body))
        except Forbidden as error:
            self.unread[path] = str(error)
            return None
        return None if answer is None else mapping(answer.get("status")).get("allowed") is True

    def _decoded(self, path: str, body: bytes) -> Item | None:
        """Return the object of an answer; None, and a note in ``unread``, if it is none."""
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            document = None
        if isinstance(document, dict):
            return document
        self.unread[path] = "the answer is no object in JSON"
        return None


def path_of(group_version: str, plural: str, namespace: str = "", name: str = "") -> str:
    """Return the path of a collection or an object."""
    root = f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"
    parts = [root]
    if namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(plural)
    if name:
        parts.append(quote(name, safe=""))
    return "/".join(parts)


def mapping(value: object) -> Item:
    """Return a value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def mappings(value: object) -> list[Item]:
    """Return the mappings of a list, none if the value is no list."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def key_of(item: Item) -> Key:
    """Return namespace and name of an object."""
    metadata = mapping(item.get("metadata"))
    return Key(str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))


def condition(item: Item, type_: str) -> Item:
    """Return a condition of an object's status, empty if it does not have it."""
    conditions = mappings(mapping(item.get("status")).get("conditions"))
    return next((entry for entry in conditions if entry.get("type") == type_), {})
