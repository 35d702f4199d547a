"""Into shadow mode and back: nothing is announced, nothing is forgotten, and no number jumps."""

from __future__ import annotations

import pytest

from tests.builders import replica, variant
from tests.optimizer.optimizer_scene import KEY, OptimizerScene
from wva.model.decision import Source
from wva.model.records import replace
from wva.model.snapshot import Snapshot


class ShadowScene(OptimizerScene):
    """A scene whose variant may be in shadow mode; the test plays what scales it."""

    def __init__(self, *, shadow):
        """Begin in shadow mode or not."""
        super().__init__()
        self.shadows = {KEY} if shadow else set()
        self.kept = []

    async def keep(self, cycle):
        """Note the number that is published when the cycle is kept."""
        await super().keep(cycle)
        self.kept.append(self.ledger.get(KEY))

    def exist(self, count, *, kv, queue=0):
        """Let so many replicas exist, all with the same load."""
        pods = [replica(f"a-{number}", kv=kv, queue=queue) for number in range(count)]
        self.snapshot = Snapshot.of([variant("a", replicas=count)], pods)

    @property
    def decision(self):
        """The last decision."""
        return self.ledger.get(KEY)


@pytest.mark.parametrize("shadow", [True, False])
async def test_a_change_of_the_mode_forgets_nothing(shadow):
    """The next cycle finds the memory that it would have found without the change, but for the number."""
    scenes = [ShadowScene(shadow=shadow), ShadowScene(shadow=shadow)]
    for scene in scenes:
        async with scene.running():
            scene.exist(3, kv=0.95, queue=9)
            await scene.advance(60)
            scene.exist(4, kv=0.6)
            await scene.advance(120)
            assert bool(scene.events) is not shadow
            if scene is scenes[0]:
                scene.shadows ^= {KEY}
            await scene.advance(180)
    changed, same = (scene.recordings[-1].memory for scene in scenes)
    assert same.models
    assert replace(changed, variants=()) == replace(same, variants=())
    (entry,), (other,) = changed.variants, same.variants
    assert replace(entry, decided=True) == replace(other, decided=True)


async def test_each_number_of_a_shadow_starts_from_what_exists():
    """Nothing follows the number, so the next one does not wait for it."""
    scene = ShadowScene(shadow=True)
    async with scene.running():
        assert (scene.decision.current, scene.decision.desired) == (1, 2)
        scene.exist(6, kv=0.79)
        await scene.advance(60)
        assert scene.decision.previous is None
        assert scene.decision.desired >= 6
    assert scene.events == []


async def test_the_first_number_after_the_shadow_starts_from_what_exists():
    """The mode ends with the cycle that decides on it, so the number before it counts for nothing."""
    scene = ShadowScene(shadow=True)

    async def keep(_):
        scene.shadows.clear()  # as the annotation has gone before the cycle

    scene.optimizer.keep = keep
    async with scene.running():
        scene.shadows.add(KEY)
        scene.exist(6, kv=0.79)
        await scene.advance(60)
        assert (scene.decision.previous, scene.decision.source) == (None, Source.MEASURED)
        assert scene.decision.desired >= 6
        assert not scene.shadows
        last = scene.decision.desired
        await scene.advance(120)
        assert scene.decision.previous == last


async def test_a_variant_that_enters_the_shadow_starts_from_what_exists():
    """The number that acted until now is not under way any more."""
    scene = ShadowScene(shadow=False)
    async with scene.running():
        assert scene.decision.desired == 2
        scene.shadows.add(KEY)
        scene.exist(5, kv=0.79)
        await scene.advance(60)
        assert scene.decision.previous is None
        assert scene.decision.desired >= 5


async def test_a_cycle_is_kept_after_its_publication():
    """A variant leaves shadow mode when its cycle is accounted for, and its number must be the new one then."""
    scene = ShadowScene(shadow=True)
    async with scene.running():
        scene.exist(6, kv=0.79)
        await scene.advance(60)
    assert [each.current for each in scene.kept] == [1, 6]
