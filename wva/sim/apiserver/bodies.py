"""Reads request bodies, by the media types of each verb."""

from __future__ import annotations

from typing import Final

import msgspec
import yaml
from aiohttp import web

from wva.sim.apiserver.errors import bad_request, unsupported_media_type
from wva.sim.apiserver.kinds import KindSpec
from wva.sim.apiserver.objects import Json, JsonObject
from wva.sim.apiserver.patches import PatchType

_OBJECT_TYPES: Final = ("application/json", "application/yaml")


class _Loader(yaml.CSafeLoader):
    """A YAML loader that keeps time stamps as text, as in JSON."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


async def object_body(request: web.Request) -> JsonObject:
    """Return the object that a create or an update carries. Raises ApiError 400 or 415."""
    content_type = media_type(request, default=_OBJECT_TYPES[0])
    if content_type not in _OBJECT_TYPES:
        raise unsupported_media_type(_OBJECT_TYPES)
    value = decode(await request.read(), readable=content_type.endswith("yaml"))
    if not isinstance(value, dict):
        raise bad_request("the body of the request is not an object")
    return value


async def patch_body(request: web.Request, spec: KindSpec) -> tuple[PatchType, Json]:
    """Return format and body of a patch. Raises ApiError 400 or 415."""
    served = [candidate for candidate in PatchType if spec.built_in or candidate is not PatchType.STRATEGIC]
    try:
        patch_type = PatchType(media_type(request, default=""))
    except ValueError:
        raise unsupported_media_type(served) from None
    if patch_type not in served:
        raise unsupported_media_type(served)
    body = decode(await request.read(), readable=patch_type is PatchType.APPLY)
    if patch_type is PatchType.APPLY and not isinstance(body, dict):
        raise bad_request("error decoding YAML: not an object")
    return patch_type, body


def media_type(request: web.Request, *, default: str) -> str:
    """Return the media type of the body in lower case; ``default`` when the client does not name it."""
    text = request.headers.get("Content-Type", "")
    return text.split(";")[0].strip().lower() or default


def decode(data: bytes, *, readable: bool) -> Json:
    """Decode JSON, or also YAML if ``readable``. Raises ApiError 400."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        if not readable:
            raise bad_request(f"the body of the request is not JSON: {error}") from error
    try:
        return yaml.load(data, Loader=_Loader)  # noqa: S506  # a safe loader with fewer types
    except yaml.YAMLError as error:
        raise bad_request(f"error decoding YAML: {error}") from error
