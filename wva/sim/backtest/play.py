"""Plays policies of the registry, WVA with other ConfigMaps, and the recorded replicas in a fitted scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from wva.sim.rivals import POLICIES
from wva.sim.rivals.wva import WvaSetup, wva_policy
from wva.sim.stage.result import RunResult
from wva.sim.stage.run import Policy, play
from wva.sim.stage.scenario import Scenario
from wva.sim.stage.view import StageView

AS_RECORDED: Final = "as recorded"


@dataclass(frozen=True, slots=True)
class AsRecorded:
    """The policy that sets the recorded replicas, step by step."""

    period_seconds: float
    replicas: Mapping[str, Sequence[int]]

    def act(self, stage: StageView, now_seconds: float) -> None:
        """Set every variant to its recorded replicas of this time."""
        for name, row in self.replicas.items():
            stage.scale(name, row[min(int(now_seconds / self.period_seconds), len(row) - 1)])


@dataclass(frozen=True, slots=True)
class Play:
    """Plays a policy by its name: one of ``setups``, the recorded replicas, or one of the registry."""

    setups: Mapping[str, WvaSetup]
    recorded: AsRecorded

    def __call__(self, scenario: Scenario, policy: str, seed: int) -> RunResult:
        """Return the result of one run. Raises KeyError when no policy has this name."""
        return play(scenario, policy, seed, self._policy(policy))

    def _policy(self, name: str) -> Policy:
        if name == AS_RECORDED:
            return lambda _scenario, _seed: [self.recorded]
        setup = self.setups.get(name)
        return POLICIES[name] if setup is None else wva_policy(setup)


def digest(*about: object) -> str:
    """Return a digest of the named setups: runs with other setups are kept in another folder."""
    return blake2b(repr(about).encode(), digest_size=8).hexdigest()
