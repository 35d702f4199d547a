"""The three times of an election, and the relations that must hold between them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

_MIN_RENEWALS: Final = 1.2  # client-go's JitterFactor: at least this many retry periods fit before the deadline
_LEASE_FLAG: Final = "--leader-election-lease-duration"
_RENEW_FLAG: Final = "--leader-election-renew-deadline"
_RETRY_FLAG: Final = "--leader-election-retry-period"


@dataclass(frozen=True, slots=True)
class Durations:
    """The three times of an election, in seconds; the defaults are those of Kubernetes' own components."""

    lease_seconds: float = 15.0
    renew_deadline_seconds: float = 10.0
    retry_period_seconds: float = 2.0

    def validate(self) -> list[str]:
        """Return what is wrong, one sentence each; an empty list if nothing is."""
        lease, renewal, retry = self.lease_seconds, self.renew_deadline_seconds, self.retry_period_seconds
        problems = [
            f"{flag}={seconds:g}s must be greater than 0"
            for flag, seconds in ((_LEASE_FLAG, lease), (_RENEW_FLAG, renewal), (_RETRY_FLAG, retry))
            if not (math.isfinite(seconds) and seconds > 0)
        ]
        if problems:
            return problems
        if not lease > renewal:
            problems.append(
                f"{_LEASE_FLAG}={lease:g}s must be longer than {_RENEW_FLAG}={renewal:g}s: "
                "a leader has to give up before a standby takes over"
            )
        if not renewal > _MIN_RENEWALS * retry:
            problems.append(
                f"{_RENEW_FLAG}={renewal:g}s must be longer than {_MIN_RENEWALS} times {_RETRY_FLAG}={retry:g}s: "
                "a leader has to be able to renew before it gives up"
            )
        return problems
