"""Each part of the process can be built from those before it, without the rest and without a server."""

from __future__ import annotations

from functools import cached_property
from random import Random

import pytest
from prometheus_client import CollectorRegistry

from tests.builders import NOW, policy, replica, variant
from tests.live_target import FakeLiveTarget
from wva.app.asking import Asking
from wva.app.deciding import Deciding
from wva.app.election import Leadership
from wva.app.informers import Informers
from wva.app.reconciling import Reconciling
from wva.app.views import Views
from wva.clock import SystemClock
from wva.config import Inputs, load
from wva.config.live import LiveConfiguration
from wva.hindsight.cycle import Recording
from wva.instruments import Instruments
from wva.kube.supervision import Supervisor
from wva.model.memory import Memory
from wva.model.snapshot import Snapshot
from wva.model.variant import VariantKey
from wva.publish.announce import Announcer
from wva.publish.ledger import Ledger

KEY = VariantKey("ns", "a")
GIVEN = Inputs({}, {"PROMETHEUS_BASE_URL": "https://prometheus", "POD_NAMESPACE": "system"}, {})


class Parts:
    """The parts, in the order in which the process builds them; each takes ``common`` and those that it names."""

    def __init__(self, environment=None, **flags):
        """Build what all share."""
        self.settings = load(Inputs(flags, {**GIVEN.environment, **(environment or {})}, {})).settings
        client, shared = FakeLiveTarget(), {"clock": SystemClock(), "instruments": Instruments(CollectorRegistry())}
        self.shared, self.shadows, self.marked = shared, set(), []
        leadership = Leadership(self.settings, client, Supervisor(**shared), **shared)
        informers = Informers(client, settings=self.settings, instruments=shared["instruments"])
        self.ledger = Ledger(asked_for_shadow=self.shadows.__contains__)
        self.informers, self.leadership = informers, leadership
        self.announce = Announcer(informers.stores.variant_autoscalings, leadership.recorder)
        self.configuration = LiveConfiguration(self.settings, GIVEN, refusal=informers.scope.refusal)

    @cached_property
    def asking(self):
        """Return what asks Prometheus, and tells nobody but this test."""
        nobody = lambda _: None  # noqa: E731 - three times the same
        return Asking(
            self.settings,
            ledger=self.ledger,
            revisit=nobody,
            revisit_namespace=nobody,
            mark=nobody,
            random=Random(1),
            **self.shared,
        )

    @cached_property
    def reconciling(self):
        """Return the reconcilers."""
        return Reconciling(
            self.settings,
            leadership=self.leadership,
            informers=self.informers,
            configuration=self.configuration,
            ledger=self.ledger,
            announce=self.announce,
            asking=self.asking,
            certificate=None,
            **self.shared,
        )

    @cached_property
    def views(self):
        """Return the series and pages."""
        return Views(
            self.settings,
            leadership=self.leadership,
            informers=self.informers,
            ledger=self.ledger,
            asking=self.asking,
            reconciling=self.reconciling,
            asked_for_shadow=self.shadows.__contains__,
            interval=lambda: 15.0,
            instruments=self.shared["instruments"],
        )

    @cached_property
    def deciding(self):
        """Return the loops that decide."""
        return Deciding(
            self.settings,
            leadership=self.leadership,
            informers=self.informers,
            configuration=self.configuration,
            ledger=self.ledger,
            announce=self.announce,
            asking=self.asking,
            reconciling=self.reconciling,
            views=self.views,
            around=lambda: None,
            **self.shared,
        )


def cycle(seconds):
    """Return a cycle that decided on one variant."""
    snapshot = Snapshot.of([variant()], [replica(kv=0.2)])
    return Recording(NOW + seconds, policy(), Memory(), snapshot).again()


async def test_a_cycle_that_is_kept_is_recent_and_ends_the_shadow_of_who_asks_for_none_any_more():
    """The ledger hears of it from the accounts, so the number and what it is for change together."""
    parts = Parts()
    views = parts.views
    parts.shadows.add(KEY)
    first = cycle(0)
    parts.ledger.record(first.outcome.decisions)
    await views.keep(first)
    assert views.recent.newest is first.recording
    parts.shadows.clear()
    assert parts.ledger.shadow(KEY)
    await views.keep(cycle(15))
    assert not parts.ledger.shadow(KEY)


async def test_recordings_are_written_where_the_settings_say(tmp_path):
    """Without a folder there are none."""
    await Parts(record_dir=str(tmp_path)).views.keep(cycle(0))
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


@pytest.mark.parametrize(("parallel", "started"), [("0", False), ("4", True)])
def test_the_loops_are_those_that_the_settings_ask_for(parallel, started):
    """Without workers for starts from zero there is no such loop."""
    names = [name for name, _ in Parts({"SCALE_FROM_ZERO_ENGINE_MAX_CONCURRENCY": parallel}).deciding.loops()]
    assert ("scale from zero" in names) is started
    assert names[-5:] == ["optimizer", "fast lane", "background fetch", "in time", "earlier days"]


def test_each_queue_has_a_reconciler():
    """A queue without one would only grow."""
    names = [name for name, _ in Parts().reconciling.loops(Random(1))]
    kinds = ("variantautoscaling", "configmap", "actuation", "other-writers")
    assert names == [f"{kind} controller" for kind in kinds]
