"""Namespaces, as far as they say what holds in them."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from wva.api.meta import ObjectMeta
from wva.api.resource import Resource

CONFIG_ENABLED_LABEL: Final = "wva.llmd.ai/config-enabled"
"""``true``: ConfigMaps of the namespace count also while there is no VariantAutoscaling in it."""
EXCLUDE_ANNOTATION: Final = "wva.llmd.ai/exclude"
"""``true``: its variants are left alone and its ConfigMaps do not count, even with the label."""

_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


def is_namespace(text: str) -> bool:
    """Tell whether a text can be the name of a namespace (RFC 1123 label)."""
    return _NAME.fullmatch(text) is not None


class Namespace(msgspec.Struct, frozen=True, rename="camel"):
    """A Namespace."""

    metadata: ObjectMeta = ObjectMeta()

    @property
    def excluded(self) -> bool:
        """Whether the namespace wants to be left alone."""
        return self.metadata.annotations.get(EXCLUDE_ANNOTATION) == "true"

    @property
    def config_enabled(self) -> bool:
        """Whether the namespace asks for its ConfigMaps to count."""
        return self.metadata.labels.get(CONFIG_ENABLED_LABEL) == "true"


NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", Namespace, namespaced=False)
