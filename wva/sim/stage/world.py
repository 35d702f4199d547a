"""The stage itself: requests, replicas, pods that start, and scrapes, around the controllers of a policy.

Everything has a phase of its own, drawn from the seed: each pod's scrapes, each controller. Virtual time moves to the
next thing that is due. What the policy does has its effect at that moment; what it sees is what was scraped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from math import ceil, inf
from operator import attrgetter
from random import Random
from typing import Final

from wva.sim.fleet.columns import GONE, ROLES
from wva.sim.fleet.service import ModelService
from wva.sim.stage.faults import Eviction, NoStarts, PrometheusOutage, SlowPods, UnplayableError, UnreadablePod
from wva.sim.stage.gpus import GpuPools, PendingPod
from wva.sim.stage.scenario import DrawnPhases, Scenario, start_up_random
from wva.sim.stage.view import Scrape, StageController, StagePodView, VariantView
from wva.sim.traffic.requests import Traffic

TIMELINE_SECONDS: Final = 30.0
_KEPT_SECONDS: Final = 700.0
"""How long scrapes are kept: the longest window of the queries, and some more."""
_LONG_AGO_SECONDS: Final = -3600.0
"""When the pods were created that serve at the start."""


@dataclass(slots=True, eq=False)
class StageReplica:
    """A pod of the stage that has a node, with its number in the order in which pods got theirs.

    ``ended_seconds`` is None while it exists.
    """

    name: str
    number: int
    variant: str
    row: int
    created_seconds: float
    placed_seconds: float
    ready_seconds: float
    speed: float = 1.0
    """How fast it is relative to its type."""
    terminated_seconds: float | None = None
    ended_seconds: float | None = None
    scrapes: list[Scrape] = field(default_factory=list)


@dataclass(slots=True)
class ScaleRequest:
    """A change of the replicas that are asked for of a variant, at a time: from ``before`` to ``after``."""

    at_seconds: float
    variant: str
    before: int
    after: int


@dataclass(slots=True)
class StageInstant:
    """The stage at an instant: replicas asked for, with a node, and Ready by variant, and requests that wait."""

    at_seconds: float
    asked: tuple[int, ...]
    existing: tuple[int, ...]
    ready: tuple[int, ...]
    waiting: int


def roles_unplayable(scenario: Scenario) -> str | None:
    """Return a sentence that says why no world can play the roles of a scenario; None if it can."""
    for model in scenario.models:
        roles = [setup.role for setup in model.variants]
        if set(roles) - ROLES.keys() or ("" in roles and any(roles)):
            return f"{scenario.name}: all variants of a model say prefill or decode, or none a role: {roles}"
        if sorted(roles, reverse=True) != roles:
            return f"{scenario.name}: the variants for prefill come before those for decode"
        if any(roles) != (model.gateway.transfer is not None):
            return f"{scenario.name}: a gateway has a transfer where the variants have roles, and only there"
    return None


def unplayable(scenario: Scenario) -> str | None:
    """Return a sentence that says why the stage cannot play a scenario; None if it can."""
    for fault in scenario.faults:
        if isinstance(fault, PrometheusOutage | UnreadablePod):
            return f"{scenario.name}: the stage has no {type(fault).__name__}, so only wva demo can play it"
    if reason := roles_unplayable(scenario):
        return reason
    names = [setup.name for setup in scenario.all_variants]
    if len(set(names)) < len(names):
        return f"{scenario.name}: two of its models have a variant of one name"
    standards = {(model.objectives, model.measured_from_seconds) for model in scenario.models}
    if len(standards) > 1:
        return f"{scenario.name}: its models have different objectives, or are measured from different times"
    if scenario.saturation:
        return f"{scenario.name}: policies on the stage read no ConfigMap, so only wva demo can play it"
    return None


class StageWorld:
    """The stage of one model, and beside it those of the scenario's other models. Implements ``view.StageView``."""

    def __init__(
        self, scenario: Scenario, *, seed: int, traffic: Traffic | None = None, pools: GpuPools | None = None
    ) -> None:
        """Begin at virtual time 0, with the scenario's first replicas Ready. ``traffic`` is made from the seed.

        ``pools``: the GPUs of the cluster that this model shares with others; by default those of the scenario.

        Raises:
            UnplayableError: the scenario has something that the stage cannot play.

        """
        if reason := unplayable(scenario):
            raise UnplayableError(reason)
        self.scenario = scenario
        self.traffic = scenario.traffic(seed) if traffic is None else traffic
        parameters = {setup.name: setup.parameters for setup in scenario.variants}
        slow = [fault for fault in scenario.faults if isinstance(fault, SlowPods)]
        engines = (*parameters.values(), *(parameters[fault.variant].at_speed(fault.speed) for fault in slow))
        role_of = {setup.name: ROLES[setup.role] for setup in scenario.variants}
        roles = (*role_of.values(), *(role_of[fault.variant] for fault in slow))
        self.service = ModelService.of(self.traffic, engines, scenario.gateway, roles)
        objectives = scenario.objectives
        self.service.judge(ttft_seconds=objectives.ttft_seconds, itl_seconds=objectives.itl_seconds)
        self.now_seconds = 0.0
        self.replicas: list[StageReplica] = []
        """All that ever existed, in order of creation."""
        self.asked: list[ScaleRequest] = []
        """Changes of spec.replicas."""
        self.wanted: list[ScaleRequest] = []
        """Changes of what a policy asked for, where another controller sets spec.replicas."""
        self.looks: list[tuple[float, float]] = []
        """When a policy looked, and when the newest thing that it could see was scraped."""
        self.moments: list[StageInstant] = []
        self._slow = {fault.variant: (fault.every, row) for row, fault in enumerate(slow, start=len(parameters))}
        self._created = dict.fromkeys(parameters, 0)
        self._setups = {setup.name: (index, setup) for index, setup in enumerate(scenario.variants)}
        self._spec = {setup.name: setup.replicas for setup in scenario.variants}
        self._alive: dict[str, list[StageReplica]] = {setup.name: [] for setup in scenario.variants}
        self._pending: dict[str, list[PendingPod]] = {setup.name: [] for setup in scenario.variants}
        self.pools = GpuPools(scenario.gpus) if pools is None else pools
        self._shown: dict[str, tuple[float, VariantView]] = {}
        """Until when the view of each variant holds unless the variant changes, and the view: some look each second."""
        self._by_name: dict[str, StageReplica] = {}
        self._draining: list[StageReplica] = []
        self._start_up = start_up_random(seed)
        self._losses = Random(f"{seed}/lost-scrapes")
        self._phases = DrawnPhases(seed)
        self._queue_seen: float | None = None
        self._newest_scrape = 0.0
        self._events: list[tuple[float, int, int, object]] = []
        self._order = count()
        for setup in scenario.variants:
            for _ in range(setup.replicas):
                self._create(setup.name, created_seconds=_LONG_AGO_SECONDS)
        if any(self._pending.values()):
            raise UnplayableError(f"{scenario.name}: it begins with more GPUs than there are")
        self.models: tuple[StageWorld, ...] = (
            self,
            *(StageWorld(other, seed=seed, pools=self.pools) for other in scenario.others),
        )
        """The stages of all models of the cluster: this one, then those of the scenario's other models."""

    # -- what a policy sees and does ----------------------------------------------------------------------------------

    @property
    def variants(self) -> Mapping[str, VariantView]:
        """The variants by name, as their objects describe them now."""
        return {name: self._view(name) for name in self._spec}

    def scrapes(self, pod: str) -> Sequence[Scrape]:
        """Return what was scraped of a pod in the last ten minutes, oldest first."""
        replica = self._by_name.get(pod)
        return () if replica is None else replica.scrapes

    def in_flight(self, pod: str) -> int:
        """Return the requests in a Ready pod at this moment."""
        return self.service.load(self._by_name[pod].row)

    def backlog(self, pod: str) -> int:
        """Return the tokens of prompts that the picker has sent to a Ready pod for prefill, and that wait there."""
        return int(self.service.columns.backlog[self._by_name[pod].row])

    def gateway_queue(self) -> float | None:
        """Return the requests that wait at the gateway, as scraped last."""
        return self._queue_seen

    def gateway_waiting(self) -> int:
        """Return the requests that wait at the gateway at this moment."""
        return self.service.at_gateway

    def ask(self, variant: str, replicas: int) -> None:
        """Note that a policy asks for so many replicas."""
        before = next((request.after for request in reversed(self.wanted) if request.variant == variant), None)
        if replicas != before:
            self.wanted.append(
                ScaleRequest(self.now_seconds, variant, self._spec[variant] if before is None else before, replicas)
            )

    def scale(self, variant: str, replicas: int) -> None:
        """Set spec.replicas: pods are created at once, or terminated: those not Ready first, then the youngest."""
        before = self._spec[variant]
        if replicas == before:
            return
        self._spec[variant] = replicas
        self._shown.pop(variant, None)
        self.asked.append(ScaleRequest(self.now_seconds, variant, before, replicas))
        self._fill(variant)
        alive, pending = self._alive[variant], self._pending[variant]
        while pending and len(alive) + len(pending) > replicas:
            self.pools.remove(pending.pop())
        for replica in sorted(alive, key=self._first_to_go)[: max(0, len(alive) + len(pending) - replicas)]:
            self._terminate(replica, self.scenario.drain_seconds)

    # -- time ---------------------------------------------------------------------------------------------------------

    def run(self, *controllers: Sequence[StageController]) -> None:
        """Play the traffic with these controllers; requests that are left at its end are served or given up.

        The first controllers are those of this model, which may look at the other models too; the next ones those of
        the next model.

        Raises:
            UnplayableError: the traffic of one model takes longer than that of another.

        """
        end = self.traffic.duration_seconds
        if any(model.traffic.duration_seconds != end for model in self.models):
            raise UnplayableError(f"{self.scenario.name}: the traffic of its models takes different times")
        for index, model in enumerate(self.models):
            model.begin(controllers[index] if index < len(controllers) else ())
        while (model := min(self.models, key=attrgetter("next_event"))).next_event[0] <= end:
            model.pass_next()
        for model in self.models:
            model.finish(end)

    @property
    def next_event(self) -> tuple[float, int]:
        """When the next event of this model is due, and its rank among events of the same time."""
        return self._events[0][:2]

    def begin(self, controllers: Sequence[StageController]) -> None:
        """Begin this model's time, with these controllers."""
        phases, events = self._phases, self._events
        for controller in controllers:
            first = phases.next_controller(controller.period_seconds)
            heappush(events, (first, 1, next(self._order), controller))
        first = phases.next_controller(self.scenario.observation.scrape_seconds)
        events.append((first, 0, next(self._order), None))
        events += [
            (step * TIMELINE_SECONDS, 2, next(self._order), TIMELINE_SECONDS)
            for step in range(int(self.traffic.duration_seconds / TIMELINE_SECONDS) + 1)
        ]
        events += [
            (fault.at_seconds, 0, next(self._order), fault)
            for fault in self.scenario.faults
            if isinstance(fault, Eviction)
        ]
        heapify(events)

    def pass_next(self) -> None:
        """Advance to the next event of this model, and handle it."""
        at, _, _, event = heappop(self._events)
        self.advance(at)
        self._handle(at, event)

    def finish(self, end: float) -> None:
        """Let the requests that are left at the end be served or given up."""
        self.advance(end)
        for replica in (*self._draining, *(replica for alive in self._alive.values() for replica in alive)):
            replica.ended_seconds = end if replica.ended_seconds is None else replica.ended_seconds
        self.service.advance(end + self.scenario.afterwards_seconds)

    def advance(self, until: float) -> None:
        """Let the requests of this model be served until a time."""
        if until > self.now_seconds:
            self.service.advance(until)
            self.now_seconds = until
            for replica in [replica for replica in self._draining if self.service.phase(replica.row) == GONE]:
                self._end(replica, self.service.ended_seconds(replica.row))

    def _handle(self, at: float, event: object) -> None:
        period = self.scenario.observation.scrape_seconds
        if isinstance(event, StageReplica):
            if event.terminated_seconds is None:
                self._scrape(event, at)
                heappush(self._events, (at + period, 0, next(self._order), event))
        elif event is None:
            self._queue_seen = None if self._lost() else float(self.service.at_gateway)
            heappush(self._events, (at + period, 0, next(self._order), None))
        elif isinstance(event, float):
            self._note(at)
        elif isinstance(event, Eviction):
            self._evict(event)
        else:
            controller: StageController = event  # type: ignore[assignment]  # the only other kind of event
            for model in self.models if getattr(controller, "joint", False) else (self,):
                model.advance(at)
                if getattr(controller, "decides", True):
                    model.note_look(at)
            controller.act(self, at)
            heappush(self._events, (at + controller.period_seconds, 1, next(self._order), controller))

    def note_look(self, at: float) -> None:
        """Note that a policy has looked at this model."""
        self.looks.append((at, self._newest_scrape))

    # -- pods ---------------------------------------------------------------------------------------------------------

    def _fill(self, variant: str) -> None:
        """Create the pods that the workload of a variant lacks."""
        while len(self._alive[variant]) + len(self._pending[variant]) < self._spec[variant]:
            self._create(variant, created_seconds=self.now_seconds)

    def _evict(self, fault: Eviction) -> None:
        pods = [replica for name in fault.variants or self._alive for replica in self._alive[name]]
        ready = sorted(
            (replica for replica in pods if replica.ready_seconds <= self.now_seconds),
            key=lambda replica: replica.created_seconds,
        )
        grace = self.scenario.drain_seconds if fault.grace_seconds is None else fault.grace_seconds
        for replica in ready[: ceil(fault.share * len(ready))]:
            self._terminate(replica, grace)
        for name in fault.variants or self._alive:
            self._fill(name)

    def _create(self, variant: str, *, created_seconds: float) -> None:
        _, setup = self._setups[variant]
        self._created[variant] += 1
        self._shown.pop(variant, None)
        pod = PendingPod(variant, self._created[variant], created_seconds, setup.accelerator, setup.gpus, self._place)
        self._pending[variant].append(pod)
        self.pools.add(pod)

    def _place(self, pod: PendingPod, at_seconds: float) -> None:
        """Give a pod its node, and let it become Ready after its start-up."""
        variant, created_seconds = pod.variant, pod.created_seconds
        self._pending[variant].remove(pod)
        index, setup = self._setups[variant]
        ready_seconds = 0.0 if created_seconds < 0 else self._ready(variant, at_seconds)
        every, slow = self._slow.get(variant, (1, index))
        engine = index if pod.number % every else slow
        row = self.service.add(engine, ready_at_seconds=ready_seconds, rank=(variant, pod.number))
        name = f"{variant}-1-{pod.number:03d}"
        columns = self.service.columns
        speed = setup.parameters.alpha_seconds / float(columns.alpha[columns.variant[row]])
        replica = StageReplica(
            name, len(self.replicas), variant, row, created_seconds, at_seconds, ready_seconds, speed
        )
        self.replicas.append(replica)
        self._alive[variant].append(replica)
        self._shown.pop(variant, None)
        self._by_name[name] = replica
        observation = self.scenario.observation
        period = observation.scrape_seconds
        offset = self._phases.scrapes(name, period)
        found_seconds = ready_seconds + (observation.discovery_seconds if ready_seconds else 0.0)
        first = offset + period * ceil((found_seconds - offset) / period)
        heappush(self._events, (first, 0, next(self._order), replica))

    def _ready(self, variant: str, at_seconds: float) -> float:
        """Return when a pod that gets its node now becomes Ready."""
        ready = at_seconds + self._setups[variant][1].start_up.draw(self._start_up)
        for fault in self.scenario.faults:
            if isinstance(fault, NoStarts) and fault.variant == variant and fault.from_seconds <= ready:
                ready = max(ready, fault.until_seconds)
        return ready

    def _terminate(self, replica: StageReplica, grace_seconds: float) -> None:
        self._alive[replica.variant].remove(replica)
        self._shown.pop(replica.variant, None)
        replica.terminated_seconds = self.now_seconds
        self.service.terminate(replica.row, grace_seconds=grace_seconds)
        self._draining.append(replica)
        if self.service.phase(replica.row) == GONE:
            self._end(replica, self.now_seconds)

    def _end(self, replica: StageReplica, at_seconds: float) -> None:
        replica.ended_seconds = max(at_seconds, replica.terminated_seconds or 0.0)
        self._draining.remove(replica)
        self.service.forget(replica.row)
        setup = self._setups[replica.variant][1]
        self.pools.give(setup.accelerator, setup.gpus, self.now_seconds)

    def _first_to_go(self, replica: StageReplica) -> tuple[bool, int]:
        return replica.ready_seconds <= self.now_seconds, -replica.number

    def _view(self, name: str) -> VariantView:
        now = self.now_seconds
        until, shown = self._shown.get(name, (now, None))
        if shown is not None and now < until:
            return shown
        _, setup = self._setups[name]
        view = VariantView(
            name=name,
            accelerator=setup.accelerator,
            price=setup.price,
            minimum=setup.minimum,
            maximum=setup.maximum,
            max_num_seqs=setup.parameters.max_num_seqs,
            kv_cache_tokens=setup.parameters.kv_cache_tokens,
            replicas=self._spec[name],
            pods=(
                *(
                    StagePodView(
                        replica.name,
                        replica.created_seconds,
                        replica.ready_seconds if replica.ready_seconds <= now else None,
                    )
                    for replica in self._alive[name]
                ),
                *(
                    StagePodView(f"{name}-1-{pod.number:03d}", pod.created_seconds, None, placed=False)
                    for pod in self._pending[name]
                ),
            ),
            gpus=setup.gpus,
            role=setup.role,
        )
        until = min(
            (replica.ready_seconds for replica in self._alive[name] if replica.ready_seconds > now), default=inf
        )
        self._shown[name] = until, view
        return view

    # -- watching -----------------------------------------------------------------------------------------------------

    def _lost(self) -> bool:
        share = self.scenario.observation.lost_share
        return share > 0 and self._losses.random() < share

    def _scrape(self, replica: StageReplica, at: float) -> None:
        replica.scrapes.append(Scrape(at, () if self._lost() else self.service.scrape(replica.row)))
        self._newest_scrape = at
        if replica.scrapes[0].at_seconds < at - _KEPT_SECONDS:
            del replica.scrapes[0]

    def _note(self, at: float) -> None:
        alive = [self._alive[name] for name in self._spec]
        self.moments.append(
            StageInstant(
                at,
                asked=tuple(self._spec.values()),
                existing=tuple(len(replicas) for replicas in alive),
                ready=tuple(sum(replica.ready_seconds <= at for replica in replicas) for replicas in alive),
                waiting=self.service.waiting,
            )
        )
