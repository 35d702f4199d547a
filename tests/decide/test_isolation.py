"""A model on which an exception is raised is held; all others are decided in the same cycle."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import NOW, policy, replica, variant
from tests.decide import pipelines
from wva.decide import pipeline, wants
from wva.decide.failed import separate
from wva.decide.pipeline import conclude
from wva.hindsight.cycle import Recording
from wva.model.inventory import AcceleratorPool, GpuQuota, Inventory
from wva.model.memory import Memory, ModelMemory, VariantMemory
from wva.model.policy import NamespacePolicy, SaturationPolicy, SaturationRules
from wva.model.records import replace
from wva.model.snapshot import Snapshot, UnreadModel
from wva.model.variant import ModelKey, VariantKey

HOSTILE = ModelKey("ns", "hostile")
STAGES = ((pipeline, "terms"), (wants, "want"), (pipeline, "settle"), (pipeline, "explain"))


class Broken(Exception):  # noqa: N818 - named after what it is
    """Raised on purpose; its text must not appear in any message."""


def busy(*names, model=None, namespace="ns", **fields):
    """Return variants with one saturated replica each, which want to grow."""
    variants = [variant(name, desired=1, model=model or name, namespace=namespace, **fields) for name in names]
    replicas = [replace(replica(f"{name}-0", variant=name, kv=0.95, queue=9)) for name in names]
    keys = {each.key.name: each.key for each in variants}
    return variants, [replace(each, variant=keys[each.variant.name]) for each in replicas]


def world(*names):
    """Return a snapshot of busy models that are called like their variants."""
    return Snapshot.of(*busy(*names))


def raising(monkeypatch, stage, *models, of=pipeline):
    """Make a stage of deciding raise for some models; ``of``: the module that asks it."""
    original = getattr(of, stage)

    def broken(first, *args, **kwargs):
        seen = first if isinstance(first, list) else [first]
        keys = {each if isinstance(each, ModelKey) else each.key for each in seen}
        if keys & set(models):
            raise Broken("secret of a tenant")
        return original(first, *args, **kwargs)

    monkeypatch.setattr(of, stage, broken)


def numbers(outcome):
    """Return the desired numbers by variant."""
    return {decision.key.name: decision.desired for decision in outcome.decisions}


def of(outcome, name):
    """Return the decision on a variant."""
    return next(decision for decision in outcome.decisions if decision.key.name == name)


@pytest.mark.parametrize(("asking", "stage"), STAGES)
def test_a_model_that_raises_is_held_and_the_others_are_decided(monkeypatch, asking, stage):
    """This holds for every step of the decision."""
    snapshot = world("a", "b", "hostile", "z")
    good = numbers(conclude(snapshot, Memory(), policy(), NOW))
    raising(monkeypatch, stage, HOSTILE, of=asking)
    outcome = conclude(snapshot, Memory(), policy(), NOW)
    assert numbers(outcome) == good | {"hostile": 1}
    assert good["a"] > 1
    decision = of(outcome, "hostile")
    assert (decision.reason.value, decision.source.value, decision.held) == ("ModelFailed", "previous-desired", True)
    assert [(failure.model, type(failure.error)) for failure in outcome.failures] == [(HOSTILE, Broken)]


def test_the_message_names_class_and_place_and_no_text(monkeypatch):
    """A tenant may have written the text of the exception."""
    raising(monkeypatch, "terms", HOSTILE)
    message = of(conclude(world("a", "hostile"), Memory(), policy(), NOW), "hostile").message
    assert message.startswith("deciding failed: Broken in wva.decide.pipeline, line ")
    assert message.endswith("; keeping 1 (previous-desired)")
    assert "secret" not in message


def test_what_is_remembered_of_a_held_model_stays(monkeypatch):
    """When WVA can decide on the model again, it finds the number, the clock and the history."""
    known = VariantMemory(VariantKey("ns", "hostile"), 4, NOW - 10, 1)
    history = ModelMemory(HOSTILE)
    raising(monkeypatch, "settle", HOSTILE)
    before = Memory((known,), models=(history,))
    outcome = conclude(world("a", "hostile"), before, policy(), NOW)
    assert outcome.memory.by_key()[known.key] == known
    assert history in outcome.memory.models
    assert outcome.memory.failing == (HOSTILE,)
    decision = of(outcome, "hostile")
    assert (decision.desired, decision.settling_since) == (4, NOW - 10)


def test_a_model_that_can_be_decided_again_is(monkeypatch):
    """WVA decides on the model in the next cycle, and nothing says that it failed."""
    snapshot = world("a", "hostile")
    with monkeypatch.context() as patched:
        raising(patched, "terms", HOSTILE)
        memory = conclude(snapshot, Memory(), policy(), NOW).memory
    outcome = conclude(snapshot, memory, policy(), NOW + 60)
    assert (outcome.failures, outcome.memory.failing) == ((), ())
    assert of(outcome, "hostile").desired > 1


def test_a_fault_that_stays_is_looked_at_once(monkeypatch):
    """WVA does not search for a known culprit again: its own try fails, and the others are decided together."""
    snapshot = world(*(f"m{number:02}" for number in range(40)), "hostile")
    raising(monkeypatch, "terms", HOSTILE)
    memory = conclude(snapshot, Memory(), policy(), NOW).memory
    tries = []
    original = pipeline._conclude
    monkeypatch.setattr(pipeline, "_conclude", lambda *args: tries.append(len(args[0].variants)) or original(*args))
    conclude(snapshot, memory, policy(), NOW + 60)
    assert sorted(tries) == [1, 40]


def test_the_gpus_of_a_held_model_are_not_given_away(monkeypatch):
    """The model's replicas and the replicas that it was granted count; the rest that it asks for does not."""
    hostile = variant("hostile", replicas=2, desired=3, model="hostile")
    variants, replicas = busy("a")
    inventory = Inventory.of([AcceleratorPool("A100", 4, 3)], [GpuQuota("ns", "nvidia.com/gpu", 4, 3, "q")])
    snapshot = replace(Snapshot.of([*variants, hostile], replicas), inventory=inventory)
    limited = replace(policy(), enable_limiter=True)
    raising(monkeypatch, "terms", HOSTILE)
    assert numbers(conclude(snapshot, Memory(), limited, NOW)) == {"a": 1, "hostile": 3}
    roomy = replace(snapshot, inventory=Inventory.of([AcceleratorPool("A100", 5, 3)]))
    assert numbers(conclude(roomy, Memory(), limited, NOW)) == {"a": 2, "hostile": 3}


def test_a_cycle_with_a_failing_model_is_replayed_bit_by_bit(monkeypatch):
    """The recording of such a cycle gives the same decisions and the same memory."""
    raising(monkeypatch, "settle", HOSTILE)
    snapshot = replace(world("a", "hostile", "c"), unread=(UnreadModel(ModelKey("ns", "c"), "reading failed"),))
    recording = Recording(NOW, policy(), conclude(snapshot, Memory(), policy(), NOW).memory, snapshot)
    back = msgspec.json.decode(msgspec.json.encode(recording), type=Recording)
    first, second = (conclude(each.snapshot, each.memory, each.policy, each.now) for each in (recording, back))
    for part in ("decisions", "memory", "refused"):
        assert msgspec.json.encode(getattr(first, part)) == msgspec.json.encode(getattr(second, part))


def test_an_unread_model_is_held_with_all_its_variants():
    """The message says which part of the model WVA could not read."""
    variants, replicas = busy("a", "b", model="hostile")
    others = busy("victim")
    snapshot = Snapshot.of([*variants, *others[0]], [*replicas, *others[1]])
    snapshot = replace(snapshot, unread=(UnreadModel(HOSTILE, "reading b failed: Broken"),))
    outcome = conclude(snapshot, Memory(), policy(), NOW)
    assert {each.key.name: each.reason.value for each in outcome.decisions if each.model == HOSTILE} == {
        "a": "ModelFailed",
        "b": "ModelFailed",
    }
    assert of(outcome, "a").message == "reading b failed: Broken; keeping 1 (previous-desired)"
    assert of(outcome, "victim").desired > 1
    assert outcome.failures == ()


def test_variants_at_zero_of_a_model_that_fails_stay_there_and_say_why(monkeypatch):
    """A variant that WVA started before and that has no replica yet keeps its number."""
    raising(monkeypatch, "terms", HOSTILE)
    asleep = [variant(name, replicas=0, model="hostile", spec_replicas=0, minimum=0) for name in ("a", "b")]
    called = VariantMemory(VariantKey("ns", "b"), 2, NOW - 10, 0)
    snapshot = Snapshot.of([*asleep, variant("c", desired=1, model="hostile")], [])
    outcome = conclude(snapshot, Memory((called,)), policy(), NOW)
    assert numbers(outcome) == {"a": 0, "b": 2, "c": 1}
    assert of(outcome, "a").message.startswith("scaled to zero; deciding failed: Broken")
    assert outcome.memory.by_key()[called.key] == called


def test_a_held_model_without_gpus_in_the_inventory_takes_none(monkeypatch):
    """The accelerator of the model has no pool."""
    raising(monkeypatch, "terms", HOSTILE)
    variants, replicas = busy("a")
    hostile = variant("hostile", replicas=2, desired=9, model="hostile", accelerator="?")
    inventory = Inventory.of([AcceleratorPool("A100", 4, 3)])
    snapshot = replace(Snapshot.of([*variants, hostile], replicas), inventory=inventory)
    limited = replace(policy(), enable_limiter=True)
    assert numbers(conclude(snapshot, Memory(), limited, NOW)) == {"a": 2, "hostile": 9}


def test_a_held_number_stays_within_the_bounds(monkeypatch):
    """A maximum that a user lowers also counts for a model on which deciding fails."""
    raising(monkeypatch, "terms", HOSTILE)
    hostile = variant("hostile", replicas=3, desired=9, model="hostile", maximum=5)
    assert numbers(conclude(Snapshot.of([hostile], []), Memory(), policy(), NOW)) == {"hostile": 5}


def test_the_configuration_of_a_namespace_that_makes_decisions_fail_does_not_count(monkeypatch):
    """WVA decides without the configuration of the namespace and names the namespace; others keep theirs."""
    original = pipeline.terms

    def broken(model, *others):
        if model.policy.kv_spare_trigger == 0.123:
            raise Broken
        return original(model, *others)

    monkeypatch.setattr(pipeline, "terms", broken)
    hostile, victim = busy("h", "i", namespace="bad"), busy("v", namespace="good")
    snapshot = Snapshot.of([*hostile[0], *victim[0]], [*hostile[1], *victim[1]])
    bad = NamespacePolicy("bad", SaturationRules(SaturationPolicy(kv_spare_trigger=0.123)))
    good = NamespacePolicy("good", SaturationRules(SaturationPolicy(0.99, 99.0, 0.0, 0.0)))
    outcome = conclude(snapshot, Memory(), replace(policy(), namespaces=(bad, good)), NOW)
    assert numbers(outcome) == {"h": 2, "i": 2, "v": 1}
    assert [namespace for namespace, _ in outcome.refused] == ["bad"]
    assert outcome.failures == ()
    plain = conclude(snapshot, Memory(), replace(policy(), namespaces=(good,)), NOW)
    assert outcome.decisions == plain.decisions


def test_configuration_that_is_not_to_blame_stays_in_force(monkeypatch):
    """The model fails without the configuration as well."""
    raising(monkeypatch, "terms", HOSTILE)
    outcome = conclude(world("a", "hostile"), Memory(), replace(policy(), namespaces=(NamespacePolicy("ns"),)), NOW)
    assert outcome.refused == ()
    assert [failure.model for failure in outcome.failures] == [HOSTILE]


def test_what_fails_without_any_model_is_raised(monkeypatch):
    """The whole cycle fails."""

    def broken(*_, **_kwargs):
        raise Broken

    monkeypatch.setattr(pipeline, "foresee", broken)
    with pytest.raises(Broken):
        conclude(world("a", "b"), Memory(), policy(), NOW)


def work(alone, pairs):
    """Return work that raises with some keys, and with some pairs of keys."""

    def attempt(keys):
        if set(keys) & alone or any(set(pair) <= set(keys) for pair in pairs):
            raise Broken
        return frozenset(keys)

    return attempt


numbers_of_keys = st.integers(0, 23)


@given(
    st.sets(numbers_of_keys, max_size=4),
    st.sets(st.tuples(numbers_of_keys, numbers_of_keys).filter(lambda pair: pair[0] < pair[1]), max_size=3),
    st.sets(numbers_of_keys, max_size=6),
)
def test_only_those_that_raise_are_set_aside(alone, pairs, suspects):
    """The other keys work together; WVA never sets aside a key that raises neither alone nor with another."""
    keys = range(24)
    kept, failed = separate(keys, work(alone, pairs), suspects=suspects)
    assert kept | failed.keys() == set(keys)
    assert not kept & failed.keys()
    assert alone <= failed.keys()
    assert failed.keys() <= alone.union(*pairs)
    assert work(alone, pairs)(kept) == kept


def test_one_that_raises_with_every_other_takes_few_with_it():
    """The key may be the first or the last one."""
    _, failed = separate(range(50), work(set(), {(0, other) for other in range(1, 50)}))
    assert len(failed) <= 2
    assert 0 in failed
    again, failed = separate(range(50), work(set(), {(0, other) for other in range(1, 50)}), suspects=failed.keys())
    assert again == set(range(1, 50))


def test_those_that_raise_only_all_three_lose_one():
    """No pair of the three fails, so WVA sets one of them aside."""

    def attempt(keys):
        if {1, 5, 9} <= set(keys):
            raise Broken
        return frozenset(keys)

    kept, failed = separate(range(12), attempt)
    assert len(failed) == 1
    assert failed.keys() <= {1, 5, 9}
    assert kept == set(range(12)) - failed.keys()


def test_many_suspects_that_do_not_fit_stay_aside_together():
    """It would take a whole try for each suspect to look at it."""
    tries = []
    attempt = work(set(), {(0, 20)})

    def counted(keys):
        tries.append(keys)
        return attempt(keys)

    kept, failed = separate(range(30), counted, suspects=range(20, 30))
    assert (kept, failed.keys()) == (set(range(20)), set(range(20, 30)))
    assert len(tries) == 3


def test_work_that_raises_with_fewer_keys_is_done_without_any():
    """Such work is unexpected, so WVA sets all keys aside."""

    def attempt(keys):
        if {0, 2} <= set(keys) or set(keys) == {1}:
            raise Broken
        return frozenset(keys)

    kept, failed = separate(range(3), attempt)
    assert (kept, failed.keys()) == (set(), {0, 1, 2})


def test_two_that_raise_only_together_are_both_set_aside():
    """Neither of the two is more to blame, so both are set aside; a key that is unrelated stays."""
    kept, failed = separate(range(3), work(set(), {(0, 2)}))
    assert (kept, failed.keys()) == ({1}, {0, 2})


@given(pipelines.cycles_of(pipelines.SIZED, limited=True) | pipelines.cycles_of(pipelines.GREEDY), st.data())
def test_every_variant_has_one_decision_whatever_fails(recording, data):
    """Variants of a model that fails keep their number within their bounds; a second decision is the same."""
    models = sorted({each.model for each in recording.snapshot.variants})
    failing = data.draw(st.sets(st.sampled_from(models)) if models else st.just(set()))
    stage = data.draw(st.sampled_from(("terms", "settle")))
    with pytest.MonkeyPatch.context() as patched:
        raising(patched, stage, *failing)
        outcome = conclude(recording.snapshot, recording.memory, recording.policy, recording.now)
        again = conclude(recording.snapshot, recording.memory, recording.policy, recording.now)
    assert (again.decisions, again.memory) == (outcome.decisions, outcome.memory)
    assert [each.key for each in outcome.decisions] == [each.key for each in recording.snapshot.variants]
    variants = {each.key: each for each in recording.snapshot.variants}
    failed = {failure.model for failure in outcome.failures}
    assert failed == {
        model for model in failing if any(each.active for each in variants.values() if each.model == model)
    }
    known = recording.memory.by_key()
    for decision in outcome.decisions:
        if decision.model in failed and variants[decision.key].active:
            bounds = variants[decision.key].bounds
            assert (decision.reason.value, bounds.clamp(decision.desired)) == ("ModelFailed", decision.desired)
            assert outcome.memory.by_key().get(decision.key) == known.get(decision.key)
