"""What WVA asks Prometheus besides the queries of a cycle: whether it answers at all, and what the users get."""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random

from wva.app.first_answer import FirstAnswer
from wva.clock import Clock
from wva.collect.in_time import ServedUsers
from wva.collect.query_failures import QueryFailures
from wva.config import Settings
from wva.instruments import Instruments
from wva.model.variant import VariantKey
from wva.prometheus.client import CLOCK_TOLERANCE_SECONDS, PrometheusClient
from wva.prometheus.settings import PrometheusSettings
from wva.publish.ledger import Ledger


class Asking:
    """The connection to Prometheus, and what WVA knows of its answers."""

    def __init__(
        self,
        settings: Settings,
        *,
        ledger: Ledger,
        revisit: Callable[[VariantKey], None],
        revisit_namespace: Callable[[str], None],
        mark: Callable[[Collection[VariantKey]], None],
        random: Random,
        clock: Clock,
        instruments: Instruments,
    ) -> None:
        """Connect at the first query. ``random`` spreads retries.

        ``revisit`` and ``revisit_namespace`` let statuses be computed again, ``mark`` lets the series of variants be
        rendered again.
        """
        self.random = random
        self.client = PrometheusClient(
            PrometheusSettings.of(settings),
            clock=clock,
            instruments=instruments,
            random=random,
            clock_tolerance_seconds=CLOCK_TOLERANCE_SECONDS,
        )
        self.first_answer = FirstAnswer(self.client, clock=clock)
        self.failures = QueryFailures(clock, revisit=revisit_namespace)
        self.served = ServedUsers(
            prometheus=self.client,
            decisions=ledger.decisions,
            clock=clock,
            note=self.failures.note,
            tell=mark,
            revisit=revisit,
        )
