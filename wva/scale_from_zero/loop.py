"""The scale-from-zero loop: looks at the gateways while something is at zero, and starts what is waited for.

Every pool is read by a task of its own and backs off on its own: a pool whose picker is broken or slow does not delay
the others. An exception about one model or pool concerns that one alone. With nothing at zero the loop sleeps until a
cache changes.

The loop keeps which models are at rest, and the pools in front of them. A change of a cache names the models that it
may concern, and only those are looked at again. All models with a variant at zero are looked at twice a minute: a claim
of another controller may end without any change.

A start takes three steps. The ledger gets the decision, so that series and status show it before any autoscaler looks
again. The activation is noted, so that a cycle that still sees zero replicas does not take it back. And the scale
subresource is written once, with the version of the target that was decided on. The write waits a short time for
Prometheus to have the number: an autoscaler that still reads zero there scales a running target back to zero.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from wva import log
from wva.clock import Clock
from wva.collect.pools import Pool
from wva.collect.troubles import Troubles
from wva.decide.start import Budget, Refusal, activate
from wva.instruments import Instruments
from wva.kube.backoff import Backoff
from wva.kube.errors import ApiError
from wva.model.decision import Decision
from wva.model.trouble import UNTROUBLED, Trouble, TroubleReason, cause_of
from wva.model.variant import ModelKey, Variant, VariantKey
from wva.publish.ledger import Ledger
from wva.publish.obstacles import FAILED_EVENT, REFUSED_EVENT
from wva.scale_from_zero.at_rest import AtRest
from wva.scale_from_zero.gateway import GatewayError, GatewayQueues
from wva.scale_from_zero.starts import ACTIVATION_SECONDS, Activations, Starter
from wva.slices import Slices

POLL_SECONDS: Final = 0.25
_FAILURE_CAP_SECONDS: Final = 5.0
_RECHECK_SECONDS: Final = 1.0
"""How often a start that the caches do not show is looked at: one that never shows has to be made again."""

_LOOK_AT_ALL_SECONDS: Final = 30.0
"""How often all models with a variant at zero are looked at, changed or not."""

_PAUSE_PER_LOOK: Final = 4
"""After a look that takes long there is a pause of four times as long."""

_POOLS_PER_NAMESPACE: Final = 10
"""At most so many pools of a namespace are read at each turn; where there are more, each is read less often."""

_TOLD_SECONDS: Final = 60.0
"""How long a variant at zero is said to be hindered at least: a queue that empties for a moment is no news."""


@dataclass(slots=True)
class _PoolState:
    """When a pool is read next, and how it has failed."""

    due: float = 0.0
    backoff: Backoff = field(default_factory=lambda: Backoff(base_seconds=0.5, cap_seconds=_FAILURE_CAP_SECONDS))
    error: str = ""
    running: bool = False
    asked: float | None = None
    """When its picker was asked (monotonic seconds); None once that has been answered, or has failed."""
    waiting: Mapping[str, float] = field(default_factory=dict)
    """How many requests wait, by model id, of the last answer; only models for which some do. Empty after an error."""


@dataclass(frozen=True, slots=True)
class _Resting:
    """A model of which nothing runs: its variants, and the pools in front of them."""

    variants: frozenset[VariantKey]
    pools: frozenset[Pool]


class ScaleFromZero:
    """Keeps which models are at rest, reads their pools, and starts variants."""

    def __init__(
        self,
        *,
        at_rest: AtRest,
        queues: GatewayQueues,
        starter: Starter,
        activations: Activations,
        troubles: Troubles,
        ledger: Ledger,
        budget: Callable[[], Budget | None],
        announce: Callable[[VariantKey, str, str, str], None],
        clock: Clock,
        instruments: Instruments,
    ) -> None:
        """Look at nothing yet.

        ``budget`` returns the GPUs that can be given out, None while they are not limited. ``announce`` records an
        event on a variant: type, reason, message.
        """
        self._at_rest = at_rest
        self._queues = queues
        self._starter = starter
        self._activations = activations
        self._troubles = troubles
        self._ledger = ledger
        self._budget = budget
        self._announce = announce
        self._clock = clock
        self._instruments = instruments
        self._logger = log.get("scale_from_zero")
        self._states: dict[Pool, _PoolState] = {}
        self._resting: dict[ModelKey, _Resting] = {}
        self._wanted: dict[Pool, set[ModelKey]] = {}
        self._order: list[Pool] = []
        """The keys of ``_wanted``, sorted."""
        self._asked_for: Counter[str] = Counter()
        """At how many pools requests wait, by model id."""
        self._unsettled: set[ModelKey] = set()
        """Models to look at again whatever the caches say: what was started is not shown yet, or the look failed."""
        self._look_at_all = -math.inf
        self._failed_starts: dict[ModelKey, tuple[VariantKey, float]] = {}
        """The start of a model that was published and not written: the only one to try until then (monotonic)."""
        self._refused: dict[ModelKey, tuple[str, ...]] = {}
        self._hindered: dict[VariantKey, float] = {}
        self._throttle = log.Throttle()

    async def run(self) -> None:
        """Read the gateways and start what is waited for, until cancelled."""
        changed = self._at_rest.changed
        async with self._queues, asyncio.TaskGroup() as group:
            while True:
                changed.clear()
                now = self._clock.monotonic()
                await self._look_at_changed(now)
                # Pools without a variant at zero are forgotten, and what was wrong with them.
                for gone in self._states.keys() - self._wanted.keys():
                    self._troubles.report(gone, "")
                    if not self._states[gone].running:
                        self._take(self._states.pop(gone), {})
                pause_seconds = max(POLL_SECONDS, _PAUSE_PER_LOOK * (self._clock.monotonic() - now))
                if self._hindered:
                    at_rest = {key for one in self._resting.values() for key in one.variants}
                    self._release(self._hindered.keys() - at_rest, before=now - _TOLD_SECONDS)
                # Of each namespace a few pools are read at this turn: those that have waited longest.
                states = [(pool, self._states.setdefault(pool, _PoolState())) for pool in self._order]
                due = [(pool, state) for pool, state in states if not state.running and state.due <= now]
                turn: Counter[str] = Counter()
                for pool, state in sorted(due, key=lambda one: one[1].due):
                    turn[pool.namespace] += 1
                    if turn[pool.namespace] <= _POOLS_PER_NAMESPACE:
                        state.running, state.asked, state.due = True, now, now
                        group.create_task(self._look(pool, state))
                if self._wanted:
                    await self._clock.sleep(pause_seconds)
                else:
                    again = bool(self._activations) or bool(self._hindered)
                    await self._clock.wait(changed, _RECHECK_SECONDS if again else None)
                    if (early := now + pause_seconds - self._clock.monotonic()) > 0:
                        # A thousand changes in a row are no reason to look a thousand times.
                        await self._clock.sleep(early)

    async def _look_at_changed(self, now: float) -> None:
        """Bring ``_resting`` and ``_wanted`` up to date for the models that may have changed."""
        marked = self._at_rest.take_marked() | self._unsettled
        if now >= self._look_at_all:
            marked |= self._at_rest.all() | self._resting.keys()
            self._look_at_all = now + _LOOK_AT_ALL_SECONDS
        if not marked:
            return
        self._unsettled = set()
        try:
            models, slices = await self._models(marked), Slices()
            for model in marked:
                variants = models.get(model, [])
                if any(variant.key in self._activations for variant in variants):
                    self._unsettled.add(model)
                resting = None  # something of it runs, or it is gone
                if variants and not any(variant.active for variant in variants):
                    pools: set[Pool] = set()
                    for variant in variants:
                        pools.update(self._pools(variant))
                        await slices.rest()
                    resting = _Resting(frozenset(variant.key for variant in variants), frozenset(pools))
                before = self._resting.pop(model, None)
                if resting is None:
                    self._failed_starts.pop(model, None)
                else:
                    self._resting[model] = resting
                old, new = (frozenset() if one is None else one.pools for one in (before, resting))
                for pool in new - old:
                    self._wanted.setdefault(pool, set()).add(model)
                for pool in old - new:
                    self._wanted[pool].discard(model)
                    if not self._wanted[pool]:
                        del self._wanted[pool]
                await slices.rest()
        except BaseException:
            self._unsettled |= marked  # the loop is started again, and begins with them
            raise
        if len(self._order) != len(self._wanted) or any(pool not in self._wanted for pool in self._order):
            self._order = sorted(self._wanted)

    async def _models(self, models: Iterable[ModelKey]) -> dict[ModelKey, list[Variant]]:
        found: dict[ModelKey, list[Variant]] = {}
        for variant in await self._at_rest.variants_of(models, self._clock.now()):
            found.setdefault(variant.model, []).append(variant)
        return found

    def _pools(self, variant: Variant) -> list[Pool]:
        """Return the pools in front of a variant, none if they cannot be told."""
        try:
            return self._at_rest.pools_of(variant)
        except Exception as error:  # noqa: BLE001 - the other variants have theirs
            self._fail(variant.model, [variant], error)
            return []

    async def _look(self, pool: Pool, state: _PoolState) -> None:
        """Read one pool and start what is waited for behind it; nothing is raised.

        A failure is an answer, too: other pools of the same models may have waited for it.
        """
        try:
            try:
                self._take(state, await self._queues.waiting(pool))
            except Exception as error:  # noqa: BLE001 - it is a failure of this pool, whatever it is
                self._failed(pool, state, error)
            else:
                self._instruments.gateway_reads.labels("success").inc()
                if state.error:
                    self._logger.info("gateway_answers_again", pool=str(pool))
                state.error = ""
                self._troubles.report(pool, "")
            started = await self._start(pool)
        except Exception as error:  # noqa: BLE001 - the other pools are read all the same
            self._failed(pool, state, error)
        else:
            if started and not state.error:
                state.backoff.reset()
            elif not state.error:
                now = self._clock.monotonic()
                state.due = now + state.backoff.next(now)
        finally:
            state.running = False

    def _take(self, state: _PoolState, waiting: Mapping[str, float]) -> None:
        """Take what a pool has answered."""
        self._asked_for.subtract(state.waiting.keys())
        for model_id in state.waiting:
            if not self._asked_for[model_id]:
                del self._asked_for[model_id]
        state.waiting = {model_id: count for model_id, count in waiting.items() if count > 0}
        state.asked = None
        self._asked_for.update(state.waiting.keys())

    def _failed(self, pool: Pool, state: _PoolState, error: Exception) -> None:
        """Note why a pool was not read, and when to read it again."""
        now, reason = self._clock.monotonic(), str(error)
        if not isinstance(error, GatewayError):  # an error in this program
            reason = f"unexpected {cause_of(error)}"
            if self._throttle.permits(pool, reason, now):
                self._logger.error("gateway_failed", pool=str(pool), cause=reason, exc_info=error)
        self._instruments.gateway_reads.labels("error").inc()
        state.due = now + state.backoff.next(now)
        self._take(state, {})
        if reason != state.error:
            self._logger.warning("gateway_not_read", pool=str(pool), reason=reason)
        state.error = reason
        if pool in self._wanted:
            self._troubles.report(pool, reason)

    async def _start(self, pool: Pool) -> bool:
        """Start the models behind the pool that have requests waiting; tell whether every write succeeded.

        Of a model behind several pools one variant is started: the cheapest behind any pool with requests for it. So
        the pool that answers last looks at the answers of all. The world is looked at again: it has moved since the
        pools were asked. Another pool of the same model may start it during this look, so what was started is asked for
        after it.
        """
        starts: list[Decision] = []
        wanted: dict[ModelKey, dict[Pool, float]] = {}
        slices = Slices()
        for model in list(self._wanted.get(pool, ())):
            resting = self._resting.get(model)
            hindered = resting is not None and not self._hindered.keys().isdisjoint(resting.variants)
            if model.model_id not in self._asked_for and not hindered:
                continue
            # While the answer of another pool is still to come, that one starts the model. A picker that takes longer
            # than one poll is not waited for.
            latest = self._clock.monotonic() - POLL_SECONDS
            states = {one: self._states[one] for one in (resting.pools if resting else ()) if one in self._states}
            if all(state.asked is None or state.asked <= latest for state in states.values()):
                queues = {one: state.waiting.get(model.model_id, 0.0) for one, state in states.items()}
                if any(queues.values()) or hindered:
                    wanted[model] = queues
            await slices.rest()
        models = await self._models(wanted) if wanted else {}
        for model, queues in sorted(wanted.items(), key=itemgetter(0)):
            variants = models.get(model, [])
            asking = {one for one, count in queues.items() if count > 0} or {pool}
            behind = [variant for variant in variants if not asking.isdisjoint(self._pools(variant))]
            if not behind or any(variant.active or variant.key in self._activations for variant in variants):
                continue
            try:
                # Two pools may have one picker, so their queues are not added up.
                answer = activate(behind, max(queues.values(), default=0.0), self._budget())
            except Exception as error:  # noqa: BLE001 - the other models behind the pool are started all the same
                self._fail(model, behind, error)
                continue
            if isinstance(answer, Refusal):
                self._refuse(model, behind, answer)
                continue
            if answer is None:
                self._release((variant.key for variant in behind), before=self._clock.monotonic() - _TOLD_SECONDS)
                continue
            # The number of a start that could not be written is published, and a scaler may obey it. So a start of
            # another variant of the model would be one too many.
            failed, until = self._failed_starts.get(model, (answer.key, 0.0))
            under_way = failed != answer.key and any(variant.key == failed for variant in variants)
            if under_way and self._clock.monotonic() < until:
                continue
            self._refused.pop(model, None)
            starts.append(answer)
            # At once: another pool of the same model must not start it a second time.
            self._activations.note(answer.key, answer.desired, self._clock.now())
            self._unsettled.add(model)
        return all(await asyncio.gather(*(self._activate(decision) for decision in starts)))

    async def _activate(self, decision: Decision) -> bool:
        """Publish, then write; tell whether the write succeeded. What is published stays: a scaler may obey it."""
        key = decision.key
        self._ledger.record([decision])
        await self._starter.wait_visible(key, decision.desired)
        try:
            await self._starter.scale(key, decision.desired)
        except Exception as error:  # noqa: BLE001 - the other targets are scaled all the same
            expected = isinstance(error, ApiError)
            reason = str(error) if expected else cause_of(error)
            self._activations.forget(key)
            self._failed_starts[decision.model] = (key, self._clock.monotonic() + ACTIVATION_SECONDS)
            self._instruments.activations.labels("error").inc()
            exception = {} if expected else {"exc_info": error}
            self._logger.warning("activation_failed", variant=str(key), reason=reason, **exception)
            message = f"the target could not be scaled: {reason}"
            self._hinder(key, Trouble(TroubleReason.START_FAILED, message))
            self._announce(key, "Warning", FAILED_EVENT, message)
            return False
        self._failed_starts.pop(decision.model, None)
        self._release([key])
        self._instruments.activations.labels("success").inc()
        self._logger.info("activated", variant=str(key), desired=decision.desired, reason=decision.message)
        return True

    def _refuse(self, model: ModelKey, variants: Iterable[Variant], refusal: Refusal) -> None:
        """Say once why nothing is started although requests wait, and again when the reasons change."""
        self._instruments.activations.labels("refused").inc()
        message = f"requests wait, nothing can start: {'; '.join(refusal.reasons)}"
        for variant in variants:
            self._hinder(variant.key, Trouble(TroubleReason.START_REFUSED, message))
        if self._refused.get(model) == refusal.reasons:
            return
        self._refused[model] = refusal.reasons
        self._logger.warning("activation_refused", model=str(model), reasons=list(refusal.reasons))
        for variant in variants:
            self._announce(variant.key, "Warning", REFUSED_EVENT, message)

    def _fail(self, model: ModelKey, variants: Iterable[Variant], error: Exception) -> None:
        """Say that a model cannot be started because of an error in this program."""
        cause = f"starting from zero failed: {cause_of(error)}"
        if self._throttle.permits(model, cause, self._clock.monotonic()):
            self._logger.error("model_failed", model=str(model), cause=cause, exc_info=error)
        for variant in variants:
            self._hinder(variant.key, Trouble(TroubleReason.START_FAILED, cause))

    def _hinder(self, key: VariantKey, trouble: Trouble) -> None:
        self._hindered[key] = self._clock.monotonic()
        self._troubles.hinder(key, trouble)

    def _release(self, keys: Iterable[VariantKey], *, before: float = math.inf) -> None:
        """Say that nothing hinders these variants, unless something did after ``before`` (monotonic seconds)."""
        for key in [key for key in keys if self._hindered.get(key, math.inf) < before]:
            del self._hindered[key]
            self._troubles.hinder(key, UNTROUBLED)
