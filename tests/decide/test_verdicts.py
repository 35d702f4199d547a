"""Whether a variant has metrics to decide on, in words."""

from __future__ import annotations

from tests.builders import replica
from wva.decide.trust import reported
from wva.model.records import replace


def test_a_variant_whose_replicas_all_report_has_metrics():
    """The words say how many report."""
    pods = [replica(kv=0.5, queue=0)]
    _, found = reported(pods, None)
    assert (found.available, found.message) == (True, "1 of 1 replicas report fresh metrics")


def test_replicas_that_report_only_a_part_have_metrics():
    """If an engine has only an old name of a metric, the words do not say that no replica reports."""
    pods = [replica(f"a-{place}", kv=None, queue=0) for place in range(3)]
    covered, found = reported(pods, None)
    assert (covered.fresh, found.available) == (0, True)
    assert found.message == "3 of 3 replicas report only a part of their metrics; a-0: KV usage missing"


def test_a_scrape_interval_of_more_than_a_minute_is_named():
    """WVA sees changes of load late then."""
    words = "; Prometheus scrapes them every 90 s, so changes of load are seen late"
    for pods in ([replica(kv=0.5, queue=0)], [replica("a-0", kv=0.5, queue=0), replica("a-1", kv=None, queue=0)]):
        usual, seldom = ([replace(pod, scrape_seconds=seconds) for pod in pods] for seconds in (60.0, 90.0))
        assert "scrapes" not in reported(usual, None)[1].message
        assert reported(seldom, None)[1].message.endswith(words)
