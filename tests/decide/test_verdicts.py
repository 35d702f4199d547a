"""Whether a variant has metrics to decide on, in words."""

from __future__ import annotations

from tests.builders import replica
from wva.decide.trust import reported


def test_a_variant_whose_replicas_all_report_has_metrics():
    """The words say how many report."""
    pods = [replica(kv=0.5, queue=0)]
    _, found = reported(pods, None)
    assert (found.available, found.message) == (True, "1 of 1 replicas report fresh metrics")
