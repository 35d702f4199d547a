"""``conditions_of`` makes each type of condition of the status."""

from __future__ import annotations

from tests.publish.decisions import decision
from tests.publish.statuses import FOUND, va
from wva.api.variantautoscaling import ConditionType
from wva.model.decision import MetricsVerdict
from wva.model.trouble import Trouble
from wva.publish.conditions import ConfigurationView, conditions_of

UNREADABLE = MetricsVerdict(available=False, reason="EngineSeriesUnusable", message="m")
TROUBLED = ConfigurationView(
    "ConfigMap s/c: default: not read",
    claim="the controller wva/controller decides",
    queries=Trouble("QueryFailed", "query in_progress: HTTP 422"),
    gateway=Trouble("GatewayUnreadable", "no endpoint picker answers"),
    inventory=Trouble("InventoryUnknown", "the nodes cannot be read"),
    actuation=Trouble("ScalerPresent", "an HPA scales the target"),
    shadow=True,
)


def test_every_type_of_condition_is_there():
    """While every part is in trouble, the status has each type of condition once."""
    types = [each.type for each in conditions_of(va(), FOUND, decision(engines=UNREADABLE), TROUBLED, numbered=True)]
    assert sorted(types) == sorted(type_.value for type_ in ConditionType)
