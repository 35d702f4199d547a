"""What is kept of the metadata of an object, however much its owner has written into it."""

from __future__ import annotations

import msgspec

from wva.api.meta import ObjectMeta, WholeMeta


def test_of_annotations_what_is_read_is_kept():
    """As far as a message could show it; the metadata of a Lease, which is written back, is kept whole."""
    written = {"note": "x" * 250_000, "wva.llmd.ai/max-replicas": "9" * 250_000, "autoscaling.keda.sh/paused": "true"}
    data = msgspec.json.encode({"annotations": written})
    kept = msgspec.json.decode(data, type=ObjectMeta).annotations
    assert kept == {"wva.llmd.ai/max-replicas": "9" * 1024, "autoscaling.keda.sh/paused": "true"}
    assert msgspec.json.decode(data, type=WholeMeta).annotations == written


def test_of_thousands_of_labels_some_are_kept():
    """Among them those that are asked for by name."""
    labels = {f"a{number}": "" for number in range(5000)} | {"wva.llmd.ai/controller-instance": "i"}
    kept = ObjectMeta(labels=labels).labels
    assert len(kept) == 256
    assert kept["wva.llmd.ai/controller-instance"] == "i"
