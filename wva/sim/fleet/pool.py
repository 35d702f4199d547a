"""All replicas of one model behind its gateway, with its load, in virtual time that never ends.

A pod is an engine row of ``ModelService`` for each of its data-parallel engines. Requests get a row when they are about
to arrive; it is used again when the result has been logged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from wva.sim.fleet.columns import (
    BROKEN,
    DRAINING,
    GONE,
    LIST_DONE_FIRST,
    LIST_DONE_LAST,
    LIST_GATEWAY_FIRST,
    LIST_UPCOMING_FIRST,
    LIST_UPCOMING_LAST,
    NONE,
    READY,
    REFUSED,
    RETRYING,
    ROLES,
    SERVED,
    STARTING,
    TIMED_OUT,
    TOTAL_ARRIVED,
    TOTAL_RETRIED,
)
from wva.sim.fleet.engine import EngineSample, finished, sample, write_request
from wva.sim.fleet.load import Arrivals
from wva.sim.fleet.parameters import EngineParameters
from wva.sim.fleet.replica import PodKey, PoolVariant, ReplicaState
from wva.sim.fleet.requests import UserRequest
from wva.sim.fleet.service import ModelService
from wva.sim.fleet.service_log import ServiceLog
from wva.sim.fleet.users import GatewaySettings

_ROWS: Final = 1024
"""By how many rows of requests the columns grow, and how many requests are written at once."""
_STATES: Final = {STARTING: ReplicaState.STARTING, READY: ReplicaState.READY, DRAINING: ReplicaState.DRAINING}


@dataclass(frozen=True, slots=True)
class ReplicaPod:
    """A pod: the rows of its engines, one for each data-parallel rank."""

    pod: PodKey
    variant: PoolVariant
    rows: tuple[int, ...]


class ModelPool:
    """One model: arrivals, gateway, replicas of all variants, log of what was served."""

    def __init__(
        self, arrivals: Arrivals, *, settings: GatewaySettings, drain_seconds: float, start_seconds: float
    ) -> None:
        """Start without replicas at ``start_seconds``; a pod that terminates gets ``drain_seconds`` to finish.

        Raises:
            ValueError: pods have roles, and prompts begin alike.

        """
        self.arrivals = arrivals
        self.log = ServiceLog()
        self.replicas: dict[PodKey, ReplicaPod] = {}
        self.failed = dict.fromkeys((TIMED_OUT, REFUSED, BROKEN), 0)
        """Requests that ended without an answer, by the state they ended in."""
        if settings.transfer is not None and arrivals.load.groups:
            raise ValueError("prompts begin alike: where pods have roles there is no prefix cache")
        self._service = ModelService(settings, groups=arrivals.load.groups, start_seconds=start_seconds)
        self._in_roles = settings.transfer is not None
        self._drain_seconds = drain_seconds
        self._tokens_per_sequence = arrivals.load.resident_tokens
        self._kinds: list[tuple[EngineParameters, int]] = []  # by row of the variant, with their roles
        self._requests: dict[int, UserRequest] = {}  # by row
        self._free: list[int] = []
        self._service.advance(start_seconds)

    # -- pods -------------------------------------------------------------------------------------------------------

    def set_pods(self, variant: PoolVariant, *, ready: Mapping[str, float]) -> None:
        """Make exactly these pods the ones of ``variant``: name to the time it is ready, now or later."""
        present = {key for key, replica in self.replicas.items() if replica.variant.deployment == variant.deployment}
        for key in sorted(present - {PodKey(variant.namespace, name) for name in ready}):
            self._terminate(self.replicas[key])
        for name, ready_seconds in ready.items():
            replica = self.replicas.get(PodKey(variant.namespace, name))
            if replica is None:
                self._add(variant, PodKey(variant.namespace, name), ready_seconds)
            elif self.state(replica) is not ReplicaState.READY:
                for row in replica.rows:
                    self._service.start(row, ready_at_seconds=ready_seconds)
        self._service.settle()
        self._collect()

    def _add(self, variant: PoolVariant, pod: PodKey, ready_seconds: float) -> None:
        kind = self._kind(variant.parameters, ROLES[variant.role])
        rows = tuple(
            self._service.add(kind, ready_at_seconds=ready_seconds, rank=(variant.deployment, pod.name, rank))
            for rank in range(variant.data_parallel_size)
        )
        self.replicas[pod] = ReplicaPod(pod, variant, rows)

    def _kind(self, parameters: EngineParameters, role: int) -> int:
        if (parameters, role) not in self._kinds:
            capacity = parameters.concurrent_sequences(tokens_per_sequence=self._tokens_per_sequence)
            self._service.add_variant(parameters, capacity=capacity, role=role)
            self._kinds.append((parameters, role))
        return self._kinds.index((parameters, role))

    def _terminate(self, replica: ReplicaPod) -> None:
        if self.state(replica) is not ReplicaState.DRAINING:
            for row in replica.rows:
                self._service.terminate(row, grace_seconds=self._drain_seconds)

    def state(self, replica: ReplicaPod) -> ReplicaState:
        """Return where a pod is in its life; one with an engine that has ended is about to go."""
        phases = {self._service.phase(row) for row in replica.rows}
        return ReplicaState.DRAINING if len(phases) > 1 else _STATES.get(phases.pop(), ReplicaState.DRAINING)

    def samples(self, replica: ReplicaPod) -> list[EngineSample]:
        """Return what the page of a pod shows of each of its engines."""
        return [sample(self._service.columns, self._service.handle, row) for row in replica.rows]

    def kv_cache_usages(self, replica: ReplicaPod) -> list[float]:
        """Return the share of KV blocks in use of each engine of a pod."""
        return [self._service.kv_cache_usage(row) for row in replica.rows]

    def running(self, replica: ReplicaPod) -> int:
        """Return the sequences in the batches of a pod."""
        return sum(int(self._service.columns.running[row]) for row in replica.rows)

    def waiting(self, replica: ReplicaPod) -> int:
        """Return the requests in the queues of a pod, including those whose KV cache is on the way."""
        columns = self._service.columns
        return sum(int(columns.waiting[row] + columns.deferred[row]) for row in replica.rows)

    # -- users and gateway ------------------------------------------------------------------------------------------

    def expect(self, *, tokens_per_sequence: float) -> None:
        """Judge the capacity of the engines by this mean size of a sequence from now on."""
        self._tokens_per_sequence = tokens_per_sequence
        for row, (parameters, _) in enumerate(self._kinds):
            capacity = parameters.concurrent_sequences(tokens_per_sequence=tokens_per_sequence)
            self._service.columns.capacity[row] = capacity

    @property
    def now_seconds(self) -> float:
        """The time that it has reached."""
        return self._service.now_seconds

    @property
    def arrived(self) -> int:
        """Requests that have arrived, each counted once."""
        return int(self._service.columns.totals[TOTAL_ARRIVED])

    @property
    def retried(self) -> int:
        """Attempts beyond the first."""
        return int(self._service.columns.totals[TOTAL_RETRIED])

    @property
    def retrying(self) -> int:
        """Requests that their users will send again in a moment."""
        return sum(int(self._service.columns.state[row]) == RETRYING for row in self._requests)

    @property
    def queued(self) -> int:
        """Requests that wait at the gateway for a Ready replica."""
        return self._service.at_gateway

    @property
    def queued_prompt_tokens(self) -> int:
        """Tokens of the prompts that wait there."""
        columns = self._service.columns
        tokens, row = 0, int(columns.lists[LIST_GATEWAY_FIRST])
        while row != NONE:
            tokens += int(columns.prompt[row])
            row = int(columns.after[row])
        return tokens

    # -- time -------------------------------------------------------------------------------------------------------

    def advance(self, until_seconds: float) -> None:
        """Handle every event before ``until_seconds`` and bring all replicas there."""
        while self.now_seconds < until_seconds:
            self._receive(until_seconds)
            self._service.advance(min(until_seconds, self.arrivals.next_seconds))
            self._collect()

    def _receive(self, until_seconds: float) -> None:
        """Write down the next requests that arrive before ``until_seconds``, a limited number at once."""
        for _ in range(_ROWS):
            if self.arrivals.next_seconds >= until_seconds:
                break
            if not self._free:
                self._free = self._new_rows()
            row = self._free.pop()
            self._requests[row] = request = self.arrivals.take()
            columns = self._service.columns
            write_request(columns, row, request)
            last = columns.lists[LIST_UPCOMING_LAST]
            columns.before[row], columns.after[row] = last, NONE
            if last == NONE:
                columns.lists[LIST_UPCOMING_FIRST] = row
            else:
                columns.after[last] = row
            columns.lists[LIST_UPCOMING_LAST] = row

    def _new_rows(self) -> list[int]:
        """Return new rows for requests; where there are roles, each has a twin for its prompt."""
        count = len(self._service.columns.prompt)
        self._service.more_requests(2 * _ROWS if self._in_roles else _ROWS)
        if self._in_roles:
            for row in range(count, count + _ROWS):
                self._service.columns.twin[row] = row + _ROWS
                self._service.columns.twin[row + _ROWS] = row
        return list(range(count + _ROWS - 1, count - 1, -1))

    def _collect(self) -> None:
        """Log how requests ended; forget pods that have ended."""
        columns = self._service.columns
        row = int(columns.lists[LIST_DONE_FIRST])
        columns.lists[LIST_DONE_FIRST] = columns.lists[LIST_DONE_LAST] = NONE
        while row != NONE:
            request, state = self._requests.pop(row), int(columns.state[row])
            if state == SERVED:
                self.log.record(finished(columns, row, request))
            else:
                self.failed[state] += 1
            self._free.append(row)
            row = int(columns.after[row])
        for replica in list(self.replicas.values()):
            if all(self._service.phase(engine_row) == GONE for engine_row in replica.rows):
                del self.replicas[replica.pod]
                for engine_row in replica.rows:
                    self._service.forget(engine_row)
