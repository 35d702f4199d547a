"""Troubles of a variant with gateways, GPUs, late replicas and starts from zero, for its conditions.

If the picker of a model sends nonsense, the model stays at zero, just as if no request waited. So the conditions report
pools that WVA cannot read, and pools that select no workload.

If labels contradict the nodes, WVA may count other GPUs than people expect, since it always counts those that the nodes
can allocate. It checks whether a node has GPUs, whether it has as many as its label says, and whether the replicas of a
variant run on nodes of the accelerator that the variant names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from wva.api.core import Node, Pod
from wva.api.meta import Key, KubeObject
from wva.api.variantautoscaling import ACCELERATOR_LABEL
from wva.collect.inventory import GPU_RESOURCES, InventoryStores, gpu_count, is_gpu_count, takes_gpus
from wva.collect.pools import Pool, PoolStores
from wva.config.declare import printable
from wva.model.inventory import AcceleratorPool, Inventory, UnknownInventory, normalize_accelerator
from wva.model.records import replace
from wva.model.trouble import QUEUE_UNKNOWN, UNTROUBLED, Trouble, TroubleReason
from wva.model.variant import VariantKey

_SHOWN: Final = 3
_GATEWAY: Final = {
    TroubleReason.GATEWAY_UNREADABLE: "in force: requests that wait there start nothing until it is read",
    TroubleReason.QUEUE_MISSING: "expected one of them: switch on flow control, a feature gate of the picker's "
    "configuration, from GAIE 1.3 on; in force: a request that the picker refuses starts the model, and is lost",
    TroubleReason.NAMES_UNKNOWN: "expected spec.modelID of a variant behind the pool, since several models are: an "
    "adapter, an alias, or `other` of a picker with too many names may be for any of them; in force: these requests "
    "start nothing",
    QUEUE_UNKNOWN: "whether flow control is on is not known before the first request, which starts the "
    "model in any case",
}
"""What can be wrong with a pool, the worst first, and what that means."""

_MEANWHILE: Final = {UnknownInventory.NO_GROWTH: "nothing grows", UnknownInventory.UNLIMITED: "growth is not limited"}


class Troubles:
    """Follows pools and nodes, and has the reconciler revisit variants whose conditions may have changed."""

    def __init__(
        self,
        pools: PoolStores,
        inventory: InventoryStores,
        *,
        unknown: Callable[[], UnknownInventory | None],
        revisit: Callable[[str | None], None],
    ) -> None:
        """Follow the caches.

        ``unknown`` returns what happens while the inventory is unknown, None while GPUs are not limited. ``revisit``
        has the reconciler look at the variants of a namespace, or at all (None).
        """
        self._pools = pools
        self._stores = inventory
        self._unknown = unknown
        self._revisit = revisit
        self._failures: dict[Pool, Trouble] = {}
        self._starts: dict[VariantKey, Trouble] = {}
        self._late: dict[VariantKey, Trouble] = {}
        self._inventory: Inventory | None = None
        """The GPUs of the nodes, None when the nodes have to be checked again."""
        self._contradictions: dict[str, list[str]] = {}
        """By accelerator, a line for each wrong label of its nodes; empty: of nodes with an unknown accelerator."""
        pools.pools.subscribe(self._on_pool)
        pools.pools_alpha.subscribe(self._on_pool)
        inventory.nodes.subscribe(self._on_node)

    def report(self, pool: Pool, trouble: Trouble) -> None:
        """Note what is wrong with a pool; UNTROUBLED when nothing is, or when no variant needs it."""
        if self._failures.get(pool, UNTROUBLED) != trouble:
            self._failures[pool] = trouble
            if not trouble:
                del self._failures[pool]
            self._revisit(pool.namespace)

    def hinder(self, key: VariantKey, trouble: Trouble) -> None:
        """Note why WVA cannot start a variant from zero; UNTROUBLED when it can."""
        if self.start(key) != trouble:
            self._starts[key] = trouble
            if not trouble:
                del self._starts[key]
            self._revisit(key.namespace)

    def start(self, key: VariantKey) -> Trouble:
        """Return why WVA cannot start a variant from zero."""
        return self._starts.get(key, UNTROUBLED)

    def delay(self, late: Mapping[VariantKey, Trouble], *, unseen: Collection[VariantKey]) -> None:
        """Note the variants whose replicas a cycle found late; the ``unseen`` variants keep their last answer."""
        before = self._late
        self._late = {key: trouble for key, trouble in before.items() if key in unseen} | dict(late)
        changed = {key for key in before.keys() | self._late.keys() if before.get(key) != self._late.get(key)}
        for namespace in sorted({key.namespace for key in changed}):
            self._revisit(namespace)

    def late(self, key: VariantKey) -> Trouble:
        """Return why replicas of a variant are not there in time."""
        return self._late.get(key, UNTROUBLED)

    def gateway(self, namespace: str, labels: Mapping[str, str]) -> Trouble:
        """Return what is wrong with the pools in front of a workload whose pods have these labels."""
        pools = self._pools.pools_of(namespace, labels)
        failures = [(pool, self._failures[pool]) for pool in pools if pool in self._failures]
        for reason, meaning in _GATEWAY.items():
            same = [(pool, trouble) for pool, trouble in failures if trouble.reason == reason]
            if same:
                messages = [f"InferencePool {pool}: {trouble.message}" for pool, trouble in same[:_SHOWN]]
                return replace(same[0][1], message="; ".join([*messages, meaning]))
        empty = [] if pools else self._pools.without_selector(namespace)
        if empty:
            named = ", ".join(empty[:_SHOWN])
            return Trouble(
                TroubleReason.SELECTOR_EMPTY,
                f"InferencePool {named}: spec.selector is empty, expected labels of the pods behind it; "
                "in force: it stands in front of nothing, and no other pool stands in front of this variant",
            )
        return UNTROUBLED

    def inventory(self, accelerator: str, pods: Iterable[Pod]) -> Trouble:
        """Return what is wrong with the GPUs of a variant with this accelerator label and these pods."""
        mode = self._unknown()
        if mode is None:
            return UNTROUBLED
        blind = self._stores.unknown
        if blind:
            return Trouble(TroubleReason.INVENTORY_UNKNOWN, f"{blind}; in force: {_MEANWHILE[mode]}")
        staleness = self._stores.nodes_source.staleness
        if staleness is not None:
            return Trouble(TroubleReason.INVENTORY_UNKNOWN, f"nodes cannot be read: {staleness}")
        if self._inventory is None:
            # Check every node that accepts new pods.
            pools: list[AcceleratorPool] = []
            self._contradictions = {}
            for node in self._stores.nodes.list():
                for resource in GPU_RESOURCES if node.usable else ():
                    name = normalize_accelerator(node.metadata.labels.get(f"{resource}.product", ""))
                    if name:
                        pools.append(AcceleratorPool(name, 0, 0, resource=resource))
                    for line in _contradictions(node, resource):
                        self._contradictions.setdefault(name, []).append(line)
            self._inventory = Inventory.of(pools)
        inventory = self._inventory
        pool = inventory.pool_of(accelerator)
        lines = list(self._contradictions.get("", []))
        if pool is not None:
            lines = [*self._elsewhere(pool, pods), *lines, *self._contradictions.get(pool.accelerator, [])]
        message = "; ".join([*lines[:_SHOWN], *([f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else [])])
        if pool is not None:
            return Trouble(TroubleReason.LABELS_DISAGREE, message) if message else UNTROUBLED
        known = ", ".join(printable(name) for name in sorted({pool.accelerator for pool in inventory.pools}))
        expected = f"one of {known}" if known else "one that a node has, and no node has any"
        words = f"label {ACCELERATOR_LABEL}: got {printable(accelerator) or 'nothing'}, expected {expected}"
        message = "; ".join(filter(None, [words, message, "in force: no GPUs, so it does not grow"]))
        return Trouble(TroubleReason.ACCELERATOR_UNKNOWN, message)

    def _elsewhere(self, pool: AcceleratorPool, pods: Iterable[Pod]) -> Iterator[str]:
        """Yield a line for each replica that runs on a node of another accelerator than the variant's."""
        label = f"{pool.resource}.product"
        for pod in pods:
            node = self._stores.nodes.get(Key("", pod.spec.node_name)) if pod.spec.node_name else None
            if node is None or not any(takes_gpus(container) for container in pod.spec.containers):
                continue
            product = node.metadata.labels.get(label, "")
            if product and normalize_accelerator(product).casefold() != pool.accelerator.casefold():
                yield (
                    f"pod {pod.metadata.name} runs on node {node.metadata.name} with label "
                    f"{label}={printable(product)}, expected {pool.accelerator} as in label {ACCELERATOR_LABEL}; "
                    "in force: the label of the node"
                )

    def _on_pool(self, old: KubeObject | None, new: KubeObject | None) -> None:
        pool = new or old
        if pool is not None:
            self._revisit(pool.metadata.namespace)

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        """Check again only when a relevant field has changed: nodes write their status several times a minute."""
        if _essence(old) != _essence(new):
            self._inventory = None
            if self._unknown() is not None:
                self._revisit(None)


def _essence(node: Node | None) -> object:
    if node is None:
        return None
    labels = {name: text for name, text in node.metadata.labels.items() if name.startswith(GPU_RESOURCES)}
    return node.usable, labels, [node.status.allocatable.get(resource) for resource in GPU_RESOURCES]


def _contradictions(node: Node, resource: str) -> Iterator[str]:
    """Yield a line for each label of a node about a GPU resource that is not true."""
    labels, quantity = node.metadata.labels, node.status.allocatable.get(resource)
    product, name = labels.get(f"{resource}.product"), node.metadata.name
    if quantity is not None and not is_gpu_count(quantity):
        yield f"node {name}: allocatable {resource} is {printable(str(quantity))}, expected a number; in force: 0"
    gpus = gpu_count(quantity or 0)
    if product and not normalize_accelerator(product):
        yield (
            f"node {name}: label {resource}.product={printable(product)}, expected a product such as "
            f"NVIDIA-A100-PCIE-80GB; in force: its {gpus} GPUs are not counted"
        )
    elif not product and gpus:
        yield f"node {name}: no label {resource}.product, expected one; in force: its {gpus} GPUs are not counted"
    elif product and not gpus and (quantity is None or is_gpu_count(quantity)):
        label = f"label {resource}.product={printable(product)}"
        yield f"node {name}: {label}, expected allocatable {resource}; in force: 0"
    labelled = labels.get(f"{resource}.count")
    if labelled is not None and product and gpus:
        # GPU feature discovery counts shared GPUs once, and says in another label how many shares each has.
        shares = labels.get(f"{resource}.replicas") or "1"
        count = (
            gpu_count(labelled) * max(1, gpu_count(shares) if shares.isdecimal() else 1)
            if is_gpu_count(labelled)
            else None
        )
        if count != gpus:
            expected = f"expected {gpus} as allocatable; in force: {gpus}"
            yield f"node {name}: label {resource}.count={printable(labelled)}, {expected}"
