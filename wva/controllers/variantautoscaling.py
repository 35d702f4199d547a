"""VariantAutoscaling: resolve the target, keep the ledger in step with what exists, write the status.

Events come from three sides and all end as keys in one queue: the VA itself (and the VAs that compete for its old or
new target), its target appearing, disappearing or being deleted, and the ledger when a cycle decided otherwise.
The reconcile looks only at the caches, so the order of the events does not matter.

This is the only writer of status. Its patch carries the resourceVersion it was computed from: a conflict means that the
cache is behind, and the key comes back with backoff.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from wva import log
from wva.api.core import Pod
from wva.api.kinds import VARIANT_AUTOSCALINGS
from wva.api.meta import Condition, Key
from wva.api.variantautoscaling import ACCELERATOR_LABEL, TargetReason, VariantAutoscaling
from wva.clock import Clock
from wva.collect.bounds import bound_problems, bounds_of
from wva.collect.claims import Claims
from wva.collect.resolution import TargetResolution, resolve
from wva.collect.stores import TARGET_INDEX, CollectStores
from wva.collect.surplus import surplus_problems
from wva.collect.variants import bare_variant, cost_problems, variant_of
from wva.collect.vllm_arguments import vllm_problems
from wva.controllers.rivals import Rivals
from wva.instruments import Instruments
from wva.kube.client import KubeClient
from wva.kube.controller import After, Result
from wva.kube.errors import ApiError, Conflict, NotFound, WriteRefused
from wva.kube.workqueue import WorkQueue
from wva.model.decision import Decision, Reason
from wva.model.failures import cause_of
from wva.model.records import replace
from wva.model.trouble import UNTROUBLED, Trouble
from wva.model.variant import Bounds, Variant, VariantKey
from wva.publish.ledger import Ledger
from wva.publish.obstacles import begun
from wva.publish.status import HEARTBEAT_SECONDS, ConfigurationView, TargetView, status_patch
from wva.targets import ScaleTarget, pods_of, target_key

_RIVALS_LOOKED_AT: Final = 10
"""How many VAs on one target are looked at again when another one comes or goes.

The conflict of two ends with one of them, that of many stays. Without a limit, thousands of VAs on one target would be
looked at thousands of times.
"""

_UNRESOLVABLE = frozenset({TargetReason.TARGET_NOT_FOUND, TargetReason.TARGET_UNSUPPORTED})


class VariantConfiguration(Protocol):
    """The part of the live configuration that a VA's status tells about."""

    def problem_for(self, va: VariantAutoscaling) -> str:
        """Return why configuration for this variant is not in force; empty when all of it is."""
        ...


class Surroundings(Protocol):
    """What a VA's status tells about what is around the variant."""

    def gateway(self, namespace: str, labels: Mapping[str, str]) -> Trouble:
        """Return what is wrong with the gateways in front of pods with these labels."""
        ...

    def inventory(self, accelerator: str, pods: Iterable[Pod]) -> Trouble:
        """Return what is wrong with the GPUs of a variant with this accelerator and these pods."""
        ...

    def start(self, key: VariantKey) -> Trouble:
        """Return what keeps a variant from being started from zero."""
        ...


class _Untroubled:
    """Nothing is known to be wrong."""

    def gateway(self, _namespace: str, _labels: Mapping[str, str]) -> Trouble:
        return UNTROUBLED

    def inventory(self, _accelerator: str, _pods: Iterable[Pod]) -> Trouble:
        return UNTROUBLED

    def start(self, _key: VariantKey) -> Trouble:
        return UNTROUBLED


Announce = Callable[[VariantKey, str, str, str], None]
"""Records a Kubernetes event on a variant: key, type, reason, message."""


def _say_nothing(key: VariantKey, type_: str, reason: str, message: str) -> None:
    """Record no event."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What the controller works with."""

    client: KubeClient
    stores: CollectStores
    ledger: Ledger
    configuration: VariantConfiguration
    clock: Clock
    instruments: Instruments
    claims: Claims = Claims()  # noqa: RUF009 - frozen
    announce: Announce = _say_nothing
    surroundings: Surroundings = _Untroubled()  # noqa: RUF009 - without state


class VariantAutoscalingController:
    """Event mapping and reconcile; the workers are ``kube.controller``'s."""

    def __init__(self, dependencies: Dependencies) -> None:
        """Prepare the queue; nothing is subscribed before ``watch``."""
        self._deps = dependencies
        self._logger = log.get("variantautoscaling")
        self._throttle = log.Throttle()
        self._replaced: set[Key] = set()
        self._learning: Key | None = None
        """The VA of which the store takes the answer to our own patch right now: no reason to look at it again."""
        self._rivals = Rivals(dependencies.claims, announce=dependencies.announce, clock=dependencies.clock)
        dependencies.instruments.variants_left.set_function(self._rivals.__len__)
        self.queue: WorkQueue[Key] = WorkQueue(
            "variantautoscaling", clock=dependencies.clock, instruments=dependencies.instruments
        )

    def watch(self) -> None:
        """Subscribe to the caches and the ledger."""
        self._deps.stores.variant_autoscalings.subscribe(self._on_va)
        self._deps.stores.targets.subscribe(self._on_target)
        self._deps.ledger.subscribe(self._on_decision)

    def enqueue_all(self, namespace: str | None = None) -> None:
        """Look at every VA again, or at those of a namespace, for example after a change of configuration."""
        self.queue.add_all(va.metadata.key for va in self._deps.stores.variant_autoscalings.list(namespace))

    def known(self, key: VariantKey) -> bool:
        """Tell whether a variant still has a target to scale."""
        va = self._deps.stores.variant_autoscalings.get(Key(key.namespace, key.name))
        return va is not None and self._handles(va) and self._resolve(va).found

    def current_replicas(self, key: VariantKey) -> int | None:
        """Return the replicas that exist, from the cache; None when there is no target."""
        va = self._deps.stores.variant_autoscalings.get(Key(key.namespace, key.name))
        target = None if va is None else self._deps.stores.targets.named(va)
        if target is None:
            return None
        return target.current_replicas if target.spec_replicas else target.existing_replicas

    def statuses(self) -> list[VariantKey]:
        """Return all variants that the cache has, in order."""
        return [VariantKey(*va.metadata.key) for va in self._deps.stores.variant_autoscalings.list()]

    def conditions(self, key: VariantKey) -> tuple[Condition, ...]:
        """Return the conditions of a variant, from the cache; none when this controller does not decide on it."""
        va = self._deps.stores.variant_autoscalings.get(Key(key.namespace, key.name))
        return va.status.conditions if va is not None and self._handles(va) else ()

    def bounds(self, key: VariantKey) -> Bounds | None:
        """Return what the scaler of a variant can reach, from the caches; None when the variant is gone."""
        va = self._deps.stores.variant_autoscalings.get(Key(key.namespace, key.name))
        return None if va is None else bounds_of(va, self._deps.stores.scalers)

    async def reconcile(self, key: Key) -> Result:
        """Bring ledger and status of one VA in line with the caches. Raises ApiError, to be retried."""
        va = self._deps.stores.variant_autoscalings.get(key)
        variant_key = VariantKey(key.namespace, key.name)
        if va is None or not self._handles(va):
            self._replaced.discard(key)
            self._deps.ledger.drop(variant_key)
            return self._rivals.look(key, va)
        self._rivals.forget(key)
        resolution = self._resolve(va)
        decision = self._settle(va, variant_key, resolution)
        await self._write(va, resolution, decision)
        return After(HEARTBEAT_SECONDS)

    def _settle(self, va: VariantAutoscaling, key: VariantKey, resolution: TargetResolution) -> Decision | None:
        """Return the decision to show; make sure that the ledger has one exactly when there is a workload."""
        if resolution.reason in _UNRESOLVABLE:
            self._deps.ledger.drop(key)
            return None
        known = self._deps.ledger.get(key)
        target = self._deps.stores.targets.named(va)
        if target is not None:
            # Somebody else has started it: its 0 must not stop it before a cycle has looked at it.
            started = known is not None and known.reason is Reason.INACTIVE and target.spec_replicas > 0
            if known is None or started:
                known = self._deps.ledger.hold(self._variant(va, target))
        return known if resolution.found else None

    async def _write(self, va: VariantAutoscaling, resolution: TargetResolution, decision: Decision | None) -> None:
        patch = status_patch(
            va,
            target=TargetView(
                resolution.found,
                resolution.reason,
                resolution.message,
                va.spec.scale_target_ref.name,
                None if resolution.reason in _UNRESOLVABLE else self.current_replicas(VariantKey(*va.metadata.key)),
                va.spec.scale_target_ref.kind,
            ),
            decision=decision,
            configuration=self._view(va, resolution.target),
            now=self._deps.clock.now(),
        )
        if patch is None:
            return
        patches = self._deps.instruments.status_patches
        try:
            answer = await self._deps.client.patch(VARIANT_AUTOSCALINGS, va.metadata.key, patch, subresource="status")
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
            self._deps.announce(VariantKey(*va.metadata.key), *announcement)
        # The next number may be there before the watch tells of this patch; its patch must not conflict with ours.
        self._learning = va.metadata.key
        self._deps.stores.variant_autoscalings.learn(answer, replaces=va)
        self._learning = None

    def _problems(self, va: VariantAutoscaling, target: ScaleTarget | None) -> str:
        """Return what is written for this variant and not in force, in one line; empty when all of it is."""
        checks: tuple[Callable[[], Iterable[str]], ...] = (
            lambda: [self._deps.configuration.problem_for(va)],
            lambda: bound_problems(va, self._deps.stores.scalers),
            lambda: cost_problems(va),
            lambda: surplus_problems(va, target),
            lambda: vllm_problems(target),
        )
        return "; ".join(text for check in checks for text in self._told(va, check) if text)

    def _told(self, va: VariantAutoscaling, check: Callable[[], Iterable[str]]) -> list[str]:
        """Return what a check says, or that it failed: the rest of the status is written all the same."""
        try:
            return list(check())
        except Exception as error:  # noqa: BLE001 - the rest of the status is written all the same
            return [f"a check failed: {self._tell_failure(va, error)}"]

    def _view(self, va: VariantAutoscaling, target: ScaleTarget | None) -> ConfigurationView:
        view = ConfigurationView(self._problems(va, target), self._deps.claims.me.text)
        if target is None:
            return view
        around, labels = self._deps.surroundings, target.pod_labels
        targets = self._deps.stores.targets
        accelerator = va.metadata.labels.get(ACCELERATOR_LABEL, "")
        return replace(
            view,
            gateway=self._trouble(va, lambda: around.gateway(va.metadata.namespace, labels)),
            inventory=self._trouble(va, lambda: around.inventory(accelerator, pods_of(target, targets))),
            start=self._trouble(va, lambda: around.start(VariantKey(*va.metadata.key))),
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
        if self._throttle.permits(key, cause, self._deps.clock.monotonic()):
            self._logger.error("variant_check_failed", variant=str(key), cause=cause, exc_info=error)
        return cause

    def _handles(self, va: VariantAutoscaling) -> bool:
        return not va.metadata.deleting and self._deps.claims.mine(va, self._deps.clock.now())

    def _resolve(self, va: VariantAutoscaling) -> TargetResolution:
        stores = self._deps.stores
        return resolve(va, vas=stores.variant_autoscalings, targets=stores.targets)

    def _variant(self, va: VariantAutoscaling, target: ScaleTarget) -> Variant:
        """Return the variant; what its status says of a target that went under our eyes is not taken over."""
        stores = self._deps.stores
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
            self._deps.ledger.drop(VariantKey(*va.metadata.key))
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
        target = self._deps.stores.targets.key_of(changed)
        if old is not None and (new is None or old.metadata.uid != new.metadata.uid):
            for claimant in self._claimants(target):
                self._replaced.add(claimant)
                self._deps.ledger.drop(VariantKey(*claimant))
        elif old is not None and new is not None:
            same = old.metadata.deleting == new.metadata.deleting and bool(old.spec_replicas) == bool(new.spec_replicas)
            if same:
                return
        self._enqueue_claimants({target})

    def _on_decision(self, key: VariantKey, old: Decision | None, new: Decision | None) -> None:  # noqa: ARG002 - listener
        if new is not None:
            self.queue.add(Key(key.namespace, key.name))

    def _enqueue_claimants(self, targets: Iterable[str], most: int | None = None) -> None:
        for target in targets:
            for claimant in self._claimants(target, most):
                self.queue.add(claimant)

    def _claimants(self, target: str, most: int | None = None) -> list[Key]:
        vas = self._deps.stores.variant_autoscalings
        return vas.first_by_index(TARGET_INDEX, target, len(vas) if most is None else most)
