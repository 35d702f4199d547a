"""The scale-from-zero loop: looks at the gateways while something is at zero, and starts what is waited for.

Every pool is read by a task of its own, one at a time per pool, and backs off on its own: a pool whose picker is
broken or slow does not delay the others. An exception about one model or pool concerns that one alone. With nothing at
zero the loop sleeps until a cache says otherwise.

Starting is three things: the ledger gets the decision, so that series and status say so before any autoscaler looks
again; the activation is noted, so that a cycle that still sees zero replicas does not take it back; and the scale
subresource is written, once, with the version of the Deployment it was decided on. The write waits for Prometheus to
have the number, though not for long: an autoscaler that reads zero there takes a target back that it finds running.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from wva import log
from wva.clock import Clock
from wva.collect.activations import Activations
from wva.collect.gateway_queue import GatewayError
from wva.collect.pools import Pool
from wva.decide.activation import Budget, Refusal, activate
from wva.instruments import Instruments
from wva.kube.backoff import Backoff
from wva.kube.errors import ApiError
from wva.model.decision import Decision
from wva.model.failures import cause_of
from wva.model.trouble import UNTROUBLED, Trouble, TroubleReason
from wva.model.variant import ModelKey, Variant, VariantKey
from wva.publish.obstacles import FAILED_EVENT, REFUSED_EVENT
from wva.slices import Slices

POLL_SECONDS: Final = 0.25
_FAILURE_CAP_SECONDS: Final = 5.0
_RECHECK_SECONDS: Final = 1.0
"""How often a start that the caches do not show is looked at: one that never shows has to be made again."""

_PAUSE_PER_LOOK: Final = 4
"""A look at all variants that takes long is repeated after four times as long."""

_POOLS_PER_NAMESPACE: Final = 10
"""So many pools of a namespace are read at each turn; of more, each is read less often."""

_TOLD_SECONDS: Final = 60.0
"""How long a variant at zero is said to be hindered at least: a queue that empties for a moment is no news."""


@dataclass(frozen=True, slots=True)
class Ports:
    """What the loop needs from the world.

    ``variants`` returns the variants at a time, of one namespace or of all; ``pools`` those in front of a variant;
    ``waiting`` reads a pool (raises GatewayError); ``budget`` returns the GPUs for a model, None when they are not
    limited; ``scale`` writes the scale subresource of a variant's target (raises ApiError); ``seen`` returns once
    autoscalers can see what was published, or after a short while all the same; ``publish`` takes a decision into the
    ledger, ``announce`` records an event; ``report`` takes why a pool cannot be read, empty when it can or when no
    variant needs it any more; ``hinder`` takes what keeps a variant from being started; ``changed`` is set whenever
    variants, targets or pools have changed.
    """

    variants: Callable[[float, str | None], Awaitable[Iterable[Variant]]]
    pools: Callable[[Variant], list[Pool]]
    waiting: Callable[[Pool], Awaitable[Mapping[str, float]]]
    budget: Callable[[ModelKey], Budget | None]
    scale: Callable[[VariantKey, int], Awaitable[None]]
    seen: Callable[[Decision], Awaitable[None]]
    publish: Callable[[Decision], None]
    announce: Callable[[VariantKey, str, str, str], None]
    report: Callable[[Pool, str], None]
    hinder: Callable[[VariantKey, Trouble], None]
    changed: asyncio.Event


@dataclass(slots=True)
class _PoolState:
    """When a pool is read next, and how it has failed."""

    due: float = 0.0
    backoff: Backoff = field(default_factory=lambda: Backoff(base_seconds=0.5, cap_seconds=_FAILURE_CAP_SECONDS))
    error: str = ""
    running: bool = False


Models: TypeAlias = dict[ModelKey, list[Variant]]


class ScaleFromZero:
    """Runs the loop."""

    def __init__(self, ports: Ports, *, activations: Activations, clock: Clock, instruments: Instruments) -> None:
        """Look at nothing yet."""
        self._ports = ports
        self._activations = activations
        self._clock = clock
        self._instruments = instruments
        self._logger = log.get("scale_from_zero")
        self._states: dict[Pool, _PoolState] = {}
        self._wanted: dict[Pool, list[ModelKey]] = {}
        self._looked: dict[str, Models] = {}
        self._looking = asyncio.Lock()
        self._refused: dict[ModelKey, tuple[str, ...]] = {}
        self._asleep: set[VariantKey] = set()
        self._hindered: dict[VariantKey, float] = {}
        self._throttle = log.Throttle()

    async def run(self) -> None:
        """Look, and start what is waited for, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._ports.changed.clear()
                now = self._clock.monotonic()
                self._looked.clear()
                self._wanted = await self._sleeping()
                self._forget_others()
                pause_seconds = max(POLL_SECONDS, _PAUSE_PER_LOOK * (self._clock.monotonic() - now))
                shares = Counter(pool.namespace for pool in self._wanted)
                self._release(self._hindered.keys() - self._asleep, before=now - _TOLD_SECONDS)
                for pool in sorted(self._wanted):
                    state = self._states.setdefault(pool, _PoolState())
                    if not state.running and state.due <= now:
                        state.running = True
                        state.due = now + POLL_SECONDS * (shares[pool.namespace] / _POOLS_PER_NAMESPACE - 1)
                        group.create_task(self._look(pool, state))
                if self._wanted:
                    await self._clock.sleep(pause_seconds)
                else:
                    again = bool(self._activations) or bool(self._hindered)
                    await self._clock.wait(self._ports.changed, _RECHECK_SECONDS if again else None)
                    if (early := now + pause_seconds - self._clock.monotonic()) > 0:
                        # A thousand changes in a row are no reason to look at all variants a thousand times.
                        await self._clock.sleep(early)

    def _forget_others(self) -> None:
        """Forget the pools without a variant at zero, and what was wrong with them."""
        for gone in self._states.keys() - self._wanted.keys():
            self._ports.report(gone, "")
            if not self._states[gone].running:
                del self._states[gone]

    async def _models(self, namespace: str | None = None) -> Models:
        models: Models = {}
        for variant in await self._ports.variants(self._clock.now(), namespace):
            models.setdefault(variant.model, []).append(variant)
        return models

    async def _models_of(self, namespace: str) -> Models:
        """Return the models of a namespace as they are now, or have been since the last turn of the loop.

        A namespace may have hundreds of pools, whose pickers all answer at once.
        """
        async with self._looking:
            if namespace not in self._looked:
                self._looked[namespace] = await self._models(namespace)
            return self._looked[namespace]

    async def _sleeping(self) -> dict[Pool, list[ModelKey]]:
        """Return the pools to look at, each with the models behind it of which nothing runs."""
        wanted: dict[Pool, list[ModelKey]] = {}
        self._asleep = set()
        slices = Slices()
        for model, variants in (await self._models()).items():
            if any(variant.active for variant in variants):
                continue
            self._asleep.update(variant.key for variant in variants)
            pools: set[Pool] = set()
            for variant in variants:
                await slices.rest()
                pools.update(self._pools(variant))
            for pool in pools:
                wanted.setdefault(pool, []).append(model)
        return wanted

    def _pools(self, variant: Variant) -> list[Pool]:
        """Return the pools in front of a variant, none if they cannot be told."""
        try:
            return self._ports.pools(variant)
        except Exception as error:  # noqa: BLE001 - the other variants have theirs
            self._fail(variant.model, [variant], error)
            return []

    async def _look(self, pool: Pool, state: _PoolState) -> None:
        """Read one pool and start what is waited for behind it; nothing is raised."""
        try:
            await self._read(pool, state)
        except GatewayError as error:
            self._instruments.gateway_reads.labels("error").inc()
            self._failed(pool, state, str(error))
        except Exception as error:
            self._instruments.gateway_reads.labels("error").inc()
            cause = f"unexpected {cause_of(error)}"
            if self._throttle.permits(pool, cause, self._clock.monotonic()):
                self._logger.exception("gateway_failed", pool=str(pool), cause=cause)
            self._failed(pool, state, cause)
        finally:
            state.running = False

    async def _read(self, pool: Pool, state: _PoolState) -> None:
        waiting = await self._ports.waiting(pool)
        self._instruments.gateway_reads.labels("success").inc()
        if state.error:
            self._logger.info("gateway_answers_again", pool=str(pool))
        state.error = ""
        self._ports.report(pool, "")
        if await self._start(pool, waiting):
            state.backoff.reset()
        else:
            now = self._clock.monotonic()
            state.due = now + state.backoff.next(now)

    def _failed(self, pool: Pool, state: _PoolState, reason: str) -> None:
        now = self._clock.monotonic()
        state.due = now + state.backoff.next(now)
        if reason != state.error:
            self._logger.warning("gateway_not_read", pool=str(pool), reason=reason)
        state.error = reason
        if pool in self._wanted:
            self._ports.report(pool, reason)

    async def _start(self, pool: Pool, waiting: Mapping[str, float]) -> bool:
        """Start the models behind the pool that have requests waiting; tell whether every write succeeded.

        The world is looked at again: it has moved since the pool was asked.
        """
        starts: list[Decision] = []
        known = self._wanted.get(pool, [])
        wanted = [model for model in known if waiting.get(model.model_id, 0.0) > 0 or self._is_hindered(model)]
        models = await self._models_of(pool.namespace) if wanted else {}
        for model in sorted(wanted):
            variants = models.get(model, [])
            count = waiting.get(model.model_id, 0.0)
            behind = [variant for variant in variants if pool in self._pools(variant)]
            if not behind or any(variant.active for variant in variants):
                continue
            try:
                answer = activate(behind, count, self._ports.budget(model))
            except Exception as error:  # noqa: BLE001 - the other models behind the pool are started all the same
                self._fail(model, behind, error)
                continue
            if isinstance(answer, Refusal):
                self._refuse(model, behind, answer)
            elif answer is not None:
                self._refused.pop(model, None)
                starts.append(answer)
                # At once: another pool of the same model must not start it a second time.
                self._activations.note(answer.key, answer.desired, self._clock.now())
                self._looked.pop(pool.namespace, None)
            else:
                self._release((variant.key for variant in behind), before=self._clock.monotonic() - _TOLD_SECONDS)
        return all(await asyncio.gather(*(self._activate(decision) for decision in starts)))

    def _is_hindered(self, model: ModelKey) -> bool:
        return any(key.namespace == model.namespace for key in self._hindered)

    async def _activate(self, decision: Decision) -> bool:
        """Publish, then write; tell whether the write succeeded. What is published stays: a scaler may obey it."""
        key = decision.key
        self._ports.publish(decision)
        await self._ports.seen(decision)
        try:
            await self._ports.scale(key, decision.desired)
        except Exception as error:  # noqa: BLE001 - the other targets are scaled all the same
            expected = isinstance(error, ApiError)
            reason = str(error) if expected else cause_of(error)
            self._activations.forget(key)
            self._instruments.activations.labels("error").inc()
            exception = {} if expected else {"exc_info": error}
            self._logger.warning("activation_failed", variant=str(key), reason=reason, **exception)
            message = f"the target could not be scaled: {reason}"
            self._hinder(key, Trouble(TroubleReason.START_FAILED, message))
            self._ports.announce(key, "Warning", FAILED_EVENT, message)
            return False
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
            self._ports.announce(variant.key, "Warning", REFUSED_EVENT, message)

    def _fail(self, model: ModelKey, variants: Iterable[Variant], error: Exception) -> None:
        """Say that a model cannot be started because of an error of our own."""
        cause = f"starting from zero failed: {cause_of(error)}"
        if self._throttle.permits(model, cause, self._clock.monotonic()):
            self._logger.error("model_failed", model=str(model), cause=cause, exc_info=error)
        for variant in variants:
            self._hinder(variant.key, Trouble(TroubleReason.START_FAILED, cause))

    def _hinder(self, key: VariantKey, trouble: Trouble) -> None:
        self._hindered[key] = self._clock.monotonic()
        self._ports.hinder(key, trouble)

    def _release(self, keys: Iterable[VariantKey], *, before: float = math.inf) -> None:
        """Say that nothing hinders these variants, unless something did after ``before`` (monotonic seconds)."""
        for key in [key for key in keys if self._hindered.get(key, math.inf) < before]:
            del self._hindered[key]
            self._ports.hinder(key, UNTROUBLED)
