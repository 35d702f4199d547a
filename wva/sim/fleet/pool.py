"""All replicas of one model behind its gateway, with its load: what happens in which order.

Events are arrivals, replicas becoming ready at a time announced before, and the end of a terminating replica's grace
period. They are handled in order of time; at the same instant the fleet changes first, then requests arrive. A replica
that terminates takes nothing new, finishes what runs and gives its queue back to the gateway at once; what still runs
when its grace period ends is routed anew and counted as retried.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from itertools import count
from math import inf

from wva.sim.fleet.load import ArrivalProcess
from wva.sim.fleet.replica import PodKey, Replica, ReplicaState, VariantSpec
from wva.sim.fleet.router import Router
from wva.sim.fleet.service_log import ServiceLog


class Pool:
    """One model: arrivals, gateway, replicas of all variants, log of what was served."""

    def __init__(self, arrivals: ArrivalProcess, *, router: Router, drain_seconds: float, start_seconds: float) -> None:
        """Start without replicas at ``start_seconds``; a terminating replica gets ``drain_seconds`` to finish."""
        self.arrivals = arrivals
        self.router = router
        self.log = ServiceLog()
        self.arrived = 0
        self.now_seconds = start_seconds
        self.replicas: dict[PodKey, Replica] = {}
        self._drain_seconds = drain_seconds
        self._changes: list[tuple[float, int, Replica]] = []  # heap: due time, order, whom; stale once replanned
        self._order = count()

    def set_pods(self, variant: VariantSpec, *, ready: Mapping[str, float]) -> None:
        """Make exactly these pods the ones of ``variant``: name to the time it is ready, now or later."""
        mine = {key for key, replica in self.replicas.items() if replica.variant.deployment == variant.deployment}
        for key in sorted(mine - {PodKey(variant.namespace, name) for name in ready}):
            self._terminate(self.replicas[key])
        for name, ready_seconds in ready.items():
            key = PodKey(variant.namespace, name)
            replica = self.replicas.get(key)
            if replica is None:
                replica = self.replicas[key] = Replica(variant, pod=name, start_seconds=self.now_seconds)
            elif replica.state is ReplicaState.READY:
                continue
            replica.state = ReplicaState.STARTING
            self._plan(replica, due_seconds=max(ready_seconds, self.now_seconds))
        self._handle_due(self.now_seconds)

    def expect(self, *, tokens_per_sequence: float) -> None:
        """Judge the capacity of the engines by this mean size of a sequence from now on."""
        self.router.tokens_per_sequence = tokens_per_sequence
        self._route(self.now_seconds)

    def advance(self, until_seconds: float) -> None:
        """Handle every event before ``until_seconds`` and bring all replicas there."""
        arrivals = self.arrivals
        while True:
            change_seconds = self._changes[0][0] if self._changes else inf
            at_seconds = min(arrivals.next_seconds, change_seconds)
            if at_seconds >= until_seconds:
                break
            self.now_seconds = at_seconds
            if change_seconds <= at_seconds:
                self._handle_due(at_seconds)
            else:
                self.arrived += 1
                self.router.offer(arrivals.take(), at_seconds=at_seconds)
        self.now_seconds = until_seconds
        for replica in list(self.replicas.values()):
            replica.advance(until_seconds)
            self._collect(replica)

    def _plan(self, replica: Replica, *, due_seconds: float) -> None:
        """Let the current state of ``replica`` end at ``due_seconds``, instead of an earlier plan."""
        if replica.due_seconds != due_seconds:
            replica.due_seconds = due_seconds
            heappush(self._changes, (due_seconds, next(self._order), replica))

    def _handle_due(self, at_seconds: float) -> None:
        while self._changes and self._changes[0][0] <= at_seconds:
            due_seconds, _, replica = heappop(self._changes)
            if replica.due_seconds != due_seconds or self.replicas.get(replica.pod) is not replica:
                continue  # the plan changed meanwhile
            replica.due_seconds = inf
            if replica.state is ReplicaState.STARTING:
                replica.state = ReplicaState.READY
                self._route(at_seconds)
            else:
                self._give_up(replica, at_seconds)

    def _terminate(self, replica: Replica) -> None:
        if replica.state is ReplicaState.DRAINING:
            return
        replica.state = ReplicaState.DRAINING
        self._route(self.now_seconds)
        waiting = [request for engine in replica.engines for request in engine.take_waiting()]
        self.router.offer_again(waiting, at_seconds=self.now_seconds)
        self._plan(replica, due_seconds=self.now_seconds + self._drain_seconds)
        self._collect(replica)

    def _give_up(self, replica: Replica, at_seconds: float) -> None:
        replica.advance(at_seconds)
        unfinished = [request for engine in replica.engines for request in engine.abort()]
        self._collect(replica)
        self.router.offer_again(unfinished, at_seconds=at_seconds)

    def _route(self, at_seconds: float) -> None:
        ready = [replica for replica in self.replicas.values() if replica.state is ReplicaState.READY]
        self.router.use(ready, at_seconds=at_seconds)

    def _collect(self, replica: Replica) -> None:
        """Log what was served; forget a terminating replica once nothing is left in it."""
        for engine in replica.engines:
            for finished in engine.finished:
                self.log.record(finished)
            engine.finished.clear()
        if replica.state is ReplicaState.DRAINING and not replica.unfinished:
            del self.replicas[replica.pod]
