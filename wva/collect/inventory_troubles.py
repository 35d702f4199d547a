"""Labels that contradict the nodes, so that the GPUs of a variant may be counted differently from what people mean.

The product in the label of a node cannot be checked from here. Three things can: whether the node has GPUs as its label
says, whether it has as many as the label says, and whether the replicas of a variant run on nodes of the accelerator
that the variant names. The count always uses what the nodes have to allocate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from wva.api.core import Node, Pod
from wva.api.meta import Key
from wva.api.variantautoscaling import ACCELERATOR_LABEL
from wva.collect.gpus import GPU_RESOURCES, gpu_count, is_gpu_count, takes_gpus
from wva.collect.inventory import InventoryStores
from wva.config.declare import printable
from wva.model.inventory import AcceleratorPool, Inventory, UnknownInventory, normalize_accelerator
from wva.model.trouble import UNTROUBLED, Trouble, TroubleReason

_TOLD: Final = 3
_MEANWHILE: Final = {UnknownInventory.NO_GROWTH: "nothing grows", UnknownInventory.UNLIMITED: "growth is not limited"}


@dataclass(frozen=True, slots=True)
class _Survey:
    """What the nodes say: their accelerators, and by accelerator what is wrong with their labels (empty: whose)."""

    inventory: Inventory
    lies: dict[str, list[str]]

    @staticmethod
    def of(nodes: Iterable[Node]) -> _Survey:
        """Look at every node that new pods can come to."""
        pools: list[AcceleratorPool] = []
        lies: dict[str, list[str]] = {}
        for node in nodes:
            for resource in GPU_RESOURCES if node.usable else ():
                product = node.metadata.labels.get(f"{resource}.product", "")
                accelerator = normalize_accelerator(product)
                if accelerator:
                    pools.append(AcceleratorPool(accelerator, 0, 0, resource=resource))
                for line in _lies(node, resource):
                    lies.setdefault(accelerator, []).append(line)
        return _Survey(Inventory.of(pools), lies)

    @property
    def accelerators(self) -> list[str]:
        """The accelerators that there are."""
        return sorted({pool.accelerator for pool in self.inventory.pools})


class InventoryTroubles:
    """Looks at nodes while GPUs are limited; ``changed`` is called when what there is to say of them may be another."""

    def __init__(
        self, stores: InventoryStores, *, unknown: Callable[[], UnknownInventory | None], changed: Callable[[], None]
    ) -> None:
        """Follow the nodes.

        ``unknown`` returns what happens while the inventory is unknown, None while GPUs are not limited.
        """
        self._stores = stores
        self._unknown = unknown
        self._changed = changed
        self._survey: _Survey | None = None
        stores.nodes.subscribe(self._on_node)

    def of(self, accelerator: str, pods: Iterable[Pod]) -> Trouble:
        """Return what is wrong with the GPUs of a variant with this accelerator label and these pods."""
        mode, blind, stores = self._unknown(), self._not_known(), self._stores
        if mode is None:
            return UNTROUBLED
        if blind:
            return Trouble(TroubleReason.INVENTORY_UNKNOWN, f"{blind}; in force: {_MEANWHILE[mode]}")
        if stores.nodes_source.kept is not None:
            return Trouble(TroubleReason.INVENTORY_UNKNOWN, f"nodes cannot be read: {stores.nodes_source.kept}")
        if self._survey is None:
            self._survey = _Survey.of(self._stores.nodes.list())
        survey = self._survey
        pool = survey.inventory.pool_of(accelerator)
        elsewhere = self._elsewhere(pool, pods) if pool is not None else []
        lies = [*elsewhere, *survey.lies.get("", []), *(survey.lies.get(pool.accelerator, []) if pool else [])]
        told = "; ".join([*lies[:_TOLD], *([f"and {len(lies) - _TOLD} more"] if len(lies) > _TOLD else [])])
        if pool is None:
            there = ", ".join(printable(name) for name in survey.accelerators)
            expected = f"one of {there}" if there else "one that a node has, and no node has any"
            words = f"label {ACCELERATOR_LABEL}: got {printable(accelerator) or 'nothing'}, expected {expected}"
            return Trouble(
                TroubleReason.ACCELERATOR_UNKNOWN,
                "; ".join(filter(None, [words, told, "in force: no GPUs, so it does not grow"])),
            )
        return Trouble(TroubleReason.LABELS_DISAGREE, told) if told else UNTROUBLED

    def _not_known(self) -> str:
        stores = self._stores
        if stores.blind:
            return stores.blind
        absent = stores.nodes_source.absent
        return "" if absent is None else f"nodes cannot be read: {absent}"

    def _elsewhere(self, pool: AcceleratorPool, pods: Iterable[Pod]) -> list[str]:
        """Return a line for each replica that runs on a node of another accelerator than the variant's."""
        lines = []
        for pod in pods:
            node = self._stores.nodes.get(Key("", pod.spec.node_name)) if pod.spec.node_name else None
            if node is None or not any(takes_gpus(container) for container in pod.spec.containers):
                continue
            label = f"{pool.resource}.product"
            product = node.metadata.labels.get(label, "")
            if product and normalize_accelerator(product).casefold() != pool.accelerator.casefold():
                lines.append(
                    f"pod {pod.metadata.name} runs on node {node.metadata.name} with label "
                    f"{label}={printable(product)}, expected {pool.accelerator} as in label {ACCELERATOR_LABEL}; "
                    "in force: the label of the node"
                )
        return lines

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        """Look again when something that counts has changed: nodes report in several times a minute."""
        if _essence(old) != _essence(new):
            self._survey = None
            if self._unknown() is not None:
                self._changed()


def _essence(node: Node | None) -> object:
    if node is None:
        return None
    labels = {name: text for name, text in node.metadata.labels.items() if name.startswith(GPU_RESOURCES)}
    return node.usable, labels, [node.status.allocatable.get(resource) for resource in GPU_RESOURCES]


def _lies(node: Node, resource: str) -> Iterator[str]:
    """Yield what the labels of a node say of a GPU resource that is not so."""
    labels, written = node.metadata.labels, node.status.allocatable.get(resource)
    product, name = labels.get(f"{resource}.product"), node.metadata.name
    if written is not None and not is_gpu_count(written):
        yield f"node {name}: allocatable {resource} is {printable(str(written))}, expected a number; in force: 0"
    have = gpu_count(written or 0)
    if product and not normalize_accelerator(product):
        yield (
            f"node {name}: label {resource}.product={printable(product)}, expected a product such as "
            f"NVIDIA-A100-PCIE-80GB; in force: its {have} GPUs are not counted"
        )
    elif not product and have:
        yield f"node {name}: no label {resource}.product, expected one; in force: its {have} GPUs are not counted"
    elif product and not have and (written is None or is_gpu_count(written)):
        found = f"label {resource}.product={printable(product)}"
        yield f"node {name}: {found}, expected allocatable {resource}; in force: 0"
    said = labels.get(f"{resource}.count")
    if said is not None and product and have and _count(said, labels.get(f"{resource}.replicas")) != have:
        yield f"node {name}: label {resource}.count={printable(said)}, expected {have} as allocatable; in force: {have}"


def _count(count: str, replicas: str | None) -> int | None:
    """Return how many GPUs the labels of GPU feature discovery speak of; shared ones count once per share."""
    shares = replicas if replicas is not None and replicas.isdecimal() else "1"
    return gpu_count(count) * max(1, gpu_count(shares)) if is_gpu_count(count) else None
