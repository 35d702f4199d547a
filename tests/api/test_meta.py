"""How much of the metadata of an object WVA keeps, however much its owner writes into it."""

from __future__ import annotations

import msgspec

from wva.api.meta import ObjectMeta, WholeMeta


def test_of_annotations_what_is_read_is_kept():
    """WVA keeps 1024 characters of each annotation that it reads. It keeps a Lease whole, to write it back."""
    written = {"note": "x" * 250_000, "wva.llmd.ai/max-replicas": "9" * 250_000, "autoscaling.keda.sh/paused": "true"}
    data = msgspec.json.encode({"annotations": written})
    kept = msgspec.json.decode(data, type=ObjectMeta).annotations
    assert kept == {"wva.llmd.ai/max-replicas": "9" * 1024, "autoscaling.keda.sh/paused": "true"}
    assert msgspec.json.decode(data, type=WholeMeta).annotations == written


def test_of_thousands_of_labels_some_are_kept():
    """WVA keeps 256 labels, with those that it reads by name among them."""
    labels = {f"a{number}": "" for number in range(5000)} | {"wva.llmd.ai/controller-instance": "i"}
    kept = ObjectMeta(labels=labels).labels
    assert len(kept) == 256
    assert kept["wva.llmd.ai/controller-instance"] == "i"
