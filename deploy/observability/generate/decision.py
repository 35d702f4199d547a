"""The dashboard of a decision: why a variant has its number, which stage made it, and what limited it."""

from __future__ import annotations

from typing import Final

from deploy.observability.generate.grafana import (
    Dashboard,
    PanelExpression,
    PanelRow,
    Variable,
    graph,
    stat,
    states,
    steps,
    table,
)
from deploy.observability.generate.queries import CONTROLLER, TARGET, VARIANT, WINDOW, of_variants, or_none

_CHOSEN: Final = f'{CONTROLLER}, exported_namespace=~"$namespace", variant_name=~"$variant"'
_NAME: Final = "{{exported_namespace}}/{{variant_name}}"
_AGE: Final = f"time() - {of_variants('wva_settling_since_timestamp_seconds', _CHOSEN)}"

_NUMBER: Final = PanelRow(
    "The number",
    (
        steps(
            "Current, desired and maximum",
            "Replicas that exist, that should exist, and the most that the scaler or an annotation allows.",
            PanelExpression(of_variants("wva_current_replicas", _CHOSEN), f"{_NAME} current"),
            PanelExpression(of_variants("wva_desired_replicas", _CHOSEN), f"{_NAME} desired"),
            PanelExpression(of_variants("wva_maximum_replicas", _CHOSEN), f"{_NAME} maximum"),
            width=18,
        ),
        stat("Current", "Replicas that exist.", PanelExpression(of_variants("wva_current_replicas", _CHOSEN), _NAME)),
        stat(
            "Desired",
            "Replicas that should exist.",
            PanelExpression(of_variants("wva_desired_replicas", _CHOSEN), _NAME),
        ),
    ),
)
_WHY: Final = PanelRow(
    "Why",
    (
        states(
            "Reason",
            "The reason of the number, as in the condition OptimizationReady; docs/conditions.md explains each. The "
            "message with the numbers compared is in kubectl describe va.",
            PanelExpression(of_variants("wva_desired_reason", _CHOSEN, "reason"), f"{_NAME} {{{{reason}}}}"),
            height=10,
        ),
        states(
            "Source",
            "Where the number comes from: measured, held for too few samples, or kept without any measurement.",
            PanelExpression(of_variants("wva_desired_source", _CHOSEN, "source"), f"{_NAME} {{{{source}}}}"),
        ),
    ),
)
_HOW: Final = PanelRow(
    "How it came about",
    (
        steps(
            "The number after each stage",
            "analyze starts from the number in force, optimize grows or shrinks it, arbitrate asks the model-based "
            "optimizer, enforce moves it into the bounds, limit cuts it to the GPU budget.",
            PanelExpression(of_variants("wva_desired_step_replicas", _CHOSEN, "stage"), f"{_NAME} {{{{stage}}}}"),
        ),
        steps(
            "Who keeps it from being larger",
            "Replicas that were wanted and not given, by stage and by whom: a maximum, or the GPUs that there are.",
            PanelExpression(
                or_none(of_variants("wva_desired_limited_replicas", _CHOSEN, "stage", "limited_by"), "limited_by"),
                f"{_NAME} {{{{stage}}}} {{{{limited_by}}}}",
            ),
        ),
        graph(
            "Changes",
            "Changes of the number within the window of a rate, by direction and reason. The first change for a reason "
            "after a change of leader is not seen, as its series begins with it.",
            PanelExpression(
                or_none(
                    f"sum by (direction, reason) (increase(wva_replica_scaling_total{{{_CHOSEN}}}{WINDOW}))", "reason"
                ),
                "{{direction}} {{reason}}",
            ),
        ),
        graph(
            "On its way",
            "For how long the replicas have made no progress towards the number. After transitionDeadline they do not "
            "count as on their way any more.",
            PanelExpression(
                f"{_AGE} or on ({VARIANT}) 0 * {of_variants('wva_desired_replicas', _CHOSEN)}",
                _NAME,
            ),
            unit="s",
        ),
        graph(
            "Coverage",
            "Share of the replicas that report both signals. Growth needs some of them, a shrink all of the model.",
            PanelExpression(of_variants("wva_coverage_ratio", _CHOSEN), _NAME),
            unit="percentunit",
        ),
    ),
)
_NOW: Final = PanelRow(
    "Now",
    (
        table(
            "Decisions in force",
            "What was decided last: reason, whether it was held for lack of evidence, and the number.",
            (
                ("", PanelExpression(of_variants("wva_desired_reason", _CHOSEN, "reason", "held"))),
                ("Desired", PanelExpression(of_variants("wva_desired_replicas", _CHOSEN))),
                ("Current", PanelExpression(of_variants("wva_current_replicas", _CHOSEN))),
            ),
        ),
    ),
)

DASHBOARD: Final = Dashboard(
    "wva-decision",
    "Workload variants / Decision",
    "Why a variant has its number.",
    (
        *TARGET,
        Variable("namespace", "Namespace", f"wva_desired_replicas{{{CONTROLLER}}}", "exported_namespace"),
        Variable(
            "variant",
            "Variant",
            f'wva_desired_replicas{{{CONTROLLER}, exported_namespace=~"$namespace"}}',
            "variant_name",
        ),
    ),
    (_NUMBER, _WHY, _HOW, _NOW),
)
