"""A closed loop around ``decide`` for a model in roles: prefill pods compute the prompts, decode pods the answers.

The load is a flow of equal requests. Each request is at a prefill pod first, whose answer has one token, and then at a
decode pod. Both count it. Prometheus scrapes each pod at a phase of its own. Times are in seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.builders import NOW, variant
from tests.decide.measure.pods import NONE
from wva.collect.scrape_intervals import ScrapeIntervals
from wva.decide.pipeline import decide
from wva.decide.start import activate, roles_to_start
from wva.model.decision import Decision
from wva.model.inventory import AcceleratorPool, Inventory
from wva.model.memory import Memory
from wva.model.metrics import EngineCounters, EngineSignals, Freshness, ReplicaMetrics, Sample, SampleState
from wva.model.objectives import AskedObjectives
from wva.model.policy import Policy
from wva.model.records import replace
from wva.model.snapshot import RequestCounts, Snapshot
from wva.model.variant import Bounds, ModelKey, Variant, VariantKey
from wva.model.vllm_parameters import VllmParameters

CYCLE_SECONDS: Final = 15.0
START_SECONDS: Final = 60.0
PROMPT, ANSWER = 1600.0, 400.0
PER_TOKEN: Final = 1e-4
BASE, SLOPE = 0.02, 0.0002
PREFILL, DECODE = "prefill", "decode"
KV_TOKENS: Final = {PREFILL: 400_000.0, DECODE: 57_600.0}
_TICK_SECONDS: Final = 1.0


@dataclass
class RolePod:
    """A pod of one role, and its last scrapes: when, its counters, and the requests in it."""

    name: str
    role: str
    created: float
    ready_since: float
    phase: float
    prompt: float = PROMPT
    handover: float = 0.0
    counters: EngineCounters = NONE
    inside: float = 0.0
    running: float = 0.0
    scrapes: list[tuple[EngineCounters, float, float]] = field(default_factory=list)

    def serve(self, arrived: float, seconds: float) -> float:
        """Take requests in, and return those that it gets through."""
        self.inside += arrived
        finished = self._prefill(seconds) if self.role == PREFILL else self._decode(seconds)
        self.inside -= finished
        return finished

    def _prefill(self, seconds: float) -> float:
        """Compute the prompts that came during a step together in the next one."""
        service = PER_TOKEN * self.prompt
        finished = min(self.inside, seconds / service)
        busy = min(0.95, finished * service / seconds)
        shared = busy * busy / (1.0 + self.prompt / VllmParameters().batched_tokens)
        took = min(service / (1.0 - shared), PER_TOKEN * VllmParameters().batched_tokens)
        self.running = min(self.inside, took * finished / seconds)
        old = self.counters
        self.counters = replace(
            old,
            finished=old.finished + finished,
            prompt_tokens=old.prompt_tokens + finished * self.prompt,
            prompts=old.prompts + finished,
            prefill_seconds=old.prefill_seconds + finished * took,
            answer_tokens=old.answer_tokens + finished,
            answers=old.answers + finished,
        )
        return finished

    def _decode(self, seconds: float) -> float:
        """Compute steps for all that fit; the prompts are in the cache already."""
        batch = self.running = min(self.inside, KV_TOKENS[DECODE] / (self.prompt + ANSWER / 2.0))
        finished = seconds * batch / (ANSWER * (BASE + SLOPE * batch))
        old = self.counters
        self.counters = replace(
            old,
            finished=old.finished + finished,
            prompts=old.prompts + finished,
            answer_tokens=old.answer_tokens + finished * ANSWER,
            answers=old.answers + finished,
            gap_seconds=old.gap_seconds + batch * seconds,
            gaps=old.gaps + finished * ANSWER,
            first_seconds=old.first_seconds + finished * self.handover,
        )
        return finished

    def scraped(self, now: float) -> None:
        """Keep what a scrape at ``now`` finds."""
        self.scrapes.append((replace(self.counters, at=NOW + now), self.running, max(0.0, self.inside - self.running)))


@dataclass
class SteppingEngine:
    """A prefill engine whose prompts come by chance. A step computes those that wait, as far as they fit."""

    prompt: float
    varied: float  # the squared variation of the lengths of prompts
    random: Random
    now: float = 0.0
    next: float = 0.0
    queue: list[tuple[float, float]] = field(default_factory=list)  # when each began, if it did, and its tokens left
    waited: float = 0.0
    counters: EngineCounters = NONE

    @property
    def waiting(self) -> float:
        """Return how many have not begun."""
        return float(sum(begun < 0.0 for begun, _ in self.queue))

    def run(self, *, until: float, rate: float) -> None:
        """Take prompts in at this rate (per second), and compute them."""
        while self.now < until:
            self._take(rate)
            if not self.queue:
                self.now = self.next
                continue
            left, rest, computed = float(VllmParameters().batched_tokens), [], []
            for begun, tokens in self.queue:
                part = min(left, tokens)
                left -= part
                told = (self.now if part and begun < 0.0 else begun, tokens - part)
                (computed if part == tokens else rest).append(told)
            self.now += PER_TOKEN * (VllmParameters().batched_tokens - left)
            self.queue = rest
            old = self.counters
            self.counters = replace(
                old,
                prompts=old.prompts + len(computed),
                prefill_seconds=old.prefill_seconds + sum(self.now - begun for begun, _ in computed),
                prompt_tokens=old.prompt_tokens + VllmParameters().batched_tokens - left,
            )

    def _take(self, rate: float) -> None:
        while self.next <= self.now:
            shape = 1.0 / self.varied if self.varied else 0.0
            tokens = self.prompt * (self.random.gammavariate(shape, 1.0 / shape) if shape else 1.0)
            self.queue.append((-1.0, max(1.0, tokens)))
            self.next += self.random.expovariate(rate)


@dataclass
class RolesLoop:
    """One run: ``interval`` is that of the scrapes, ``rate`` the load in requests per second at a time.

    ``untold``: the query about the time of prompts has no answer. ``asked`` is what variants say of objectives.
    ``named``: the variants say their roles. ``prompt`` is the length of prompts from now on, ``handover`` how
    long first tokens take at decode pods. ``numbers`` has the numbers of prefill and decode of each cycle with its
    time. ``maxima`` are those of the scalers, and ``gpus`` has the GPUs that there are for each role by role, or for
    both together under the name of prefill; a pod takes one. With a ``retention`` in seconds the model may go to zero,
    and requests that wait at the gateway start it.
    """

    interval: float
    rate: Callable[[float], float]
    seed: int = 0
    named: bool = True
    prompt: float = PROMPT
    handover: float = 0.0
    untold: bool = False
    asked: Mapping[str, AskedObjectives] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)
    maxima: Mapping[str, int] = field(default_factory=dict)
    gpus: Mapping[str, int] = field(default_factory=dict)
    replicas: tuple[int, int] = (1, 1)
    retention: float | None = None
    pods: list[RolePod] = field(default_factory=list)
    numbers: list[tuple[float, int, int]] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)
    intervals: ScrapeIntervals = field(default_factory=ScrapeIntervals)

    def __post_init__(self) -> None:
        """Begin with pods that serve."""
        self._random = Random(f"{self.seed}/roles")
        self._made, self._now = 0, 0.0
        self._waiting = dict.fromkeys((PREFILL, DECODE), 0.0)
        self._finished: list[float] = []
        self._started: float | None = None
        self._next = self._random.random() * CYCLE_SECONDS
        for role, count in zip((PREFILL, DECODE), self.replicas, strict=True):
            for _ in range(count):
                self._create(role, -START_SECONDS, 0.0)

    def run(self, seconds: float) -> RolesLoop:
        """Run until so many seconds after the begin of the load, which the controller begins with."""
        while self._now < seconds:
            self._now += _TICK_SECONDS
            now = self._now
            come = self.rate(now) * _TICK_SECONDS
            for role in (PREFILL, DECODE):
                come = self._serve(role, come)
            self._finished.append(come)
            for pod in self.pods:
                if pod.ready_since < now and (now - pod.phase) % self.interval < _TICK_SECONDS:
                    pod.scraped(now)
            if not self.pods and self._waiting[PREFILL] >= 1.0:
                self._start(now)
            if now >= self._next:
                self._next += CYCLE_SECONDS
                self._cycle(now)
        return self

    def _serve(self, role: str, come: float) -> float:
        """Serve requests that come to a role, and return those that pass it. They wait in front of it without pods."""
        ready = [pod for pod in self.pods if pod.role == role and pod.ready_since < self._now]
        come += self._waiting[role]
        self._waiting[role] = 0.0 if ready else come
        for pod in ready:
            pod.prompt, pod.handover = self.prompt, self.handover
        return sum([pod.serve(come / len(ready), _TICK_SECONDS) for pod in ready])

    def _start(self, now: float) -> None:
        """Start the model from zero, as the loop does that looks at the gateway."""
        roles = {role: [self._variant(role, now)] for role in (PREFILL, DECODE)}
        for role in sorted(roles_to_start(roles)):
            found = activate(roles[role], self._waiting[PREFILL])
            assert isinstance(found, Decision)
            for _ in range(found.desired):
                self._create(role, now, now + START_SECONDS)
        numbers = Counter(pod.role for pod in self.pods)
        self.numbers.append((now, numbers[PREFILL], numbers[DECODE]))
        self._started = NOW + now

    def pairs(self, begin: float = 0.0) -> list[tuple[int, int]]:
        """Return the pairs of numbers since a time, without repetition."""
        pairs = [(prefill, decode) for at, prefill, decode in self.numbers if at >= begin]
        return [pair for place, pair in enumerate(pairs) if not place or pair != pairs[place - 1]]

    def state(self) -> tuple[list[Variant], list[ReplicaMetrics]]:
        """Return what a cycle sees now."""
        now = self._now
        variants = [self._variant(role, now) for role in (PREFILL, DECODE)]
        return variants, [self._told(pod, now) for pod in self.pods if pod.ready_since < now]

    def _create(self, role: str, created: float, ready_since: float) -> None:
        phase = self._random.random() * self.interval
        self.pods.append(RolePod(f"{role}-{self._made:03d}", role, created, ready_since, phase))
        self._made += 1

    def _cycle(self, now: float) -> None:
        seen = replace(Snapshot.of(*self.state()), inventory=self._inventory(), request_counts=self._counts())
        found, self.memory = decide(seen, self.memory, self.policy, NOW + now)
        numbers = {decision.key.name: decision.desired for decision in found}
        self.numbers.append((now, numbers[PREFILL], numbers[DECODE]))
        self.decisions += found
        for role, number in numbers.items():
            own = [pod for pod in self.pods if pod.role == role]
            for _ in range(number - len(own)):
                self._create(role, now, now + START_SECONDS)
            for pod in own[number:]:
                self.pods.remove(pod)

    def _counts(self) -> tuple[RequestCounts, ...]:
        """Return the requests of the retention period; parts of a request are none."""
        if self.retention is None:
            return ()
        finished = float(round(sum(self._finished[-int(self.retention) :])))
        inside = float(round(sum([pod.inside for pod in self.pods]) + sum(self._waiting.values())))
        covered = min(self._now, self.retention)
        return (RequestCounts(ModelKey("ns", "m"), self.retention, finished, inside, covered_seconds=covered),)

    def _inventory(self) -> Inventory | None:
        """Return the GPUs, None if they are not counted. Pods without a GPU do not run, and there are none."""
        pods = Counter(role if role in self.gpus else PREFILL for role in [pod.role for pod in self.pods])
        pools = [AcceleratorPool(role.upper(), count, pods[role]) for role, count in self.gpus.items()]
        return Inventory.of(pools, []) if pools else None

    def _variant(self, role: str, now: float) -> Variant:
        own = [pod for pod in self.pods if pod.role == role]
        unready = [NOW + pod.created for pod in own if pod.ready_since >= now]
        place = 1 if role == PREFILL else 2
        return replace(
            variant(role, replicas=len(own), desired=self.numbers[-1][place] if self.numbers else None),
            parameters=VllmParameters(),
            ready_replicas=len(own) - len(unready),
            oldest_unready_since=min(unready, default=None),
            role=role if self.named else "",
            accelerator=(role if role in self.gpus or not self.gpus else PREFILL).upper(),
            activated_at=self._started,
            bounds=Bounds(None if self.retention is None else 0, self.maxima.get(role), maximum_origin=f"HPA {role}"),
            asked=self.asked.get(role),
        )

    def _told(self, pod: RolePod, now: float) -> ReplicaMetrics:
        key, ready_since = VariantKey("ns", pod.role), NOW + float(int(pod.ready_since))
        if not pod.scrapes:
            return ReplicaMetrics(pod.name, key, ready_since=ready_since, created=NOW + pod.created)
        counters, running, waiting = pod.scrapes[-1]
        counters = replace(counters, prefill_seconds=0.0) if self.untold else counters
        between = self.intervals.learn(("ns", pod.name), counters.at)
        state = Freshness().classify(NOW + now - counters.at, between)

        def sample(value: float) -> Sample:
            return Sample(state, value if state in {SampleState.FRESH, SampleState.STALE} else None, counters.at)

        usage = min(1.0, running * (pod.prompt + ANSWER / 2.0) / KV_TOKENS[pod.role])
        return ReplicaMetrics(
            pod.name,
            key,
            sample(usage),
            sample(waiting),
            engine=EngineSignals(
                kv_capacity_tokens=sample(KV_TOKENS[pod.role]),
                kv_usage=sample(usage),
                running=sample(running),
                waiting=sample(waiting),
            ),
            ready_since=ready_since,
            counters=counters,
            created=NOW + pod.created,
            scrape_seconds=between,
        )
