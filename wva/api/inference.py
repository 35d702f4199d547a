"""InferencePool of both API groups: the fields that lead from a workload to its endpoint picker (EPP).

``inference.networking.k8s.io/v1`` and ``inference.networking.x-k8s.io/v1alpha2`` have the same content in two shapes.
Both structs offer ``match_labels`` and ``picker``.
"""

from __future__ import annotations

import msgspec

from wva.api.meta import ObjectMeta


class PickerReference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The Service in front of the endpoint picker, in the namespace of the pool."""

    name: str = ""
    kind: str = ""


class LabelSelector(msgspec.Struct, frozen=True, rename="camel"):
    """``spec.selector`` of v1."""

    match_labels: dict[str, str] = {}


class InferencePoolSpec(msgspec.Struct, frozen=True, rename="camel"):
    """``spec`` of v1."""

    selector: LabelSelector = LabelSelector()
    endpoint_picker_ref: PickerReference | None = None


class InferencePool(msgspec.Struct, frozen=True, rename="camel"):
    """An InferencePool of inference.networking.k8s.io/v1."""

    metadata: ObjectMeta = ObjectMeta()
    spec: InferencePoolSpec = InferencePoolSpec()

    @property
    def match_labels(self) -> dict[str, str]:
        """The labels of the pods behind the pool."""
        return self.spec.selector.match_labels

    @property
    def picker(self) -> str:
        """The name of the endpoint picker's Service; empty when the pool names none."""
        reference = self.spec.endpoint_picker_ref
        return reference.name if reference is not None else ""


class InferencePoolAlphaSpec(msgspec.Struct, frozen=True, rename="camel"):
    """``spec`` of v1alpha2: the selector is a plain map."""

    selector: dict[str, str] = {}
    extension_ref: PickerReference | None = None


class InferencePoolAlpha(msgspec.Struct, frozen=True, rename="camel"):
    """An InferencePool of inference.networking.x-k8s.io/v1alpha2."""

    metadata: ObjectMeta = ObjectMeta()
    spec: InferencePoolAlphaSpec = InferencePoolAlphaSpec()

    @property
    def match_labels(self) -> dict[str, str]:
        """The labels of the pods behind the pool."""
        return self.spec.selector

    @property
    def picker(self) -> str:
        """The name of the endpoint picker's Service; empty when the pool names none."""
        reference = self.spec.extension_ref
        return reference.name if reference is not None else ""
