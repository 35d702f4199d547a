"""The scale-from-zero loop: reads the gateways while a variant is at zero, and starts variants for waiting requests.

Each pool has a task of its own and a backoff of its own, so a pool whose picker is broken or slow does not delay the
others. An exception about one model or pool concerns that one alone. If nothing is at zero, the loop sleeps until a
cache changes.

The loop keeps which models are at rest, and which pools stand in front of them. A change of a cache names the models
that it may concern, and the loop looks at only those again. Twice a minute it looks at all models with a variant at
zero, since a claim of another controller may end without any change.

A start takes three steps. The ledger gets the decision, so that series and status show it before any autoscaler looks
again. The activation is noted, so that a cycle that still sees zero replicas does not take it back. And the scale
subresource is written once, with the version of the target that was decided on. The write waits a short time until
Prometheus has the number: an autoscaler that still reads zero there scales a running target back to zero.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from wva import log
from wva.api.core import InferencePool, InferencePoolAlpha
from wva.api.meta import Key
from wva.api.variantautoscaling import ConditionType, VariantAutoscaling
from wva.clock import Clock
from wva.collect.faults import Faults
from wva.collect.pools import Pool, PoolStores, selects
from wva.collect.resolution import RIVALS_LOOKED_AT, TARGET_INDEX, CollectStores
from wva.collect.troubles import Troubles
from wva.collect.variants import Claims, accepted_in_slices
from wva.config.declare import printable
from wva.decide.start import Budget, Refusal, activate, roles_to_start
from wva.instruments import Instruments
from wva.kube.backoff import Backoff
from wva.kube.errors import ApiError
from wva.model.decision import Decision
from wva.model.trouble import UNTROUBLED, Trouble, TroubleReason, cause_of, some_of
from wva.model.variant import ModelKey, Variant, VariantKey, by_role
from wva.publish.ledger import Ledger
from wva.publish.obstacles import FAILED_EVENT, REFUSED_EVENT
from wva.scale_from_zero.gateway import GatewayError, GatewayQueues
from wva.scale_from_zero.page import MAX_WAITING
from wva.scale_from_zero.starts import ACTIVATION_SECONDS, Activations, Starter
from wva.slices import Slices
from wva.targets import ScaleTarget, target_key

POLL_SECONDS: Final = 0.25
_FAILURE_CAP_SECONDS: Final = 5.0
_RECHECK_SECONDS: Final = 1.0
"""How often the loop looks at a start that the caches do not show: one that never shows has to be made again."""

_LOOK_AT_ALL_SECONDS: Final = 30.0
"""How often the loop looks at all models with a variant at zero, changed or not."""

_PAUSE_PER_LOOK: Final = 4
"""After a look that takes long there is a pause of four times as long."""

_POOLS_PER_NAMESPACE: Final = 8
"""How many pools of a namespace are read at the same time at most. If there are more, each is read less often."""

_BEHIND_SECONDS: Final = 5.0
"""How long WVA remembers which models are behind a pool in which an unknown name waits."""

_REPORT_SECONDS: Final = 60.0
"""How long the obstacle of a variant at zero is reported at least, even if the queue is empty for a moment."""

_MODEL_INDEX: Final = "model"
_AT_ZERO_INDEX: Final = "at zero"


class AtRest:
    """Tells which models have a variant at zero, and marks those that a change of the caches may concern.

    A fleet may have thousands of variants, and a change of one says nothing about the others. A mark too many costs one
    look at one model. A change without a mark is found when the loop looks at all models at zero.
    """

    def __init__(
        self,
        stores: CollectStores,
        pools: PoolStores,
        *,
        claims: Claims,
        activations: Activations,
        ledger: Ledger,
        priced: Callable[[list[Variant]], Sequence[Variant]] = lambda variants: variants,
    ) -> None:
        """Index the caches, and follow them. Nothing is marked yet.

        ``claims`` tells which variants are this controller's, ``activations`` which starts the caches do not show yet,
        ``ledger`` which numbers are not for their targets. ``priced`` returns variants with the cost that counts.
        """
        self._priced = priced
        self._ledger = ledger
        self._stores = stores
        self._pools = pools
        self._claims = claims
        self._model_labels: dict[str, list[tuple[str, Mapping[str, str]]]] = {}
        self._activations = activations
        self._throttle = log.Throttle()
        self.changed = asyncio.Event()
        """Set as soon as a model is marked."""
        self._marked: set[ModelKey] = set()
        stores.variant_autoscalings.add_index(_MODEL_INDEX, lambda va: [str(_model_of(va))])
        for kind in stores.targets.kinds:
            stores.targets.store(kind.resource).add_index(_AT_ZERO_INDEX, _at_zero)
        stores.variant_autoscalings.subscribe(self._on_va)
        stores.targets.subscribe(self._on_target)
        pools.pools.subscribe(self._on_pool)
        pools.pools_alpha.subscribe(self._on_pool)

    def all(self) -> set[ModelKey]:
        """Return the models with a variant at zero."""
        models: set[ModelKey] = set()
        for kind in self._stores.targets.kinds:
            for target in self._stores.targets.store(kind.resource).by_index(_AT_ZERO_INDEX, ""):
                models |= self._of(target)
        return models

    def take_marked(self) -> set[ModelKey]:
        """Return the models marked since the last call, at zero or not."""
        marked, self._marked = self._marked, set()
        return marked

    async def variants_of(self, models: Iterable[ModelKey], now: float) -> dict[ModelKey, list[Variant]]:
        """Return all variants of models at ``now`` (epoch seconds), without models with one that cannot be read.

        If the variants of a model have roles, those of each role have an entry of their own.

        A variant in shadow mode that is at zero is left out, because WVA must not start it.
        """
        vas, wholes = self._stores.variant_autoscalings, {model.whole for model in models}
        faults = Faults(now, self._throttle)
        accepted = await accepted_in_slices(
            self._stores,
            only=sorted({key for model in wholes for key in vas.first_by_index(_MODEL_INDEX, str(model), len(vas))}),
            claims=self._claims,
            now=now,
            as_started=self._activations.apply,
            faults=faults,
        )
        by_model: dict[ModelKey, list[Variant]] = {}
        for variant in self._priced([entry.variant for entry in accepted]):
            at_zero = not variant.active
            if variant.model not in faults and not (at_zero and self._ledger.shadow(variant.key)):
                by_model.setdefault(variant.model, []).append(variant)
        return by_role(by_model)

    def pools_of(self, variant: Variant) -> list[Pool]:
        """Return the pools in front of a variant; none without a target."""
        va = self._stores.variant_autoscalings.get(Key(variant.key.namespace, variant.key.name))
        target = None if va is None else self._stores.targets.named(va)
        return [] if target is None else self._pools.pools_of(variant.key.namespace, target.pod_labels)

    def models_behind(self, pool: Pool) -> frozenset[str]:
        """Return the ids of the models with a variant behind a pool, at rest or not, of any controller."""
        selectors = self._pools.selectors(pool)
        labelled = self._labelled(pool.namespace) if selectors else ()
        return frozenset(
            [model for model, labels in labelled if any(selects(selector, labels) for selector in selectors)]
        )

    def _labelled(self, namespace: str) -> Sequence[tuple[str, Mapping[str, str]]]:
        """Return the model of each variant of a namespace with the labels of its pods.

        All pools of a namespace ask for them. They are kept until a variant or a target changes.
        """
        if namespace not in self._model_labels:
            vas = self._stores.variant_autoscalings.list(namespace)
            pairs = [(va.spec.model_id, self._stores.targets.named(va)) for va in vas]
            self._model_labels[namespace] = [
                (model, target.pod_labels) for model, target in pairs if target is not None
            ]
        return self._model_labels[namespace]

    def _on_va(self, old: VariantAutoscaling | None, new: VariantAutoscaling | None) -> None:
        self._model_labels.clear()
        if old is not None and new is not None and _essence(old) == _essence(new):
            return
        vas = self._stores.variant_autoscalings
        for version in (old, new):
            if version is not None:
                # If two variants have one target, neither can be started. When one of them goes, the other one can.
                rivals = map(vas.get, vas.first_by_index(TARGET_INDEX, target_key(version), RIVALS_LOOKED_AT))
                self._mark(_model_of(va) for va in (version, *rivals) if va is not None)

    def _on_target(self, old: ScaleTarget | None, new: ScaleTarget | None) -> None:
        self._model_labels.clear()
        target = new or old
        if target is None or (old is not None and new is not None and _rest_of(old) == _rest_of(new)):
            return
        self._mark(self._of(target))

    def _on_pool(
        self, old: InferencePool | InferencePoolAlpha | None, new: InferencePool | InferencePoolAlpha | None
    ) -> None:
        pool = new or old
        if pool is None or (old is not None and new is not None and _reach(old) == _reach(new)):
            return
        self._mark(model for model in self.all() if model.namespace == pool.metadata.namespace)

    def _of(self, target: ScaleTarget) -> set[ModelKey]:
        """Return the models of the variants that name a target."""
        vas = self._stores.variant_autoscalings.by_index(TARGET_INDEX, self._stores.targets.key_of(target))
        return {_model_of(va) for va in vas}

    def _mark(self, models: Iterable[ModelKey]) -> None:
        self._marked.update(models)
        if self._marked:
            self.changed.set()


@dataclass(slots=True)
class _PoolState:
    """The models at rest behind a pool, when the pool is read next, and the result of the last reading."""

    models: set[ModelKey] = field(default_factory=set)
    due: float = 0.0
    backoff: Backoff = field(default_factory=lambda: Backoff(base_seconds=0.5, cap_seconds=_FAILURE_CAP_SECONDS))
    error: str = ""
    running: bool = False
    asked_at: float | None = None
    """When its picker was asked (monotonic seconds); None once it has answered, or has failed."""
    waiting: Mapping[str, float] = field(default_factory=dict)
    """How many requests wait, by model id, in the last answer. Empty after an error."""
    behind: frozenset[str] = frozenset()
    """The ids of all models behind the pool, until the time (monotonic seconds) when they are looked for again."""
    behind_until: float = -math.inf


@dataclass(frozen=True, slots=True)
class _Resting:
    """A model of which nothing runs: its variants, and the pools in front of them."""

    variants: frozenset[VariantKey] = frozenset()
    pools: frozenset[Pool] = frozenset()


_AWAKE: Final = _Resting()
"""A model of which something runs, or which is gone."""


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
        """Look at nothing yet. ``budget`` returns the GPUs that can be given out, None while they are not limited.

        ``announce`` records an event on a variant: type, reason, message.
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
        self._throttle = log.Throttle()
        self._resting: dict[ModelKey, _Resting] = {}
        self._pools: dict[Pool, _PoolState] = {}
        """The pools in front of models at rest, and those that are still being read."""
        self._asked_for: Counter[str] = Counter()
        """At how many pools requests wait, by model id: a pool may have many models, and most answers name none."""
        self._look_at_all = -math.inf
        self._unsettled: set[ModelKey] = set()
        """Models to look at again even without a change: the caches do not show a start yet, or the look failed."""
        self._failed_starts: dict[ModelKey, tuple[VariantKey, float]] = {}
        """A start of a model that was published and not written: no other is tried until the time (monotonic)."""
        self._refused: dict[ModelKey, tuple[str, ...]] = {}
        self._hindered: dict[VariantKey, float] = {}
        """The variants with a reported obstacle, and when it was last seen (monotonic)."""

    async def run(self) -> None:
        """Read the gateways and start what requests wait for, until cancelled."""
        changed = self._at_rest.changed
        for state in self._pools.values():  # an error may have ended an earlier run while pools were read
            state.running, state.asked_at = False, None
        async with self._queues, asyncio.TaskGroup() as group:
            while True:
                changed.clear()
                now = self._clock.monotonic()
                await self._look_at_changed(now)
                # Forget the pools that no model at rest needs, and what was wrong with them.
                for pool in [pool for pool, state in self._pools.items() if not state.models]:
                    self._troubles.report(pool, UNTROUBLED)
                    if not self._pools[pool].running:
                        self._take(self._pools.pop(pool), {})
                looked = self._clock.monotonic()
                pause_until = looked + max(POLL_SECONDS, _PAUSE_PER_LOOK * (looked - now))
                if self._hindered:
                    at_rest = {key for resting in self._resting.values() for key in resting.variants}
                    self._release(self._hindered.keys() - at_rest, before=now - _REPORT_SECONDS)
                # Read a few pools of each namespace: those that have waited longest.
                due = [entry for entry in self._pools.items() if not entry[1].running and entry[1].due <= now]
                reading = Counter(pool.namespace for pool, state in self._pools.items() if state.asked_at is not None)
                for pool, state in sorted(due, key=lambda entry: entry[1].due):
                    if reading[pool.namespace] < _POOLS_PER_NAMESPACE:
                        reading[pool.namespace] += 1
                        state.running, state.asked_at, state.due = True, now, now
                        group.create_task(self._look(pool, state))
                if not self._pools:
                    recheck = self._activations or self._hindered
                    await self._clock.wait(changed, _RECHECK_SECONDS if recheck else None)
                if (left := pause_until - self._clock.monotonic()) > 0:
                    # Many changes in a row lead to one look only.
                    await self._clock.sleep(left)

    async def _look_at_changed(self, now: float) -> None:
        """Bring ``_resting`` and ``_pools`` up to date for the models that may have changed."""
        marked = self._at_rest.take_marked() | self._unsettled
        if now >= self._look_at_all:
            marked |= self._at_rest.all() | self._resting.keys()
            self._look_at_all = now + _LOOK_AT_ALL_SECONDS
        self._unsettled = set()
        try:
            models = await self._at_rest.variants_of(marked, self._clock.now()) if marked else {}
            wholes, slices = {model.whole for model in marked}, Slices()
            remembered = {model for model in self._resting if model.whole in wholes}
            for model in sorted(remembered | wholes | models.keys()):
                variants, resting = models.get(model, []), _AWAKE
                if any(variant.key in self._activations for variant in variants):
                    self._unsettled.add(model)
                if variants and not any(variant.active for variant in variants):
                    pools: set[Pool] = set()
                    for variant in variants:
                        pools.update(self._pools_of(variant))
                        await slices.rest()
                    resting = _Resting(frozenset(variant.key for variant in variants), frozenset(pools))
                previous = self._resting.pop(model, _AWAKE)
                if resting is _AWAKE:
                    self._failed_starts.pop(model, None)
                else:
                    self._resting[model] = resting
                for pool in previous.pools - resting.pools:
                    self._pools[pool].models.discard(model)
                for pool in sorted(resting.pools - previous.pools):
                    if pool not in self._pools:
                        self._pools[pool] = _PoolState()
                    self._pools[pool].models.add(model)
                await slices.rest()
        except BaseException:
            self._unsettled |= marked  # the loop is started again, and begins with them
            raise

    def _pools_of(self, variant: Variant) -> list[Pool]:
        """Return the pools in front of a variant, none if they cannot be found."""
        try:
            return self._at_rest.pools_of(variant)
        except Exception as error:  # noqa: BLE001 - the other variants have theirs
            self._fail(variant.model, [variant], error)
            return []

    async def _look(self, pool: Pool, state: _PoolState) -> None:
        """Read one pool, and start what requests wait for behind it. Raises nothing.

        It starts models after a failure, too: other pools of the same models may have waited for this one.
        """
        try:
            try:
                answer = await self._queues.waiting(pool)
                waiting, unnamed = self._named(pool, state, answer.waiting)
                self._take(state, waiting)
            except Exception as error:  # noqa: BLE001 - any error is a failure of this pool
                self._failed(pool, state, error)
            else:
                self._instruments.gateway_reads.labels("success").inc()
                if state.error:
                    self._logger.info("gateway_answers_again", pool=str(pool))
                state.error = ""
                self._troubles.report(pool, unnamed or answer.trouble)
                state.due = self._clock.monotonic() + answer.pause_seconds
            started = await self._start(pool, state)
            if not state.error and started:
                state.backoff.reset()
            elif not state.error:
                self._back_off(state)
        except Exception as error:  # noqa: BLE001 - the other pools are read all the same
            self._failed(pool, state, error)
        finally:
            state.running = False

    def _named(
        self, pool: Pool, state: _PoolState, waiting: Mapping[str, float]
    ) -> tuple[Mapping[str, float], Trouble]:
        """Return what waits by model id, and whether some of it has a name that no model behind the pool has.

        An adapter or an alias has a name of its own, and a picker calls the names beyond its first thousand ``other``.
        If a pool stands in front of one model, whatever waits there is for that model.
        """
        names = {name for name, count in waiting.items() if count > 0}
        strangers = names.difference(model.model_id for model in state.models)
        if not strangers:
            return waiting, UNTROUBLED
        now = self._clock.monotonic()
        if now >= state.behind_until:
            state.behind, state.behind_until = self._at_rest.models_behind(pool), now + _BEHIND_SECONDS
        if len(state.behind) == 1:
            (model_id,) = state.behind
            return {model_id: min(sum(waiting[name] for name in names), MAX_WAITING)}, UNTROUBLED
        unknown_names = [printable(name) or "no model" for name in sorted(strangers - state.behind)]
        message = f"requests wait for {some_of(unknown_names)}"
        return waiting, Trouble(TroubleReason.NAMES_UNKNOWN, message) if unknown_names else UNTROUBLED

    def _take(self, state: _PoolState, waiting: Mapping[str, float]) -> None:
        """Take what a pool has answered: how many requests wait, by model id."""
        for model_id in state.waiting:
            self._asked_for[model_id] -= 1
            if not self._asked_for[model_id]:
                del self._asked_for[model_id]
        state.waiting = {model_id: count for model_id, count in waiting.items() if count > 0}
        state.asked_at = None
        self._asked_for.update(state.waiting.keys())

    def _failed(self, pool: Pool, state: _PoolState, error: Exception) -> None:
        """Note why a pool was not read, and when to read it again."""
        reason = str(error)
        if not isinstance(error, GatewayError):  # an error in this program
            reason = f"unexpected {cause_of(error)}"
            if self._throttle.permits(pool, reason, self._clock.monotonic()):
                self._logger.error("gateway_failed", pool=str(pool), cause=reason, exc_info=error)
        self._instruments.gateway_reads.labels("error").inc()
        self._back_off(state)
        self._take(state, {})
        if reason != state.error:
            self._logger.warning("gateway_not_read", pool=str(pool), reason=reason)
        state.error = reason
        if state.models:
            self._troubles.report(pool, Trouble(TroubleReason.GATEWAY_UNREADABLE, reason))

    def _back_off(self, state: _PoolState) -> None:
        now = self._clock.monotonic()
        state.due = now + state.backoff.next(now)

    async def _start(self, pool: Pool, state: _PoolState) -> bool:
        """Start the models behind the pool that have requests waiting; tell whether every write succeeded.

        If a model has several pools, the cheapest variant behind any pool with requests for it is started. So the pool
        that answers last looks at the answers of all. The variants are read again, since they may have changed while
        the pools were asked. Another pool may start the model during this reading, so what has been started is checked
        after it.
        """
        queues_by_model: dict[ModelKey, dict[Pool, float]] = {}
        slices = Slices()
        # While the answer of another pool is still to come, that pool starts the model. A picker that takes longer than
        # one poll is not waited for.
        latest = self._clock.monotonic() - POLL_SECONDS
        for model in list(state.models):
            await slices.rest()
            resting = self._resting.get(model, _AWAKE)
            hindered = not self._hindered.keys().isdisjoint(resting.variants)
            if model.model_id not in self._asked_for and not hindered:
                continue
            states = {front_pool: self._pools[front_pool] for front_pool in resting.pools}
            if not hindered and not any(model.model_id in pool_state.waiting for pool_state in states.values()):
                continue
            if all(pool_state.asked_at is None or pool_state.asked_at <= latest for pool_state in states.values()):
                queues_by_model[model] = {
                    front_pool: pool_state.waiting.get(model.model_id, 0.0) for front_pool, pool_state in states.items()
                }
        models = await self._at_rest.variants_of(queues_by_model, self._clock.now()) if queues_by_model else {}
        variants_by_role: dict[ModelKey, dict[str, list[Variant]]] = {}
        for model, role_variants in models.items():
            variants_by_role.setdefault(model.whole, {})[model.role] = role_variants
        starts: list[tuple[ModelKey, Decision]] = []
        for model, queues in sorted(queues_by_model.items()):
            variants = models.get(model, [])
            asking = {front_pool for front_pool, count in queues.items() if count > 0} or {pool}
            candidates = [variant for variant in variants if not asking.isdisjoint(self._pools_of(variant))]
            if not candidates or any(variant.active or variant.key in self._activations for variant in variants):
                continue
            roles = variants_by_role[model.whole]
            if len(roles) > 1 and model.role not in roles_to_start(roles):
                self._release(variant.key for variant in variants)
                continue
            # Two pools may have one picker, so their queues are not added up.
            start = self._decide(model, candidates, max(queues.values(), default=0.0))
            if start is None:
                continue
            # The number of a start that could not be written is published, and a scaler may obey it. So a start of
            # another variant of the model would be one too many.
            failed, until = self._failed_starts.get(model, (start.key, 0.0))
            under_way = failed != start.key and any(variant.key == failed for variant in variants)
            if under_way and self._clock.monotonic() < until:
                continue
            self._refused.pop(model, None)
            starts.append((model, start))
            # Note it at once: another pool of the same model must not start it a second time.
            self._activations[start.key] = (start.desired, self._clock.now())
            self._unsettled.add(model)
        return all(await asyncio.gather(*[self._activate(model, start) for model, start in starts]))

    def _decide(self, model: ModelKey, variants: list[Variant], waiting: float) -> Decision | None:
        """Return the start of a variant of a model; otherwise say what hinders it, or that nothing does any more."""
        try:
            answer = activate(variants, waiting, self._budget())
        except Exception as error:  # noqa: BLE001 - the other models behind the pool are started all the same
            self._fail(model, variants, error)
            return None
        if answer is None:
            self._release((variant.key for variant in variants), before=self._clock.monotonic() - _REPORT_SECONDS)
        if not isinstance(answer, Refusal):
            return answer
        # The condition always has the refusal. Log and event have it once, and again when the reasons change.
        self._instruments.activations.labels("refused").inc()
        message = f"requests wait, nothing can start: {'; '.join(answer.reasons)}"
        for variant in variants:
            self._hinder(variant.key, TroubleReason.START_REFUSED, message)
        if self._refused.get(model) != answer.reasons:
            self._refused[model] = answer.reasons
            self._logger.warning("activation_refused", model=str(model), reasons=list(answer.reasons))
            for variant in variants:
                self._announce(variant.key, "Warning", REFUSED_EVENT, message)
        return None

    async def _activate(self, model: ModelKey, decision: Decision) -> bool:
        """Publish, then write; tell whether the write succeeded. What is published stays: a scaler may obey it."""
        key = decision.key
        self._ledger.record([decision])
        await self._starter.wait_visible(key, decision.desired)
        try:
            await self._starter.scale(key, decision.desired)
        except Exception as error:
            expected = isinstance(error, ApiError)
            reason = str(error) if expected else cause_of(error)
            self._activations.pop(key, None)
            self._failed_starts[model] = (key, self._clock.monotonic() + ACTIVATION_SECONDS)
            self._instruments.activations.labels("error").inc()
            trace = None if expected else error
            self._logger.warning("activation_failed", variant=str(key), reason=reason, exc_info=trace)
            message = f"the target could not be scaled: {reason}"
            self._hinder(key, TroubleReason.START_FAILED, message)
            self._announce(key, "Warning", FAILED_EVENT, message)
            return False
        self._failed_starts.pop(model, None)
        self._release([key])
        self._instruments.activations.labels("success").inc()
        self._logger.info("activated", variant=str(key), desired=decision.desired, reason=decision.message)
        return True

    def _fail(self, model: ModelKey, variants: Iterable[Variant], error: Exception) -> None:
        """Say that a model cannot be started because of an error in this program."""
        cause = f"starting from zero failed: {cause_of(error)}"
        if self._throttle.permits(model, cause, self._clock.monotonic()):
            self._logger.error("model_failed", model=str(model), cause=cause, exc_info=error)
        for variant in variants:
            self._hinder(variant.key, TroubleReason.START_FAILED, cause)

    def _hinder(self, key: VariantKey, reason: TroubleReason, message: str) -> None:
        self._hindered[key] = self._clock.monotonic()
        self._troubles.hinder(key, Trouble(reason, message))

    def _release(self, keys: Iterable[VariantKey], *, before: float = math.inf) -> None:
        """Say that nothing hinders these variants, unless something did after ``before`` (monotonic seconds)."""
        for key in [key for key in keys if self._hindered.get(key, math.inf) < before]:
            del self._hindered[key]
            self._troubles.hinder(key, UNTROUBLED)


def _model_of(va: VariantAutoscaling) -> ModelKey:
    return ModelKey(va.metadata.namespace, va.spec.model_id)


def _at_zero(target: ScaleTarget) -> tuple[str, ...]:
    """Index a target only while it asks for no replica."""
    return () if target.spec_replicas else ("",)


def _essence(va: VariantAutoscaling) -> tuple[object, ...]:
    """Return the parts of a VariantAutoscaling that can make a model wake or rest; most of its status cannot."""
    claim, shadow = (
        va.status.condition(condition_type) for condition_type in (ConditionType.CLAIMED, ConditionType.SHADOW)
    )
    conditions = "" if claim is None else claim.message, "" if shadow is None else shadow.status
    metadata = va.metadata
    return va.spec.model_id, va.spec.scale_target_ref, metadata.uid, metadata.deleting, metadata.labels, conditions


def _rest_of(target: ScaleTarget) -> tuple[object, ...]:
    """Return the parts of a target that matter here: whether it asks for replicas, and the labels that pools select."""
    metadata = target.metadata
    return bool(target.spec_replicas), metadata.uid, metadata.deleting, target.pod_labels


def _reach(pool: InferencePool | InferencePoolAlpha) -> tuple[object, ...]:
    """Return the parts of a pool that matter here: the labels of the pods behind it, and its picker."""
    return pool.metadata.deleting, pool.match_labels, pool.picker
