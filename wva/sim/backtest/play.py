"""Runs in a scenario fitted to a history: policies of the registry, WVA with other ConfigMaps, and what really ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from wva.sim.rivals import POLICIES
from wva.sim.rivals.wva import WvaSetup, controllers
from wva.sim.stage.result import RunResult
from wva.sim.stage.run import figures, timeline
from wva.sim.stage.scenario import Scenario
from wva.sim.stage.view import Controller, Stage
from wva.sim.stage.world import World

AS_RECORDED: Final = "as recorded"


@dataclass(frozen=True, slots=True)
class AsRecorded:
    """Asks for the replicas that really ran, step by step."""

    period_seconds: float
    replicas: Mapping[str, Sequence[int]]

    def act(self, stage: Stage, now_seconds: float) -> None:
        """Set every variant to what ran at this time."""
        for name, row in self.replicas.items():
            stage.scale(name, row[min(int(now_seconds / self.period_seconds), len(row) - 1)])


@dataclass(frozen=True, slots=True)
class Play:
    """Plays a policy by its name: one of ``setups``, the recorded replicas, or one of the registry."""

    setups: Mapping[str, WvaSetup]
    recorded: AsRecorded

    def __call__(self, scenario: Scenario, policy: str, seed: int) -> RunResult:
        """Return the result of one run. Raises KeyError when no policy has this name."""
        world = World(scenario, seed=seed)
        world.run(self._controllers(scenario, policy, seed))
        return RunResult(scenario.name, policy, seed, figures(world), timeline(world))

    @property
    def digest(self) -> str:
        """A name for what the names of policies mean here."""
        return blake2b(repr((sorted(self.setups.items()), self.recorded)).encode(), digest_size=8).hexdigest()

    def _controllers(self, scenario: Scenario, policy: str, seed: int) -> Sequence[Controller]:
        if policy == AS_RECORDED:
            return [self.recorded]
        setup = self.setups.get(policy)
        return POLICIES[policy](scenario, seed) if setup is None else controllers(setup, scenario)
