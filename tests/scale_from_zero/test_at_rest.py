"""Which models a change marks: all models that it concerns, and not the whole fleet."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.collect.cluster import CachedCluster, accepted_variants
from tests.collect.test_pools import current
from wva.api.meta import Key
from wva.api.variantautoscaling import ACCELERATOR_LABEL
from wva.collect.pools import Pool, PoolStores
from wva.collect.variants import Claims
from wva.decide.prices import priced
from wva.decide.start import activate
from wva.kube.cache import Store
from wva.model.policy import Policy
from wva.model.service import AcceleratorCost
from wva.model.variant import ModelKey, VariantKey
from wva.publish.ledger import Ledger
from wva.scale_from_zero.loop import AtRest
from wva.scale_from_zero.starts import Activations

NAMES, MODELS = ("a", "b", "c"), ("m", "n")


class AtRestScene:
    """A cluster with pools, and the object that follows its changes."""

    def __init__(self, **reads):
        """Begin empty; ``reads`` are further functions that the object asks."""
        self.cluster = CachedCluster()
        self.pools = PoolStores(Store(), Store())
        self.shadows = set()
        self.at_rest = AtRest(
            self.cluster.stores,
            self.pools,
            claims=Claims(),
            activations=Activations(),
            ledger=Ledger(asked_for_shadow=self.shadows.__contains__),
            **reads,
        )

    def resting(self, models=None):
        """Return the models at rest with their variants and pools, read anew; all models or the given ones."""
        vas = self.cluster.stores.variant_autoscalings.list()
        keys = [va.metadata.key for va in vas if models is None or ModelKey("ns", va.spec.model_id) in models]
        found = {}
        for entry in accepted_variants(self.cluster.stores, only=keys):
            found.setdefault(entry.variant.model, []).append(entry.variant)
        return {model: self.story(made) for model, made in found.items() if not any(one.active for one in made)}

    def story(self, variants):
        """Return the variants of a model at rest and their pools."""
        deployments = self.cluster.deployments
        labels = [deployments.get(Key("ns", one.target)).spec.template.metadata.labels for one in variants]
        pools = {pool for one in labels for pool in self.pools.pools_of("ns", one)}
        return sorted(one.key for one in variants), sorted(pools)


CHANGES = st.one_of(
    st.tuples(st.just("va"), st.sampled_from(NAMES), st.sampled_from(NAMES), st.sampled_from(MODELS), st.booleans()),
    st.tuples(st.just("no va"), st.sampled_from(NAMES)),
    st.tuples(st.just("deployment"), st.sampled_from(NAMES), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("no deployment"), st.sampled_from(NAMES)),
    st.tuples(st.just("pool"), st.sampled_from(NAMES), st.sampled_from(NAMES)),
)


def play(scene, change):
    """Make one change."""
    stores = scene.cluster.stores
    match change:
        case "va", name, target, model, deleting:
            metadata = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {}
            scene.cluster.va(name, target=target, model_id=model, metadata=metadata)
        case "no va", name:
            stores.variant_autoscalings.delete(Key("ns", name))
        case "deployment", name, replicas, deleting:
            metadata = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {}
            scene.cluster.deployment(name, replicas=replicas, **metadata)
        case "no deployment", name:
            scene.cluster.deployments.delete(Key("ns", name))
        case "pool", name, app:
            current(scene.pools, name, labels={"app": app})


@given(st.lists(st.lists(CHANGES, max_size=4), max_size=12))
def test_whoever_looks_at_what_is_marked_knows_what_a_look_at_everything_tells(turns):
    """To read only the marked models gives the same as to read all models, after any changes in any order."""
    scene, known = AtRestScene(), {}
    for changes in turns:
        for change in changes:
            play(scene, change)
        marked = scene.at_rest.take_marked()
        now = scene.resting(marked)
        known = {model: story for model, story in known.items() if model not in marked} | now
        assert known == scene.resting()
        assert set(known) <= scene.at_rest.all()


async def test_the_cheapest_is_found_by_the_costs_that_count():
    """Unit costs order the variants that may be started, as they do in the plan of a running model."""
    costs = Policy(accelerator_costs=(AcceleratorCost("A100", 65.0), AcceleratorCost("H100", 40.0)))
    scene = AtRestScene(priced=lambda variants: priced(variants, costs))
    for name, accelerator in (("a", "A100"), ("b", "H100")):
        scene.cluster.deployment(name, replicas=0)
        scene.cluster.va(name, target=name, labels={ACCELERATOR_LABEL: accelerator})
    (variants,) = (await scene.at_rest.variants_of(scene.at_rest.all(), 0.0)).values()
    assert activate(variants, 1.0).key.name == "b"


def test_a_status_and_a_running_variant_mark_nothing():
    """A cycle can write a thousand statuses, and running variants change their replicas all day."""
    scene = AtRestScene()
    scene.cluster.deployment("a", replicas=0)
    scene.cluster.deployment("b", replicas=3, uid="uid-b")
    scene.cluster.va("a", target="a")
    scene.cluster.va("b", target="b", model_id="n")
    assert scene.at_rest.all() == {ModelKey("ns", "m")}
    assert scene.at_rest.take_marked() >= {ModelKey("ns", "m")}
    scene.at_rest.changed.clear()
    status = {"desiredOptimizedAlloc": {"accelerator": "A100", "numReplicas": 2, "lastRunTime": "2026-01-01T00:00:00Z"}}
    scene.cluster.va("a", target="a", status=status, metadata={"uid": "uid-a"})
    scene.at_rest.take_marked()
    scene.cluster.va("a", target="a", status={**status, "currentReplicas": 4}, metadata={"uid": "uid-a"})
    scene.cluster.deployment("b", replicas=4, uid="uid-b")
    scene.cluster.deployment("b", replicas=2, uid="uid-b")
    assert scene.at_rest.take_marked() == set()
    assert scene.at_rest.changed.is_set()


def test_a_pool_marks_the_models_at_zero_of_its_namespace():
    """A change that leaves the pool's fields as they are marks none."""
    scene = AtRestScene()
    scene.cluster.deployment("a", replicas=0)
    scene.cluster.va("a", target="a")
    scene.at_rest.take_marked()
    current(scene.pools, labels={"app": "a"})
    assert scene.at_rest.take_marked() == {ModelKey("ns", "m")}
    current(scene.pools, labels={"app": "a"})
    assert scene.at_rest.take_marked() == set()
    current(scene.pools, labels={"app": "a"}, namespace="other")
    assert scene.at_rest.take_marked() == set()


async def test_a_variant_in_shadow_mode_is_not_started():
    """It is left out while it is at zero. A replica of it that runs serves the model, so the model is awake."""
    scene = AtRestScene()
    for name in ("a", "b"):
        scene.cluster.deployment(name, replicas=0, uid=f"uid-{name}")
        scene.cluster.va(name, target=name)
    scene.shadows.add(VariantKey("ns", "a"))

    async def found():
        variants = await scene.at_rest.variants_of([ModelKey("ns", "m")], 0.0)
        return {one.key.name: one.active for each in variants.values() for one in each}

    assert await found() == {"b": False}
    scene.cluster.deployment("a", replicas=1, uid="uid-a")
    assert await found() == {"a": True, "b": False}
    scene.cluster.deployment("a", replicas=0, uid="uid-a")
    scene.shadows.clear()
    assert await found() == {"a": False, "b": False}


def test_a_variant_that_leaves_shadow_mode_is_looked_at():
    """Its condition says so; without that nobody would look at a model that sleeps."""
    scene = AtRestScene()
    scene.cluster.deployment("a", replicas=0)
    told = {"type": "Shadow", "reason": "r", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    metadata = {"uid": "uid-a"}
    scene.cluster.va("a", target="a", metadata=metadata, status={"conditions": [{**told, "status": "True"}]})
    scene.at_rest.take_marked()
    scene.cluster.va(
        "a", target="a", metadata=metadata, status={"conditions": [{**told, "status": "True", "message": "n"}]}
    )
    assert scene.at_rest.take_marked() == set()
    scene.cluster.va("a", target="a", metadata=metadata, status={"conditions": [{**told, "status": "False"}]})
    assert scene.at_rest.take_marked() == {ModelKey("ns", "m")}


def test_the_models_behind_a_pool_run_or_rest():
    """Two models behind a pool are two, also while one of them runs. A pool that is gone has none behind it."""
    scene = AtRestScene()
    for name, model, replicas in (("a", "m", 0), ("b", "n", 3)):
        scene.cluster.deployment(name, replicas=replicas, uid=f"uid-{name}", labels={"app": name})
        scene.cluster.va(name, target=name, model_id=model)
        current(scene.pools, name, labels={"app": name})
    pool = scene.pools.pools_of("ns", {"app": "b"})[0]
    assert scene.at_rest.models_behind(pool) == {"n"}
    scene.cluster.va("c", target="b", model_id="o")
    assert scene.at_rest.models_behind(pool) == {"n", "o"}
    assert scene.at_rest.models_behind(Pool("ns", "gone", "epp")) == frozenset()
    assert scene.at_rest.models_behind(Pool("other", pool.name, "epp")) == frozenset()
