"""``conditions_of`` makes each type of condition of the status."""

from __future__ import annotations

from tests.publish.decisions import NOW, decision
from tests.publish.statuses import FOUND, condition, patched, va
from wva.api.variantautoscaling import ConditionType
from wva.model.decision import Aim, MetricsVerdict, Reason
from wva.model.in_time import NOT_MEASURED
from wva.model.trouble import Trouble
from wva.publish.conditions import ConfigurationView, conditions_of

UNREADABLE = MetricsVerdict(available=False, reason="EngineSeriesUnusable", message="m")
TROUBLED = ConfigurationView(
    "ConfigMap s/c: default: not read",
    claim="the controller wva/controller decides",
    queries=Trouble("QueryFailed", "query in_progress: HTTP 422"),
    gateway=Trouble("GatewayUnreadable", "no endpoint picker answers"),
    late=Trouble("ReplicasLate", "1 of 2 replicas not Ready within the transition deadline"),
    inventory=Trouble("InventoryUnknown", "the nodes cannot be read"),
    actuation=Trouble("ScalerPresent", "an HPA scales the target"),
    served=Trouble("ObjectiveMissed", "requests in time: 90 % of 1000 in the last hour"),
    shadow=True,
)


def test_every_type_of_condition_is_there():
    """While every part is in trouble, the status has each type of condition once."""
    types = [each.type for each in conditions_of(va(), FOUND, decision(engines=UNREADABLE), TROUBLED, numbered=True)]
    assert sorted(types) == sorted(type_.value for type_ in ConditionType)


def test_objectives_are_told_where_somebody_asked_for_them():
    """With who asked, and what no number of replicas reaches."""
    unreached = Aim(words="asked", beyond="not 1 ms")
    for aim, told in ((None, ""), (Aim(), ""), (unreached, "; objectives: asked; not 1 ms")):
        status = patched(None, now=NOW, decision=decision(message="m", steps=(), aim=aim))
        assert condition(status, "OptimizationReady")["message"] == f"m{told} (target: 3 replicas)"


def test_what_a_cycle_saw_stays_until_the_next_process_has_looked():
    """After a change of leaders a replica is as late as before: its event comes once."""
    late = ConfigurationView(late=Trouble("ReplicasLate", "1 of 2 replicas not Ready"))
    status = patched(None, now=NOW, decision=decision(engines=UNREADABLE), configuration=late)
    new = patched(status, now=NOW + 60, decision=decision(reason=Reason.NOT_DECIDED))
    for type_ in ("ReplicasOnTime", "EnginesReadable"):
        assert condition(new, type_) == condition(status, type_)
    looked = patched(new, now=NOW + 90, decision=decision())
    assert condition(looked, "ReplicasOnTime")["reason"] == "ReplicasInTime"
    assert condition(looked, "EnginesReadable")["status"] == "True"


def test_whether_objectives_are_met_is_told_once_they_were_missed():
    """While nobody has looked, the condition is as it was; without requests it is neither True nor False."""
    unknown = ConfigurationView(served=NOT_MEASURED)
    fine = patched(None, now=NOW, decision=decision(), configuration=unknown)
    assert all(each["type"] != "ObjectivesMet" for each in fine["conditions"])
    missed = patched(fine, now=NOW + 60, decision=decision(), configuration=TROUBLED)
    told = condition(missed, "ObjectivesMet")
    assert (told["status"], told["reason"]) == ("False", "ObjectiveMissed")
    unseen = patched(missed, now=NOW + 1000, decision=decision(), configuration=ConfigurationView(served=None))
    assert condition(unseen, "ObjectivesMet") == told
    for view, status in ((unknown, "Unknown"), (ConfigurationView(), "True")):
        after = patched(missed, now=NOW + 2000, decision=decision(), configuration=view)
        assert condition(after, "ObjectivesMet")["status"] == status
