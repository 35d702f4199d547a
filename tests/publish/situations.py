"""What surrounds a variant while each obstacle stands in its way."""

from __future__ import annotations

import dataclasses

from tests.publish.decisions import NOW, decision, held
from tests.publish.statuses import CONFLICT, GONE, UNSUPPORTED
from wva.api.variantautoscaling import TargetReason
from wva.model.decision import HOLD_REASONS, MetricsVerdict, Reason, Source, Step
from wva.model.trouble import Trouble, TroubleReason
from wva.publish.conditions import ConfigurationView
from wva.publish.obstacles import PARTLY_LIMITED

LIMIT = (Step("enforce", "9 is above the maximum 3", 9, 3, "HPA va", 6),)
AROUND = {
    TroubleReason.QUERY_FAILED: "queries",
    TroubleReason.REPLICAS_LATE: "late",
    TroubleReason.PODS_UNSCHEDULABLE: "late",
    TroubleReason.CONTAINERS_FAILING: "late",
    TroubleReason.SCALER_NOT_FOLLOWING: "late",
    TroubleReason.SCALER_MISSING: "late",
    TroubleReason.GATEWAY_UNREADABLE: "gateway",
    TroubleReason.SELECTOR_EMPTY: "gateway",
    TroubleReason.NAMES_UNKNOWN: "gateway",
    TroubleReason.ACCELERATOR_UNKNOWN: "inventory",
    TroubleReason.QUEUE_MISSING: "gateway",
    TroubleReason.LABELS_DISAGREE: "inventory",
    TroubleReason.INVENTORY_UNKNOWN: "inventory",
    TroubleReason.START_REFUSED: "start",
    TroubleReason.START_FAILED: "start",
    TroubleReason.ACTUATION_SCALER: "actuation",
    TroubleReason.ACTUATION_OWNED: "actuation",
    TroubleReason.ACTUATION_FORBIDDEN: "actuation",
    TroubleReason.ACTUATION_FAILED: "actuation",
    TroubleReason.ACTUATION_REWRITTEN: "actuation",
    TroubleReason.ACTUATION_NO_CLIENT: "actuation",
    TroubleReason.OBJECTIVE_MISSED: "served",
}
TARGETS = {
    TargetReason.DEPLOYMENT_NOT_FOUND: GONE,
    TargetReason.TARGET_NOT_FOUND: dataclasses.replace(GONE, kind="StatefulSet"),
    TargetReason.TARGET_CONFLICT: CONFLICT,
    TargetReason.TARGET_UNSUPPORTED: UNSUPPORTED,
}
DECISIONS = {
    Reason.GPU_LIMITED: decision(
        reason=Reason.GPU_LIMITED, steps=(Step("allocate", "no more GPUs", 9, 3, "gpu-limiter H100", 6),)
    ),
    Reason.ROLE_LIMITED: decision(
        reason=Reason.ROLE_LIMITED, steps=(Step("allocate", "decode can use no more", 3, 3, "role decode", 2),)
    ),
    Reason.NO_CANDIDATE: decision(reason=Reason.NO_CANDIDATE),
    Reason.BOUNDED: decision(reason=Reason.BOUNDED, steps=LIMIT),
    PARTLY_LIMITED: decision(reason=Reason.SCALE_UP, steps=LIMIT),
    **{
        reason: decision(engines=MetricsVerdict(available=False, reason=reason.value, message="in words"))
        for reason in (
            TroubleReason.ENGINE_SERIES_UNUSABLE,
            TroubleReason.ENGINES_DORMANT,
            TroubleReason.ENGINES_SLOW,
            TroubleReason.MODEL_NAME_SHARED,
            TroubleReason.ROLE_UNKNOWN,
        )
    },
    **{
        reason: held(reason=reason, source=Source.PREVIOUS_DESIRED)
        for reason in HOLD_REASONS
        if reason is not Reason.NOT_DECIDED
    },
}


def situation(reason):
    """Return the arguments of the status while a variant is not scaled for this reason."""
    if reason in TARGETS:
        return {"target": TARGETS[reason]}
    if reason in DECISIONS:
        return {"decision": DECISIONS[reason]}
    around = ConfigurationView(**{AROUND[reason]: Trouble(reason, "in words")})
    waiting = {"settling_since": NOW - 700} if AROUND[reason] == "late" else {}
    return {"decision": decision(**waiting), "configuration": around}
