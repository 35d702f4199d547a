"""A console of two namespaces that listens on this machine."""

from __future__ import annotations

from collections.abc import Callable

import aiohttp

from tests.builders import NOW, policy, replica, variant
from tests.serve.doubles import Guarded
from wva.decide.pipeline import conclude
from wva.hindsight.cycle import Cycle, Recording
from wva.hindsight.recent import RecentCycles
from wva.hindsight.timeline import Timeline
from wva.model.inventory import NVIDIA_GPU, AcceleratorPool, GpuQuota, Inventory
from wva.model.memory import Memory
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.publish.ledger import Ledger
from wva.serve.console import ConsolePages
from wva.serve.decisions import DecisionPages
from wva.serve.gate import Guard
from wva.serve.pages import routed_handler

GPUS = Inventory.of(
    [AcceleratorPool("A100", 8, 2)],
    [GpuQuota("one", NVIDIA_GPU, 4, 1, "gpus"), GpuQuota("two", NVIDIA_GPU, 2, 2, "secret")],
)


class ConsoleSite:
    """A console, its cycles, and who may see them."""

    def __init__(self, guard: Guard | None = None):
        """Lead, behind a gate unless there is another guard."""
        self.elsewhere = ""
        self.shadows = set()
        self.accounts = {}
        self.conditions = {}
        self.served = {}
        self.guarded = Guarded()
        self.recent, self.timeline = RecentCycles(), Timeline()
        self.pages = ConsolePages(
            self.recent,
            self.timeline,
            elsewhere=lambda: self.elsewhere,
            ledger=Ledger(asked_for_shadow=self.shadows.__contains__),
            accounts=self.accounts.get,
            conditions=lambda key: self.conditions.get(key, ()),
            in_time=self.served.get,
        )
        decisions = DecisionPages(
            self.recent, elsewhere=lambda: self.elsewhere, interval=lambda: 15.0, in_time=self.served.get
        )
        self.handler = routed_handler([decisions, self.pages], gate=guard or self.guarded.gate)
        self.allowed = self.guarded.reviewer.allowed
        self.url = ""

    async def cycle(
        self,
        number=0,
        *,
        variants=None,
        replicas=None,
        kv: float | None = 0.2,
        gpus=GPUS,
        change: Callable | None = None,
        loads=None,
    ):
        """Run a cycle; ``change`` changes each decision, and models have ``loads``."""
        now = NOW + 15 * number
        if variants is None:
            variants = [variant("a", namespace="one"), variant("b", namespace="two")]
            replicas = [replica(kv=kv, namespace="one"), replica("b-0", variant="b", namespace="two")]
        snapshot = replace(Snapshot.of(variants, replicas or []), inventory=gpus)
        outcome = conclude(snapshot, Memory(), policy(), now)
        if change is not None:
            outcome = replace(outcome, decisions=tuple(map(change, outcome.decisions)))
        recording = Recording(now, policy(), Memory(), snapshot, outcome.decisions)
        self.timeline.add(Cycle(recording, replace(outcome, loads=loads or {})))
        await self.recent.keep(recording)

    async def get(self, path, *, user="good", method="GET", headers=None):
        """Return status, headers and the answer, as JSON if it is."""
        sent = {**({"Authorization": f"Bearer {user}"} if user else {}), **(headers or {})}
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, self.url + path, headers=sent) as response,
        ):
            json = response.content_type == "application/json" and method == "GET"
            return response.status, response.headers, await response.json() if json else await response.text()
