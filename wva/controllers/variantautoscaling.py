"""VariantAutoscaling: resolve the target, keep the ledger in step with what exists, write the status.

Events come from three sides and all end as keys in one queue: the VA itself (and the VAs that compete for its old or
new target), its target appearing, disappearing or being deleted, and the ledger when a cycle decided otherwise.
The reconcile looks only at the caches, so the order of the events does not matter.

A variant that another controller has is left to it: visible, looked at again, never fought over.

This is the only writer of status. Its patch carries the resourceVersion it was computed from: a conflict means that the
cache is behind, and the key comes back with backoff.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from wva import log
from wva.api.kinds import VARIANT_AUTOSCALINGS
from wva.api.meta import Condition, Key
from wva.api.variantautoscaling import (
    ACCELERATOR_LABEL,
    CONTROLLER_INSTANCE_LABEL,
    Claimant,
    TargetReason,
    VariantAutoscaling,
)
from wva.clock import Clock
from wva.collect.bounds import bound_problems, bounds_of
from wva.collect.claims import Claims
from wva.collect.resolution import TARGET_INDEX, CollectStores, TargetResolution, resolve
from wva.collect.surplus import surplus_problems
from wva.collect.troubles import Troubles
from wva.collect.variants import bare_variant, cost_problems, variant_of, vllm_problems
from wva.config.live import LiveConfiguration
from wva.instruments import Instruments
from wva.kube.client import KubeClient
from wva.kube.controller import After, Done, Result
from wva.kube.errors import ApiError, Conflict, NotFound, WriteRefused
from wva.kube.workqueue import WorkQueue
from wva.model.decision import Decision, Reason
from wva.model.records import replace
from wva.model.trouble import UNTROUBLED, Trouble, cause_of
from wva.model.variant import Bounds, Variant, VariantKey
from wva.publish.announce import CLAIMED_TWICE_EVENT
from wva.publish.conditions import ConfigurationView, TargetView
from wva.publish.ledger import Ledger
from wva.publish.obstacles import begun
from wva.publish.status import HEARTBEAT_SECONDS, status_patch
from wva.targets import ScaleTarget, pods_of, target_key

_RIVALS_LOOKED_AT: Final = 10
"""How many VAs on one target are looked at again when another one comes or goes.

The conflict of two ends with one of them, that of many stays. Without a limit, thousands of VAs on one target would be
looked at thousands of times.
"""

_UNRESOLVABLE = frozenset({TargetReason.TARGET_NOT_FOUND, TargetReason.TARGET_UNSUPPORTED})


_rivals_log = log.get("rivals")


class VariantAutoscalingController:
    """Event mapping and reconcile; the workers are ``kube.controller``'s."""

    def __init__(
        self,
        *,
        client: KubeClient,
        stores: CollectStores,
        ledger: Ledger,
        configuration: LiveConfiguration,
        claims: Claims,
        troubles: Troubles,
        announce: Callable[[VariantKey, str, str, str], None],
        clock: Clock,
        instruments: Instruments,
    ) -> None:
        """Prepare the queue; nothing is subscribed before ``watch``.

        ``troubles`` knows what stands in the way of variants. ``announce`` records an event on a variant: type,
        reason, message.
        """
        self._client = client
        self._stores = stores
        self._ledger = ledger
        self._configuration = configuration
        self._claims = claims
        self._troubles = troubles
        self._announce = announce
        self._clock = clock
        self._status_patches = instruments.status_patches
        self._logger = log.get("variantautoscaling")
        self._throttle = log.Throttle()
        self._replaced: set[Key] = set()
        self._learning: Key | None = None
        """The VA of which the store takes the answer to our own patch right now: no reason to look at it again."""
        self._rivals: dict[Key, Claimant] = {}
        """The VAs that are left to another controller."""
        instruments.variants_left.set_function(self._rivals.__len__)
        self.queue: WorkQueue[Key] = WorkQueue("variantautoscaling", clock=clock, instruments=instruments)

    def watch(self) -> None:
        """Subscribe to the caches and the ledger."""
        self._stores.variant_autoscalings.subscribe(self._on_va)
        self._stores.targets.subscribe(self._on_target)
        self._ledger.subscribe(
            lambda key, _old, new: None if new is None else self.queue.add(Key(key.namespace, key.name))
        )

    def enqueue_all(self, namespace: str | None = None) -> None:
        """Look at every VA again, or at those of a namespace, for example after a change of configuration."""
        self.queue.add_all(va.metadata.key for va in self._stores.variant_autoscalings.list(namespace))

    def known(self, key: VariantKey) -> bool:
        """Tell whether a variant still has a target to scale."""
        va = self._va(key)
        return va is not None and self._handles(va) and self._resolve(va).found

    def current_replicas(self, key: VariantKey) -> int | None:
        """Return the replicas that exist, from the cache; None when there is no target."""
        va = self._va(key)
        target = None if va is None else self._stores.targets.named(va)
        if target is None:
            return None
        return target.current_replicas if target.spec_replicas else target.existing_replicas

    def statuses(self) -> list[VariantKey]:
        """Return all variants that the cache has, in order."""
        return [VariantKey(*va.metadata.key) for va in self._stores.variant_autoscalings.list()]

    def conditions(self, key: VariantKey) -> tuple[Condition, ...]:
        """Return the conditions of a variant, from the cache; none when this controller does not decide on it."""
        va = self._va(key)
        return va.status.conditions if va is not None and self._handles(va) else ()

    def bounds(self, key: VariantKey) -> Bounds | None:
        """Return what the scaler of a variant can reach, from the caches; None when the variant is gone."""
        va = self._va(key)
        return None if va is None else bounds_of(va, self._stores.scalers)

    async def reconcile(self, key: Key) -> Result:
        """Bring ledger and status of one VA in line with the caches. Raises ApiError, to be retried."""
        va = self._stores.variant_autoscalings.get(key)
        variant_key = VariantKey(key.namespace, key.name)
        if va is None or not self._handles(va):
            self._replaced.discard(key)
            self._ledger.drop(variant_key)
            return self._leave(key, va)
        self._rivals.pop(key, None)
        resolution = self._resolve(va)
        decision = None
        # The ledger has a decision exactly when there is a workload.
        if resolution.reason in _UNRESOLVABLE:
            self._ledger.drop(variant_key)
        else:
            decision = self._ledger.get(variant_key)
            target = self._stores.targets.named(va)
            if target is not None:
                # Another client has started it: its 0 must not stop it before a cycle has looked at it.
                started = decision is not None and decision.reason is Reason.INACTIVE and target.spec_replicas > 0
                if decision is None or started:
                    decision = self._ledger.hold(self._variant(va, target))
        await self._write(va, resolution, decision if resolution.found else None)
        return After(HEARTBEAT_SECONDS)

    def _leave(self, key: Key, va: VariantAutoscaling | None) -> Result:
        """Note why a VA is not handled; return when to look again: at the latest when the rival's claim has run out."""
        now, claims = self._clock.now(), self._claims
        if va is None or va.metadata.deleting or not claims.wanted(va):
            self._rivals.pop(key, None)
            return Done()
        rival = claims.rival(va, now)
        if rival is None:  # it has just gone
            return After(1.0)
        if self._rivals.get(key) != rival:
            self._rivals[key] = rival
            # An instance that takes what is labelled for it is in order, anything else is a mistake.
            label = va.metadata.labels.get(CONTROLLER_INSTANCE_LABEL, "")
            expected = bool(label) and rival.instance == label and not claims.me.instance
            message = f"left to controller {rival}, which decides on it; controller {claims.me} would take it, too"
            if not expected:
                message += ": give each controller an instance of its own, and the variant the label "
                message += CONTROLLER_INSTANCE_LABEL
            self._announce(VariantKey(*key), "Normal" if expected else "Warning", CLAIMED_TWICE_EVENT, message)
            say = _rivals_log.info if expected else _rivals_log.warning
            say("variant_claimed_twice", variant=str(key), decides=str(rival), yields=str(claims.me))
        return After(claims.free_in_seconds(va, now))

    async def _write(self, va: VariantAutoscaling, resolution: TargetResolution, decision: Decision | None) -> None:
        """Write the status if it has changed. Raises ApiError."""
        key, spec = VariantKey(*va.metadata.key), va.spec
        patch = status_patch(
            va,
            target=TargetView(
                resolution.found,
                resolution.reason,
                resolution.message,
                spec.scale_target_ref.name,
                None if resolution.reason in _UNRESOLVABLE else self.current_replicas(key),
                spec.scale_target_ref.kind,
            ),
            decision=decision,
            configuration=self._view(va, resolution.target),
            now=self._clock.now(),
        )
        if patch is None:
            return
        patches = self._status_patches
        try:
            answer = await self._client.patch(VARIANT_AUTOSCALINGS, va.metadata.key, patch, subresource="status")
        except NotFound:
            return  # deleted meanwhile: the watch will say so
        except Conflict:
            patches.labels("conflict").inc()
            raise
        except WriteRefused:
            raise  # nothing was sent, so nothing failed
        except ApiError:
            patches.labels("error").inc()
            raise
        patches.labels("success").inc()
        for announcement in begun(va.status.conditions, answer.status.conditions):
            self._announce(key, *announcement)
        # The next number may be there before the watch tells of this patch; its patch must not conflict with ours.
        self._learning = va.metadata.key
        self._stores.variant_autoscalings.learn(answer, replaces=va)
        self._learning = None

    def _view(self, va: VariantAutoscaling, target: ScaleTarget | None) -> ConfigurationView:
        """Return what is written for this variant and not in force, and what stands in its way."""
        stores, troubles = self._stores, self._troubles
        checks: tuple[Callable[[], Iterable[str]], ...] = (
            lambda: [self._configuration.problem_for(va)],
            lambda: bound_problems(va, stores.scalers),
            lambda: cost_problems(va),
            lambda: surplus_problems(va, target),
            lambda: vllm_problems(target),
        )
        told: list[str] = []
        for check in checks:
            try:
                told += [*check()]
            except Exception as error:  # noqa: BLE001 - the rest of the status is written all the same
                told.append(f"a check failed: {self._tell_failure(va, error)}")
        view = ConfigurationView("; ".join(filter(None, told)), self._claims.me.text)
        if target is None:
            return view
        accelerator = va.metadata.labels.get(ACCELERATOR_LABEL, "")
        namespace, labels = va.metadata.namespace, target.pod_labels
        return replace(
            view,
            gateway=self._trouble(va, lambda: troubles.gateway(namespace, labels)),
            inventory=self._trouble(va, lambda: troubles.inventory(accelerator, pods_of(target, stores.targets))),
            start=self._trouble(va, lambda: troubles.start(VariantKey(*va.metadata.key))),
        )

    def _trouble(self, va: VariantAutoscaling, read: Callable[[], Trouble]) -> Trouble:
        try:
            return read()
        except Exception as error:  # noqa: BLE001 - the rest of the status is written all the same
            self._tell_failure(va, error)
            return UNTROUBLED

    def _tell_failure(self, va: VariantAutoscaling, error: Exception) -> str:
        """Log an error about one variant, though not again and again; return what it was."""
        key, cause = va.metadata.key, cause_of(error)
        if self._throttle.permits(key, cause, self._clock.monotonic()):
            self._logger.error("variant_check_failed", variant=str(key), cause=cause, exc_info=error)
        return cause

    def _va(self, key: VariantKey) -> VariantAutoscaling | None:
        return self._stores.variant_autoscalings.get(Key(key.namespace, key.name))

    def _handles(self, va: VariantAutoscaling) -> bool:
        return not va.metadata.deleting and self._claims.mine(va, self._clock.now())

    def _resolve(self, va: VariantAutoscaling) -> TargetResolution:
        stores = self._stores
        return resolve(va, vas=stores.variant_autoscalings, targets=stores.targets)

    def _variant(self, va: VariantAutoscaling, target: ScaleTarget) -> Variant:
        """Return the variant; what its status says is not taken over if its target has been replaced meanwhile."""
        stores = self._stores
        try:
            pods = pods_of(target, stores.targets)
            variant = variant_of(va, target=target, pods=pods, bounds=bounds_of(va, stores.scalers))
        except Exception as error:
            # Its number must be there all the same; the cycle says that the variant cannot be read.
            bare = bare_variant(va, stores)
            if bare is None:
                raise
            variant = bare.variant
            self._tell_failure(va, error)
        if va.metadata.key not in self._replaced:
            return variant
        self._replaced.discard(va.metadata.key)
        return replace(variant, status_desired=None, settling_since=None)

    def _on_va(self, old: VariantAutoscaling | None, new: VariantAutoscaling | None) -> None:
        va = new or old
        if va is None:
            return
        if new is None or not self._handles(new):
            # At once and not in the reconcile: another controller may be publishing its number by then.
            self._ledger.drop(VariantKey(*va.metadata.key))
        if va.metadata.key != self._learning:
            self.queue.add(va.metadata.key, low=old is None)
        targets = {target_key(entry) for entry in (old, new) if entry is not None}
        presence_changed = old is None or new is None or old.metadata.deleting != new.metadata.deleting
        if presence_changed or len(targets) > 1:
            self._enqueue_claimants(targets, most=_RIVALS_LOOKED_AT)

    def _on_target(self, old: ScaleTarget | None, new: ScaleTarget | None) -> None:
        """Wake the VAs of a target that came, went, was asked to go, or left or reached zero replicas.

        What was decided for one that went is dropped here and not in the reconcile: a new one of the same name may be
        there by then, and it begins with its own replicas.
        """
        changed = new or old
        if changed is None:
            return
        target = self._stores.targets.key_of(changed)
        if old is not None and (new is None or old.metadata.uid != new.metadata.uid):
            for claimant in self._claimants(target):
                self._replaced.add(claimant)
                self._ledger.drop(VariantKey(*claimant))
        elif old is not None and new is not None:
            same = old.metadata.deleting == new.metadata.deleting and bool(old.spec_replicas) == bool(new.spec_replicas)
            if same:
                return
        self._enqueue_claimants({target})

    def _enqueue_claimants(self, targets: Iterable[str], most: int | None = None) -> None:
        for target in targets:
            for claimant in self._claimants(target, most):
                self.queue.add(claimant)

    def _claimants(self, target: str, most: int | None = None) -> list[Key]:
        vas = self._stores.variant_autoscalings
        return vas.first_by_index(TARGET_INDEX, target, len(vas) if most is None else most)
