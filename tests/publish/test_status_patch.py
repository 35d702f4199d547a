"""The content of a status patch, and when there is none."""

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
    """The status has an allocation with three fields, and six conditions."""
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
    """Other controllers read the claim before they take the variant."""
    status = patched(None, now=NOW, decision=decision(), configuration=MINE)
    claim = condition(status, "Claimed")
    assert (claim["status"], claim["reason"], claim["message"]) == ("True", "ClaimedByController", MINE.claim)


def test_another_controller_is_news_though_nothing_else_is():
    """WVA writes a new claim at once, without waiting for the heartbeat."""
    before = patched(None, now=NOW, decision=decision(), configuration=MINE)
    assert patched(before, now=LATER, decision=decision(), configuration=MINE) is None
    after = patched(before, now=LATER, decision=decision(), configuration=THEIRS)
    assert condition(after, "Claimed")["message"] == THEIRS.claim


def test_without_a_number_nothing_is_claimed():
    """A claim is valid for a time after that of the number, so there is none without a number."""
    status = patched(None, now=NOW, target=GONE, configuration=MINE)
    assert "Claimed" not in {entry["type"] for entry in status["conditions"]}


def test_a_claim_goes_with_the_target():
    """Without a Deployment the claim is removed; during a conflict of two variants number and claim stay."""
    before = patched(None, now=NOW, decision=decision(), configuration=MINE)
    gone = patched(before, now=LATER, target=GONE, configuration=MINE)
    assert "Claimed" not in {entry["type"] for entry in gone["conditions"]}
    contested = patched(before, now=LATER, target=CONFLICT, configuration=MINE)
    assert condition(contested, "Claimed")["message"] == MINE.claim


def test_the_status_says_whether_the_number_is_applied():
    """The number is not applied until every replica is ready; without a target the field is absent."""
    moving = patched(None, now=NOW, decision=decision(settling_since=NOW))
    assert moving["actuation"] == {"applied": False}
    arrived = patched(moving, now=LATER, decision=decision())
    assert arrived["actuation"] == {"applied": True}
    assert "actuation" not in patched(arrived, now=LATER, target=GONE)


def test_the_status_says_how_many_replicas_there_are():
    """WVA writes a new count at once, and removes it when the Deployment is gone."""
    two, three = (replace(FOUND, current=number) for number in (2, 3))
    before = patched(None, now=NOW, decision=decision(), target=two)
    assert before["currentReplicas"] == 2
    assert patched(before, now=LATER, decision=decision(), target=two) is None
    assert patched(before, now=LATER, decision=decision(), target=three)["currentReplicas"] == 3
    assert "currentReplicas" not in patched(before, now=LATER, target=GONE)


def test_an_older_definition_that_drops_a_field_is_not_written_to_for_ever():
    """A missing count alone gives no patch; WVA writes it with the next change."""
    two = replace(FOUND, current=2)
    stored = patched(None, now=NOW, decision=decision(), target=two)
    del stored["currentReplicas"]
    assert patched(stored, now=LATER, decision=decision(), target=two) is None
    assert patched(stored, now=LATER, decision=decision(5), target=two)["currentReplicas"] == 2


def test_the_status_says_the_role():
    """Another role is written at once, the first one with the next change: an older definition drops the field."""
    prefill, decode = (replace(FOUND, role=role) for role in ("prefill", "decode"))
    before = patched(None, now=NOW, decision=decision(), target=prefill)
    assert before["role"] == "prefill"
    assert patched(before, now=LATER, decision=decision(), target=prefill) is None
    assert patched(before, now=LATER, decision=decision(), target=decode)["role"] == "decode"
    assert "role" not in patched(before, now=LATER, decision=decision())
    assert "role" not in patched(before, now=LATER, target=GONE)
    del before["role"]
    assert patched(before, now=LATER, decision=decision(), target=prefill) is None
    assert patched(before, now=LATER, decision=decision(5), target=prefill)["role"] == "prefill"


def test_a_limit_is_a_condition():
    """The condition names the limits, even if the decision has another reason."""
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
    """The schema refuses an allocation without a number, so 0 is written."""
    assert patched(None, now=NOW, decision=decision(0))["desiredOptimizedAlloc"]["numReplicas"] == 0


def test_the_patch_carries_the_version_it_was_computed_from():
    """The API server refuses the patch as a conflict if the object is newer."""
    patch = status_patch(va(version="41"), target=FOUND, decision=decision(), configuration=VALID, now=NOW)
    assert patch["metadata"] == {"resourceVersion": "41"}


def test_conditions_remember_the_generation_they_are_about():
    """A new generation gives a patch and moves ``observedGeneration``, but not the transition time."""
    before = patched(None, now=NOW, decision=decision())
    after = patched(before, now=LATER, decision=decision(), generation=2)
    assert {entry["observedGeneration"] for entry in after["conditions"]} == {2}
    assert {entry["lastTransitionTime"] for entry in after["conditions"]} == {"2023-11-14T22:13:20Z"}


@pytest.mark.parametrize(
    "changed", [decision(4), decision(accelerator="A100"), held(), decision(settling_since=NOW - 5)]
)
def test_another_number_accelerator_or_condition_is_news(changed):
    """WVA writes each of these changes at once, with a new ``lastRunTime``."""
    before = patched(None, now=NOW, decision=decision(3))
    after = patched(before, now=LATER, decision=changed)
    assert after["desiredOptimizedAlloc"]["lastRunTime"] == "2023-11-14T22:14:20Z"


def test_another_message_is_no_news():
    """Figures in a message change in every cycle, so WVA writes them with the next patch."""
    before = patched(None, now=NOW, decision=decision(message="kv 0.71"))
    assert patched(before, now=LATER, decision=decision(message="kv 0.72")) is None


def test_another_reason_is_news_but_no_transition():
    """A condition with a new reason is written and keeps its transition time."""
    before = patched(None, now=NOW, decision=held(reason=held().reason.METRICS_STALE))
    after = patched(before, now=LATER, decision=held())
    assert condition(after, "OptimizationReady")["reason"] == "PrometheusError"
    assert condition(after, "OptimizationReady")["lastTransitionTime"] == "2023-11-14T22:13:20Z"


def test_a_transition_time_moves_with_the_status_only():
    """Only the condition whose status changed gets a new transition time."""
    before = patched(None, now=NOW, decision=decision())
    after = patched(before, now=LATER, decision=held())
    assert condition(after, "MetricsAvailable")["lastTransitionTime"] == "2023-11-14T22:14:20Z"
    assert condition(after, "TargetResolved")["lastTransitionTime"] == "2023-11-14T22:13:20Z"


def test_the_heartbeat_comes_after_ten_minutes():
    """After ten minutes without a change WVA writes a new ``lastRunTime`` and the newest messages."""
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
    """Without a readable time there would never be a heartbeat."""
    before = patched(None, now=NOW, decision=decision())
    before["desiredOptimizedAlloc"]["lastRunTime"] = "yesterday"
    assert patched(before, now=NOW, decision=decision()) is not None


def test_a_time_of_the_last_run_in_the_future_is_written_anew():
    """The clock was ahead and has been set right. Other controllers do not believe such a time."""
    before = patched(None, now=NOW + 3600, decision=decision())
    after = patched(before, now=NOW, decision=decision())
    assert after["desiredOptimizedAlloc"]["lastRunTime"] == "2023-11-14T22:13:20Z"
    assert patched(after, now=NOW + 1, decision=decision()) is None


def test_conditions_of_others_are_kept_as_they_are():
    """A patch replaces the list, so it must contain the conditions of other controllers."""
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
    assert condition(after, "Ready")["message"] == "Target deployment 'd' no longer exists"
    again = status_patch(va(after, generation=9), target=GONE, decision=None, configuration=VALID, now=LATER)
    assert condition(again["status"], "Ready")["message"] == "Target deployment 'd' no longer exists"


def test_a_deployment_that_never_existed_is_told_apart_from_a_deleted_one():
    """Nobody deleted it: its name is wrong, or it comes later. Another name in the spec is such a Deployment, too."""
    assert condition(patched(None, now=NOW, target=GONE), "Ready")["message"] == "Target deployment 'd' does not exist"
    before = patched(None, now=NOW, decision=decision())
    renamed = status_patch(va(before, generation=9), target=GONE, decision=None, configuration=VALID, now=LATER)
    assert condition(renamed["status"], "Ready")["message"] == "Target deployment 'd' does not exist"


def test_a_variant_that_never_had_a_target_gets_no_allocation():
    """The patch does not name the allocation, because there is none to remove."""
    patch = status_patch(va(), target=GONE, decision=None, configuration=VALID, now=NOW)
    assert "desiredOptimizedAlloc" not in patch["status"]


def test_a_contested_target_keeps_the_allocation():
    """The workload still exists, so its number must stay during the conflict."""
    before = patched(None, now=NOW, decision=decision(5))
    after = patched(before, now=LATER, target=CONFLICT)
    assert after["desiredOptimizedAlloc"]["numReplicas"] == 5
    assert condition(after, "Ready")["reason"] == "TargetConflict"
    assert condition(after, "TargetResolved")["status"] == "False"


def test_an_unsupported_target_says_so_in_ready():
    """The condition Ready has the reason of the target."""
    after = patched(None, now=NOW, target=UNSUPPORTED)
    assert (condition(after, "Ready")["status"], condition(after, "Ready")["reason"]) == ("False", "TargetUnsupported")


def test_ready_does_not_depend_on_metrics():
    """A variant without metrics is Ready; the condition MetricsAvailable is False."""
    after = patched(None, now=NOW, decision=held())
    assert condition(after, "Ready")["status"] == "True"
    assert condition(after, "MetricsAvailable")["status"] == "False"
    assert condition(after, "OptimizationReady")["status"] == "False"


@pytest.mark.parametrize("accelerator", ["", "H"])
def test_an_accelerator_too_short_for_the_schema_is_unknown(accelerator):
    """The schema wants two characters, and would refuse the whole patch otherwise."""
    after = patched(None, now=NOW, decision=decision(accelerator=accelerator))
    assert after["desiredOptimizedAlloc"]["accelerator"] == "unknown"


def test_progressing_says_that_replicas_are_on_their_way():
    """Progressing is True while a change is unfinished; after a restart WVA reads the start from it."""
    after = patched(None, now=NOW, decision=decision(settling_since=NOW - 30))
    assert condition(after, "Progressing")["status"] == "True"


def test_configuration_is_mentioned_only_while_wrong_or_put_right():
    """There is no condition before the first problem; it is False during it and True afterwards."""
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
    [
        ("GatewayReadable", "gateway", "GatewayRead"),
        ("InventoryConsistent", "inventory", "InventoryRead"),
        ("ReplicasOnTime", "late", "ReplicasInTime"),
    ],
)
def test_what_stands_around_is_mentioned_only_while_wrong_or_put_right(type_, field, healed):
    """A new message gives a patch, because these messages have no measurements."""
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


def test_what_is_not_known_yet_is_neither_true_nor_false():
    """An idle picker does not tell whether it would hold a request."""
    unknown = ConfigurationView(gateway=Trouble("QueueNotYetKnown", "no request yet", known=False))
    status = patched(None, now=NOW, decision=decision(), configuration=unknown)
    told = condition(status, "GatewayReadable")
    assert (told["status"], told["reason"]) == ("Unknown", "QueueNotYetKnown")


def test_a_second_problem_of_the_configuration_is_news():
    """WVA writes the second problem without waiting for the heartbeat."""
    broken = patched(None, now=NOW, decision=decision(), configuration=BROKEN)
    worse = ConfigurationView(f"{BROKEN.message}; ConfigMap s/d: bad")
    assert (
        condition(patched(broken, now=LATER, decision=decision(), configuration=worse), "ConfigurationValid")["message"]
        == worse.message
    )


def test_a_message_is_cut_to_a_bearable_length():
    """A long text of a user in a message does not make the object too large."""
    after = patched(None, now=NOW, decision=decision(message="x" * 100_000))
    message = condition(after, "OptimizationReady")["message"]
    assert 4000 < len(message) <= 4096
    assert message.endswith("x (target: 3 replicas; steps: analyze 2, optimize 2 -> 3)")
