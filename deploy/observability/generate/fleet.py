"""The dashboard of the fleet: how many replicas there are, what they cost, and which variants have a problem."""

from __future__ import annotations

from typing import Final

from deploy.observability.generate.grafana import (
    Dashboard,
    PanelExpression,
    PanelRow,
    Variable,
    graph,
    stat,
    steps,
    table,
    warning_above,
)
from deploy.observability.generate.queries import CONTROLLER, TARGET, VARIANT, WINDOW, cost, count_or_zero, of_variants

_CHOSEN: Final = f'{CONTROLLER}, exported_namespace=~"$namespace"'
_CURRENT: Final = of_variants("wva_current_replicas", _CHOSEN)
_DESIRED: Final = of_variants("wva_desired_replicas", _CHOSEN)
_HELD: Final = of_variants("wva_desired_reason", f'{_CHOSEN}, held="true"')
_LIMITED: Final = of_variants("wva_desired_limited_replicas", _CHOSEN)
_SETTLING: Final = of_variants("wva_settling_since_timestamp_seconds", _CHOSEN)

_NOW: Final = PanelRow(
    "Now",
    (
        stat("Variants", "Variants that the controllers decide on.", PanelExpression(f"count({_DESIRED})")),
        stat(
            "Models",
            "Models that they serve, counted in each namespace.",
            PanelExpression(f"count(group by (exported_namespace, model_name) (wva_variant_cost{{{_CHOSEN}}}))"),
        ),
        stat("Replicas", "Replicas that exist.", PanelExpression(f"sum({_CURRENT})")),
        stat("Desired", "Replicas that should exist.", PanelExpression(f"sum({_DESIRED})")),
        stat(
            "Cost",
            "Cost of the replicas that exist, in the unit of spec.variantCost.",
            PanelExpression(f"sum({cost(_CHOSEN)})"),
        ),
        stat(
            "On their way",
            "Variants whose replicas have not come to the desired number yet.",
            PanelExpression(count_or_zero(_SETTLING)),
        ),
        stat(
            "Held",
            "Variants whose number is kept because their data does not allow a change.",
            PanelExpression(count_or_zero(_HELD)),
            defaults=warning_above(1),
        ),
        stat(
            "Limited",
            "Variants that would have more replicas if it were not for their maximum or the GPU budget.",
            PanelExpression(count_or_zero(_LIMITED)),
            defaults=warning_above(1),
        ),
    ),
)
_OVER_TIME: Final = PanelRow(
    "Over time",
    (
        steps(
            "Replicas",
            "All replicas that exist, and all that should.",
            PanelExpression(f"sum({_CURRENT})", "current"),
            PanelExpression(f"sum({_DESIRED})", "desired"),
        ),
        graph(
            "Replicas by accelerator",
            "Replicas that exist, by the accelerator of their variant.",
            PanelExpression(
                f"sum by (accelerator_type) ({of_variants('wva_current_replicas', _CHOSEN, 'accelerator_type')})",
                "{{accelerator_type}}",
            ),
            stacked=True,
            width=12,
        ),
        graph(
            "Cost by model",
            "Cost of the replicas that exist, in the unit of spec.variantCost.",
            PanelExpression(
                f"sum by (exported_namespace, model_name) ({cost(_CHOSEN)})", "{{exported_namespace}} {{model_name}}"
            ),
            stacked=True,
            width=12,
        ),
        graph(
            "Changes of the desired number",
            "How often the number of a variant changed within the window of a rate. Many changes that take each other "
            "back are a sign of thresholds that are too close to the load.",
            PanelExpression(
                f"sum by ({VARIANT}) (changes(wva_desired_replicas{{{_CHOSEN}}}{WINDOW}))",
                "{{exported_namespace}}/{{variant_name}}",
            ),
            width=12,
        ),
    ),
)
_VARIANTS: Final = PanelRow(
    "Variants",
    (
        table(
            "Variants",
            "Every variant with its numbers. The reasons are explained in docs/conditions.md.",
            (
                ("Current", PanelExpression(_CURRENT)),
                ("Desired", PanelExpression(_DESIRED)),
                ("Maximum", PanelExpression(of_variants("wva_maximum_replicas", _CHOSEN))),
                (
                    "Cost per replica",
                    PanelExpression(of_variants("wva_variant_cost", _CHOSEN, "model_name", "accelerator_type")),
                ),
                ("", PanelExpression(of_variants("wva_desired_reason", _CHOSEN, "reason", "held"))),
            ),
        ),
    ),
)

DASHBOARD: Final = Dashboard(
    "wva-fleet",
    "Workload variants / Fleet",
    "Replicas, cost and state of all variants.",
    (*TARGET, Variable("namespace", "Namespace", f"wva_desired_replicas{{{CONTROLLER}}}", "exported_namespace")),
    (_NOW, _OVER_TIME, _VARIANTS),
)
