"""A closed loop around ``decide`` in which Prometheus scrapes each pod at a phase of its own.

The load is a flow of equal requests, so that nothing but the scrapes differs between two runs. The pods are those of
``measure.pods``: a step takes ``BASE + SLOPE * batch`` seconds, and each prompt interrupts it. Times are in seconds.
The load has been there for five minutes when the controller starts at -300.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.builders import NOW, variant
from tests.decide.measure.pods import ANSWER, BASE, KV_TOKENS, NONE, PER_TOKEN, PROMPT, SLOPE
from wva.collect.scrape_intervals import ScrapeIntervals
from wva.decide.pipeline import decide
from wva.model.decision import Decision
from wva.model.memory import Memory
from wva.model.metrics import EngineCounters, EngineSignals, Freshness, ReplicaMetrics, Sample, SampleState
from wva.model.optimizers import Analyzer
from wva.model.policy import Policy, SaturationPolicy
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.usual import UsualDemand
from wva.model.variant import VariantKey
from wva.model.vllm_parameters import VllmParameters

POLICY: Final = Policy(saturation=SaturationPolicy(analyzer_name=Analyzer.DEMAND))
CYCLE_SECONDS: Final = 15.0
START_SECONDS: Final = 60.0
_TICK_SECONDS: Final = 1.0
_BEGIN: Final = -600.0
_CONTROLLER_BEGINS: Final = -300.0
_FITTING: Final = KV_TOKENS / (PROMPT + ANSWER / 2.0)


@dataclass
class ScrapedPod:
    """A pod that serves a flow, and its last scrapes: when, its counters, what ran and waited."""

    name: str
    created: float
    ready_since: float
    phase: float
    counters: EngineCounters = NONE
    inside: float = 0.0
    scrapes: list[tuple[EngineCounters, float]] = field(default_factory=list)

    def serve(self, arrived: float, seconds: float) -> None:
        """Take requests in, and finish those that the engine gets through."""
        self.inside += arrived
        batch = min(self.inside, _FITTING)
        finished = seconds * batch / (ANSWER * BASE + batch * (ANSWER * SLOPE + PER_TOKEN * PROMPT))
        self.inside -= finished
        old = self.counters
        self.counters = EngineCounters(
            old.at,
            old.finished + finished,
            old.aborted,
            old.prompt_tokens + finished * PROMPT,
            old.prompts + finished,
            old.answer_tokens + finished * ANSWER,
            old.answers + finished,
            old.gap_seconds + batch * seconds,
            old.gaps + finished * ANSWER,
        )

    def scraped(self, now: float) -> None:
        """Keep what a scrape at ``now`` finds."""
        self.scrapes.append((replace(self.counters, at=NOW + now), self.inside))


@dataclass
class ScrapedLoop:
    """One run.

    ``interval`` is that of the scrapes, ``rate`` the load in requests per second at a time. Prometheus shows samples
    after ``late`` seconds. The gateway sends each pod the same (``even``), or requests to the pod with the fewest.
    ``usual`` returns what earlier days had after a time. ``numbers`` has the number of each cycle with its time.
    """

    interval: float
    seed: int = 0
    replicas: int = 4
    rate: Callable[[float], float] = lambda _: 32.0
    late: float = 0.0
    even: bool = True
    usual: Callable[[float], UsualDemand | None] = lambda _: None
    pods: list[ScrapedPod] = field(default_factory=list)
    numbers: list[tuple[float, int]] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)
    intervals: ScrapeIntervals = field(default_factory=ScrapeIntervals)

    def __post_init__(self) -> None:
        """Begin with pods that serve."""
        self._random = Random(f"{self.seed}/phases")
        self._made = 0
        for _ in range(self.replicas):
            self._create(_BEGIN - START_SECONDS, _BEGIN)

    def run(self, seconds: float, lost: Sequence[float] = ()) -> ScrapedLoop:
        """Run; at the times ``lost`` a pod goes, and another takes its place."""
        now, next_cycle = _BEGIN, _CONTROLLER_BEGINS + self._random.random() * CYCLE_SECONDS
        while now < seconds:
            now += _TICK_SECONDS
            ready = [pod for pod in self.pods if pod.ready_since < now]
            for pod, arrived in zip(ready, self._parts(self.rate(now) * _TICK_SECONDS, ready), strict=True):
                pod.serve(arrived, _TICK_SECONDS)
                if (now - pod.phase) % self.interval < _TICK_SECONDS and now - pod.ready_since > _TICK_SECONDS:
                    pod.scraped(now)
            if now >= next_cycle:
                next_cycle += CYCLE_SECONDS
                self._cycle(now)
            if now in lost:
                del self.pods[0]
                self._create(now, now + START_SECONDS)
        return self

    def number(self, now: float) -> int:
        """Return the number in force at a time."""
        return next(number for at, number in reversed(self.numbers) if at <= now)

    def _create(self, created: float, ready_since: float) -> None:
        phase = self._random.random() * self.interval
        self.pods.append(ScrapedPod(f"a-{self._made:03d}", created, ready_since, phase))
        self._made += 1

    def _parts(self, arrived: float, ready: Sequence[ScrapedPod]) -> list[float]:
        """Return the requests for each pod: equal ones, or such that those with the fewest are level."""
        if self.even:
            return [arrived / len(ready)] * len(ready)
        inside, level = sorted([pod.inside for pod in ready]), 0.0
        for count in range(1, len(ready) + 1):
            level = (arrived + sum(inside[:count])) / count
            if count == len(ready) or level <= inside[count]:
                break
        return [max(0.0, level - pod.inside) for pod in ready]

    def _cycle(self, now: float) -> None:
        told = [self._told(pod, now) for pod in self.pods if pod.ready_since < now]
        unready = [NOW + pod.created for pod in self.pods if pod.ready_since >= now]
        one = replace(
            variant("a", replicas=len(self.pods), desired=self.numbers[-1][1] if self.numbers else None),
            parameters=VllmParameters(),
            ready_replicas=len(told),
            oldest_unready_since=min(unready, default=None),
        )
        usual = self.usual(now)
        snapshot = replace(Snapshot.of([one], told), usual=() if usual is None else (usual,))
        (decision,), self.memory = decide(snapshot, self.memory, POLICY, NOW + now)
        self.numbers.append((now, decision.desired))
        self.decisions.append(decision)
        for _ in range(decision.desired - len(self.pods)):
            self._create(now, now + START_SECONDS)
        del self.pods[decision.desired :]

    def _told(self, pod: ScrapedPod, now: float) -> ReplicaMetrics:
        key, ready_since = VariantKey("ns", "a"), NOW + float(int(pod.ready_since))
        seen = [each for each in pod.scrapes if each[0].at <= NOW + now - self.late]
        if not seen:
            return ReplicaMetrics(pod.name, key, ready_since=ready_since, created=NOW + pod.created)
        counters, inside = seen[-1]
        between = self.intervals.learn(("ns", pod.name), counters.at)
        state = Freshness().classify(NOW + now - counters.at, between)

        def sample(value: float) -> Sample:
            return Sample(state, value if state in {SampleState.FRESH, SampleState.STALE} else None, counters.at)

        running = min(inside, _FITTING)
        usage = min(1.0, running * (PROMPT + ANSWER / 2.0) / KV_TOKENS)
        return ReplicaMetrics(
            pod.name,
            key,
            sample(usage),
            sample(inside - running),
            engine=EngineSignals(
                kv_capacity_tokens=sample(KV_TOKENS),
                kv_usage=sample(usage),
                running=sample(running),
                waiting=sample(inside - running),
            ),
            ready_since=ready_since,
            counters=counters,
            created=NOW + pod.created,
            scrape_seconds=between,
        )
