"""The parts that depend on leadership: the elector, the client that writes only while leading, and the recorder."""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
import socket
from contextlib import suppress
from typing import Final

from wva.api.kinds import EVENTS, LEASES
from wva.api.meta import Key
from wva.api.variantautoscaling import CONTROLLER_INSTANCE_LABEL, Claimant
from wva.clock import Clock
from wva.config import Settings
from wva.instruments import Instruments
from wva.kube.client import KubeClient
from wva.kube.events import EventRecorder
from wva.kube.informer import Informer
from wva.kube.leader import LeaderElector
from wva.kube.leader_times import Durations
from wva.kube.supervision import Supervisor
from wva.publish.announce import CHANGES

COMPONENT: Final = "workload-variant-autoscaler"
_DRAIN_SECONDS: Final = 2.0

_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_LABEL_CHARACTERS: Final = 63
_MAX_NAME_CHARACTERS: Final = 253
_HASH_CHARACTERS: Final = 16


class Leadership:
    """Knows whether this process may write, and holds the parts that depend only on that.

    ``in_charge`` says whether this process decides and publishes: it leads, and every cache has synced.
    """

    def __init__(
        self, settings: Settings, client: KubeClient, supervisor: Supervisor, *, clock: Clock, instruments: Instruments
    ) -> None:
        """Build the elector if the settings ask for one; without it this process leads as soon as it can."""
        self._instruments = instruments
        self._supervisor = supervisor
        self.in_charge = False
        instruments.leader.set_function(lambda: float(self.in_charge))
        self.identity = f"{socket.gethostname()}_{secrets.token_hex(8)}"
        self.claimant = Claimant(f"{settings.pod_namespace}/{lease_name(settings)}", settings.controller_instance)
        self.client = client
        self.elector: LeaderElector | None = None
        if settings.leader_elect:
            self.elector = LeaderElector(
                client,
                resource=LEASES,
                key=Key(settings.pod_namespace, lease_name(settings)),
                identity=self.identity,
                durations=_durations(settings),
                instruments=instruments,
            )
            self.client = client.with_write_guard(self.elector.may_write)
        self.recorder = EventRecorder(
            self.client,
            component=COMPONENT,
            instance=self.identity,
            resource=EVENTS,
            clock=clock,
            instruments=instruments,
            urgent=CHANGES,
        )
        if self.elector is not None:
            self.elector.recorder = self.recorder
            self.elector.client = client.with_write_guard(self.elector.may_claim)

    def publishes(self) -> bool:
        """Whether this process may show the series; a leader that has not renewed the Lease in time may not."""
        return self.in_charge and (self.elector is None or self.elector.may_write())

    def elsewhere(self) -> str:
        """Return why this process has no decisions, in words; empty while it is in charge."""
        if self.in_charge:
            return ""
        holder = "" if self.elector is None else self.elector.holder
        return f"{holder} leads" if holder not in {"", self.identity} else "this process is starting"

    async def acquire(self, elector: LeaderElector) -> None:
        """Wait until this process leads.

        It watches the Lease meanwhile, and gives the elector each new state, so a standby need not wait until it polls
        the Lease again. Without permission to watch, only the polling sees renewals and a released Lease. One log line
        says so.
        """
        lease = Informer(
            self.client,
            LEASES,
            namespace=elector.key.namespace,
            field_selector=f"metadata.name={elector.key.name}",
            instruments=self._instruments,
            optional=True,
        )
        lease.store.subscribe(lambda _, new: elector.observe(new))
        watch = asyncio.create_task(self._supervisor.keep("lease watch", lease.run))
        try:
            await elector.acquire()
        finally:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch

    async def leave(self) -> None:
        """Send the pending events for a short time, then release the Lease. All writers must have ended before."""
        if self.elector is not None:
            self.elector.say_goodbye()
        await self.recorder.drain(_DRAIN_SECONDS)
        if self.elector is not None:
            await self.elector.release()


def lease_name(settings: Settings) -> str:
    """Return the name of the Lease: one for each controller instance.

    Without an instance it is LEADER_ELECTION_ID. With one it is ``INSTANCE.ID`` if the instance is a DNS label, and
    otherwise ``SLUG.HASH.ID``: label values may have capitals, dots and underscores, which names of objects may not
    have. Two instances never get the same name.
    """
    instance, name = settings.controller_instance, settings.leader_election_id
    if not instance:
        return name
    if _DNS_LABEL.fullmatch(instance):
        return f"{instance}.{name}"
    slug = re.sub(r"[^a-z0-9]+", "-", instance.lower())[:_LABEL_CHARACTERS].strip("-") or "instance"
    digest = hashlib.sha256(instance.encode()).hexdigest()[:_HASH_CHARACTERS]
    return f"{slug}.{digest}.{name}"


def election_problems(settings: Settings) -> list[str]:
    """Return why no leader could ever be elected with these settings, one sentence each."""
    problems = []
    if not _LABEL_VALUE.fullmatch(settings.controller_instance):
        problems.append(
            f"CONTROLLER_INSTANCE={settings.controller_instance!r} cannot be the value of a label, so no variant could "
            f"carry it in {CONTROLLER_INSTANCE_LABEL}: expected at most 63 letters, digits, '-', '_' and '.', with a "
            "letter or digit at both ends"
        )
    if not settings.leader_elect:
        return problems
    name = lease_name(settings)
    if len(name) > _MAX_NAME_CHARACTERS or not all(_DNS_LABEL.fullmatch(part) for part in name.split(".")):
        problems.append(
            f"--leader-election-id={settings.leader_election_id!r} gives the Lease the name {name!r}: expected at most "
            f"{_MAX_NAME_CHARACTERS} lower-case letters, digits, '-' and '.', and a letter or digit at both ends"
        )
    return problems + _durations(settings).validate()


def _durations(settings: Settings) -> Durations:
    return Durations(
        settings.leader_election_lease_duration,
        settings.leader_election_renew_deadline,
        settings.leader_election_retry_period,
    )
