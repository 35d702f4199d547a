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
from wva.report.days import DAY_SECONDS, Figures, Late, Pair, Report, days_until, start_of

ACTED: Final = (
    "A recording does not say whether WVA acted. Where it did, the real replicas followed its numbers, and the "
    "difference is what was still starting or stopping."
)


def from_recordings(
    recordings: Sequence[Recording], *, days: int, source: str, takes: Callable[[VariantKey], bool]
) -> Report:
    """Return the report on recordings, which are in the order of their times. Only variants that ``takes`` names.

    The last day is that of the last recording, and no day is before the first one. A variant or day without any time
    between two cycles has no numbers.
    """
    first, last = recordings[0].now, recordings[-1].now
    since = 1 + int((start_of(last) - first // DAY_SECONDS * DAY_SECONDS) // DAY_SECONDS)
    counted = days_until(last, max(1, min(days, since)))
    by_start = {day.start: day for day in counted}
    accounts = ShadowAccounts(takes)
    found: dict[VariantKey, dict[float, Figures]] = {}
    models: dict[VariantKey, str] = {}
    for cycle in repeat(recordings):
        before = {key: _figures(accounts[key]) for key in accounts.keys}
        now = cycle.recording.now
        accounts.add(cycle.recording.snapshot, cycle.outcome, now)
        start = start_of(now)
        for key in accounts.keys:
            grown = _grown(before.get(key), _figures(accounts[key]))
            if grown.hours > 0.0 and start in by_start:
                of_key = found.setdefault(key, {})
                former = of_key.get(start)
                of_key[start] = grown if former is None else former + grown
        models |= {decision.key: decision.model.model_id for decision in cycle.outcome.decisions}
    return Report(
        source,
        counted,
        {key: {by_start[start]: each for start, each in starts.items()} for key, starts in found.items()},
        models,
        (ACTED,),
    )


def _figures(account: Account | None) -> Figures:
    if account is None:
        account = Account()
    late = Late(Pair(account.late[REAL], account.late[SHADOW]), account.late_error) if account.late else None
    gpu_hours, cost = (Pair(sums[REAL], sums[SHADOW]) for sums in (account.gpu_hours, account.cost))
    return Figures(account.hours, gpu_hours, cost, late)


def _grown(before: Figures | None, after: Figures) -> Figures:
    """Return by how much an account has grown; ``before`` is None for a new one."""
    if before is None:
        return after
    late = after.late
    if late is not None and before.late is not None:
        late = Late(late.requests - before.late.requests, late.error - before.late.error)
    return Figures(after.hours - before.hours, after.gpu_hours - before.gpu_hours, after.cost - before.cost, late)
