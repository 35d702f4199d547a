"""One scenario on the stage and in the embedded world, with the same phases."""

from __future__ import annotations

import asyncio

from wva.config import Inputs
from wva.hindsight.recordings import read_recording
from wva.sim.commands.demo import play
from wva.sim.rivals.wva import SETUPS, controllers
from wva.sim.stage.run import figures
from wva.sim.stage.scenario import DrawnPhases
from wva.sim.stage.world import StageWorld
from wva.sim.world.clock import EPOCH_SECONDS
from wva.sim.world.world import EmbeddedWorld

COST, SHARE = 0.03, 0.02
"""So far may the two be apart: a share of the cost, and a share of the users."""


async def nothing():
    """Do nothing after a scrape."""


class StageRun:
    """A run of the default policy on the stage, with the snapshot of each cycle by its time."""

    def __init__(self, scenario, *, seed):
        """Play it."""
        self.snapshots = {}
        cycles, *others = controllers(SETUPS["wva"], scenario)
        seen = cycles.snapshot

        def noted(stage, now):
            self.snapshots[now] = found = seen(stage, now)
            return found

        cycles.snapshot = noted
        world = StageWorld(scenario, seed=seed)
        world.run([cycles, *others])
        found = figures(world)
        self.cost, self.share, self.ideal = found.cost, found.attainment, found.ideal_cost
        self.wanted = {}
        for change in world.wanted:
            self.wanted.setdefault(change.variant, []).append((change.at_seconds, change.after))


class EmbeddedRun:
    """The same in the embedded world: the whole controller, with its watches, queries and pages."""

    def __init__(self, scenario, folder, *, seed):
        """Play it; the controller records its newest cycles in a folder."""
        world = EmbeddedWorld(scenario, seed=seed, phases=DrawnPhases(seed))
        end = world.traffic.duration_seconds
        asyncio.run(play(world, duration_seconds=end, tick=nothing, inputs=Inputs({"record_dir": str(folder)}, {}, {})))
        self.cost = world.timeline.total_cost
        world.fleet.advance(end + scenario.afterwards_seconds)
        model = world.model
        self.share = model.served.attainment * model.served.requests / model.arrived
        recordings = [read_recording(path.read_bytes()) for path in folder.iterdir()]
        self.snapshots = {each.now - EPOCH_SECONDS: each.snapshot for each in recordings}
        self.wanted = {}
        for entry in world.timeline.decisions:
            found = self.wanted.setdefault(entry.variant, [])
            if not found or found[-1][1] != entry.desired:
                found.append((entry.at_seconds, entry.desired))
