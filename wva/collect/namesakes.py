"""Which other pods serve under the name of a model, as far as WVA can know.

WVA identifies a model by its name in a namespace. Gateways queue requests by that name, and engines count finished
requests by it. Two models that are served under one name, such as a path that is the same in every container, get each
other's load. There are two signs of that: a Ready pod that belongs to none of the model's variants reports the model's
name, or the model's variants stand behind different pools, although variants of one model share the requests of one
pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from wva.api.core import Pod
from wva.api.meta import Key
from wva.collect.pools import Pool
from wva.collect.variants import AcceptedVariant
from wva.model.trouble import some_of
from wva.model.variant import ModelKey


class Namesakes:
    """What is known of the models of one cycle; make one per cycle."""

    def __init__(
        self,
        *,
        pod: Callable[[Key], Pod | None] = lambda _: None,
        pools_of: Callable[[str, Mapping[str, str]], Iterable[Pool]] = lambda *_: (),
    ) -> None:
        """Know nothing.

        ``pod`` returns a pod that exists, ``pools_of`` the pools of a namespace that select a pod with such labels.
        """
        self._pod = pod
        self._pools_of = pools_of
        self._pods: dict[ModelKey, set[str]] = {}
        self._variants: dict[ModelKey, list[AcceptedVariant]] = {}
        self._words: dict[ModelKey, str] = {}

    def add(self, variant: AcceptedVariant) -> None:
        """Note a variant of a model."""
        if variant.ready:
            self._variants.setdefault(variant.variant.model, []).append(variant)

    def report(self, model: ModelKey, pod: str) -> None:
        """Note that a pod reports the name of a model and is in none of its variants.

        The pod counts only if it still exists and is Ready, since its series outlive it.
        """
        cached = self._pod(Key(model.namespace, pod))
        if cached is not None and cached.ready:
            self._pods.setdefault(model, set()).add(pod)

    def words(self, model: ModelKey) -> str:
        """Return in words why a model may have the load of another one; empty if nothing shows that.

        Call it after all reports: the first answer about a model stays.
        """
        if model not in self._words:
            self._words[model] = self._shown(model)
        return self._words[model]

    def _shown(self, model: ModelKey) -> str:
        signs = []
        if pods := sorted(self._pods.get(model, ())):
            signs.append(f"pods of none of its variants report its name: {some_of(pods)}")
        if apart := self._apart(model):
            signs.append(f"its variants stand behind different InferencePools: {apart}")
        rest = "so it may get the load of another model that is served under its name"
        return f"{' and '.join(signs)}; {rest}" if signs else ""

    def _apart(self, model: ModelKey) -> str:
        """Return in words two variants of a model that have no pool in common; empty if there are none."""
        variants = self._variants.get(model, ())
        if len(variants) < 2:  # noqa: PLR2004 - one variant has nobody to share with
            return ""
        first: tuple[str, list[Pool]] | None = None
        for accepted in variants:
            pools = [*self._pools_of(model.namespace, accepted.ready[0].metadata.labels)]
            if first is None or not pools:
                first = first or ((accepted.variant.key.name, pools) if pools else None)
            elif set(pools).isdisjoint(first[1]):
                return f"{first[0]} behind {first[1][0].name}, {accepted.variant.key.name} behind {pools[0].name}"
        return ""
