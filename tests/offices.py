"""The demand of an office, day by day."""

from __future__ import annotations

DAY, HOUR = 86_400.0, 3600.0
NIGHT = 1_700_000_000.0 // DAY * DAY
"""A midnight."""


def office(at, *, night=1.0, day=6.0, opens=9.0, closed=()):
    """Return the demand of an office that opens at an hour, except on some days."""
    hour, number = (at - NIGHT) % DAY / HOUR, (at - NIGHT) // DAY
    return day if opens <= hour < 17.0 and number not in closed else night


def at_hour(day, hour):
    """Return a time."""
    return NIGHT + day * DAY + hour * HOUR
