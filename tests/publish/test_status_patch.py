"""What a status patch says, and when there is none."""

from __future__ import annotations

import pytest

from tests.publish.decisions import NOW, decision, held
from tests.publish.statuses import BROKEN, CONFLICT, FOUND, GONE, UNSUPPORTED, VALID, condition, patched, va
from wva.model.decision import Reason, Step
from wva.model.records import replace
from wva.model.trouble import Trouble
from wva.publish.conditions import ConfigurationView
from wva.publish.status import HEARTBEAT_SECONDS, status_patch

LATER = NOW + 60


def test_a_first_decision_writes_the_whole_status():
    """The allocation has all three fields, and six conditions tell where the variant stands."""
    status = patched(None, now=NOW, decision=decision(3))
    assert status["desiredOptimizedAlloc"] == {
        "accelerator": "H100",
        "numReplicas": 3,
        "lastRunTime": "2023-11-14T22:13:20Z",
    }
    told = {entry["type"]: (entry["status"], entry["reason"]) for entry in status["conditions"]}
    assert told == {
        "TargetResolved": ("True", "TargetFound"),
        "MetricsAvailable": ("True", "MetricsAvailable"),
        "OptimizationReady": ("True", "ScaleUp"),
        "Ready": ("True", "VariantAccepted"),
        "Progressing": ("False", "Settled"),
        "Limited": ("False", "NotLimited"),
    }


MINE = ConfigurationView(claim="decided by controller s/mine")
THEIRS = ConfigurationView(claim="decided by controller s/theirs")


def test_the_status_says_which_controller_decides():
    """Others read it before they take the variant, too."""
    status = patched(None, now=NOW, decision=decision(), configuration=MINE)
    claim = condition(status, "Claimed")
    assert (claim["status"], claim["reason"], claim["message"]) == ("True", "ClaimedByController", MINE.claim)


def test_another_controller_is_news_though_nothing_else_is():
    """A hand-over is visible at once, not with the next heartbeat."""
    before = patched(None, now=NOW, decision=decision(), configuration=MINE)
    assert patched(before, now=LATER, decision=decision(), configuration=MINE) is None
    after = patched(before, now=LATER, decision=decision(), configuration=THEIRS)
    assert condition(after, "Claimed")["message"] == THEIRS.claim


def test_without_a_number_nothing_is_claimed():
    """The claim is good for a time after that of the number; without it two controllers would claim in turns."""
    status = patched(None, now=NOW, target=GONE, configuration=MINE)
    assert "Claimed" not in {entry["type"] for entry in status["conditions"]}


def test_a_claim_goes_with_the_target():
    """Without a Deployment there is no decision; while two variants contend for it the number and its claim stay."""
    before = patched(None, now=NOW, decision=decision(), configuration=MINE)
    gone = patched(before, now=LATER, target=GONE, configuration=MINE)
    assert "Claimed" not in {entry["type"] for entry in gone["conditions"]}
    contested = patched(before, now=LATER, target=CONFLICT, configuration=MINE)
    assert condition(contested, "Claimed")["message"] == MINE.claim


def test_the_status_says_whether_the_number_is_applied():
    """Until every replica is ready it is not; without a target there is nothing to say."""
    moving = patched(None, now=NOW, decision=decision(settling_since=NOW))
    assert moving["actuation"] == {"applied": False}
    arrived = patched(moving, now=LATER, decision=decision())
    assert arrived["actuation"] == {"applied": True}
    assert "actuation" not in patched(arrived, now=LATER, target=GONE)


def test_the_status_says_how_many_replicas_there_are():
    """Another number is news, and none when the Deployment is gone."""
    two, three = (replace(FOUND, current=number) for number in (2, 3))
    before = patched(None, now=NOW, decision=decision(), target=two)
    assert before["currentReplicas"] == 2
    assert patched(before, now=LATER, decision=decision(), target=two) is None
    assert patched(before, now=LATER, decision=decision(), target=three)["currentReplicas"] == 3
    assert "currentReplicas" not in patched(before, now=LATER, target=GONE)


def test_an_older_definition_that_drops_a_field_is_not_written_to_for_ever():
    """The number of replicas comes with the next news."""
    two = replace(FOUND, current=2)
    stored = patched(None, now=NOW, decision=decision(), target=two)
    del stored["currentReplicas"]
    assert patched(stored, now=LATER, decision=decision(), target=two) is None
    assert patched(stored, now=LATER, decision=decision(5), target=two)["currentReplicas"] == 2


def test_a_limit_is_a_condition():
    """With who limits the number, also where the decision has another reason."""
    steps = (Step("enforce", "", 9, 7, "HPA va", 2), Step("limit", "", 7, 3, "gpu-limiter A", 4))
    status = patched(None, now=NOW, decision=decision(3, steps=steps))
    said = condition(status, "Limited")
    assert (said["status"], said["reason"]) == ("True", "PartlyLimited")
    assert said["message"] == "limited by HPA va: 2 fewer; limited by gpu-limiter A: 4 fewer"
    status = patched(status, now=LATER, decision=decision(3, reason=Reason.NO_CANDIDATE, message="none can grow"))
    assert (condition(status, "Limited")["reason"], condition(status, "Limited")["message"]) == (
        "NoCandidate",
        "none can grow",
    )
    status = patched(status, now=LATER, decision=decision(3))
    assert condition(status, "Limited")["status"] == "False"


def test_a_first_decision_of_zero_still_has_a_number():
    """Zero is a number: a patch without it is refused by the schema."""
    assert patched(None, now=NOW, decision=decision(0))["desiredOptimizedAlloc"]["numReplicas"] == 0


def test_the_patch_carries_the_version_it_was_computed_from():
    """A write on top of something newer must be a conflict."""
    patch = status_patch(va(version="41"), target=FOUND, decision=decision(), configuration=VALID, now=NOW)
    assert patch["metadata"] == {"resourceVersion": "41"}


def test_conditions_remember_the_generation_they_are_about():
    """A new generation is news by itself and moves ``observedGeneration``, not the transition time."""
    before = patched(None, now=NOW, decision=decision())
    after = patched(before, now=LATER, decision=decision(), generation=2)
    assert {entry["observedGeneration"] for entry in after["conditions"]} == {2}
    assert {entry["lastTransitionTime"] for entry in after["conditions"]} == {"2023-11-14T22:13:20Z"}


@pytest.mark.parametrize(
    "changed", [decision(4), decision(accelerator="A100"), held(), decision(settling_since=NOW - 5)]
)
def test_another_number_accelerator_or_condition_is_news(changed):
    """Each of them is written at once, and ``lastRunTime`` moves with it."""
    before = patched(None, now=NOW, decision=decision(3))
    after = patched(before, now=LATER, decision=changed)
    assert after["desiredOptimizedAlloc"]["lastRunTime"] == "2023-11-14T22:14:20Z"


def test_another_message_is_no_news():
    """Numbers in a text move in every cycle; they travel with the next patch."""
    before = patched(None, now=NOW, decision=decision(message="kv 0.71"))
    assert patched(before, now=LATER, decision=decision(message="kv 0.72")) is None


def test_another_reason_is_news_but_no_transition():
    """A condition whose reason changed is written with its old transition time."""
    before = patched(None, now=NOW, decision=held(reason=held().reason.METRICS_STALE))
    after = patched(before, now=LATER, decision=held())
    assert condition(after, "OptimizationReady")["reason"] == "PrometheusError"
    assert condition(after, "OptimizationReady")["lastTransitionTime"] == "2023-11-14T22:13:20Z"


def test_a_transition_time_moves_with_the_status_only():
    """The condition that flipped has the new time, the others keep theirs."""
    before = patched(None, now=NOW, decision=decision())
    after = patched(before, now=LATER, decision=held())
    assert condition(after, "MetricsAvailable")["lastTransitionTime"] == "2023-11-14T22:14:20Z"
    assert condition(after, "TargetResolved")["lastTransitionTime"] == "2023-11-14T22:13:20Z"


def test_the_heartbeat_comes_after_ten_minutes():
    """Nothing new for ten minutes is said once more, with a new ``lastRunTime`` and the newest messages."""
    before = patched(None, now=NOW, decision=decision(message="old"))
    assert patched(before, now=NOW + HEARTBEAT_SECONDS - 1, decision=decision(message="new")) is None
    after = patched(before, now=NOW + HEARTBEAT_SECONDS, decision=decision(message="new"))
    assert after["desiredOptimizedAlloc"]["lastRunTime"] == "2023-11-14T22:23:20Z"
    assert (
        condition(after, "OptimizationReady")["message"]
        == "new (target: 3 replicas; steps: analyze 2, optimize 2 -> 3)"
    )
    assert HEARTBEAT_SECONDS == 600


def test_an_unreadable_time_of_the_last_run_is_written_anew():
    """A status whose time cannot be read would never get a heartbeat otherwise."""
    before = patched(None, now=NOW, decision=decision())
    before["desiredOptimizedAlloc"]["lastRunTime"] = "yesterday"
    assert patched(before, now=NOW, decision=decision()) is not None


def test_conditions_of_others_are_kept_as_they_are():
    """A patch replaces the list, so it must carry the conditions of others."""
    foreign = {
        "type": "example.com/Audited",
        "status": "True",
        "reason": "Audited",
        "message": "by the audit",
        "lastTransitionTime": "2020-01-01T00:00:00Z",
        "observedGeneration": 1,
    }
    after = patched({"conditions": [foreign]}, now=NOW, decision=decision())
    assert foreign in after["conditions"]
    assert len(after["conditions"]) == 7


def test_a_missing_deployment_clears_the_allocation():
    """The key is removed, because the schema refuses an empty allocation; Ready says DeploymentNotFound."""
    before = patched(None, now=NOW, decision=decision())
    patch = status_patch(va(before), target=GONE, decision=None, configuration=VALID, now=LATER)
    assert patch["status"]["desiredOptimizedAlloc"] is None
    after = patched(before, now=LATER, target=GONE)
    told = {entry["type"]: (entry["status"], entry["reason"]) for entry in after["conditions"]}
    assert told == {
        "TargetResolved": ("False", "TargetNotFound"),
        "MetricsAvailable": ("False", "MetricsUnavailable"),
        "OptimizationReady": ("False", "DeploymentNotFound"),
        "Ready": ("False", "DeploymentNotFound"),
        "Progressing": ("False", "NoTarget"),
    }
    assert condition(after, "Ready")["message"] == "Target deployment 'd' does not exist"


def test_a_variant_that_never_had_a_target_gets_no_allocation():
    """There is nothing to remove, so the key is not named."""
    patch = status_patch(va(), target=GONE, decision=None, configuration=VALID, now=NOW)
    assert "desiredOptimizedAlloc" not in patch["status"]


def test_a_contested_target_keeps_the_allocation():
    """The workload is still there: its number must not be lost while the conflict lasts."""
    before = patched(None, now=NOW, decision=decision(5))
    after = patched(before, now=LATER, target=CONFLICT)
    assert after["desiredOptimizedAlloc"]["numReplicas"] == 5
    assert condition(after, "Ready")["reason"] == "TargetConflict"
    assert condition(after, "TargetResolved")["status"] == "False"


def test_an_unsupported_target_says_so_in_ready():
    """Ready carries the reason of the target."""
    after = patched(None, now=NOW, target=UNSUPPORTED)
    assert (condition(after, "Ready")["status"], condition(after, "Ready")["reason"]) == ("False", "TargetUnsupported")


def test_ready_does_not_depend_on_metrics():
    """A variant without metrics is accepted all the same; MetricsAvailable tells about those."""
    after = patched(None, now=NOW, decision=held())
    assert condition(after, "Ready")["status"] == "True"
    assert condition(after, "MetricsAvailable")["status"] == "False"
    assert condition(after, "OptimizationReady")["status"] == "False"


@pytest.mark.parametrize("accelerator", ["", "H"])
def test_an_accelerator_too_short_for_the_schema_is_unknown(accelerator):
    """The schema wants two characters; a refused patch would hide everything else."""
    after = patched(None, now=NOW, decision=decision(accelerator=accelerator))
    assert after["desiredOptimizedAlloc"]["accelerator"] == "unknown"


def test_progressing_says_that_replicas_are_on_their_way():
    """It is True while the change is unfinished, so that a restart finds its start there."""
    after = patched(None, now=NOW, decision=decision(settling_since=NOW - 30))
    assert condition(after, "Progressing")["status"] == "True"


def test_configuration_is_mentioned_only_while_wrong_or_put_right():
    """No condition before there was a problem; False with the text during it; True afterwards."""
    fine = patched(None, now=NOW, decision=decision())
    assert all(entry["type"] != "ConfigurationValid" for entry in fine["conditions"])
    broken = patched(fine, now=LATER, decision=decision(), configuration=BROKEN)
    assert condition(broken, "ConfigurationValid")["status"] == "False"
    assert condition(broken, "ConfigurationValid")["message"] == BROKEN.message
    fixed = patched(broken, now=LATER + 60, decision=decision())
    assert condition(fixed, "ConfigurationValid")["status"] == "True"
    assert patched(fixed, now=LATER + 120, decision=decision()) is None


@pytest.mark.parametrize(
    ("type_", "field", "healed"),
    [("GatewayReadable", "gateway", "GatewayRead"), ("InventoryConsistent", "inventory", "InventoryRead")],
)
def test_what_stands_around_is_mentioned_only_while_wrong_or_put_right(type_, field, healed):
    """Another message is news, since there are no measurements in it; nothing else about it is."""
    fine = patched(None, now=NOW, decision=decision())
    assert all(entry["type"] != type_ for entry in fine["conditions"])
    first, second = (ConfigurationView(**{field: Trouble("Bad", words)}) for words in ("this", "that"))
    broken = patched(fine, now=LATER, decision=decision(), configuration=first)
    told = condition(broken, type_)
    assert (told["status"], told["reason"], told["message"]) == ("False", "Bad", "this")
    assert patched(broken, now=LATER + 1, decision=decision(), configuration=first) is None
    other = patched(broken, now=LATER + 2, decision=decision(), configuration=second)
    assert condition(other, type_)["message"] == "that"
    assert condition(other, type_)["lastTransitionTime"] == told["lastTransitionTime"]
    fixed = patched(other, now=LATER + 60, decision=decision())
    assert (condition(fixed, type_)["status"], condition(fixed, type_)["reason"]) == ("True", healed)
    assert patched(fixed, now=LATER + 120, decision=decision()) is None


def test_a_second_problem_of_the_configuration_is_news():
    """It need not wait for the heartbeat."""
    broken = patched(None, now=NOW, decision=decision(), configuration=BROKEN)
    worse = ConfigurationView(f"{BROKEN.message}; ConfigMap s/d: bad")
    assert (
        condition(patched(broken, now=LATER, decision=decision(), configuration=worse), "ConfigurationValid")["message"]
        == worse.message
    )


def test_a_message_is_cut_to_a_bearable_length():
    """User text inside a message cannot fill the object."""
    after = patched(None, now=NOW, decision=decision(message="x" * 100_000))
    message = condition(after, "OptimizationReady")["message"]
    assert 4000 < len(message) <= 4096
    assert message.endswith("x (target: 3 replicas; steps: analyze 2, optimize 2 -> 3)")
