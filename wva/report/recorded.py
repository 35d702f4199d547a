"""A report from recordings: each recorded cycle is decided again, and counted as the controller counts in shadow mode.

Every variant counts as if it were in shadow mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from wva.model.variant import VariantKey
from wva.publish.recordings import Recording
from wva.publish.replay import repeat
from wva.publish.shadow import REAL, SHADOW, Account, ShadowAccounts
from wva.report.days import DAY_SECONDS, Late, RealAndShadow, ShadowFigures, ShadowReport, days_until, start_of

ACTED: Final = (
    "A recording does not say whether WVA acted. Where it did, the real replicas followed its numbers, and the "
    "difference is what was still starting or stopping."
)


def from_recordings(
    recordings: Sequence[Recording], *, days: int, source: str, takes: Callable[[VariantKey], bool]
) -> ShadowReport:
    """Return the report on recordings, which are in the order of their times. Only variants that ``takes`` names.

    The last day is that of the last recording, and no day is before the first one. A variant or day without any time
    between two cycles has no numbers.
    """
    first, last = recordings[0].now, recordings[-1].now
    since = 1 + int((start_of(last) - first // DAY_SECONDS * DAY_SECONDS) // DAY_SECONDS)
    counted = days_until(last, max(1, min(days, since)))
    by_start = {day.start: day for day in counted}
    accounts = ShadowAccounts(takes)
    found: dict[VariantKey, dict[float, ShadowFigures]] = {}
    models: dict[VariantKey, str] = {}
    roles: dict[VariantKey, str] = {}
    nothing = _figures(None)
    for cycle in repeat(recordings):
        former = {key: _figures(accounts[key]) for key in accounts.keys}
        now = cycle.recording.now
        accounts.add(cycle.recording.snapshot, cycle.outcome, now)
        start = start_of(now)
        for key in accounts.keys:
            before, after = former.get(key, nothing), _figures(accounts[key])
            late = after.late
            if late is not None and before.late is not None:
                late = Late(late.requests - before.late.requests, late.error - before.late.error)
            gpu_hours, cost = after.gpu_hours - before.gpu_hours, after.cost - before.cost
            grown = ShadowFigures(after.hours - before.hours, gpu_hours, cost, late)
            if grown.hours > 0.0 and start in by_start:
                of_key = found.setdefault(key, {})
                of_key[start] = of_key[start] + grown if start in of_key else grown
        models |= {decision.key: decision.model.model_id for decision in cycle.outcome.decisions}
        roles |= {variant.key: variant.role for variant in cycle.recording.snapshot.variants if variant.role}
    return ShadowReport(
        source,
        counted,
        {key: {by_start[start]: each for start, each in starts.items()} for key, starts in found.items()},
        models,
        (ACTED,),
        roles,
    )


def _figures(account: Account | None) -> ShadowFigures:
    if account is None:
        account = Account()
    late = Late(RealAndShadow(account.late[REAL], account.late[SHADOW]), account.late_error) if account.late else None
    gpu_hours, cost = (RealAndShadow(sums[REAL], sums[SHADOW]) for sums in (account.gpu_hours, account.cost))
    return ShadowFigures(account.hours, gpu_hours, cost, late)
