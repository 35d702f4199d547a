"""Learns before the first decision of a process what cycles of the last hours would have learned.

WVA keeps no state of its own, and a process that starts knows neither what a replica carries nor how the load has
moved. Prometheus does. So WVA repeats the cycles of the last hour, and one cycle a minute for some hours before it. It
takes the samples and the pods of that time, and the present engine. It keeps only what a cycle learns. The numbers of
these cycles never count: the numbers begin with the status of each VariantAutoscaling, as always.

This takes at most ``LONGEST_SECONDS``. If a fleet is too large for that, WVA leaves earlier cycles out, so the last
cycles always follow each other without a gap. Without an answer of Prometheus nothing is known, as after a first
installation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Final

from wva import log
from wva.clock import Clock
from wva.collect.past import PAST_PODS, QUERY_SECONDS, FirstSamples, PastAnswers, PastPods, PastQuerier, past_pods
from wva.collect.queries import chunks
from wva.collect.shared_queries import Round, Settled, SharedQueries
from wva.collect.snapshot import Collector
from wva.collect.variants import AcceptedVariant
from wva.decide.pipeline import conclude
from wva.model.memory import Memory
from wva.model.policy import Policy
from wva.model.records import replace
from wva.model.trouble import cause_of
from wva.model.variant import ModelKey
from wva.prometheus.answers import InstantVector, PrometheusError
from wva.slices import beside

LONGEST_SECONDS: Final = 15.0
_TELLING_SECONDS: Final = LONGEST_SECONDS / 5
"""Only after so long it is known what a cycle takes: the first ones wait for answers about many times."""
_CLOSE_SECONDS: Final = 3600.0
"""How far back cycles are as far apart as those to come."""
_FAR_SECONDS: Final = 6 * 3600.0
_FAR_APART_SECONDS: Final = 60.0
_SINCE_APART_SECONDS: Final = 300.0
_FEWEST_SECONDS: Final = 15.0
"""Cycles of the past are no closer together than this: few engines are scraped more often."""
_ATTEMPTS: Final = 3

_log = log.get("look_back")


@dataclass(slots=True, kw_only=True, eq=False)
class LookBack:
    """Learns from the past, once in the life of a process. ``interval`` returns the seconds between two cycles."""

    collector: Collector
    prometheus: PastQuerier
    policy: Callable[[], Policy]
    interval: Callable[[], float]
    clock: Clock
    _attempts: int = field(default=_ATTEMPTS, init=False)

    async def learned(self, now: float) -> Memory | None:
        """Return, at the first call, what cycles before ``now`` (seconds since the epoch) would have learned.

        Return None later, and if Prometheus has no answer; after three failures there is no further try.
        """
        if not self._attempts:
            return None
        self._attempts -= 1
        begun = self.clock.monotonic()
        try:
            variants = [
                accepted for accepted in await self.collector.accepted(now) if self._learns(accepted.variant.model)
            ]
            since = await self._since(variants, now)
            memory, cycles = await self._gone_through(variants, self._times(since, now))
        except PrometheusError as error:
            _log.warning("past_not_read", reason=error.message, tries_left=self._attempts)
            return None
        except Exception as error:  # noqa: BLE001 - without the past, decisions are as after a first installation
            _log.exception("past_not_read", reason=cause_of(error))
            return None
        self._attempts = 0
        seconds = round(self.clock.monotonic() - begun, 3)
        _log.info("past_read", cycles=cycles, models=len(memory.demand), seconds=seconds)
        return memory

    def _learns(self, model: ModelKey) -> bool:
        """Whether the analyzer of a model learns anything from its engines."""
        return self.collector.engines_of(model) or self.collector.counters_of(model)

    async def _since(self, variants: list[AcceptedVariant], now: float) -> float:
        """Return a time shortly before the first sample of the last hours; infinite if there is none."""
        firsts = SharedQueries(FirstSamples(self.prometheus, now - _FAR_SECONDS, _SINCE_APART_SECONDS))
        settled = Settled()
        for namespaces in chunks(accepted.variant.model.namespace for accepted in variants):
            round_ = Round(now, QUERY_SECONDS)
            settled.take(await firsts.settle(PAST_PODS, {PAST_PODS: past_pods}, namespaces, round_))
        if PAST_PODS not in settled.answers:
            for failure in settled.failed.values():
                raise failure.error
        pod_series = settled.answers.get(PAST_PODS, InstantVector()).series
        return (
            min([series.value[0] for series in pod_series if series.value is not None], default=inf)
            - _SINCE_APART_SECONDS
        )

    def _times(self, since: float, now: float) -> list[float]:
        """Return the times of past cycles: the last ones as far apart as those to come, the others a minute."""
        close = max(self.interval(), _FEWEST_SECONDS)
        far = max(_FAR_APART_SECONDS, close)
        times = [now - close * count for count in range(1, int(_CLOSE_SECONDS / close) + 1)]
        earliest = times[-1] if times else now
        times += [earliest - far * count for count in range(1, int((_FAR_SECONDS - _CLOSE_SECONDS) / far) + 1)]
        return [at for at in reversed(times) if at >= since]

    async def _gone_through(self, variants: list[AcceptedVariant], times: list[float]) -> tuple[Memory, int]:
        """Return what cycles at these times learn, and how many of them there were."""
        answers = PastAnswers(self.prometheus, times, pods=sum(len(accepted.ready) for accepted in variants))
        pods = PastPods(variants, answers)
        collector = self.collector.of_past(answers, pods.variants_at)
        policy, memory, cycles, index = self.policy(), Memory(), 0, 0
        begun = self.clock.monotonic()
        while index < len(times):
            at = times[index]
            if await pods.look(at):
                snapshot = await collector.collect(at)
                answers.pods = len(snapshot.replicas)
                size = len(snapshot.variants) + len(snapshot.replicas)
                outcome = await beside(size, partial(conclude, snapshot, memory, policy, at))
                memory = replace(outcome.memory, variants=(), models=(), failing=())
                cycles += 1
            index += 1
            spent = self.clock.monotonic() - begun
            if spent > _TELLING_SECONDS:
                index = max(index, len(times) - int(max(0.0, LONGEST_SECONDS - spent) * max(1, cycles) / spent))
            answers.forget(at)
            await asyncio.sleep(0)
        return memory, cycles
