"""What earlier cycles tell WVA: whether replicas already answer a load, and which shrink went too far."""

from __future__ import annotations

import pytest

from tests.builders import NOW, policy, replica, stale, variant
from tests.decide.story import FULL, HOT, IDLE, Load, Story
from wva.decide.pipeline import decide
from wva.model.decision import Decision, Reason
from wva.model.memory import Memory, ModelMemory, PodPeak, Shrink
from wva.model.policy import Analyzer, Compatibility, Policy
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.variant import ModelKey

MODEL = ModelKey("ns", "m")
REGRET, KEPT = 600.0, 3600.0
LOAD = pytest.approx(1.6 / 0.7)
"""Four replicas at 0.4, in replicas that hold as much as the trigger leaves."""


def decided(
    ages: list[float | None], loads: list[Load], *, before: list[Load] | None = None, ready: int | None = None
) -> Decision:
    """Decide on replicas that became Ready so many seconds ago; ``before`` is what the first of them had reported."""
    replicas = [
        replace(replica(f"a-{number}", kv=kv, queue=queue), ready_since=None if age is None else NOW - age)
        for number, (age, (kv, queue)) in enumerate(zip(ages, loads, strict=True))
    ]
    peaks = tuple(PodPeak(f"a-{number}", *peak) for number, peak in enumerate(before or []))
    seen = Snapshot.of([variant(replicas=ready or len(ages))], replicas)
    return decide(seen, Memory(models=(ModelMemory(MODEL, peaks),)), Policy(), NOW)[0][0]


def test_replicas_that_came_a_moment_ago_count_as_idle():
    """Two new replicas would relieve the full one, whatever they report while they fill up. One would not."""
    decision = decided([900, 5, 5], [FULL] * 3)
    assert (decision.desired, decision.reason) == (3, Reason.PENDING_SUFFICES)
    assert "those that have just come would be enough" in decision.message
    assert decided([900, 900, 5, 5], [FULL] * 4).desired == 6


def test_replicas_that_came_a_moment_ago_say_nothing_of_the_load():
    """The load of the older replicas still rises, so the spare of the new ones does not prove that they are enough."""
    decision = decided([900, 900, 5, 5], [(0.95, 20), (0.95, 20), IDLE, IDLE], before=[(0.95, 9), (0.95, 9)])
    assert (decision.desired, decision.reason) == (6, Reason.SCALE_UP)


def test_a_replica_fills_up_for_twenty_seconds():
    """After twenty seconds WVA counts a new replica like any other."""
    assert decided([900, 19, 19], [FULL] * 3).reason is Reason.PENDING_SUFFICES
    assert decided([900, 20, 20], [FULL] * 3).reason is Reason.SCALE_UP


@pytest.mark.parametrize("ages", [[900, 900, 25, 25], [900, 900, 5, 5]], ids=["newest", "filling"])
def test_a_load_that_has_been_answered_is_not_answered_twice(ages):
    """The older replicas hold no more than before the newest served, so WVA asks for no more replicas."""
    decision = decided(ages, [FULL] * 4, before=[FULL] * (4 if ages[-1] > 20 else 2))
    assert (decision.desired, decision.reason) == (4, Reason.GROWTH_SETTLING)
    assert "but no more than before the newest replicas served" in decision.message


def test_what_is_being_worked_off_is_no_load():
    """Each queue has ten requests less than in the cycle before, so the load is not growing."""
    decision = decided([900, 900], [(0.95, 20)] * 2, before=[(0.95, 30)] * 2)
    assert (decision.desired, decision.reason) == (2, Reason.GROWTH_SETTLING)
    assert "less than in the cycle before: what has piled up is being worked off" in decision.message


class ScrapedFleet:
    """Four full replicas of long standing that nothing joins, looked at in cycles that Prometheus knows nothing of."""

    def __init__(self) -> None:
        """Have no past."""
        self.memory = Memory()

    def cycle(self, now: float, scraped: list[float], reports: list[Load]) -> tuple[int, Reason]:
        """Decide at a time; each replica was scraped at a time of its own. All in seconds past the beginning."""
        pods = [
            replica(f"a-{number}", kv=kv, queue=queue, at=NOW + at)
            for number, (at, (kv, queue)) in enumerate(zip(scraped, reports, strict=True))
        ]
        seen = Snapshot.of([variant(replicas=4)], pods)
        (decision,), memory = decide(seen, self.memory, Policy(), NOW + now)
        self.memory = replace(memory, variants=())
        return decision.desired, decision.reason


def test_the_same_samples_some_seconds_later_say_nothing_new():
    """Extra cycles see no scrape of their own, so what was worked off still is, until a new scrape says otherwise."""
    fleet = ScrapedFleet()
    fleet.cycle(0, [-5] * 4, [(0.95, 30)] * 4)
    for now in (15, 19, 23):
        assert fleet.cycle(now, [10] * 4, [(0.95, 20)] * 4) == (4, Reason.GROWTH_SETTLING)
    assert fleet.cycle(30, [25] * 4, [(0.95, 12)] * 4) == (4, Reason.GROWTH_SETTLING)
    assert fleet.cycle(45, [40] * 4, [(0.95, 12)] * 4) == (8, Reason.SCALE_UP)


def test_each_replica_is_compared_with_its_own_scrape_before():
    """Prometheus scrapes pods at different times: before the extra cycle it has scraped one of four again."""
    fleet = ScrapedFleet()
    fleet.cycle(0, [-5] * 4, [(0.95, 30)] * 4)
    fleet.cycle(15, [10] * 4, [(0.95, 20)] * 4)
    assert fleet.cycle(19, [18, 10, 10, 10], [(0.95, 20)] * 4) == (4, Reason.GROWTH_SETTLING)


def test_a_rise_is_expected_to_go_on_in_an_extra_cycle_too():
    """From 0.2 to 0.75 between two scrapes is a rise for as long as there is no later scrape."""
    fleet = ScrapedFleet()
    fleet.cycle(0, [-5] * 4, [(0.2, 0)] * 4)
    rising = fleet.cycle(15, [10] * 4, [(0.75, 0)] * 4)
    assert fleet.cycle(19, [10] * 4, [(0.75, 0)] * 4) == rising == (8, Reason.SCALE_UP)
    assert fleet.cycle(30, [25] * 4, [(0.75, 0)] * 4) == (5, Reason.SCALE_UP)


def test_times_that_go_back_are_no_history():
    """After Prometheus has set its clock back, samples of later say nothing of a change; the next ones do."""
    fleet = ScrapedFleet()
    fleet.cycle(0, [-5] * 4, [(0.95, 30)] * 4)
    assert fleet.cycle(15, [-3590] * 4, [(0.95, 20)] * 4) == (8, Reason.SCALE_UP)
    assert fleet.cycle(30, [-3575] * 4, [(0.95, 10)] * 4) == (4, Reason.GROWTH_SETTLING)


def test_times_that_go_back_beyond_two_scrapes_are_no_history_either():
    """Neither the last peaks nor those before them are of an older scrape, so nothing is compared."""
    fleet = ScrapedFleet()
    fleet.cycle(0, [-5] * 4, [(0.95, 30)] * 4)
    assert fleet.cycle(15, [10] * 4, [(0.95, 20)] * 4) == (4, Reason.GROWTH_SETTLING)
    assert fleet.cycle(30, [-3575] * 4, [(0.95, 10)] * 4) == (8, Reason.SCALE_UP)


def test_a_load_that_lasts_is_answered_when_nobody_has_come_lately():
    """The replicas are as full as before and no replica is new, so WVA adds replicas."""
    assert decided([900, 900], [FULL] * 2, before=[FULL] * 2).desired == 4


def test_less_of_a_queue_because_others_have_joined_is_no_less_load():
    """A third replica took its share of the queue, so the load itself did not fall."""
    assert decided([None] * 3, [(0.95, 9)] * 3, before=[(0.95, 14)] * 2).desired == 6


@pytest.mark.parametrize(
    ("now", "before", "rises"),
    [
        ((0.95, 9), (0.95, 8), True),
        ((0.95, 9.4), (0.95, 9), False),
        ((0.95, 4), (0.95, 0), False),
        ((0.85, 9), (0.6, 9), True),
        ((0.99, 9), (0.8, 9), False),
    ],
    ids=["queue", "a little", "below the threshold", "usage", "above the threshold"],
)
def test_a_tenth_of_a_threshold_is_a_change(now, before, rises):
    """KV usage counts up to its threshold, a queue counts from its threshold on; WVA ignores less than a tenth."""
    decision = decided([900, 900, 25], [now, now, FULL], before=[before, before, FULL])
    assert (decision.reason is Reason.SCALE_UP) == rises


def test_a_signal_that_is_not_fresh_is_not_compared():
    """WVA compares neither stale signals nor replicas without history; without any comparison it grows."""
    before = [(None, None), (0.95, None)]
    assert decided([900, 25], [(stale(0.9), 9), (None, 9)], before=before).reason is Reason.SCALE_UP
    assert decided([900, 25], [FULL] * 2).reason is Reason.SCALE_UP


def test_a_rise_is_expected_to_go_on_until_others_serve():
    """Usage rose from 0.2 to 0.75 in a cycle, so WVA expects 1.3 in the next: four replicas, not three."""
    assert decided([900, 900], [(0.75, 0)] * 2, before=[(0.2, 0)] * 2).desired == 4
    assert decided([900, 900], [(0.75, 0)] * 2, before=[(0.75, 0)] * 2).desired == 3


def test_peaks_are_remembered_as_long_as_what_was_asked_for_is_awaited():
    """While WVA waits for new replicas, it compares a rising load with the peak that led to the growth."""
    story = Story()
    story.cycle(variant(), a=[(0.95, 9)])
    assert [peak.queue_length for peak in story.memory.models[0].peaks] == [9.0]
    story.cycle(variant(replicas=2, ready_replicas=1), after=10, a=[(0.95, 30)])
    assert [peak.queue_length for peak in story.memory.models[0].peaks] == [9.0]
    story.cycle(variant(replicas=2, ready_replicas=1), after=40, a=[(0.95, 30)])
    assert [peak.queue_length for peak in story.memory.models[0].peaks] == [30.0]
    assert [peak.queue_length for peak in story.memory.models[0].earlier] == [9.0]


def test_replicas_that_fill_up_are_not_remembered():
    """WVA keeps no history of replicas that fill up, because they would seem to rise in the next cycle."""
    young = replace(replica("a-1"), ready_since=NOW - 5)
    seen = Snapshot.of([variant(replicas=2)], [replica("a-0"), young])
    _, memory = decide(seen, Memory(), Policy(), NOW)
    assert [peak.pod for peak in memory.models[0].peaks] == ["a-0"]


def test_only_sized_growth_remembers_models():
    """Only sized growth keeps a history of models; the token analyzer and the compatibility mode keep none."""
    for chosen in (policy(compatibility=Compatibility.V0_5), policy(analyzer_name=Analyzer.TOKENS)):
        story = Story(chosen)
        story.cycle(variant(), a=[FULL])
        assert story.memory.models == ()


def test_a_shrink_stays_clear_of_the_trigger():
    """Three replicas would be at 0.67, below 0.7, but fewer replicas hold each request for longer."""
    decision = Story().cycle(variant(replicas=4), a=[(0.5, 0)] * 4)["a"]
    assert (decision.desired, decision.reason) == (4, Reason.SHRINK_UNSAFE)
    assert (
        decision.message == "on 3 replicas the mean KV usage would be 0.6667, above 0.595 and too near to the trigger"
    )
    assert Story().cycle(variant(replicas=4), a=[(0.44, 0)] * 4)["a"].desired == 3


def test_a_shrink_that_has_begun_is_withdrawn_only_at_the_trigger():
    """Between the two limits WVA keeps the number, so the number does not swing."""
    story = Story()
    assert story.cycle(variant(replicas=4), a=[(0.44, 0)] * 4)["a"].desired == 3
    assert story.cycle(variant(replicas=4), after=30, a=[(0.5, 0)] * 4)["a"].desired == 3
    assert story.cycle(variant(replicas=4), after=60, a=[(0.55, 0)] * 4)["a"].desired == 4


def regretful(*, after: float = 60.0, maximum: int = 4) -> Story:
    """Shrink from four replicas at 0.4 to three, and want to grow some seconds later."""
    story = Story()
    assert story.cycle(variant(replicas=4), a=[(0.4, 0)] * 4)["a"].desired == 3
    assert story.memory.models[0].shrunk == Shrink(3, LOAD, NOW)
    assert story.cycle(variant(replicas=3, maximum=maximum), after=after, a=[HOT] * 3)["a"].desired == maximum
    return story


def test_a_regretted_shrink_is_not_repeated_at_hardly_less_load():
    """Three replicas were too few at a load of 1.6, so WVA tries three again only below 0.85 of that load."""
    story = regretful()
    assert (story.memory.models[0].shrunk, story.memory.models[0].regretted) == (None, Shrink(3, LOAD, NOW + 60))
    decision = story.cycle(variant(replicas=4), after=300, a=[(0.35, 0)] * 4)["a"]
    assert (decision.desired, decision.reason) == (4, Reason.SHRINK_UNSAFE)
    assert decision.message == "with 3 replicas it was regretted at hardly more load"
    assert story.cycle(variant(replicas=4), after=330, a=[(0.33, 0)] * 4)["a"].desired == 3


def test_a_regret_is_about_no_more_replicas_than_were_left():
    """A regret about three replicas does not stop a shrink from five to four."""
    assert regretful(maximum=5).cycle(variant(replicas=5), after=300, a=[(0.32, 0)] * 5)["a"].desired == 4


def test_a_regret_passes():
    """After an hour WVA tries the shrink again, because requests change."""
    story = regretful()
    assert story.cycle(variant(replicas=4), after=60 + KEPT - 1, a=[(0.4, 0)] * 4)["a"].desired == 4
    assert story.cycle(variant(replicas=4), after=60 + KEPT, a=[(0.4, 0)] * 4)["a"].desired == 3


def test_growth_long_after_a_shrink_is_no_regret():
    """The load has risen since the shrink, so the shrink was no mistake."""
    assert regretful(after=REGRET - 1).memory.models[0].regretted is not None
    later = regretful(after=REGRET).memory.models[0]
    assert (later.shrunk, later.regretted) == (None, None)


def test_a_withdrawn_shrink_is_regretted():
    """The load became too much for the fewer replicas before the scaler acted."""
    story = Story()
    story.cycle(variant(replicas=2), a=[(0.2, 0)] * 2)
    assert story.cycle(variant(replicas=2), after=30, a=[(0.4, 0)] * 2)["a"].reason is Reason.SHRINK_WITHDRAWN
    assert story.memory.models[0].regretted == Shrink(1, pytest.approx(0.4 / 0.7), NOW + 30)


def test_a_replica_that_does_not_come_hides_no_regret():
    """A replica that has been missing for long carries nothing, so WVA does not count it among those left."""
    shrinking = variant("a", replicas=2, desired=1, settling_since=NOW - 60)
    stuck = variant("b", replicas=2, ready_replicas=1, desired=2, settling_since=NOW - 9_000)
    shrunk = Shrink(3, 1.2, NOW - 60)
    story = Story(memory=Memory(models=(ModelMemory(MODEL, shrunk=shrunk),)))
    decisions = story.cycle(shrinking, stuck, a=[(0.5, 0)] * 2, b=[(0.5, 0)])
    assert decisions["a"].reason is Reason.SHRINK_WITHDRAWN
    assert story.memory.models[0].regretted == replace(shrunk, at=NOW)


def test_a_model_that_is_held_regrets_nothing():
    """WVA knows nothing of the load of a held model, so it records no regret."""
    story = Story()
    story.cycle(variant(replicas=4), a=[(0.4, 0)] * 4)
    story.cycle(variant(replicas=3), after=60, a=[(None, None)] * 3)
    assert story.memory.models[0].shrunk is not None
