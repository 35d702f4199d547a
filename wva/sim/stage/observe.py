"""The Snapshot of a cycle on the stage: what ``wva.collect`` would have read from the same scrapes and objects.

``tests/sim/stage/test_observe.py`` holds it against the real collector, its queries and the embedded Prometheus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from wva.collect.days import SETTLED_SECONDS, DaySignal, came
from wva.collect.retention import Window, window_of
from wva.collect.scrape_intervals import ScrapeIntervals
from wva.model.in_time import LATELY_SECONDS, ServedLately
from wva.model.inventory import AcceleratorPool, Inventory
from wva.model.metrics import (
    SAMPLE_WINDOW_SECONDS,
    EngineCounters,
    EngineSignals,
    Freshness,
    ReplicaMetrics,
    Sample,
    SampleState,
)
from wva.model.records import replace
from wva.model.snapshot import RequestCounts, SchedulerQueue, Snapshot
from wva.model.usual import PART_SECONDS, DemandDays, UsualDemand
from wva.model.variant import UNSCHEDULABLE_SECONDS, Bounds, ModelKey, Variant, VariantKey
from wva.model.vllm_parameters import VllmParameters
from wva.sim.stage import prometheus
from wva.sim.stage.gpus import GpuPools
from wva.sim.stage.scenario import MODEL_ID
from wva.sim.stage.view import Scrape, ScrapedSignal, StagePodView, StageView, VariantView

NAMESPACE: Final = "llm"
MODEL: Final = ModelKey(NAMESPACE, MODEL_ID)
EPOCH_SECONDS: Final = 1_767_225_600.0
"""Virtual time 0."""

_FIVE_MINUTES: Final = 300.0
_LOOK_SECONDS: Final = 60.0
_FRESHNESS: Final = Freshness()
_OfModel = TypeVar("_OfModel", SchedulerQueue, RequestCounts, ServedLately, UsualDemand)


def of_cluster(snapshots: Sequence[Snapshot], pools: GpuPools) -> Snapshot:
    """Return the Snapshot of all models of a cluster, from one of each."""
    merged = Snapshot.of(
        [variant for snapshot in snapshots for variant in snapshot.variants],
        [replica for snapshot in snapshots for replica in snapshot.replicas],
    )
    return replace(
        merged,
        inventory=inventory(pools),
        queues=_by_model(snapshot.queues for snapshot in snapshots),
        request_counts=_by_model(snapshot.request_counts for snapshot in snapshots),
        served=_by_model(snapshot.served for snapshot in snapshots),
        usual=_by_model(snapshot.usual for snapshot in snapshots),
    )


def inventory(pools: GpuPools) -> Inventory | None:
    """Return the GPUs of the cluster; None where there are none to count."""
    stock = [AcceleratorPool(name, capacity, pools.used[name]) for name, capacity in pools.capacity.items()]
    return Inventory.of(stock) if stock else None


def _by_model(rows: Iterable[tuple[_OfModel, ...]]) -> tuple[_OfModel, ...]:
    return tuple(sorted((record for row in rows for record in row), key=lambda record: record.model))


class Observer:
    """Builds Snapshots of one model.

    ``engines``: whether the analyzer needs more than the two signals of each replica. ``counters``: whether it needs
    the counters of the engines. ``retention_seconds``: after how long without a request the model may go to zero; None
    when it may not.
    """

    def __init__(
        self, model: ModelKey, *, engines: bool, retention_seconds: float | None = None, counters: bool = False
    ) -> None:
        """Remember nothing yet."""
        self.model = model
        self._engines = engines
        self._counters = counters
        self.retention_seconds = retention_seconds
        self._intervals = ScrapeIntervals()
        self._pods: dict[str, None] = {}
        """Every pod ever seen: also those that have ended have served requests."""
        self._served: ServedLately | None = None
        self._looked: float | None = None
        self._days = DemandDays()
        self._part: float | None = None
        self._held_back: float | None = None
        self._usual: UsualDemand | None = None

    def snapshot(self, stage: StageView, now: float, *, status: Callable[[str], int | None]) -> Snapshot:
        """Return what is seen at ``now``; ``status`` returns the desired replicas in the status of a variant."""
        views = stage.variants.values()
        variants = [_variant(self.model, view, status(view.name), now) for view in views]
        replicas = [
            self._replica(view, pod, stage.scrapes(pod.name), now) for view in views for pod in view.pods if pod.ready
        ]
        snapshot = Snapshot.of(variants, replicas)
        queue = stage.gateway_queue()
        if (self._engines or self._counters) and queue is not None:
            size = Sample(SampleState.FRESH, queue, EPOCH_SECONDS + now)
            snapshot = replace(snapshot, queues=(SchedulerQueue(self.model, size=size),))
        if (served := self._users(stage, now)) is not None:
            snapshot = replace(snapshot, served=(served,))
        if self._counters and (usual := self._earlier_days(stage, now)) is not None:
            snapshot = replace(snapshot, usual=(usual,))
        window = None if self.retention_seconds is None else window_of(self.retention_seconds)
        if window is not None and any(view.replicas for view in views):
            snapshot = replace(snapshot, request_counts=(self._count(stage, window, now),))
        return snapshot

    def _users(self, stage: StageView, now: float) -> ServedLately | None:
        """Return what users got as of the last look, None if nothing is known. WVA looks once a minute."""
        self._pods |= {pod.name: None for view in stage.variants.values() for pod in view.pods}
        if self._looked is not None and now - self._looked < _LOOK_SECONDS:
            return self._served
        self._looked = now
        windows = [prometheus.window(stage.scrapes(pod), now, LATELY_SECONDS) for pod in self._pods]

        def counted(signal: ScrapedSignal) -> float:
            start = now - LATELY_SECONDS
            return sum(prometheus.increase(window, signal, start=start, end=now) or 0.0 for window in windows)

        def share(part: ScrapedSignal, whole: float) -> float:
            return min(1.0, counted(part) / whole) if whole > 0.0 else 1.0

        requests, finished = counted(ScrapedSignal.TTFT_COUNT), counted(ScrapedSignal.SUCCESS)
        first, between = share(ScrapedSignal.FIRST_IN_TIME, requests), share(ScrapedSignal.BETWEEN_IN_TIME, finished)
        served = ServedLately(self.model, EPOCH_SECONDS + now, requests, first, between)
        self._served = served if requests > 0.0 else None
        return self._served

    def _earlier_days(self, stage: StageView, now: float) -> UsualDemand | None:
        """Return what usually comes from now on, None if that is not known. It changes every five minutes."""
        at = (now - SETTLED_SECONDS) // PART_SECONDS * PART_SECONDS
        if at != self._part:
            self._part = at
            if (rate := self.came(stage, at)) is not None:
                self._days.put(EPOCH_SECONDS + at, rate)
            self._usual = self._days.usual(self.model, EPOCH_SECONDS + at)
        return self._usual

    def came(self, stage: StageView, at: float) -> float | None:
        """Return the requests per second that came in the five minutes until a time; None if nothing was counted.

        The queue at the gateway is that of this call and of the one before, which is five minutes older.
        """
        rows = [stage.scrapes(pod) for pod in self._pods]
        rates = [prometheus.rate(row, ScrapedSignal.SUCCESS, now=at, seconds=PART_SECONDS) for row in rows]
        counted = [rate for rate in rates if rate is not None]
        before, self._held_back = self._held_back, stage.gateway_queue()
        if not counted:
            return None
        signals: dict[str, float] = {DaySignal.FINISHED: sum(counted)}
        for running, waiting, moment in (
            (DaySignal.RUNNING_BEFORE, DaySignal.WAITING_BEFORE, at - PART_SECONDS),
            (DaySignal.RUNNING, DaySignal.WAITING, at),
        ):
            found = [last.values for row in rows if (last := prometheus.latest(row, moment)) is not None]
            if found:
                signals[running] = sum(row[ScrapedSignal.RUNNING] for row in found)
                signals[waiting] = sum(row[ScrapedSignal.WAITING] for row in found)
        if before is not None and self._held_back is not None:
            signals |= {DaySignal.HELD_BACK: self._held_back, DaySignal.HELD_BACK_BEFORE: before}
        return came(signals)

    def in_progress(self, stage: StageView, now: float) -> float:
        """Return what the fast lane sees: the requests that run or wait in the engines, as of the last scrapes."""
        pods = [pod.name for view in stage.variants.values() for pod in view.pods]
        scraped = [last.values for name in pods if (last := prometheus.latest(stage.scrapes(name), now)) is not None]
        return sum(values[ScrapedSignal.RUNNING] + values[ScrapedSignal.WAITING] for values in scraped)

    def _count(self, stage: StageView, window: Window, now: float) -> RequestCounts:
        """Return the requests of the model: finished within the window, and in progress.

        Without samples they are unknown, not zero.
        """
        seconds = float(window.seconds)
        finished: list[float] = []
        running: list[float] = []
        sample_times: list[float] = []
        for name in self._pods:
            scrapes = stage.scrapes(name)
            sample_times += [scrape.at_seconds for scrape in scrapes if scrape.values]
            in_window = prometheus.window(scrapes, now, seconds)
            if in_window and prometheus.latest(scrapes, now - seconds) is None:
                finished.append(max(scrape.values[ScrapedSignal.SUCCESS] for scrape in in_window))
            else:
                growth = prometheus.increase(in_window, ScrapedSignal.SUCCESS, start=now - seconds, end=now)
                finished += [] if growth is None else [growth]
            last = prometheus.latest(scrapes, now)
            if last is not None:
                running.append(last.values[ScrapedSignal.RUNNING] + last.values[ScrapedSignal.WAITING])
        if not finished or not running:
            return RequestCounts(self.model, seconds, detail="no samples of requests")
        in_progress = sum(running) + (stage.gateway_queue() or 0.0)
        return RequestCounts(
            self.model, seconds, sum(finished), in_progress, covered_seconds=_covered(sample_times, window, now)
        )

    def _replica(self, view: VariantView, pod: StagePodView, scrapes: Sequence[Scrape], now: float) -> ReplicaMetrics:
        last = prometheus.latest(scrapes, now)
        recent = prometheus.window(scrapes, now, SAMPLE_WINDOW_SECONDS)
        at = None if last is None else last.at_seconds
        scrape_interval = self._intervals.learn((NAMESPACE, pod.name), at)
        judge = _Judge(now, scrape_interval)

        def highest(signal: ScrapedSignal) -> Sample:
            values = [scrape.values[signal] for scrape in recent]
            return judge.sample(max(values) if values else None, at)

        engine = None
        if self._engines:
            engine = _engine(view, scrapes, last, judge)
        elif self._counters:
            engine = _gauges(view, last, judge)
        return ReplicaMetrics(
            pod.name,
            VariantKey(NAMESPACE, view.name),
            kv_usage=highest(ScrapedSignal.KV_USAGE),
            queue_length=highest(ScrapedSignal.WAITING),
            engine=engine,
            ready_since=None if pod.ready_since is None else _whole(pod.ready_since),
            counters=_counters(engine, last, view.role) if self._counters else None,
            created=_whole(pod.created_seconds) if self._counters else None,
            scrape_seconds=scrape_interval,
        )


def _covered(sample_times: Sequence[float], window: Window, now: float) -> float:
    """Return how many seconds of a window that ends now have samples, in whole parts of it.

    As a subquery does, it looks at multiples of the part's length, and from each as far back as a gap may last.
    """
    last = int(now // window.part_seconds)
    looks = [part * window.part_seconds for part in range(last - window.parts - 1, last + 1)]
    in_window = [at for at in looks if at > now - window.seconds - window.part_seconds]
    covered_parts = sum(any(at - window.gap_seconds < sample <= at for sample in sample_times) for at in in_window)
    return min(float(window.seconds), max(0.0, covered_parts - 1.0) * window.part_seconds)


def _variant(model: ModelKey, view: VariantView, status: int | None, now: float) -> Variant:
    unready = [pod.created_seconds for pod in view.pods if not pod.ready]
    unplaced = [pod.created_seconds for pod in view.pods if not pod.placed]
    return Variant(
        key=VariantKey(NAMESPACE, view.name),
        model=model,
        target=view.name,
        accelerator=view.accelerator,
        cost=view.price,
        spec_replicas=view.replicas,
        current_replicas=len(view.pods),
        ready_replicas=sum(pod.ready for pod in view.pods),
        status_desired=status,
        oldest_unready_since=_whole(min(unready)) if unready else None,
        bounds=Bounds(
            view.minimum,
            view.maximum,
            minimum_origin=f"HPA {view.name}",
            maximum_origin=f"HPA {view.name}",
        ),
        activated_at=_whole(min(pod.created_seconds for pod in view.pods)) if view.pods else None,
        gpus_per_replica=view.gpus,
        role=view.role,
        unplaced_pods=len(unplaced),
        unschedulable_pods=sum(now - created >= UNSCHEDULABLE_SECONDS for created in unplaced),
        parameters=VllmParameters(max_num_seqs=view.max_num_seqs),
    )


def _engine(view: VariantView, scrapes: Sequence[Scrape], last: Scrape | None, judge: _Judge) -> EngineSignals:
    if last is None:
        return EngineSignals()

    def mean(part: ScrapedSignal, whole: ScrapedSignal, seconds: float) -> Sample:
        numerator = prometheus.rate(scrapes, part, now=judge.now, seconds=seconds)
        denominator = prometheus.rate(scrapes, whole, now=judge.now, seconds=seconds)
        return judge.reported_sample(
            numerator / denominator if numerator is not None and denominator else None, last.at_seconds
        )

    return replace(
        _gauges(view, last, judge),
        input_tokens=mean(ScrapedSignal.REQUEST_PROMPT_SUM, ScrapedSignal.REQUEST_PROMPT_COUNT, _FIVE_MINUTES),
        output_tokens=mean(ScrapedSignal.REQUEST_GENERATION_SUM, ScrapedSignal.REQUEST_GENERATION_COUNT, _FIVE_MINUTES),
        prefix_hit_rate=mean(ScrapedSignal.PREFIX_HITS, ScrapedSignal.PREFIX_QUERIES, _FIVE_MINUTES),
        success_rate=judge.reported_sample(_success_rate(scrapes, judge.now), last.at_seconds),
        time_to_first_token=mean(ScrapedSignal.TTFT_SUM, ScrapedSignal.TTFT_COUNT, SAMPLE_WINDOW_SECONDS),
        inter_token_latency=mean(ScrapedSignal.ITL_SUM, ScrapedSignal.ITL_COUNT, SAMPLE_WINDOW_SECONDS),
    )


def _gauges(view: VariantView, last: Scrape | None, judge: _Judge) -> EngineSignals:
    """Return the state of the engine as of the last scrape; nothing when it failed."""
    if last is None:
        return EngineSignals()
    kv_usage, waiting, running = (
        judge.reported_sample(last.values[signal], last.at_seconds)
        for signal in (ScrapedSignal.KV_USAGE, ScrapedSignal.WAITING, ScrapedSignal.RUNNING)
    )
    size = judge.reported_sample(float(view.kv_cache_tokens), last.at_seconds)
    return EngineSignals(kv_capacity_tokens=size, kv_usage=kv_usage, waiting=waiting, running=running)


def _counters(engine: EngineSignals | None, last: Scrape | None, role: str) -> EngineCounters | None:
    """Return the counters of the last scrape; None when it failed or is too old.

    The seconds of prefill and of first tokens are read only where the pods of the model have roles.
    """
    if last is None or engine is None or engine.running.value is None:
        return None
    values = last.values
    return EngineCounters(
        at=EPOCH_SECONDS + last.at_seconds,
        finished=values[ScrapedSignal.SUCCESS],
        aborted=0.0,  # the page says so: vLLM counts users who go away nowhere
        prompt_tokens=values[ScrapedSignal.PROMPT_TOKENS]
        - values[ScrapedSignal.PREFIX_HITS]
        - values[ScrapedSignal.TRANSFERRED],
        prompts=values[ScrapedSignal.TTFT_COUNT],
        answer_tokens=values[ScrapedSignal.REQUEST_GENERATION_SUM],
        answers=values[ScrapedSignal.REQUEST_GENERATION_COUNT],
        gap_seconds=values[ScrapedSignal.ITL_SUM],
        gaps=values[ScrapedSignal.ITL_COUNT],
        prefill_seconds=values[ScrapedSignal.PREFILL_SECONDS] if role else 0.0,
        first_seconds=values[ScrapedSignal.TTFT_SUM] if role else 0.0,
    )


def _success_rate(scrapes: Sequence[Scrape], now: float) -> float | None:
    """Return the mean over the last minute if the series is older than that, else its last step."""
    if prometheus.latest(scrapes, now - SAMPLE_WINDOW_SECONDS) is not None:
        rate = prometheus.rate(scrapes, ScrapedSignal.SUCCESS, now=now, seconds=SAMPLE_WINDOW_SECONDS)
        if rate is not None:
            return rate
    return prometheus.instant_rate(scrapes, ScrapedSignal.SUCCESS, now=now, seconds=SAMPLE_WINDOW_SECONDS)


@dataclass(frozen=True, slots=True)
class _Judge:
    """Gives samples of a pod the state that the collector gives them; ``between`` is the pod's scrape interval."""

    now: float
    between: float | None

    def sample(self, value: float | None, at: float | None) -> Sample:
        """Judge one of the two signals."""
        if at is None:
            return Sample(SampleState.MISSING)
        if value is None:
            detail = f"last one is {self.now - at:.0f} s old"
            return Sample(SampleState.MISSING, timestamp=EPOCH_SECONDS + at, detail=detail)
        return self.reported_sample(value, at)

    def reported_sample(self, value: float | None, at: float) -> Sample:
        """Judge a value that an engine reports; a value that it does not report is missing."""
        if value is None:
            return Sample(SampleState.MISSING)
        age = self.now - at
        state = _FRESHNESS.classify(max(0.0, age), self.between)
        detail = "" if state is SampleState.FRESH else f"{age:.0f} s old"
        return Sample(state, None if state is SampleState.MISSING else value, EPOCH_SECONDS + at, detail)


def _whole(seconds: float) -> float:
    """Return a time as Kubernetes writes it: in whole seconds since the epoch."""
    return float(int(EPOCH_SECONDS + seconds))
