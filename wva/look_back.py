"""Before the first decision of a process: what cycles of the last hours would have learned.

WVA keeps no state of its own, and a process that starts knows neither what a replica carries nor how the load has
moved. Prometheus does. So the cycles of the last hour, and before them one a minute of some hours, are gone through
once more: the samples of then, the pods of then, the engine of now. Only what a cycle learns is kept. Its numbers never
count: they begin with the status of each VariantAutoscaling, as always.

It takes at most ``LONGEST_SECONDS``. If a fleet is too large for that, earlier cycles are left out, so the last ones
always come one after the other. Without an answer of Prometheus nothing is known, as after a first installation.
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
        """Return what there is to be learned before ``now`` (seconds since the epoch), at the first call.

        None later, and if Prometheus has no answer; after three failures there is no further try.
        """
        if not self._attempts:
            return None
        self._attempts -= 1
        begun = self.clock.monotonic()
        try:
            variants = [each for each in await self.collector.accepted(now) if self._learns(each.variant.model)]
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
        """Return since when there are samples, within some hours: a time shortly before the first; infinite if none."""
        firsts = SharedQueries(FirstSamples(self.prometheus, now - _FAR_SECONDS, _SINCE_APART_SECONDS))
        settled = Settled()
        for namespaces in chunks(each.variant.model.namespace for each in variants):
            round_ = Round(now, QUERY_SECONDS)
            settled.take(await firsts.settle(PAST_PODS, {PAST_PODS: past_pods}, namespaces, round_))
        if PAST_PODS not in settled.answers:
            for failure in settled.failed.values():
                raise failure.error
        found = settled.answers.get(PAST_PODS, InstantVector()).series
        return min([each.value[0] for each in found if each.value is not None], default=inf) - _SINCE_APART_SECONDS

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
        answers = PastAnswers(self.prometheus, times, pods=sum(len(each.ready) for each in variants))
        pods = PastPods(variants, answers)
        collector = self.collector.of_past(answers, pods.variants_at)
        policy, memory, cycles, place = self.policy(), Memory(), 0, 0
        begun = self.clock.monotonic()
        while place < len(times):
            at = times[place]
            if await pods.look(at):
                snapshot = await collector.collect(at)
                answers.pods = len(snapshot.replicas)
                size = len(snapshot.variants) + len(snapshot.replicas)
                outcome = await beside(size, partial(conclude, snapshot, memory, policy, at))
                memory = replace(outcome.memory, variants=(), models=(), failing=())
                cycles += 1
            place += 1
            spent = self.clock.monotonic() - begun
            if spent > _TELLING_SECONDS:
                place = max(place, len(times) - int(max(0.0, LONGEST_SECONDS - spent) * max(1, cycles) / spent))
            answers.forget(at)
            await asyncio.sleep(0)
        return memory, cycles
