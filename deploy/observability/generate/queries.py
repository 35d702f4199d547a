"""Expressions that several dashboards share.

Series about variants come from the leader, and after a hand-over for some minutes from two pods: they are aggregated to
one per variant before anything is added up. ``exported_namespace`` is the variant's namespace, as Prometheus names the
label of a series whose target has a namespace of its own.

Every pod may expose series of these names, so every selector of such a series begins with ``CONTROLLER``: the labels
that Prometheus gives to the target, which no page can set.
"""

from __future__ import annotations

from typing import Final

from deploy.observability.generate.grafana import TextBox

NAMESPACE: Final = "workload-variant-autoscaler-system"
JOB: Final = "workload-variant-autoscaler-metrics"
"""Where ``deploy/overlays/kubernetes`` installs; with a ServiceMonitor the job is the name of the Service."""
RULES_PIN: Final = f'job="{JOB}", namespace="{NAMESPACE}"'
CONTROLLER: Final = 'job=~"$job", namespace=~"$controller_namespace"'
TARGET: Final = (
    TextBox("controller_namespace", "Controller's namespace", NAMESPACE),
    TextBox("job", "Job", JOB),
)
"""The texts that ``CONTROLLER`` uses. They are no choice among existing series, which could offer a forged one."""
VARIANT: Final = "exported_namespace, variant_name"
WINDOW: Final = "[$__rate_interval]"


def of_variants(metric: str, chosen: str, *labels: str) -> str:
    """Return one series per variant (and further labels) of a gauge, for the label matchers of a dashboard."""
    by = ", ".join((VARIANT, *labels))
    return f"max by ({by}) ({metric}{{{chosen}}})"


def count_or_zero(expression: str) -> str:
    """Return an expression that counts series, and is 0 if there are none."""
    return f"count({expression}) or vector(0)"


def or_none(expression: str, label: str) -> str:
    """Return an expression whose series exist only while something happens.

    Otherwise it has one series of 0 named ``none``.
    """
    return f'{expression} or on () label_replace(vector(0), "{label}", "none", "", "")'


def rate_by(labels: str, counter: str, chosen: str) -> str:
    """Return the rate per second of a counter, by labels."""
    return f"sum by ({labels}) (rate({counter}{{{chosen}}}{WINDOW}))"


def quantile(share: float, histogram: str, chosen: str, *labels: str) -> str:
    """Return a quantile of a histogram, by labels."""
    by = ", ".join(("le", *labels))
    return f"histogram_quantile({share:g}, sum by ({by}) (rate({histogram}_bucket{{{chosen}}}{WINDOW})))"


def cost(chosen: str, models: str = "") -> str:
    """Return the cost of the replicas that exist, by variant and model."""
    matchers = ", ".join(filter(None, (chosen, models)))
    price = of_variants("wva_variant_cost", matchers, "model_name")
    return f"{price} * on ({VARIANT}) group_left () {of_variants('wva_current_replicas', chosen)}"


def of_model(metric: str, chosen: str, models: str, *labels: str) -> str:
    """Return a gauge of the variants that serve the chosen models."""
    group = f"group by ({VARIANT}) (wva_variant_cost{{{chosen}, {models}}})"
    return f"{of_variants(metric, chosen, *labels)} and on ({VARIANT}) {group}"
