"""A report from recordings: each recorded cycle is decided again, and counted as the controller counts in shadow mode.

Every variant counts as if it were in shadow mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from wva.hindsight.cycle import Recording
from wva.hindsight.replay import repeat
from wva.hindsight.report.days import DAY_SECONDS, Day, ShadowReport, days_until, start_of
from wva.hindsight.shadow import ShadowAccounts, ShadowFigures
from wva.model.variant import VariantKey

ACTED: Final = (
    "A recording does not say whether WVA acted. Where it did, the real replicas followed its numbers, and the "
    "difference is what was still starting or stopping."
)


def from_recordings(
    recordings: Sequence[Recording], *, days: int, source: str, takes: Callable[[VariantKey], bool]
) -> ShadowReport:
    """Return the report on recordings, which are in the order of their times, for the variants that ``takes`` accepts.

    The last day is that of the last recording, and no day is before the first one. A variant or day without any time
    between two cycles has no numbers.
    """
    first, last = recordings[0].now, recordings[-1].now
    since = 1 + int((start_of(last) - first // DAY_SECONDS * DAY_SECONDS) // DAY_SECONDS)
    report_days = days_until(last, max(1, min(days, since)))
    by_start = {day.start: day for day in report_days}
    accounts = ShadowAccounts(takes)
    figures: dict[VariantKey, dict[Day, ShadowFigures]] = {}
    models: dict[VariantKey, str] = {}
    roles: dict[VariantKey, str] = {}
    for repeated in repeat(recordings):
        cycle = repeated.cycle
        added = accounts.add(cycle)
        day = by_start.get(start_of(cycle.recording.now))
        for key, grown in added.items():
            if grown.hours > 0.0 and day is not None:
                by_day = figures.setdefault(key, {})
                by_day[day] = by_day.get(day, ShadowFigures()) + grown
        models |= {decision.key: decision.model.model_id for decision in cycle.outcome.decisions}
        roles |= {variant.key: variant.role for variant in cycle.recording.snapshot.variants if variant.role}
    return ShadowReport(source, report_days, figures, models, (ACTED,), roles)
