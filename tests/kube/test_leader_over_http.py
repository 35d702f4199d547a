"""The elector and the recorder with the real client, over HTTP, against the embedded API server."""

from __future__ import annotations

import asyncio

import pytest

from wva.api.core import Event, Lease
from wva.api.meta import Key
from wva.api.resource import Resource
from wva.clock import SystemClock
from wva.kube.events import EventRecorder
from wva.kube.leader import Durations, LeaderElector
from wva.sim.apiserver import EmbeddedApiServer

LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", Lease)
EVENTS = Resource("", "v1", "events", "Event", Event)
KEY = Key("default", "72dd1cf1.llm-d.ai")


async def test_leadership_changes_hands_and_both_changes_are_events(kubeconfig, connect, instruments):
    """The first process creates, renews and releases the Lease, and the second one takes it.

    Each change is an Event.
    """
    async with EmbeddedApiServer() as api:
        kubeconfig(api.url)
        async with connect() as client:
            recorder = EventRecorder(
                client, component="wva", instance="test", resource=EVENTS, clock=SystemClock(), instruments=instruments
            )
            durations = Durations(60.0, 50.0, 0.01)
            first, second = (
                LeaderElector(client, LEASES, KEY, identity, durations, instruments=instruments, recorder=recorder)
                for identity in ("first", "second")
            )
            await first.acquire()
            assert first.may_write()
            created = await client.get(LEASES, KEY)
            holding = asyncio.ensure_future(first.hold())
            waiting = asyncio.ensure_future(second.acquire())
            renewed = created
            while renewed.spec.renew_time == created.spec.renew_time:
                renewed = await client.get(LEASES, KEY)
            assert not waiting.done()
            holding.cancel()
            with pytest.raises(asyncio.CancelledError):
                await holding
            first.say_goodbye()
            await first.release()
            await waiting
            assert (first.may_write(), second.may_write()) == (False, True)
            assert (await client.get(LEASES, KEY)).spec.lease_transitions == 1
            await recorder.drain(5.0)
            events = (await client.list(EVENTS, namespace="default")).items
    assert sorted((event.reason, event.message) for event in events) == [
        ("LeaderElection", "first became leader"),
        ("LeaderElection", "first stopped leading"),
        ("LeaderElection", "second became leader"),
    ]
