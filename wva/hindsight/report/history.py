"""A report from Prometheus: the growth of the counters of shadow mode, day by day.

Each process of the controller has counters of its own, which begin at 0. Only those of the leader grow, and only the
leader shows them. So the report takes the growth of each series, in which Prometheus sees a restart, and then the sum
over the processes. A process that two jobs scrape counts once. Any pod that Prometheus scrapes may show such counters,
so only those of the controller's own targets count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from wva.hindsight.report.days import Day, ShadowReport, days_until
from wva.hindsight.shadow import (
    COST,
    GPU_HOURS,
    HOURS,
    LATE,
    LATE_ERROR,
    REAL,
    SHADOW,
    Late,
    RealAndShadow,
    ShadowFigures,
)
from wva.model.objectives import percent
from wva.model.variant import ModelKey, VariantKey
from wva.numbers import Real
from wva.prometheus.answers import RangeQuerier, RangeSeries

TIMEOUT_SECONDS: Final = 60.0
"""Of one query."""
_SHORTEST_SECONDS: Final = 1.0
"""A window has at least this length: PromQL knows none of nothing."""

_COUNTERS: Final = (HOURS, GPU_HOURS, COST, LATE, LATE_ERROR)
_VARIANT: Final = "namespace, exported_namespace, variant_name"
"""The namespace of a variant is in ``exported_namespace`` where the target has a ``namespace`` of its own."""
_AMOUNT: Final = Real(0.0, 1e15)
_SHARE: Final = Real(0.0, 1.0)
_HOUR: Final = 'window="1h"'


def growth(counter: str, seconds: float, matchers: str) -> str:
    """Return the PromQL of the growth of a counter within ``seconds``, by variant and fleet."""
    increase = f"increase({counter}_total{{{matchers}}}[{seconds:.0f}s])"
    return f"sum by ({_VARIANT}, fleet) (max by ({_VARIANT}, fleet, pod, instance) ({increase}))"


def served(seconds: float, matchers: str) -> str:
    """Return the PromQL of the model that each variant served within ``seconds``."""
    last = f"last_over_time(wva_variant_cost{{{matchers}}}[{seconds:.0f}s])"
    return f"max by ({_VARIANT}, model_name) ({last})"


def role(seconds: float, matchers: str) -> str:
    """Return the PromQL of what the pods of each variant computed of a request within ``seconds``."""
    return f"max by ({_VARIANT}, role) (last_over_time(wva_variant_role{{{matchers}}}[{seconds:.0f}s]))"


def in_time(seconds: float, matchers: str) -> str:
    """Return the PromQL of the mean share in time of each model within ``seconds``."""
    share = f"wva_in_time_ratio{{{','.join(filter(None, (matchers, _HOUR)))}}}[{seconds:.0f}s]"
    return f"avg by (namespace, exported_namespace, model_name) (avg_over_time({share}))"


async def from_prometheus(
    source: RangeQuerier,
    *,
    days: int,
    now: float,
    address: str,
    takes: Callable[[VariantKey], bool],
    matchers: str,
) -> ShadowReport:
    """Return the report on ``days`` days: that of ``now`` (seconds since the epoch) and those before it.

    One query runs at a time. Only variants that ``takes`` accepts are in the report. ``matchers`` are those of a
    selector that takes the series of the controller only (``TargetLabels``). Raises PrometheusError.
    """
    report_days = days_until(now, days)
    figures: dict[VariantKey, dict[Day, ShadowFigures]] = {}
    models: dict[VariantKey, str] = {}
    roles: dict[VariantKey, str] = {}
    shares: list[tuple[Day, ModelKey, float]] = []
    for day in report_days:
        seconds = max(day.end - day.start, _SHORTEST_SECONDS)
        # The values of each counter by variant and fleet, without values by which no counter can grow.
        grown: dict[str, dict[VariantKey, dict[str, float]]] = {}
        for counter in _COUNTERS:
            values = grown.setdefault(counter, {})
            for series in await _ask(source, growth(counter, seconds, matchers), day):
                amount = _AMOUNT.find(series.values[-1][1]) if series.values else None
                if amount is not None:
                    by_fleet, fleet = values.setdefault(_key(series), {}), series.metric.get("fleet", "")
                    by_fleet[fleet] = by_fleet.get(fleet, 0.0) + amount

        # A variant has no numbers if a counter that must be there is missing, or if no time was counted.
        for key in filter(takes, grown[HOURS]):
            hours = grown[HOURS][key].get("", 0.0)
            fleets = [grown[counter].get(key, {}) for counter in (GPU_HOURS, COST, LATE)]
            gpu_hours, cost, late = (
                RealAndShadow(sums[REAL], sums[SHADOW]) if REAL in sums and SHADOW in sums else None for sums in fleets
            )
            if hours > 0.0 and gpu_hours is not None and cost is not None:
                error = grown[LATE_ERROR].get(key, {}).get("")
                estimate = None if late is None or error is None else Late(late, error)
                figures.setdefault(key, {})[day] = ShadowFigures(hours, gpu_hours, cost, estimate)

        for series in await _ask(source, served(seconds, matchers), day):
            models[_key(series)] = series.metric.get("model_name", "")
        for series in await _ask(source, role(seconds, matchers), day):
            roles[_key(series)] = series.metric.get("role", "")
        for series in await _ask(source, in_time(seconds, matchers), day):
            share = _SHARE.find(series.values[-1][1]) if series.values else None
            if share is not None:
                shares.append((day, ModelKey(_key(series).namespace, series.metric.get("model_name", "")), share))
    reported = {ModelKey(key.namespace, models[key]) for key in figures if key in models}
    return ShadowReport(
        f"Prometheus {address}",
        report_days,
        figures,
        {key: models[key] for key in figures if key in models},
        tuple(_in_words(*share) for share in sorted(shares, key=_by_model) if share[1] in reported),
        {key: roles[key] for key in figures if key in roles},
    )


def _by_model(share: tuple[Day, ModelKey, float]) -> tuple[ModelKey, float]:
    return share[1], share[0].start


def _in_words(day: Day, model: ModelKey, share: float) -> str:
    requests = f"requests to {model.model_id} in {model.namespace}"
    return f"{percent(share)} of the {requests} were really in time on {day.name}, in the mean of its hours."


async def _ask(source: RangeQuerier, text: str, day: Day) -> tuple[RangeSeries, ...]:
    async with asyncio.timeout(TIMEOUT_SECONDS + 1.0):
        return await source.query_range(
            text,
            name="shadow_report",
            start=day.end,
            end=day.end,
            step_seconds=_SHORTEST_SECONDS,
            timeout_seconds=TIMEOUT_SECONDS,
        )


def _key(series: RangeSeries) -> VariantKey:
    labels = series.metric
    namespace = labels.get("exported_namespace") or labels.get("namespace", "")
    return VariantKey(namespace, labels.get("variant_name", ""))
