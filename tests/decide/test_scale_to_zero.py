"""A model goes to zero only if that is allowed and the model is certainly idle; otherwise a replica stays."""

from __future__ import annotations

import pytest

from tests.builders import NOW, variant
from tests.decide.story import BUSY, IDLE, SILENT, Story, numbers, reasons
from wva.decide.measure.need import Need
from wva.decide.pipeline import conclude
from wva.decide.settle import zeros_of
from wva.decide.trust import believe
from wva.model.decision import Aim, Reason, Source
from wva.model.memory import Memory
from wva.model.metrics import ReplicaMetrics
from wva.model.objectives import Objectives
from wva.model.policy import Policy, ScaleToZeroEntry, ScaleToZeroRules
from wva.model.records import replace
from wva.model.snapshot import RequestCounts, Snapshot
from wva.model.variant import ModelKey, VariantKey

MODEL, A = ModelKey("ns", "m"), VariantKey("ns", "a")
NONE = RequestCounts(MODEL, 600.0, finished=0.0, in_progress=0.0, covered_seconds=600.0)


def story(requests: RequestCounts | None = NONE, *, enabled: bool = True, **policy) -> Story:
    """Return a story of a model that may go to zero after ten minutes without a request."""
    rules = ScaleToZeroRules(ScaleToZeroEntry("default", "", None, enabled, 600.0))
    return Story(Policy(scale_to_zero=rules, **policy), requests=requests)


def test_an_idle_model_goes_to_zero():
    """All variants of the model go to zero, and each decision has the reason."""
    decisions = story().cycle(variant("a", replicas=2), variant("b"), a=[IDLE] * 2, b=[IDLE])
    assert numbers(decisions) == {"a": 0, "b": 0}
    assert reasons(decisions) == {"a": "ScaledToZero", "b": "ScaledToZero"}
    assert decisions["a"].message == "no request within the retention period and none in progress"
    assert decisions["a"].source is Source.MEASURED


def test_it_is_off_by_default():
    """Without a setting, WVA takes no model to zero."""
    assert Story(requests=NONE).cycle(variant(), a=[IDLE])["a"].desired == 1
    assert story(enabled=False).cycle(variant(), a=[IDLE])["a"].desired == 1


def test_it_is_for_the_models_that_may():
    """Another one beside them keeps its replica without a word about zero."""
    of_n = ScaleToZeroEntry("entry", "n", "ns", False, 600.0)
    rules = ScaleToZeroRules(ScaleToZeroEntry("default", "", None, True, 600.0), (of_n,))
    found = Story(Policy(scale_to_zero=rules), requests=NONE).cycle(
        variant("a"), variant("b", model="n"), a=[IDLE], b=[IDLE]
    )
    assert numbers(found) == {"a": 0, "b": 1}
    assert not any("zero" in step.reason for step in found["b"].steps)


@pytest.mark.parametrize(
    ("requests", "words"),
    [
        (None, "the requests of the model are not known (not counted)"),
        (replace(NONE, finished=None, detail="timed out"), "the requests of the model are not known (timed out)"),
        (replace(NONE, in_progress=None), "the requests of the model are not known (not counted)"),
        (replace(NONE, retention_seconds=300.0), "requests are known for the last 300 s only"),
        (replace(NONE, finished=0.001), "0.001 requests finished within 600 s"),
        (replace(NONE, in_progress=2.0), "2 requests run or wait"),
        (replace(NONE, covered_seconds=180.0), "the history of requests covers 180 of 600 s"),
        (RequestCounts(MODEL, 600.0, 0.0, 0.0), "the history of requests covers 0 of 600 s"),
    ],
)
def test_requests_and_doubts_about_them_keep_it(requests, words):
    """Finished, running or waiting requests keep the model, and so does an unknown count of them."""
    decision = story(requests).cycle(variant(), a=[IDLE])["a"]
    assert decision.desired == 1
    assert f"not to zero: {words}" in [step.reason for step in decision.steps]


def test_an_idle_model_that_stays_for_lack_of_history_says_so():
    """The message says that history is missing, because users look at the message first."""
    decision = story(replace(NONE, covered_seconds=180.0)).cycle(variant(), a=[IDLE])["a"]
    assert decision.message.endswith("; not to zero: the history of requests covers 180 of 600 s")
    assert "not to zero" not in story(replace(NONE, finished=1.0)).cycle(variant(), a=[IDLE])["a"].message


def test_requests_in_the_engines_queues_keep_it():
    """Requests in the engines' queues keep the model, whatever the counters say."""
    decision = story().cycle(variant(), a=[(0.1, 1)])["a"]
    assert (decision.desired, decision.steps[-1].reason) == (1, "not to zero: 1 requests wait")


def test_incomplete_metrics_keep_it():
    """A silent replica may be serving, and without Prometheus WVA cannot know that the model is idle."""
    decision = story().cycle(variant(replicas=2), a=[IDLE, SILENT])["a"]
    assert (decision.desired, decision.steps[-1].reason) == (
        2,
        "not to zero: nothing is taken to zero on incomplete metrics (not every replica reports)",
    )
    assert story().cycle(variant(replicas=2), failure="refused", a=[IDLE] * 2)["a"].desired == 2


def test_an_unfinished_change_keeps_it():
    """WVA waits until the unfinished change has ended."""
    unfinished = story()
    unfinished.requests = None
    assert unfinished.cycle(variant(replicas=3), a=[IDLE] * 3)["a"].desired == 2
    unfinished.requests = NONE
    decision = unfinished.cycle(variant(replicas=3), after=30, a=[IDLE] * 3)["a"]
    assert (decision.desired, decision.steps[-1].reason) == (2, "not to zero: unfinished change of a")


def test_a_model_that_grows_is_not_idle():
    """The replicas are saturated although no request is in progress; these signals contradict each other."""
    decision = story().cycle(variant(), a=[(0.95, 0)])["a"]
    assert (decision.desired, decision.steps[-1].reason) == (2, "not to zero: unfinished change of a")


def test_a_model_that_was_just_started_gets_its_retention_period():
    """The first request may take longer than a cycle."""
    young = variant(activated_at=NOW - 599)
    decision = story().cycle(young, a=[IDLE])["a"]
    assert (decision.desired, decision.steps[-1].reason) == (1, "not to zero: started 599 s ago, gets 600 s")
    assert story().cycle(variant(activated_at=NOW - 600), a=[IDLE])["a"].desired == 0


def test_zero_is_taken_back_when_a_request_comes():
    """The scaler has not shrunk the target yet, so WVA keeps the replicas that still exist."""
    idle = story()
    assert idle.cycle(variant(replicas=2), a=[IDLE] * 2)["a"].desired == 0
    idle.requests = replace(NONE, in_progress=1.0)
    assert idle.cycle(variant(replicas=2), after=30, a=[BUSY] * 2)["a"].desired == 2


def test_the_minimum_of_the_scaler_is_obeyed():
    """WVA does not ask for fewer replicas than the scaler's minimum."""
    decision = story().cycle(variant(replicas=2, minimum=1), a=[IDLE] * 2)["a"]
    assert (decision.desired, decision.reason) == (1, Reason.BOUNDED)


def idle_seconds(
    *,
    patience: float = 300.0,
    start: float | None = 100.0,
    scrapes: float | None = 15.0,
    role: str = "",
    given: bool = False,
) -> float:
    """Return after how long without a request a model goes to zero whose users wait so long for the first token."""
    ready = None if start is None else NOW
    pod = ReplicaMetrics("a-0", A, ready_since=ready, created=NOW - (start or 0.0), scrape_seconds=scrapes)
    model = ModelKey("ns", "m", role)
    seen = Snapshot.of([replace(variant("a"), role=role)], [pod])
    policy = Policy(scale_to_zero=ScaleToZeroRules(ScaleToZeroEntry("d", "", None, True, 600.0 if given else None)))
    (readings,), _ = believe(seen, Memory(), policy, NOW)
    aims = {A: Aim(Objectives(ttft_seconds=patience), "")}
    need = Need(model, "requests/s", 0.0, 0.0, 0.0, {}, aims=aims)
    (found,) = zeros_of([readings], [need], policy)
    return found.retention_seconds


@pytest.mark.parametrize(
    ("case", "seconds"),
    [
        ({}, 30.0),
        ({"scrapes": 30.0}, 60.0),
        ({"scrapes": 300.0}, 600.0),
        ({"scrapes": None}, 30.0),
        ({"given": True}, 600.0),
        ({"patience": 1.0}, 600.0),
        ({"start": 201.0}, 600.0),
        ({"start": 200.0}, 40.0),
        ({"start": 1000.0, "patience": 2000.0}, 200.0),
        ({"start": None}, 600.0),
        ({"start": 0.0}, 600.0),
        ({"role": "prefill"}, 600.0),
    ],
)
def test_where_a_start_is_in_time_nothing_waits_for_requests(case, seconds):
    """Without a given time; otherwise the given time counts, or ten minutes."""
    assert idle_seconds(**case) == seconds


def test_the_outcome_says_over_how_long_requests_are_to_be_counted():
    """Only of models that may go to zero."""
    asked = story()
    snapshot = Snapshot.of([variant("a")], [])
    assert conclude(snapshot, Memory(), asked.policy, NOW).retentions == {MODEL: 600.0}
    assert conclude(snapshot, Memory(), Policy(), NOW).retentions == {}
