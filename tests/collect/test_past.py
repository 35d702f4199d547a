"""What Prometheus says of earlier times: answers to instant queries from range queries, and the pods of then."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert

from tests.collect.cluster import accepted_variants
from wva.collect.past import PAST_PODS, PastAnswers, PastPods, past_pods
from wva.prometheus.answers import ErrorKind, InstantSeries, InstantVector, Labels, PrometheusError, RangeSeries

NOW = 1_700_000_000.0


class PastSeries:
    """A Prometheus whose series are there at some times; their value is the time. It notes what is asked."""

    def __init__(self, present, *, error=None):
        """Take the times of each series, by its labels as pairs."""
        self.present = present
        self.error = error
        self.asked = []

    async def query(self, promql, *, name, at):
        """Answer at one time."""
        found = await self.query_range(promql, name=name, start=at, end=at, step_seconds=1.0, timeout_seconds=10.0)
        return InstantVector(tuple(InstantSeries(convert(each.metric, Labels), each.values[0]) for each in found))

    async def query_range(self, promql, *, name, start, end, step_seconds, timeout_seconds):  # noqa: ARG002 - the protocol
        """Answer as Prometheus does: at start, and at each step until the end."""
        self.asked.append((name, start, end, step_seconds))
        if self.error is not None:
            raise self.error
        times = [start + step_seconds * count for count in range(int((end - start) / step_seconds + 1.001))]
        found = []
        for labels, there in self.present.items():
            values = tuple((at, f"{at:.3f}") for at in times if any(abs(at - each) < 0.01 for each in there))
            if values:
                found.append(RangeSeries(dict(labels), values))
        return tuple(found)


@given(
    close=st.integers(1, 40),
    far=st.integers(0, 40),
    pods=st.integers(1, 3000),
    there=st.lists(st.sets(st.integers(0, 79)), max_size=3),
    asked=st.lists(st.integers(0, 79), min_size=1, max_size=30).map(sorted),
)
def test_an_answer_is_that_of_an_instant_query_at_its_time(close, far, pods, there, asked):
    """Whatever times are asked for together, each answer has the series of its own time, and no query is too large."""
    times = [NOW - 15.0 * count for count in range(1, close + 1)]
    times = sorted(times + [times[-1] - 60.0 * count for count in range(1, far + 1)])
    present = {
        (("namespace", "ns"), ("pod", f"p-{number}")): [times[place] for place in places if place < len(times)]
        for number, places in enumerate(there)
    }
    history = PastSeries(present)
    answers = PastAnswers(history, times)
    answers.pods = pods

    async def ask():
        for place in asked:
            at = times[place % len(times)]
            vector = await answers.query("text", name="n", at=at)
            expected = {labels[1][1] for labels, when in present.items() if at in when}
            assert {each.metric.pod for each in vector.series} == expected
            assert all(each.value == (at, f"{at:.3f}") for each in vector.series)

    asyncio.run(ask())
    for _, start, end, step in history.asked:
        assert (end - start) / step + 1 <= max(1, min(60, 2000 // pods)) + 0.001


async def test_times_that_were_asked_for_together_are_one_query():
    """Forty times in a row take one range query."""
    times = [NOW + 15.0 * count for count in range(40)]
    history = PastSeries({})
    answers = PastAnswers(history, times)
    for at in times:
        await answers.query("text", name="n", at=at)
        answers.forget(at)
    assert history.asked == [("n", times[0], times[-1], 15.0)]


async def test_an_error_is_raised_and_nothing_of_it_kept():
    """After a failure the same time is asked for again."""
    history = PastSeries({}, error=PrometheusError(ErrorKind.TIMEOUT, "too slow"))
    answers = PastAnswers(history, [NOW])
    with pytest.raises(PrometheusError):
        await answers.query("text", name="n", at=NOW)
    history.error = None
    assert (await answers.query("text", name="n", at=NOW)).series == ()


def gone(cluster, *names, model="m", at=NOW):
    """Return the pods of each variant at a time at which pods of these names report, by the variant's name."""
    present = {(("namespace", "ns"), ("model_name", model), ("pod", name)): [at] for name in names}

    async def look(variants):
        pods = PastPods(variants, PastAnswers(PastSeries(present), [at]))
        await pods.look(at)
        return {each.variant.key.name: each for each in pods.variants_at(at)}

    return asyncio.run(look(accepted_variants(cluster.stores)))


@pytest.mark.parametrize(
    ("pod", "owner"),
    [
        ("llama-7c9d5b6f4-x2x4q", "short"),
        ("llama-a100-7c9d5b6f4-x2x4q", "long"),
        ("llama-3", "short"),
        ("llama-a100-12", "long"),
        ("llama-canary-7c9d5b6f4-x2x4q", None),
        ("llamas-7c9d5b6f4-x2x4q", None),
        ("other-7c9d5b6f4-x2x4q", None),
        ("llama", None),
        ("llama-7c9d5b6f4-X2X4Q", None),
        ("", None),
    ],
)
def test_a_pod_that_is_gone_belongs_to_the_target_whose_name_it_has(cluster, pod, owner):
    """The longest name of a target counts, with what Kubernetes adds for a pod of a Deployment or of a set."""
    cluster.deployment("llama", replicas=0)
    cluster.va("short", target="llama")
    cluster.deployment("llama-a100", replicas=0)
    cluster.va("long", target="llama-a100")
    found = {name: [each.metadata.name for each in entry.ready] for name, entry in gone(cluster, pod).items()}
    assert found == {"short": [], "long": []} | ({owner: [pod]} if owner else {})


def test_pods_of_another_model_or_namespace_are_nobodys(cluster):
    """A name is not enough: the pod must have served the model."""
    cluster.deployment("llama", replicas=0)
    cluster.va("va", target="llama")
    assert gone(cluster, "llama-7c9d5b6f4-x2x4q", model="other")["va"].ready == ()


def test_a_variant_of_then_has_the_pods_of_then(cluster):
    """Of two pods that are Ready now, one became Ready later; a third is gone; none was starting."""
    cluster.deployment("llama", replicas=3)
    cluster.va("va", target="llama")
    cluster.pod("llama-1-old", deployment="llama", ready_since=NOW - 600)
    cluster.pod("llama-1-new", deployment="llama", ready_since=NOW + 5)
    cluster.pod("llama-1-wait", deployment="llama", ready=False)
    entry = gone(cluster, "llama-1-old", "llama-1-gone")["va"]
    assert [pod.metadata.name for pod in entry.ready] == ["llama-1-old", "llama-1-gone"]
    assert entry.unready == ()
    then = entry.variant
    assert (then.spec_replicas, then.current_replicas, then.ready_replicas) == (2, 2, 2)
    assert (then.status_desired, then.settling_since, then.oldest_unready_since) == (None, None, None)


async def test_without_any_pod_a_time_says_nothing(cluster):
    """A time at which no pod reported is told apart."""
    cluster.deployment("llama", replicas=0)
    cluster.va("va", target="llama")
    pods = PastPods([], PastAnswers(PastSeries({}), [NOW]))
    assert await pods.look(NOW) is False


def test_the_query_is_about_its_namespaces_and_no_text_ends_its_literal():
    """The query has the matcher of all others."""
    query = past_pods(["a", "b"])
    assert (query.name, '{namespace=~"a|b"}' in query.text) == (PAST_PODS, True)
    with pytest.raises(ValueError, match="is not a namespace"):
        past_pods(['a"}'])


async def test_labels_are_those_that_a_decoder_of_instant_queries_reads():
    """Labels that no query groups by are dropped."""
    labels = {"namespace": "ns", "pod": "p", "le": "1", "unknown": "x"}
    times = [NOW, NOW + 15]
    vector = await PastAnswers(PastSeries({tuple(labels.items()): times}), times).query("t", name="n", at=NOW)
    assert vector.series[0].metric == Labels(namespace="ns", pod="p", le="1")
