"""Reconcilers: which events concern which keys, and what the object of a key should look like.

The reconciler of VariantAutoscalings (VAs) resolves the target, keeps the ledger in step with what exists, and writes
the status. Its events come from three sides: a VA itself and the VAs that compete for its old or new target; a target
that comes, goes or is being deleted; and the ledger, when a cycle has changed a decision. All of them end as keys in
one queue. The reconcile looks only at the caches, so the order of the events does not matter. If another controller
has a VA, this one leaves it alone: it shows that it does so, and looks again later.

No other code writes the status. The patch carries the resourceVersion that it was computed from. A conflict means that
the cache is behind, and the key comes back with backoff.

``NamespaceController`` follows labels and annotations of namespaces, and puts what has to be done into the queues of
the other reconcilers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from wva import log
from wva.actuation import Actuation, actuation_of, actuation_problems
from wva.api.core import EXCLUDE_ANNOTATION, Namespace
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
from wva.collect.local_scope import LocalScope
from wva.collect.objectives import asked_objectives, objective_problems
from wva.collect.resolution import (
    RIVALS_LOOKED_AT,
    TARGET_INDEX,
    CollectStores,
    TargetResolution,
    bound_problems,
    bounds_of,
    resolve,
)
from wva.collect.surplus import surplus_problems
from wva.collect.troubles import Troubles
from wva.collect.variants import Claims, bare_variant, cost_problems, role_of_target, variant_of, vllm_problems
from wva.config.live import LiveConfiguration
from wva.config.watch import ConfigMapStores
from wva.instruments import Instruments
from wva.kube.client import KubeClient
from wva.kube.controller import After, Done, Result
from wva.kube.errors import ApiError, Conflict, NotFound, WriteRefused
from wva.kube.workqueue import WorkQueue
from wva.model.decision import Decision, Reason
from wva.model.objectives import AskedObjectives
from wva.model.records import replace
from wva.model.trouble import UNTROUBLED, Trouble, TroubleReason, cause_of
from wva.model.variant import Bounds, ModelKey, Variant, VariantKey
from wva.publish.announce import CLAIMED_TWICE_EVENT
from wva.publish.conditions import ConfigurationView, TargetView
from wva.publish.ledger import Ledger
from wva.publish.obstacles import begun
from wva.publish.status import HEARTBEAT_SECONDS, status_patch
from wva.targets import ScaleTarget, pods_of, target_key

EXCLUDED_EVENT: Final = "NamespaceExcluded"

_UNRESOLVABLE: Final = frozenset({TargetReason.TARGET_NOT_FOUND, TargetReason.TARGET_UNSUPPORTED})

_rivals_log = log.get("rivals")


class VariantAutoscalingController:
    """Maps events to keys, and reconciles a key."""

    def __init__(
        self,
        *,
        client: KubeClient,
        stores: CollectStores,
        ledger: Ledger,
        configuration: LiveConfiguration,
        claims: Claims,
        troubles: Troubles,
        actuation: Callable[[Key], Trouble] = lambda _key: UNTROUBLED,
        queries: Callable[[str], Trouble] = lambda _namespace: UNTROUBLED,
        served: Callable[[ModelKey], Trouble | None] = lambda _model: None,
        direct: bool = False,
        push: bool = False,
        announce: Callable[[VariantKey, str, str, str], None],
        clock: Clock,
        instruments: Instruments,
    ) -> None:
        """Prepare the queue; nothing is subscribed before ``watch``.

        ``actuation`` tells what keeps a number from being written, ``queries`` which queries about a namespace have no
        answer, ``served`` whether the users of a model are served within its objective (None before the first check),
        ``direct`` whether the process writes numbers, and ``push`` whether it listens for KEDA. ``announce`` records
        an event on a variant: type, reason, message.
        """
        self._actuation = actuation
        self._queries = queries
        self._served = served
        self._direct = direct
        self._push = push
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
        """The VAs whose target was replaced by another one of the same name, until the next reconcile."""
        self._learning: Key | None = None
        """The VA whose new state the store is just taking from the answer to WVA's own patch: it need not be queued."""
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
        return va is not None and self._handles(va) and self._resolve(va).has_target

    def current_replicas(self, key: VariantKey) -> int | None:
        """Return the replicas that exist; None when there is no target."""
        va = self._va(key)
        target = None if va is None else self._stores.targets.named(va)
        if target is None:
            return None
        return target.current_replicas if target.spec_replicas else target.existing_replicas

    def role(self, key: VariantKey) -> str:
        """Return what the pods of a variant compute of a request; empty if they do not say it, or without a target."""
        va = self._va(key)
        target = None if va is None else self._stores.targets.named(va)
        return "" if target is None else role_of_target(target, self._stores.role_labels)

    def statuses(self) -> list[VariantKey]:
        """Return all variants, in order."""
        return [VariantKey(*va.metadata.key) for va in self._stores.variant_autoscalings.list()]

    def conditions(self, key: VariantKey) -> tuple[Condition, ...]:
        """Return the conditions of a variant; none when this controller does not decide on it."""
        va = self._va(key)
        return va.status.conditions if va is not None and self._handles(va) else ()

    def bounds(self, key: VariantKey) -> Bounds | None:
        """Return what the scaler of a variant can reach; None when the variant is gone."""
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
                # Another client may have started it. Its 0 must not stop it before a cycle has looked at it.
                started = decision is not None and decision.reason is Reason.INACTIVE and target.spec_replicas > 0
                if decision is None or started:
                    decision = self._ledger.hold(self._variant(va, target))
        await self._write(va, resolution, decision if resolution.has_target else None)
        return After(HEARTBEAT_SECONDS)

    def _leave(self, key: Key, va: VariantAutoscaling | None) -> Result:
        """Note why a VA is left alone. Return when to look again: at the latest when the rival's claim has run out."""
        now, claims = self._clock.now(), self._claims
        if va is None or va.metadata.deleting or not claims.wanted(va):
            self._rivals.pop(key, None)
            return Done()
        rival = claims.rival(va, now)
        if rival is None:  # it has just gone
            return After(1.0)
        if self._rivals.get(key) != rival:
            self._rivals[key] = rival
            # An instance may take the VAs that are labelled for it. Anything else is a mistake.
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
                resolution.has_target,
                resolution.reason,
                resolution.message,
                spec.scale_target_ref.name,
                None if resolution.reason in _UNRESOLVABLE else self.current_replicas(key),
                spec.scale_target_ref.kind,
                self._role(va, resolution),
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
            return  # it was deleted meanwhile, and the watch will say so
        except ApiError as error:
            if not isinstance(error, WriteRefused):  # then nothing was sent, so nothing failed
                patches.labels("conflict" if isinstance(error, Conflict) else "error").inc()
            raise
        patches.labels("success").inc()
        for announcement in begun(va.status.conditions, answer.status.conditions):
            self._announce(key, *announcement)
        # The next number may come before the watch reports this patch. The next patch must not conflict with this one.
        self._learning = va.metadata.key
        self._stores.variant_autoscalings.learn(answer, replaces=va)
        self._learning = None

    def _role(self, va: VariantAutoscaling, resolution: TargetResolution) -> str:
        if resolution.reason in _UNRESOLVABLE:
            return ""
        try:
            return self.role(VariantKey(*va.metadata.key))
        except Exception as error:  # noqa: BLE001 - the rest of the status is written all the same
            self._tell_failure(va, error)
            return ""

    def _view(self, va: VariantAutoscaling, target: ScaleTarget | None) -> ConfigurationView:
        """Return the configuration of this variant that is not in force, and the obstacles to scaling it."""
        stores, troubles = self._stores, self._troubles
        checks: tuple[Callable[[], Iterable[str]], ...] = (
            lambda: [self._configuration.problem_for(va)],
            lambda: bound_problems(va, stores.scalers),
            lambda: cost_problems(va),
            lambda: objective_problems(va, self._configuration.policy, lambda: self._asked_beside(va)),
            lambda: surplus_problems(va, target),
            lambda: vllm_problems(target),
            lambda: actuation_problems(va, enabled=self._direct, push=self._push),
        )
        problems: list[str] = []
        for check in checks:
            try:
                problems += [*check()]
            except Exception as error:  # noqa: BLE001 - the rest of the status is written all the same
                problems.append(f"a check failed: {self._tell_failure(va, error)}")
        shadow = self._ledger.shadow(VariantKey(*va.metadata.key))
        served = self._served(ModelKey(va.metadata.namespace, va.spec.model_id))
        view = ConfigurationView("; ".join(filter(None, problems)), self._claims.me.text, served=served, shadow=shadow)
        if target is None:
            return view
        accelerator = va.metadata.labels.get(ACCELERATOR_LABEL, "")
        namespace, labels = va.metadata.namespace, target.pod_labels
        return replace(
            view,
            queries=self._queries(namespace),
            gateway=self._trouble(va, lambda: troubles.gateway(namespace, labels)),
            inventory=self._trouble(va, lambda: troubles.inventory(accelerator, pods_of(target, stores.targets))),
            late=self._trouble(va, lambda: self._late(va)),
            start=self._trouble(va, lambda: troubles.start(VariantKey(*va.metadata.key))),
            actuation=self._actuation(va.metadata.key),
        )

    def _asked_beside(self, va: VariantAutoscaling) -> Iterator[AskedObjectives]:
        """Yield what the other variants of the model ask for. One that only people can start has no say."""
        for other in self._stores.variant_autoscalings.list(va.metadata.namespace):
            if other.metadata.key == va.metadata.key or other.spec.model_id != va.spec.model_id:
                continue
            asked = asked_objectives(other)
            if asked is None or not self._handles(other):
                continue
            target = self._resolve(other).target
            if target is not None and (target.spec_replicas > 0 or bounds_of(other, self._stores.scalers).minimum == 0):
                yield asked

    def _late(self, va: VariantAutoscaling) -> Trouble:
        """Return why replicas are not there in time. Where nothing scales the target, that is why."""
        late = self._troubles.late(VariantKey(*va.metadata.key))
        followed = actuation_of(va) is Actuation.DIRECT or any(self._stores.scalers.of(va))
        if late.reason != TroubleReason.SCALER_NOT_FOLLOWING or followed:
            return late
        return Trouble(TroubleReason.SCALER_MISSING, f"{late.message}; no HPA or ScaledObject names the target")

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
        """Return the variant. If its target has been replaced meanwhile, the number in its status does not count."""
        stores = self._stores
        try:
            pods = pods_of(target, stores.targets)
            bounds = bounds_of(va, stores.scalers)
            variant = variant_of(va, target=target, pods=pods, bounds=bounds, role_labels=stores.role_labels)
        except Exception as error:  # noqa: BLE001 - its number must be there all the same
            # The cycle says that the variant cannot be read.
            variant = bare_variant(va, target)
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
            # Do this now and not in the reconcile: another controller may publish its number by then.
            self._ledger.drop(VariantKey(*va.metadata.key))
        if va.metadata.key != self._learning:
            self.queue.add(va.metadata.key, low=old is None)
        targets = {target_key(version) for version in (old, new) if version is not None}
        presence_changed = old is None or new is None or old.metadata.deleting != new.metadata.deleting
        if presence_changed or len(targets) > 1:
            vas = self._stores.variant_autoscalings
            for target in targets:
                self.queue.add_all(vas.first_by_index(TARGET_INDEX, target, RIVALS_LOOKED_AT))

    def _on_target(self, old: ScaleTarget | None, new: ScaleTarget | None) -> None:
        """Wake the VAs of a target that came, went, is being deleted, left or reached zero replicas, or has new labels.

        The decision on a target that went is dropped here and not in the reconcile: a new target of the same name may
        be there by then, and it begins with its own replicas.
        """
        changed = new or old
        if changed is None:
            return
        replaced = old is not None and (new is None or old.metadata.uid != new.metadata.uid)
        if old is not None and new is not None and not replaced and _presence(old) == _presence(new):
            return
        vas = self._stores.variant_autoscalings
        claimants = vas.first_by_index(TARGET_INDEX, self._stores.targets.key_of(changed), len(vas))
        if replaced:
            self._replaced.update(claimants)
            for claimant in claimants:
                self._ledger.drop(VariantKey(*claimant))
        self.queue.add_all(claimants)


def _presence(target: ScaleTarget) -> tuple[bool, bool, dict[str, str]]:
    return target.metadata.deleting, bool(target.spec_replicas), target.replica_labels


class NamespaceController:
    """Follows whether the ConfigMaps of a namespace count, and whether the namespace is excluded.

    It remembers only its last answers. When one of them changes, the ConfigMaps or the VAs of the namespace are looked
    at again. So it does not matter whether the ConfigMap, the label of the namespace or the first VA comes first.
    """

    def __init__(
        self,
        scope: LocalScope,
        *,
        config_maps: ConfigMapStores,
        config_map_queue: WorkQueue[Key],
        variant_queue: WorkQueue[Key],
        announce: Callable[[VariantKey, str, str, str], None],
    ) -> None:
        """Subscribe to nothing before ``watch``. ``announce`` records an event on a variant: type, reason, message."""
        self._scope = scope
        self._config_maps = config_maps
        self._config_map_queue = config_map_queue
        self._variant_queue = variant_queue
        self._record_event = announce
        self._known: dict[str, tuple[bool, str]] = {}
        """By namespace: whether it is excluded, and why its ConfigMaps do not count (empty when they do)."""
        self._logger = log.get("namespaces")

    def watch(self) -> None:
        """Follow the caches, which have synced."""
        scope = self._scope

        def on_namespace(old: Namespace | None, new: Namespace | None) -> None:
            namespace = new or old
            if namespace is not None:
                self._look(namespace.metadata.name)

        present = {namespace.metadata.name for namespace in scope.namespaces.list()}
        present |= {va.metadata.namespace for va in scope.variant_autoscalings.list()}
        for namespace in present:
            self._known[namespace] = (False, scope.refusal(namespace))
            self._look(namespace)
        scope.namespaces.subscribe(on_namespace)
        scope.variant_autoscalings.subscribe(self._on_va)

    def _on_va(self, old: VariantAutoscaling | None, new: VariantAutoscaling | None) -> None:
        va = new or old
        if va is None or (old is not None and new is not None and old.metadata.labels == new.metadata.labels):
            return
        if old is None and self._scope.excluded(va.metadata.namespace):
            self._announce(va)
        self._look(va.metadata.namespace)

    def _look(self, namespace: str) -> None:
        """Act on what has changed about a namespace since the last look."""
        scope = self._scope
        was_excluded, former_refusal = self._known.get(namespace, (False, None))
        excluded, refusal = scope.excluded(namespace), scope.refusal(namespace)
        self._known[namespace] = (excluded, refusal)
        if excluded != was_excluded:
            variants = scope.variant_autoscalings.list(namespace)
            say = "namespace_excluded" if excluded else "namespace_no_longer_excluded"
            self._logger.info(say, namespace=namespace, variants=len(variants))
            for va in variants:
                self._variant_queue.add(va.metadata.key)
                if excluded:
                    self._announce(va)
        if refusal == former_refusal:
            return
        keys = self._config_maps.of(namespace)
        if keys:
            self._logger.info("local_config_maps", namespace=namespace, count=len(keys), refused=refusal or None)
        for key in keys:
            self._config_map_queue.add(key)
        if refusal and scope.namespaces.get(Key("", namespace)) is None and not scope.tracks(namespace):
            del self._known[namespace]  # it is gone

    def _announce(self, va: VariantAutoscaling) -> None:
        message = f"left alone: its namespace has the annotation {EXCLUDE_ANNOTATION}=true"
        self._record_event(VariantKey(*va.metadata.key), "Normal", EXCLUDED_EVENT, message)
