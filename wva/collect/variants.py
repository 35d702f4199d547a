"""From VariantAutoscalings and their scale targets to the variants of a cycle.

A VariantAutoscaling becomes a variant if it belongs to this controller, is not being deleted, and has a target that
exists and is not contested. The values that must survive a restart (the number, the start of an unfinished change, the
start of a model load) are read back from the objects. WVA reads only one variable of the environment of a container,
since others may hold secrets.

A controller with an instance decides on the variants that are labelled for it; a controller without one decides on all
variants. Neither decides on variants in a namespace that is excluded by its annotation. If two controllers would take
the same variant, both would write its status in turns and publish two numbers. So a controller with the instance of the
label goes before one without an instance. Between two of equal rank (the same instance twice, or none twice) the
controller that has the variant keeps it: the one that the ``Claimed`` condition names. A controller renews
``lastRunTime`` in the status of its variants at least every ten minutes, so an old claim has ended.

If reading a model raises an exception, WVA holds this model and reads all others (``faults``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from wva.api.core import Container, Pod
from wva.api.meta import Key, parse_time
from wva.api.variantautoscaling import (
    ACCELERATOR_LABEL,
    CONTROLLER_INSTANCE_LABEL,
    Claimant,
    ConditionType,
    VariantAutoscaling,
    claimant_of,
)
from wva.collect.faults import Faults
from wva.collect.inventory import gpus_per_replica
from wva.collect.objectives import asked_objectives
from wva.collect.resolution import CollectStores, bounds_of, resolve
from wva.collect.surplus import ENGINE_SWITCH, model_id_fits
from wva.model.records import replace
from wva.model.roles import RoleLabels
from wva.model.variant import DEFAULT_COST, UNSCHEDULABLE_SECONDS, Bounds, ModelKey, Variant, VariantKey
from wva.model.vllm_parameters import EngineCommand, VllmParameters, argument_problems, read_parameters
from wva.numbers import REPLICAS, NumberError, Real
from wva.slices import Slices
from wva.targets import ScaleTarget, pods_of

ALIVE_SECONDS: Final = 900.0
"""A claim that is older than this has ended. This is longer than the time between two renewals of the status, by a
margin for an API server in trouble."""

COST: Final = Real(0, 1_000_000_000)
"""A higher cost is a typing error, and sums of such costs would not tell variants apart."""
_EXPECTED_COST: Final = Real(0, COST.maximum, above=True).expected

_KEPT_CHARACTERS: Final = 4096
"""The arguments of a template are cached up to this length. WVA reads longer ones each time, so that the cache stays
below 16 MiB."""
_read_once: Final = lru_cache(maxsize=4096)(read_parameters)

_STARTING: Final = frozenset({"ContainerCreating", "PodInitializing"})
"""Why a container waits before it has run; every other reason of the kubelet is an error."""
_RESTARTS: Final = 2
_ENDED_SECONDS: Final = 600.0
"""The kubelet waits for up to five minutes before it starts such a container again, and an engine loads for minutes."""


@dataclass(frozen=True, slots=True)
class Claims:
    """Tells which variants are this controller's; without ``me`` these are all variants that no instance has.

    ``excluded`` tells whether a namespace wants to be left alone now.
    """

    me: Claimant = Claimant("")  # noqa: RUF009 - frozen
    excluded: Callable[[str], bool] = lambda _namespace: False

    def mine(self, va: VariantAutoscaling, now: float) -> bool:
        """Tell whether this controller decides on the VA at ``now`` (epoch seconds)."""
        return self.wanted(va) and self.rival(va, now) is None

    def wanted(self, va: VariantAutoscaling) -> bool:
        """Tell whether the VA is for this controller according to its label and its namespace."""
        if self.excluded(va.metadata.namespace):
            return False
        return not self.me.instance or _label(va) == self.me.instance

    def rival(self, va: VariantAutoscaling, now: float) -> Claimant | None:
        """Return the other controller that has the VA at ``now`` (epoch seconds), None if this one may take it."""
        claimant = claimant_of(va)
        if claimant is None or claimant.name == self.me.name or _silent_seconds(va, now) >= ALIVE_SECONDS:
            return None
        if self.me.instance:
            return claimant if claimant.instance == self.me.instance else None
        # A rival with an instance counts only while the variant has a label: without one, that rival gives the variant
        # up.
        return claimant if not claimant.instance or _label(va) else None

    def free_in_seconds(self, va: VariantAutoscaling, now: float) -> float:
        """Return in how many seconds a rival's claim ends if it is not renewed."""
        return max(1.0, ALIVE_SECONDS - _silent_seconds(va, now))


def _label(va: VariantAutoscaling) -> str:
    return va.metadata.labels.get(CONTROLLER_INSTANCE_LABEL, "")


def _silent_seconds(va: VariantAutoscaling, now: float) -> float:
    """Return how old the last renewal of the status is; infinite without a number, or if its time cannot be true."""
    allocation = va.status.desired_optimized_alloc
    renewed = None if allocation is None else parse_time(allocation.last_run_time)
    if renewed is None or renewed - now > ALIVE_SECONDS:
        return float("inf")
    return now - renewed


@dataclass(frozen=True, slots=True)
class AcceptedVariant:
    """A variant with one pod of each replica, the one that serves requests; pods that have ended are left out."""

    variant: Variant
    ready: tuple[Pod, ...] = ()
    unready: tuple[Pod, ...] = ()


async def accepted_in_slices(
    stores: CollectStores,
    *,
    claims: Claims,
    now: float,
    as_started: Callable[[Variant, float], Variant],
    faults: Faults,
    only: Iterable[Key] | None = None,
) -> list[AcceptedVariant]:
    """Return every variant that this controller decides on, with its pods; with ``only`` those among these keys.

    ``now`` is in seconds since the epoch. ``as_started`` returns a variant with a start that the caches do not show
    yet. A variant that cannot be read is noted in ``faults``, and returned with number and replicas only. Other tasks
    run meanwhile: the state of each variant is of one moment, and a variant that is created meanwhile is left to the
    next call.
    """
    slices, accepted = Slices(), []
    vas = stores.variant_autoscalings
    for va in vas.list() if only is None else [va for key in only if (va := vas.get(key)) is not None]:
        await slices.rest()
        mine = False
        accepted_variant: AcceptedVariant | None = None
        try:
            mine = not va.metadata.deleting and model_id_fits(va) and claims.mine(va, now)
            target = resolve(va, vas=vas, targets=stores.targets).target if mine else None
            if target is not None:
                pods = pods_of(target, stores.targets)
                variant = variant_of(
                    va,
                    target=target,
                    pods=pods,
                    bounds=bounds_of(va, stores.scalers),
                    role_labels=stores.role_labels,
                    now=now,
                )
                ready: list[Pod] = []
                unready: list[Pod] = []
                for pod in pods:
                    (ready if pod.ready else unready).append(pod)
                accepted_variant = AcceptedVariant(as_started(variant, now), tuple(ready), tuple(unready))
        except Exception as error:  # noqa: BLE001 - the other variants are still read
            model = ModelKey(va.metadata.namespace, va.spec.model_id)
            faults.note(model, f"reading variant {va.metadata.name}", error)
            target = stores.targets.named(va) if mine else None
            accepted_variant = None if target is None else AcceptedVariant(bare_variant(va, target))
        if accepted_variant is not None:
            accepted.append(accepted_variant)
    return accepted


def bare_variant(va: VariantAutoscaling, target: ScaleTarget, pods: Collection[Pod] = ()) -> Variant:
    """Return a variant with the fields that a hold needs: its number and its replicas."""
    allocation = va.status.desired_optimized_alloc
    return Variant(
        VariantKey(va.metadata.namespace, va.metadata.name),
        ModelKey(va.metadata.namespace, va.spec.model_id),
        target.metadata.name,
        accelerator=va.metadata.labels.get(ACCELERATOR_LABEL, ""),
        spec_replicas=target.spec_replicas,
        current_replicas=target.current_replicas,
        ready_replicas=target.ready_replicas(pods),
        status_desired=None if allocation is None else REPLICAS.find(allocation.num_replicas),
        status_accelerator="" if allocation is None else allocation.accelerator,
    )


def variant_of(
    va: VariantAutoscaling,
    *,
    target: ScaleTarget,
    pods: Collection[Pod],
    bounds: Bounds = Bounds(),  # noqa: B008 - frozen
    role_labels: RoleLabels = RoleLabels(),  # noqa: B008 - frozen
    now: float | None = None,
) -> Variant:
    """Return the state of one variant; costs are unitless, times in seconds since the epoch."""
    bare = bare_variant(va, target, pods)
    allocation = va.status.desired_optimized_alloc
    if allocation is not None:
        # A number that was written for a former target of the same name does not count. Both times have whole seconds:
        # a number as old as the target counts as older.
        created, written = parse_time(target.metadata.creation_timestamp), parse_time(allocation.last_run_time)
        if created is not None and written is not None and created >= written:
            bare = replace(bare, status_desired=None, status_accelerator="")
    failures = [] if now is None else [container_failure(pod, now) for pod in pods]
    # Pods and the target are watched by two streams, and either may be ahead. A pod that the spec asks for exists even
    # if the status does not count it yet, and a replica of which no pod is seen yet will take its GPUs.
    alive = [pod for pod in pods if not pod.metadata.deleting]
    unseen = max(0, target.existing_replicas - len(alive))
    progressing = va.status.condition(ConditionType.PROGRESSING)
    settling = progressing if progressing is not None and progressing.status == "True" else None
    parameters = vllm_parameters(target.template.spec.containers)
    return replace(
        bare,
        cost=parse_cost(va.spec.variant_cost),
        current_replicas=max(bare.current_replicas, min(len(alive), target.spec_replicas)),
        settling_since=None if settling is None else parse_time(settling.last_transition_time),
        oldest_unready_since=_oldest(pod for pod in alive if not pod.ready),
        bounds=bounds,
        unschedulable_pods=0 if now is None else sum(_unschedulable(pod, now) for pod in pods),
        failing_pods=sum(map(bool, failures)),
        failure=next(filter(None, failures), ""),
        # If the target was at zero before, its oldest pod is as old as its last start.
        activated_at=_oldest(pods),
        unplaced_pods=unseen + sum(not pod.spec.node_name for pod in alive),
        gpus_per_replica=gpus_per_replica(target.templates),
        parameters=parameters,
        asked=asked_objectives(va),
        role=role_labels.role_of(target.replica_labels, parameters.kv_role),
    )


def role_of_target(target: ScaleTarget, role_labels: RoleLabels) -> str:
    """Return the role that the templates of a target name; empty if they name none."""
    return role_labels.role_of(target.replica_labels, vllm_parameters(target.template.spec.containers).kv_role)


def parse_cost(text: str) -> float:
    """Return the cost per replica, or the default when the text is no number of ``COST``."""
    cost = COST.find(text)
    return DEFAULT_COST if cost is None else cost


def cost_problems(va: VariantAutoscaling) -> list[str]:
    """Return a line for people about a cost that is not taken as it is written, or that makes costs meaningless."""
    text = va.spec.variant_cost
    cost = parse_cost(text)
    if cost > 0 and COST.find(text) is not None:
        return []
    words = f"{cost:g}" if cost > 0 else f"{cost:g}: it counts as free"
    return [str(NumberError("spec.variantCost", text, expected=_EXPECTED_COST, in_force=words))]


def vllm_parameters(containers: Iterable[Container]) -> VllmParameters:
    """Return what the arguments of the containers say; init containers are not among them."""
    commands = _commands(containers)
    characters = sum(len(word) for command in commands for word in command.words)
    return _read_once(commands) if characters <= _KEPT_CHARACTERS else read_parameters(commands)


def vllm_problems(target: ScaleTarget | None) -> list[str]:
    """Return a line for people about the first arguments of a target that are not numbers in their range."""
    return [] if target is None else argument_problems(_commands(target.template.spec.containers))


def _commands(containers: Iterable[Container]) -> tuple[EngineCommand, ...]:
    commands = []
    for container in containers:
        environment = {variable.name: variable.value for variable in container.env}  # the last entry counts
        commands.append(EngineCommand((*container.command, *container.args), environment.get(ENGINE_SWITCH)))
    return tuple(commands)


def _oldest(pods: Iterable[Pod]) -> float | None:
    """Return when the oldest of the pods was created."""
    created = (parse_time(pod.metadata.creation_timestamp) for pod in pods)
    return min((time for time in created if time is not None), default=None)


def _unschedulable(pod: Pod, now: float) -> bool:
    """Tell whether the scheduler has found no node for a pod for ``UNSCHEDULABLE_SECONDS``."""
    if pod.metadata.deleting or pod.spec.node_name:
        return False
    scheduled = next((condition for condition in pod.status.conditions if condition.type == "PodScheduled"), None)
    if scheduled is None or scheduled.status != "False" or scheduled.reason != "Unschedulable":
        return False
    since = parse_time(scheduled.last_transition_time) or parse_time(pod.metadata.creation_timestamp)
    return since is not None and now - since >= UNSCHEDULABLE_SECONDS


def container_failure(pod: Pod, now: float) -> str:
    """Return which container of a pod keeps it from becoming Ready because it does not run, and why; else nothing.

    A container that ends again and again runs for a while each time. So one that has restarted ``_RESTARTS`` times, and
    ended last within ``_ENDED_SECONDS``, counts as failing while it runs, too.
    """
    if pod.ready or pod.metadata.deleting:
        return ""
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting, ended = status.state.waiting, status.last_state.terminated
        where = f"container {status.name} of pod {pod.metadata.name}"
        if waiting is not None and waiting.reason and waiting.reason not in _STARTING:
            return f"{where}: {waiting.reason}"
        finished = None if ended is None or status.ready else parse_time(ended.finished_at)
        if status.restart_count >= _RESTARTS and finished is not None and now - finished < _ENDED_SECONDS:
            return f"{where}: restarted {status.restart_count} times"
    return ""
