"""The scale-from-zero loop: looks at the gateways while something is at zero, and starts what is waited for.

Every pool is read by a task of its own, one at a time per pool, and backs off on its own: a pool whose picker is
broken or slow does not delay the others. An exception about one model or pool concerns that one alone. With nothing at
zero the loop sleeps until a cache says otherwise.

The loop keeps which models are at rest, and the pools in front of them. A change of a cache names the models that it
may concern, and only those are looked at again. All models with a variant at zero are looked at twice a minute: a claim
of another controller may end without any change.

Starting is three things: the ledger gets the decision, so that series and status say so before any autoscaler looks
again; the activation is noted, so that a cycle that still sees zero replicas does not take it back; and the scale
subresource is written, once, with the version of the target it was decided on. The write waits for Prometheus to
have the number, though not for long: an autoscaler that reads zero there takes a target back that it finds running.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final, TypeAlias

from wva import log
from wva.clock import Clock
from wva.collect.pools import Pool
from wva.decide.start import Budget, Refusal, activate
from wva.instruments import Instruments
from wva.kube.backoff import Backoff
from wva.kube.errors import ApiError
from wva.model.decision import Decision
from wva.model.failures import cause_of
from wva.model.trouble import UNTROUBLED, Trouble, TroubleReason
from wva.model.variant import ModelKey, Variant, VariantKey
from wva.publish.obstacles import FAILED_EVENT, REFUSED_EVENT
from wva.scale_from_zero.activations import ACTIVATION_SECONDS, Activations
from wva.scale_from_zero.gateway_queue import GatewayError
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


Models: TypeAlias = dict[ModelKey, list[Variant]]


@dataclass(frozen=True, slots=True)
class _Resting:
    """A model of which nothing runs: its variants, and the pools in front of them."""

    variants: frozenset[VariantKey]
    pools: frozenset[Pool]


@dataclass(frozen=True, slots=True)
class _FailedStart:
    """A start that was published and not written. Until ``until`` (monotonic seconds) it is the only one to try."""

    key: VariantKey
    until: float


class ScaleFromZero:
    """Runs the loop."""

    def __init__(
        self,
        *,
        at_zero: Callable[[], set[ModelKey]],
        marked: Callable[[], set[ModelKey]],
        variants: Callable[[float, Iterable[ModelKey]], Awaitable[Iterable[Variant]]],
        pools_of: Callable[[Variant], list[Pool]],
        waiting: Callable[[Pool], Awaitable[Mapping[str, float]]],
        budget: Callable[[ModelKey], Budget | None],
        scale: Callable[[VariantKey, int], Awaitable[None]],
        seen: Callable[[Decision], Awaitable[None]],
        publish: Callable[[Decision], None],
        announce: Callable[[VariantKey, str, str, str], None],
        report: Callable[[Pool, str], None],
        hinder: Callable[[VariantKey, Trouble], None],
        changed: asyncio.Event,
        activations: Activations,
        clock: Clock,
        instruments: Instruments,
    ) -> None:
        """Look at nothing yet.

        ``at_zero`` returns the models with a variant at zero, ``marked`` those to look at again since it was called
        last. ``variants`` returns the variants of some models at a time (seconds since the epoch), ``pools_of`` the
        pools in front of a variant. ``waiting`` reads a pool (raises GatewayError). ``budget`` returns the GPUs for a
        model, None when they are not limited. ``scale`` writes the scale subresource of a variant's target (raises
        ApiError). ``seen`` returns once autoscalers can see what was published, or after a short while all the same.
        ``publish`` takes a decision into the ledger, ``announce`` records an event. ``report`` takes why a pool cannot
        be read, empty when it can or when no variant needs it any more. ``hinder`` takes what keeps a variant from
        being started. ``changed`` is set whenever variants, targets or pools have changed.
        """
        self._at_zero = at_zero
        self._marked = marked
        self._variants = variants
        self._pools_of = pools_of
        self._waiting = waiting
        self._budget = budget
        self._scale = scale
        self._seen = seen
        self._publish = publish
        self._announce = announce
        self._report = report
        self._tell_hindrance = hinder
        self._changed = changed
        self._activations = activations
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
        self._failed_starts: dict[ModelKey, _FailedStart] = {}
        self._refused: dict[ModelKey, tuple[str, ...]] = {}
        self._hindered: dict[VariantKey, float] = {}
        self._throttle = log.Throttle()

    async def run(self) -> None:
        """Look, and start what is waited for, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._changed.clear()
                now = self._clock.monotonic()
                await self._look_at_changed(now)
                self._forget_others()
                pause_seconds = max(POLL_SECONDS, _PAUSE_PER_LOOK * (self._clock.monotonic() - now))
                self._release(self._no_longer_resting(), before=now - _TOLD_SECONDS)
                for pool, state in self._due(now):
                    state.running, state.asked, state.due = True, now, now
                    group.create_task(self._look(pool, state))
                if self._wanted:
                    await self._clock.sleep(pause_seconds)
                else:
                    again = bool(self._activations) or bool(self._hindered)
                    await self._clock.wait(self._changed, _RECHECK_SECONDS if again else None)
                    if (early := now + pause_seconds - self._clock.monotonic()) > 0:
                        # A thousand changes in a row are no reason to look a thousand times.
                        await self._clock.sleep(early)

    def _due(self, now: float) -> list[tuple[Pool, _PoolState]]:
        """Return the pools to read at this turn: of each namespace a few, those that have waited longest."""
        states = [(pool, self._states.setdefault(pool, _PoolState())) for pool in self._order]
        due = [(pool, state) for pool, state in states if not state.running and state.due <= now]
        due.sort(key=lambda one: one[1].due)
        turn: Counter[str] = Counter()
        chosen = []
        for pool, state in due:
            turn[pool.namespace] += 1
            if turn[pool.namespace] <= _POOLS_PER_NAMESPACE:
                chosen.append((pool, state))
        return chosen

    async def _look_at_changed(self, now: float) -> None:
        """Bring ``_resting`` and ``_wanted`` in step with the models that may be another story."""
        marked = self._marked() | self._unsettled
        if now >= self._look_at_all:
            marked |= self._at_zero() | self._resting.keys()
            self._look_at_all = now + _LOOK_AT_ALL_SECONDS
        if not marked:
            return
        self._unsettled = set()
        try:
            await self._look_at(marked)
        except BaseException:
            self._unsettled |= marked  # the loop is started again, and begins with them
            raise

    async def _look_at(self, marked: set[ModelKey]) -> None:
        models, slices = await self._models(marked), Slices()
        for model in marked:
            variants = models.get(model, [])
            if any(variant.key in self._activations for variant in variants):
                self._unsettled.add(model)
            pools: set[Pool] = set()
            runs = not variants or any(variant.active for variant in variants)
            for variant in () if runs else variants:
                pools.update(self._pools(variant))
                await slices.rest()
            keys = frozenset(variant.key for variant in variants)
            self._rest(model, None if runs else _Resting(keys, frozenset(pools)))
            await slices.rest()
        if len(self._order) != len(self._wanted) or any(pool not in self._wanted for pool in self._order):
            self._order = sorted(self._wanted)

    def _rest(self, model: ModelKey, now: _Resting | None) -> None:
        """Take what a look has found of a model; None: something of it runs, or it is gone."""
        before = self._resting.pop(model, None)
        if now is not None and before == now:
            self._resting[model] = now
            return
        if now is None:
            self._failed_starts.pop(model, None)
        else:
            self._resting[model] = now
        old, new = (frozenset() if one is None else one.pools for one in (before, now))
        for pool in new - old:
            self._wanted.setdefault(pool, set()).add(model)
        for pool in old - new:
            self._wanted[pool].discard(model)
            if not self._wanted[pool]:
                del self._wanted[pool]

    def _no_longer_resting(self) -> set[VariantKey]:
        """Return the variants that something hindered, and that are not at rest any more."""
        if not self._hindered:
            return set()
        return self._hindered.keys() - {key for one in self._resting.values() for key in one.variants}

    def _forget_others(self) -> None:
        """Forget the pools without a variant at zero, and what was wrong with them."""
        for gone in self._states.keys() - self._wanted.keys():
            self._report(gone, "")
            if not self._states[gone].running:
                self._take(self._states.pop(gone), {})

    async def _models(self, models: Iterable[ModelKey]) -> Models:
        found: Models = {}
        for variant in await self._variants(self._clock.now(), models):
            found.setdefault(variant.model, []).append(variant)
        return found

    def _pools(self, variant: Variant) -> list[Pool]:
        """Return the pools in front of a variant, none if they cannot be told."""
        try:
            return self._pools_of(variant)
        except Exception as error:  # noqa: BLE001 - the other variants have theirs
            self._fail(variant.model, [variant], error)
            return []

    async def _look(self, pool: Pool, state: _PoolState) -> None:
        """Read one pool and start what is waited for behind it; nothing is raised.

        A failure is an answer, too: other pools of the same models may have waited for it.
        """
        try:
            await self._read(pool, state)
            started = await self._start(pool)
        except Exception as error:  # noqa: BLE001 - the other pools are read all the same
            self._failed_unexpectedly(pool, state, error)
        else:
            if started and not state.error:
                state.backoff.reset()
            elif not state.error:
                now = self._clock.monotonic()
                state.due = now + state.backoff.next(now)
        finally:
            state.running = False

    async def _read(self, pool: Pool, state: _PoolState) -> None:
        """Take what a pool answers, or why it does not."""
        try:
            self._take(state, await self._waiting(pool))
        except GatewayError as error:
            self._failed(pool, state, str(error))
        except Exception as error:  # noqa: BLE001 - it is a failure of this pool like any other
            self._failed_unexpectedly(pool, state, error)
        else:
            self._instruments.gateway_reads.labels("success").inc()
            if state.error:
                self._logger.info("gateway_answers_again", pool=str(pool))
            state.error = ""
            self._report(pool, "")

    def _take(self, state: _PoolState, waiting: Mapping[str, float]) -> None:
        """Take what a pool has answered."""
        self._asked_for.subtract(state.waiting.keys())
        for model_id in state.waiting:
            if not self._asked_for[model_id]:
                del self._asked_for[model_id]
        state.waiting = {model_id: count for model_id, count in waiting.items() if count > 0}
        state.asked = None
        self._asked_for.update(state.waiting.keys())

    def _failed_unexpectedly(self, pool: Pool, state: _PoolState, error: Exception) -> None:
        cause = f"unexpected {cause_of(error)}"
        if self._throttle.permits(pool, cause, self._clock.monotonic()):
            self._logger.error("gateway_failed", pool=str(pool), cause=cause, exc_info=error)
        self._failed(pool, state, cause)

    def _failed(self, pool: Pool, state: _PoolState, reason: str) -> None:
        self._instruments.gateway_reads.labels("error").inc()
        now = self._clock.monotonic()
        state.due = now + state.backoff.next(now)
        self._take(state, {})
        if reason != state.error:
            self._logger.warning("gateway_not_read", pool=str(pool), reason=reason)
        state.error = reason
        if pool in self._wanted:
            self._report(pool, reason)

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
            if model.model_id not in self._asked_for and not self._is_hindered(model):
                continue
            queues = self._queues(model)
            if queues is not None and (any(queues.values()) or self._is_hindered(model)):
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
                answer = activate(behind, max(queues.values(), default=0.0), self._budget(model))
            except Exception as error:  # noqa: BLE001 - the other models behind the pool are started all the same
                self._fail(model, behind, error)
                continue
            if isinstance(answer, Refusal):
                self._refuse(model, behind, answer)
            elif answer is None:
                self._release((variant.key for variant in behind), before=self._clock.monotonic() - _TOLD_SECONDS)
            elif not self._another_is_under_way(answer, variants):
                self._refused.pop(model, None)
                starts.append(answer)
                # At once: another pool of the same model must not start it a second time.
                self._activations.note(answer.key, answer.desired, self._clock.now())
                self._unsettled.add(model)
        return all(await asyncio.gather(*(self._activate(decision) for decision in starts)))

    def _queues(self, model: ModelKey) -> dict[Pool, float] | None:
        """Return how many requests wait for a model at rest, by pool; None while the answer of a pool is still to come.

        A picker that takes longer than one poll is not waited for.
        """
        resting, latest = self._resting.get(model), self._clock.monotonic() - POLL_SECONDS
        states = {one: self._states[one] for one in (resting.pools if resting else ()) if one in self._states}
        if any(state.asked is not None and state.asked > latest for state in states.values()):
            return None
        return {one: state.waiting.get(model.model_id, 0.0) for one, state in states.items()}

    def _another_is_under_way(self, start: Decision, variants: Iterable[Variant]) -> bool:
        """Tell whether another variant of the model was to be started and could not be written.

        Its number is published, and a scaler may obey it, so a second variant would be one too many.
        """
        failed = self._failed_starts.get(start.model)
        if failed is None or failed.key == start.key or self._clock.monotonic() >= failed.until:
            return False
        return any(variant.key == failed.key for variant in variants)

    def _is_hindered(self, model: ModelKey) -> bool:
        resting = self._resting.get(model)
        return bool(self._hindered) and resting is not None and any(key in self._hindered for key in resting.variants)

    async def _activate(self, decision: Decision) -> bool:
        """Publish, then write; tell whether the write succeeded. What is published stays: a scaler may obey it."""
        key = decision.key
        self._publish(decision)
        await self._seen(decision)
        try:
            await self._scale(key, decision.desired)
        except Exception as error:  # noqa: BLE001 - the other targets are scaled all the same
            expected = isinstance(error, ApiError)
            reason = str(error) if expected else cause_of(error)
            self._activations.forget(key)
            self._failed_starts[decision.model] = _FailedStart(key, self._clock.monotonic() + ACTIVATION_SECONDS)
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
        """Say that a model cannot be started because of an error of our own."""
        cause = f"starting from zero failed: {cause_of(error)}"
        if self._throttle.permits(model, cause, self._clock.monotonic()):
            self._logger.error("model_failed", model=str(model), cause=cause, exc_info=error)
        for variant in variants:
            self._hinder(variant.key, Trouble(TroubleReason.START_FAILED, cause))

    def _hinder(self, key: VariantKey, trouble: Trouble) -> None:
        self._hindered[key] = self._clock.monotonic()
        self._tell_hindrance(key, trouble)

    def _release(self, keys: Iterable[VariantKey], *, before: float = math.inf) -> None:
        """Say that nothing hinders these variants, unless something did after ``before`` (monotonic seconds)."""
        for key in [key for key in keys if self._hindered.get(key, math.inf) < before]:
            del self._hindered[key]
            self._tell_hindrance(key, UNTROUBLED)
