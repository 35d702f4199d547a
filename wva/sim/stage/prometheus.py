"""PromQL on scrapes: the functions that the controller's queries use, each on the samples of one series.

Instants and windows are as in Prometheus: a window of w seconds at t has the samples in (t - w, t]; an instant query
finds the last sample of the last five minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wva.sim.stage.view import Scrape, ScrapedSignal

LOOKBACK_SECONDS: Final = 300.0
_MINIMUM: Final = 2
_NEAR: Final = 1.1
"""So many mean intervals from the edge of the window, a series is taken to begin or end there."""


def latest(scrapes: Sequence[Scrape], now: float) -> Scrape | None:
    """Return the newest scrape of the last five minutes, up to now; None also when it failed."""
    last = next((scrape for scrape in reversed(scrapes) if scrape.at_seconds <= now), None)
    return last if last is not None and last.values and last.at_seconds > now - LOOKBACK_SECONDS else None


def window(scrapes: Sequence[Scrape], now: float, seconds: float) -> list[Scrape]:
    """Return the scrapes of a window that ends now, without those that failed."""
    in_window: list[Scrape] = []
    for scrape in reversed(scrapes):
        if scrape.at_seconds <= now - seconds:
            break
        if scrape.at_seconds <= now and scrape.values:
            in_window.append(scrape)
    in_window.reverse()
    return in_window


def increase(samples: Sequence[Scrape], signal: ScrapedSignal, *, start: float, end: float) -> float | None:
    """Return ``increase`` of a counter over the window (start, end]; None with fewer than two samples.

    Prometheus extrapolates to the edges of the window: by half a mean interval, or to the edge if that is nearer, but
    never below the time at which the counter would have been 0.
    """
    if len(samples) < _MINIMUM:
        return None
    first, last = samples[0], samples[-1]
    value = first.values[signal]
    growth = last.values[signal] - value
    sampled = last.at_seconds - first.at_seconds
    mean_interval = sampled / (len(samples) - 1)
    to_start, to_end = first.at_seconds - start, end - last.at_seconds
    if to_start >= mean_interval * _NEAR:
        to_start = mean_interval / 2
    if growth > 0 and value >= 0:
        to_start = min(to_start, sampled * (value / growth))
    if to_end >= mean_interval * _NEAR:
        to_end = mean_interval / 2
    return growth * (sampled + to_start + to_end) / sampled


def rate(scrapes: Sequence[Scrape], signal: ScrapedSignal, *, now: float, seconds: float) -> float | None:
    """Return ``rate`` of a counter over a window that ends now, per second."""
    growth = increase(window(scrapes, now, seconds), signal, start=now - seconds, end=now)
    return None if growth is None else growth / seconds


def instant_rate(scrapes: Sequence[Scrape], signal: ScrapedSignal, *, now: float, seconds: float) -> float | None:
    """Return ``irate``: the growth between the last two samples of the window, per second."""
    samples = window(scrapes, now, seconds)
    if len(samples) < _MINIMUM:
        return None
    before, last = samples[-2], samples[-1]
    return (last.values[signal] - before.values[signal]) / (last.at_seconds - before.at_seconds)
