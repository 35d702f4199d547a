"""What the process shows: the series about variants, and the pages about past cycles."""

from __future__ import annotations

from collections.abc import Callable

from wva.app.asking import Asking
from wva.app.election import Leadership
from wva.app.informers import Informers
from wva.app.marks import mark_changes
from wva.app.reconciling import Reconciling
from wva.config import Settings
from wva.hindsight.cycle import Cycle
from wva.hindsight.recent import RecentCycles
from wva.hindsight.recordings import RecordingWriter
from wva.hindsight.shadow import ShadowAccounts
from wva.hindsight.timeline import Timeline
from wva.instruments import Instruments
from wva.model.variant import VariantKey
from wva.publish.ledger import Ledger
from wva.publish.metrics import SeriesText, VariantCollector
from wva.serve.console import ConsolePages
from wva.serve.decisions import DecisionPages


class Views:
    """The series and the pages, and the cycles that they are made of."""

    def __init__(
        self,
        settings: Settings,
        *,
        leadership: Leadership,
        informers: Informers,
        ledger: Ledger,
        asking: Asking,
        reconciling: Reconciling,
        asked_for_shadow: Callable[[VariantKey], bool],
        interval: Callable[[], float],
        instruments: Instruments,
    ) -> None:
        """Begin without a cycle. ``interval`` returns the seconds from one cycle to the next."""
        self._ledger = ledger
        self._accounts = ShadowAccounts(asked_for_shadow)
        self._timeline = Timeline()
        self.recent = RecentCycles()
        self._writer = RecordingWriter(settings.record_dir) if settings.record_dir else None
        variants = reconciling.variants
        collector = VariantCollector(
            ledger,
            current=variants.current_replicas,
            bounds=variants.bounds,
            statuses=variants.statuses,
            conditions=variants.conditions,
            leading=leadership.publishes,
            accounts=self._accounts.__getitem__,
            role=variants.role,
            in_time=asking.served.of,
            instance=settings.controller_instance,
            aliases=settings.inferno_metric_aliases,
        )
        instruments.registry.register(collector)
        self.series = SeriesText(collector, leading=leadership.publishes)
        mark_changes(self.series, ledger, informers)
        self.decisions = DecisionPages(
            self.recent, elsewhere=leadership.elsewhere, interval=interval, in_time=asking.served.of
        )
        self.console = ConsolePages(
            self.recent,
            self._timeline,
            elsewhere=leadership.elsewhere,
            ledger=ledger,
            accounts=self._accounts.__getitem__,
            conditions=variants.conditions,
            in_time=asking.served.of,
        )

    async def keep(self, cycle: Cycle) -> None:
        """Keep a cycle whose decisions are published."""
        self._accounts.add(cycle)
        self.series.mark(self._accounts.keys)  # they grow without any change of a decision
        self._ledger.settle_shadows(self._accounts.keys)
        self._timeline.add(cycle)
        await self.recent.keep(cycle.recording)
        if self._writer is not None:
            await self._writer.keep(cycle.recording)
