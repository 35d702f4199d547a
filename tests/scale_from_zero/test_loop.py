"""When WVA reads the gateways, and which variants it starts. A broken pool delays no other model."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from tests.builders import NOW, variant
from tests.tasks import running
from wva.collect.pools import Pool
from wva.decide.start import Budget
from wva.instruments import Instruments
from wva.kube.errors import Conflict, Forbidden
from wva.model.inventory import Inventory
from wva.model.records import replace
from wva.model.variant import by_role
from wva.scale_from_zero import loop
from wva.scale_from_zero.gateway import GatewayError, PoolQueues
from wva.scale_from_zero.loop import POLL_SECONDS, ScaleFromZero
from wva.scale_from_zero.starts import ACTIVATION_SECONDS, Activations
from wva.sim.world.clock import VirtualClock


def asleep(name, **kwargs):
    """Return a variant at zero."""
    made = variant(name, replicas=0, **kwargs)
    return replace(made, spec_replicas=0, current_replicas=0, ready_replicas=0)


class Queues(AsyncExitStack):
    """The gateways of the scene."""

    def __init__(self, waiting):
        """Use ``waiting`` to read a pool."""
        super().__init__()
        self.waiting = waiting


class WakingScene:
    """The loop with a scripted world and a virtual clock."""

    def __init__(self):
        """Have one variant at zero behind one quiet pool."""
        self.clock = VirtualClock()
        self.activations = Activations()
        self.instruments = Instruments(CollectorRegistry())
        self.variants = [asleep("a")]
        self.pools = {"a": [Pool("ns", "p", "epp")]}
        self.waiting = {"p": {}}
        self.looks = 0
        self.looked_at = []
        self.slow = False
        self.known = None
        self.reads = []
        self.hanging = set()
        self.released = asyncio.Event()
        self.limit = None
        self.scaled = []
        self.published = []
        self.events = []
        self.failures = {}
        self.hindered = {}
        self.scale_error = None
        self.order = []
        self.changed = asyncio.Event()
        self.at_rest = SimpleNamespace(
            changed=self.changed,
            all=lambda: {made.model for made in self.variants if not made.active},
            take_marked=self.marked,
            variants_of=self.look,
            pools_of=lambda made: self.pools.get(made.key.name, []),
            models_behind=lambda pool: frozenset(
                made.model.model_id for made in self.variants if pool in self.pools.get(made.key.name, [])
            ),
        )
        self.loop = ScaleFromZero(
            at_rest=self.at_rest,
            queues=Queues(self.read),
            starter=SimpleNamespace(wait_visible=self.seen, scale=self.scale),
            activations=self.activations,
            troubles=SimpleNamespace(report=self.report, hinder=self.hinder),
            ledger=SimpleNamespace(record=self.publish),
            budget=lambda: self.limit,
            announce=lambda *event: self.events.append(event),
            clock=self.clock,
            instruments=self.instruments,
        )

    def marked(self):
        """Return all models if the scene has been changed since the last call, as the caches would tell."""
        world = (list(self.variants), dict(self.pools))
        if world == self.known:
            return set()
        before, self.known = self.known, world
        return {made.model for made in (*self.variants, *(before[0] if before else ()))}

    async def look(self, models, now):
        """Return the variants of some models, and count the calls."""
        self.looks += 1
        self.looked_at.append(set(models))
        found = {}
        for made in self.variants:
            if made.model in {model.whole for model in self.looked_at[-1]}:
                found.setdefault(made.model, []).append(self.activations.apply(made, now))
        if self.slow:
            await asyncio.sleep(0)
        return by_role(found)

    async def read(self, pool):
        """Answer for a pool with numbers, an error, or not at all."""
        self.reads.append((round(self.clock.elapsed_seconds, 3), pool.name))
        if pool.name in self.hanging:
            await self.released.wait()
        answer = self.waiting[pool.name]
        if isinstance(answer, Exception):
            raise answer
        return PoolQueues(answer)

    async def scale(self, key, desired):
        """Note the write, or raise the error of the scene."""
        self.order.append("scale")
        if self.scale_error is not None:
            raise self.scale_error
        self.scaled.append((key.name, desired))

    async def seen(self, key, desired):
        """Note that the loop waits until autoscalers see the published number."""
        assert (key, desired) == (self.published[-1].key, self.published[-1].desired)
        self.order.append("seen")

    def report(self, pool, trouble):
        """Keep the present failure of a pool."""
        self.failures.pop(pool.name, None)
        if trouble:
            self.failures[pool.name] = trouble.message

    def hinder(self, key, trouble):
        """Keep the present trouble of a variant."""
        self.hindered.pop(key.name, None)
        if trouble:
            self.hindered[key.name] = trouble

    def publish(self, decisions):
        """Note the decision."""
        self.order.append("publish")
        self.published.extend(decisions)

    @asynccontextmanager
    async def running(self):
        """Run the loop around the body."""
        async with running(self.loop.run()):
            await self.settle()
            yield

    async def settle(self):
        """Run all tasks until they wait for time."""
        for _ in range(30):
            await asyncio.sleep(0)

    async def advance(self, seconds):
        """Let virtual time pass, poll by poll."""
        end = self.clock.elapsed_seconds + seconds
        while self.clock.elapsed_seconds < end - 1e-9:
            self.clock.advance_to(min(end, self.clock.elapsed_seconds + POLL_SECONDS / 2))
            await self.settle()

    def count(self, metric, result):
        """Return a counter."""
        return self.instruments.registry.get_sample_value(f"{metric}_total", {"result": result}) or 0


@pytest.fixture
def scene():
    """Return a scene."""
    return WakingScene()


async def test_a_gateway_is_read_often_while_something_is_at_zero(scene):
    """WVA reads it four times a second."""
    async with scene.running():
        await scene.advance(1.0)
    assert [at for at, _ in scene.reads] == [0, 0.25, 0.5, 0.75, 1.0]
    assert scene.scaled == []
    assert scene.count("wva_gateway_reads", "success") == 5


async def test_nothing_is_read_while_everything_runs(scene):
    """WVA begins to read when a cache shows that a variant went to zero."""
    scene.variants = [variant("a", replicas=1)]
    async with scene.running():
        await scene.advance(5.0)
        assert scene.reads == []
        scene.variants = [asleep("a")]
        scene.changed.set()
        await scene.settle()
        assert len(scene.reads) == 1


async def test_a_variant_without_a_pool_waits_for_one(scene):
    """WVA reads no pool until one appears."""
    scene.pools = {}
    async with scene.running():
        await scene.advance(1.0)
        assert scene.reads == []
        scene.pools = {"a": [Pool("ns", "p", "epp")]}
        scene.changed.set()
        await scene.settle()
        assert len(scene.reads) == 1


async def test_many_changes_in_a_row_are_looked_at_once_per_poll(scene):
    """A change of any Deployment in the cluster may cause a look, and a look takes time."""
    scene.variants = [variant("a", replicas=1)]
    async with scene.running():
        for _ in range(20):
            scene.known = None
            scene.changed.set()
            await scene.advance(POLL_SECONDS / 10)
    assert 2 <= scene.looks <= 10


async def test_a_waiting_request_starts_the_cheapest_once(scene):
    """WVA publishes the number, waits until autoscalers see it, and then writes it once."""
    scene.variants = [asleep("a", cost=20), asleep("b", cost=40)]
    scene.pools["b"] = scene.pools["a"]
    async with scene.running():
        scene.waiting["p"] = {"m": 2.0}
        await scene.advance(3.0)
    assert scene.scaled == [("a", 1)]
    assert scene.order == ["publish", "seen", "scale"]
    (decision,) = scene.published
    assert (decision.key.name, decision.desired, decision.current) == ("a", 1, 0)
    assert scene.count("wva_activations", "success") == 1


async def test_a_queue_of_another_model_starts_nobody(scene):
    """WVA compares the names of models exactly. A pool in front of several models says which names it does not know."""
    scene.variants.append(variant("b", model="n"))
    scene.pools["b"] = scene.pools["a"]
    scene.waiting["p"] = {"M": 2.0, "other": 1.0, "n": 3.0, "m2": 0.0}
    async with scene.running():
        await scene.advance(1.0)
        assert scene.failures == {"p": "requests wait for M, other"}
        scene.waiting["p"] = {"n": 3.0}
        await scene.advance(1.0)
        assert scene.failures == {}
        scene.waiting["p"] = {"x" * 1000 + "\n": 1.0, **{f"y{number}": 1.0 for number in range(9)}}
        await scene.advance(1.0)
        assert scene.failures["p"].endswith("..., y0, y1 and 7 more")
        assert len(scene.failures["p"]) < 300
    assert scene.scaled == []


@pytest.mark.parametrize("name", ["my-lora-adapter", "chat-latest", "other", ""])
async def test_whatever_waits_in_front_of_one_model_is_for_that_model(scene, name):
    """Clients ask for an adapter or an alias by its own name."""
    scene.variants.append(asleep("b", cost=90))
    scene.pools["b"] = scene.pools["a"]
    scene.waiting["p"] = {name: 2.0, "m": 0.0}
    async with scene.running():
        await scene.advance(1.0)
    assert scene.scaled == [("a", 1)]
    assert scene.failures == {}


async def test_a_second_model_behind_a_pool_is_noticed(scene):
    """From then on an unknown name may be for either, and starts nothing."""
    scene.variants.append(variant("b", model="n"))
    scene.pools["b"] = []
    async with scene.running():
        await scene.advance(1.0)
        scene.pools["b"] = scene.pools["a"]
        scene.waiting["p"] = {"adapter": 2.0}
        await scene.advance(1.0)
    assert scene.scaled == []
    assert scene.failures == {"p": "requests wait for adapter"}


async def test_a_start_that_was_taken_back_is_made_again(scene):
    """A user scaled the target to zero while requests waited, after the caches had shown it running."""
    async with scene.running():
        scene.waiting["p"] = {"m": 1.0}
        await scene.advance(0.5)
        scene.variants = [variant("a", replicas=1)]
        scene.changed.set()
        await scene.advance(0.5)
        scene.variants = [asleep("a")]
        scene.changed.set()
        await scene.advance(0.5)
    assert scene.scaled == [("a", 1), ("a", 1)]


async def test_a_start_that_never_shows_is_made_again(scene):
    """WVA believes the caches again after half a minute."""
    async with scene.running():
        scene.waiting["p"] = {"m": 1.0}
        await scene.advance(ACTIVATION_SECONDS + 3)
    assert len(scene.scaled) == 2


async def test_a_broken_pool_backs_off_and_keeps_nobody_waiting(scene):
    """WVA reads the other pool as often as before, and starts its model."""
    scene.variants.append(asleep("b", model="n"))
    scene.pools["b"] = [Pool("ns", "q", "epp")]
    scene.waiting = {"p": GatewayError("refused"), "q": {}}
    async with scene.running():
        await scene.advance(30.0)
        broken = [at for at, pool in scene.reads if pool == "p"]
        assert len(broken) < 40
        assert len([pool for _, pool in scene.reads if pool == "q"]) >= 120
        scene.waiting["q"] = {"n": 1.0}
        await scene.advance(0.5)
    assert scene.scaled == [("b", 1)]
    assert scene.count("wva_gateway_reads", "error") >= len(broken)


async def test_an_error_about_one_pool_or_model_concerns_that_one_alone(scene, monkeypatch):
    """One pool cannot be read, one cannot be found, and one start cannot be decided. WVA starts the fourth model."""
    for name in ("b", "c", "d"):
        scene.variants.append(asleep(name, model=name))
        scene.pools[name] = [Pool("ns", name, "epp")]
    scene.waiting = {"p": ValueError("text"), "b": {}, "c": {"c": 1.0}, "d": {"d": 1.0}}
    pools_of, decide = scene.at_rest.pools_of, loop.activate

    def pools(variant):
        if variant.key.name == "b":
            raise LookupError
        return pools_of(variant)

    def activate(variants, *given):
        if variants[0].model.model_id == "c":
            raise LookupError
        return decide(variants, *given)

    scene.at_rest.pools_of = pools
    monkeypatch.setattr(loop, "activate", activate)
    async with scene.running():
        await scene.advance(2.0)
    assert scene.scaled == [("d", 1)]
    assert scene.failures["p"].startswith("unexpected ValueError")
    assert {name: trouble.reason.value for name, trouble in scene.hindered.items()} == {
        "b": "ScaleFromZeroFailed",
        "c": "ScaleFromZeroFailed",
    }
    assert "starting from zero failed: LookupError" in scene.hindered["c"].message


async def test_a_write_that_raises_what_it_should_not_is_tried_again(scene):
    """WVA treats it like a write that the API server refused."""
    scene.waiting["p"] = {"m": 1.0}
    scene.scale_error = ValueError("text")
    async with scene.running():
        await scene.advance(2.0)
        assert scene.hindered["a"].message.startswith("the target could not be scaled: ValueError")
        scene.scale_error = None
        await scene.advance(5.0)
    assert scene.scaled == [("a", 1)]


async def test_a_broken_pool_is_reported_while_somebody_needs_it(scene):
    """WVA reports the failure until it reads the pool again, or until no variant at zero is behind the pool."""
    scene.waiting["p"] = GatewayError("it answered 401")
    async with scene.running():
        await scene.advance(1.0)
        assert scene.failures == {"p": "it answered 401"}
        scene.waiting["p"] = GatewayError("it sent something else")
        await scene.advance(10.0)
        assert scene.failures == {"p": "it sent something else"}
        scene.waiting["p"] = {}
        await scene.advance(10.0)
        assert scene.failures == {}
        scene.waiting["p"] = GatewayError("gone")
        await scene.advance(1.0)
        assert scene.failures == {"p": "gone"}
        scene.variants = [variant("a", replicas=1)]
        scene.changed.set()
        await scene.advance(10.0)
    assert scene.failures == {}


async def test_an_answer_that_comes_too_late_is_not_reported(scene):
    """The variant runs when the failure arrives."""
    scene.hanging = {"p"}
    scene.waiting["p"] = GatewayError("did not answer")
    async with scene.running():
        await scene.advance(1.0)
        scene.variants = [variant("a", replicas=1)]
        scene.changed.set()
        await scene.advance(1.0)
        scene.released.set()
        await scene.advance(10.0)
    assert scene.failures == {}


async def test_a_pool_that_hangs_keeps_nobody_waiting(scene):
    """WVA does not ask it again before it has answered."""
    scene.variants.append(asleep("b", model="n"))
    scene.pools["b"] = [Pool("ns", "q", "epp")]
    scene.waiting = {"p": {}, "q": {"n": 1.0}}
    scene.hanging = {"p"}
    async with scene.running():
        await scene.advance(5.0)
    assert len([pool for _, pool in scene.reads if pool == "p"]) == 1
    assert scene.scaled == [("b", 1)]


async def test_many_pools_of_one_namespace_delay_no_other_namespace(scene):
    """WVA reads eight pools of a namespace at the same time, and not more."""
    names = [f"h{number}" for number in range(300)]
    scene.variants += [asleep(name, model=name, namespace="hostile") for name in names]
    scene.pools |= {name: [Pool("hostile", name, "epp")] for name in names}
    scene.waiting |= {name: {} for name in names}
    scene.hanging = set(names)
    async with scene.running():
        await scene.advance(5.0)
        assert len([pool for _, pool in scene.reads if pool == "p"]) >= 20
        assert len([pool for _, pool in scene.reads if pool != "p"]) == 8
        scene.waiting["p"] = {"m": 1.0}
        await scene.advance(0.5)
    assert scene.scaled == [("a", 1)]


async def test_a_loop_that_is_started_again_reads_the_pools_that_it_was_reading(scene):
    """Reads that were cut off do not count as under way."""
    names = [f"v{number}" for number in range(8)]
    scene.variants = [asleep(name, model=name) for name in names]
    scene.pools = {name: [Pool("ns", name, "epp")] for name in names}
    scene.waiting = {name: {} for name in names}
    scene.hanging = set(names)
    async with scene.running():
        await scene.advance(1.0)
    before = len(scene.reads)
    async with scene.running():
        await scene.advance(1.0)
    assert (before, len(scene.reads)) == (8, 16)


async def test_a_write_that_fails_is_told_and_tried_again_later(scene):
    """WVA tries it less than once a second, and reports the failure in an event."""
    scene.scale_error = Forbidden(403, "Forbidden", "deployments/scale is forbidden")
    scene.waiting["p"] = {"m": 1.0}
    async with scene.running():
        await scene.advance(60.0)
    failures = scene.count("wva_activations", "error")
    assert 2 <= failures < 60
    _, type_, reason, message = scene.events[0]
    assert (type_, reason) == ("Warning", "ScaleFromZeroFailed")
    assert "deployments/scale is forbidden" in message


async def test_a_refusal_is_told_once(scene):
    """WVA records one event while requests wait and no GPU is free, and another when the reason changes."""
    scene.limit = Budget(Inventory.of([]))
    scene.waiting["p"] = {"m": 1.0}
    async with scene.running():
        await scene.advance(5.0)
        assert [(type_, reason) for _, type_, reason, _ in scene.events] == [("Warning", "ScaleFromZeroRefused")]
        scene.limit = Budget(None, "nodes cannot be read")
        await scene.advance(1.0)
        assert len(scene.events) == 2
        scene.limit = None
        await scene.advance(1.0)
    assert scene.scaled == [("a", 1)]
    assert scene.count("wva_activations", "refused") > 2


async def test_a_refusal_lasts_until_nothing_waits_for_a_minute(scene):
    """A queue that is empty for a moment does not end the refusal."""
    scene.limit = Budget(Inventory.of([]))
    scene.waiting["p"] = {"m": 1.0}
    async with scene.running():
        await scene.advance(1.0)
        assert scene.hindered["a"].reason == "ScaleFromZeroRefused"
        assert "requests wait, nothing can start: a: " in scene.hindered["a"].message
        scene.waiting["p"] = {}
        await scene.advance(50.0)
        assert set(scene.hindered) == {"a"}
        scene.waiting["p"] = {"m": 1.0}
        await scene.advance(10.0)
        scene.waiting["p"] = {}
        await scene.advance(50.0)
        assert set(scene.hindered) == {"a"}
        await scene.advance(20.0)
    assert scene.hindered == {}


async def test_what_hinders_a_start_ends_with_the_start(scene):
    """The trouble ends when the write succeeds. If the variant is gone, the trouble ends a minute later."""
    scene.scale_error = Forbidden(403, "Forbidden", "deployments/scale is forbidden")
    scene.waiting["p"] = {"m": 1.0}
    async with scene.running():
        await scene.advance(1.0)
        assert scene.hindered["a"].reason == "ScaleFromZeroFailed"
        scene.scale_error = None
        await scene.advance(10.0)
        assert scene.scaled == [("a", 1)]
        assert scene.hindered == {}
        scene.scale_error = Forbidden(403, "Forbidden", "deployments/scale is forbidden")
        await scene.advance(ACTIVATION_SECONDS + 5)
        assert set(scene.hindered) == {"a"}
        scene.variants = []
        scene.changed.set()
        await scene.advance(65.0)
    assert scene.hindered == {}


async def test_state_of_pools_that_are_gone_is_forgotten(scene):
    """WVA reads a pool that comes back at once, despite its earlier failures."""
    scene.waiting["p"] = GatewayError("refused")
    async with scene.running():
        await scene.advance(20.0)
        scene.pools = {}
        await scene.advance(1.0)
        scene.pools = {"a": [Pool("ns", "p", "epp")]}
        scene.changed.set()
        before = len(scene.reads)
        await scene.advance(0.25)
    assert len(scene.reads) == before + 1


async def test_two_pools_over_one_model_start_one_variant(scene):
    """Each pool has its own variant, and both pickers answer at the same time."""
    scene.variants = [asleep("a", cost=20), asleep("b", cost=40)]
    scene.pools = {"a": [Pool("ns", "p", "epp")], "b": [Pool("ns", "q", "epp")]}
    scene.waiting = {"p": {"m": 1.0}, "q": {"m": 1.0}}
    scene.slow = True
    async with scene.running():
        await scene.advance(3.0)
    assert scene.scaled == [("a", 1)]


async def test_of_two_pools_with_requests_the_cheaper_variant_is_started(scene):
    """WVA waits for the answer of the second pool before it chooses."""
    scene.variants = [asleep("a", cost=40), asleep("b", cost=20)]
    scene.pools = {"a": [Pool("ns", "p", "epp")], "b": [Pool("ns", "q", "epp")]}
    scene.waiting = {"p": {"m": 1.0}, "q": {"m": 300.0}}
    async with scene.running():
        await scene.advance(3.0)
    assert scene.scaled == [("b", 2)]


async def test_requests_at_one_of_two_pools_start_what_serves_them(scene):
    """The cheaper variant is behind the other pool, so it would not get these requests."""
    scene.variants = [asleep("a", cost=40), asleep("b", cost=20)]
    scene.pools = {"a": [Pool("ns", "p", "epp")], "b": [Pool("ns", "q", "epp")]}
    scene.waiting = {"p": {"m": 1.0}, "q": {}}
    async with scene.running():
        await scene.advance(3.0)
    assert scene.scaled == [("a", 1)]


async def test_a_cheaper_variant_that_cannot_start_leaves_the_other_pool_its_own(scene):
    """Requests wait at both pools, and the cheaper variant has a maximum of 0."""
    scene.variants = [asleep("a", cost=40), asleep("b", cost=20, maximum=0)]
    scene.pools = {"a": [Pool("ns", "p", "epp")], "b": [Pool("ns", "q", "epp")]}
    scene.waiting = {"p": {"m": 1.0}, "q": {"m": 1.0}}
    async with scene.running():
        await scene.advance(3.0)
    assert scene.scaled == [("a", 1)]


@pytest.mark.parametrize(
    ("failure", "polls"),
    [(None, 2), (GatewayError("it answered 500"), 1), (ValueError("text"), 1)],
    ids=["no-answer", "error", "unexpected"],
)
async def test_a_pool_without_an_answer_delays_the_start_by_one_poll_at_most(scene, failure, polls):
    """The other pool of the model has requests. A failure counts as an answer."""
    scene.variants = [asleep("a", cost=40), asleep("b", cost=20)]
    scene.pools = {"a": [Pool("ns", "p", "epp")], "b": [Pool("ns", "q", "epp")]}
    scene.waiting = {"p": {"m": 1.0}, "q": failure}
    scene.hanging = {"q"} if failure is None else set()
    async with scene.running():
        await scene.advance(polls * POLL_SECONDS)
    assert scene.scaled == [("a", 1)]


async def test_a_start_that_could_not_be_written_keeps_the_other_pool_from_starting_another_variant(scene):
    """Its number is published, so a scaler may obey it. WVA tries the same write again."""
    scene.variants = [asleep("a", cost=20), asleep("b", cost=40)]
    scene.pools = {"a": [Pool("ns", "p", "epp")], "b": [Pool("ns", "q", "epp")]}
    scene.waiting = {"p": {"m": 1.0}, "q": {"m": 1.0}}
    scene.scale_error = Conflict(409, "Conflict", "the object has been modified")
    async with scene.running():
        await scene.advance(1.0)
        assert [decision.key.name for decision in scene.published] == ["a"] * len(scene.published)
        scene.scale_error = None
        await scene.advance(10.0)
    assert scene.scaled == [("a", 1)]
    assert {decision.key.name for decision in scene.published} == {"a"}


async def test_a_start_that_nobody_tries_again_does_not_keep_the_others_for_ever(scene):
    """No request waits at its pool any more. After half a minute WVA starts the variant behind the other pool."""
    scene.variants = [asleep("a", cost=20), asleep("b", cost=40)]
    scene.pools = {"a": [Pool("ns", "p", "epp")], "b": [Pool("ns", "q", "epp")]}
    scene.waiting = {"p": {"m": 1.0}, "q": {}}
    scene.scale_error = Conflict(409, "Conflict", "the object has been modified")
    async with scene.running():
        await scene.advance(0.1)
        scene.scale_error = None
        scene.waiting = {"p": {}, "q": {"m": 1.0}}
        await scene.advance(ACTIVATION_SECONDS - 2)
        assert scene.scaled == []
        await scene.advance(10.0)
    assert scene.scaled == [("b", 1)]


async def test_only_what_changed_is_looked_at_again(scene):
    """One of a hundred models at rest changes. WVA reads the pools of the others without a look at their variants."""
    scene.variants = [asleep(f"v{number}", model=f"m{number}") for number in range(100)]
    scene.pools = {made.key.name: [Pool("ns", made.key.name, "epp")] for made in scene.variants}
    scene.waiting = {made.key.name: {} for made in scene.variants}
    everything = {made.model for made in scene.variants}
    async with scene.running():
        assert len(scene.reads) == 8, "of a namespace so many at a turn"
        assert scene.looked_at == [everything]
        scene.at_rest.take_marked = lambda: {scene.variants[7].model}
        await scene.advance(0.5)
        assert scene.looked_at[1:] == [{scene.variants[7].model}] * 2
        scene.at_rest.take_marked = set
        await scene.advance(20.0)
        assert len(scene.looked_at) == 3
        await scene.advance(10.0)
        assert scene.looked_at[3:] == [everything]
    assert len({pool for _, pool in scene.reads}) == 100


@pytest.mark.parametrize(
    ("later", "counts"), [(0.0, True), (-2.0, True), (29.0, True), (31.0, False), (-3600.0, False)]
)
def test_a_start_counts_for_half_a_minute_whatever_happens_to_the_clock(later, counts):
    """A cycle that began just before the start takes it, too."""
    resting = variant("a", replicas=0)
    activations = Activations({resting.key: (1, NOW)})
    assert (activations.apply(resting, NOW + later).spec_replicas == 1) is counts


async def test_one_request_starts_the_least_roles_that_serve_it(scene):
    """The cheapest of each role that it takes; a variant for both stages is dearer than the two here."""
    scene.variants = [
        asleep("p", role="prefill", cost=10.0),
        asleep("p-dear", role="prefill", cost=30.0),
        asleep("d", role="decode", cost=20.0),
        asleep("both", role="prefill-decode", cost=40.0),
    ]
    scene.pools = {made.key.name: [Pool("ns", "p", "epp")] for made in scene.variants}
    async with scene.running():
        scene.waiting["p"] = {"m": 1.0}
        await scene.advance(2.0)
        assert sorted(scene.scaled) == [("d", 1), ("p", 1)]


async def test_a_role_whose_start_failed_is_started_later(scene):
    """The other one runs meanwhile, and is not started again."""
    scene.variants = [asleep("p", role="prefill"), variant("d", role="decode")]
    scene.pools = {made.key.name: [Pool("ns", "p", "epp")] for made in scene.variants}
    async with scene.running():
        scene.waiting["p"] = {"m": 1.0}
        await scene.advance(2.0)
        assert scene.scaled == [("p", 1)]
