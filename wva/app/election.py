"""Who leads: the elector, the client that writes only while leading, and the recorder of events."""

from __future__ import annotations

import secrets
import socket
from typing import Final

from wva.api.kinds import EVENTS, LEASES
from wva.api.meta import Key
from wva.app.environment import Environment
from wva.kube.client import KubeClient
from wva.kube.events import EventRecorder
from wva.kube.leader import Durations, LeaderElector

COMPONENT: Final = "workload-variant-autoscaler"


class Leadership:
    """Whether this process may write, and everything that depends on nothing else."""

    def __init__(self, environment: Environment) -> None:
        """Build the elector if the settings ask for one; without it this process leads as soon as it can."""
        self._instruments = environment.instruments
        self._in_charge = False
        self.identity = f"{socket.gethostname()}_{secrets.token_hex(8)}"
        self.elector = _elector(environment, self.identity) if environment.settings.leader_elect else None
        client = environment.client
        self.client: KubeClient = client if self.elector is None else client.with_write_guard(self.elector.may_write)
        self.recorder = EventRecorder(
            self.client,
            component=COMPONENT,
            instance=self.identity,
            resource=EVENTS,
            clock=environment.clock,
            instruments=environment.instruments,
        )
        if self.elector is not None:
            self.elector.recorder = self.recorder

    @property
    def in_charge(self) -> bool:
        """Whether this process decides and publishes: it leads, and every cache has synced."""
        return self._in_charge

    def set_in_charge(self, in_charge: bool) -> None:  # noqa: FBT001 - it is the state
        """Say whether this process decides and publishes from now on."""
        self._in_charge = in_charge
        self._instruments.leader.set(1 if in_charge else 0)

    def publishes(self) -> bool:
        """Whether the series may be shown: not by a leader that stood still past its deadline and does not know yet."""
        return self._in_charge and (self.elector is None or self.elector.may_write())


def _elector(environment: Environment, identity: str) -> LeaderElector:
    settings = environment.settings
    durations = Durations(
        settings.leader_election_lease_duration,
        settings.leader_election_renew_deadline,
        settings.leader_election_retry_period,
    )
    return LeaderElector(
        environment.client,
        resource=LEASES,
        key=Key(settings.pod_namespace, settings.leader_election_id),
        identity=identity,
        durations=durations,
        instruments=environment.instruments,
    )
