"""When WVA patches a status: only for news, again after a conflict, never for a deleted object."""

from __future__ import annotations

import pytest

from tests.app.stage import VARIANTS, until
from wva.api.meta import Key
from wva.model.records import replace
from wva.sim.apiserver import matching

STATUS_PATCH = matching(verb="patch", resource=VARIANTS, subresource="status")


async def test_nothing_new_is_not_written(stage):
    """Cycles that decide the same again send no patch."""
    stage.deployment(replicas=2)
    stage.va()
    await stage.scrape()
    async with stage.controller(interval="20ms"):
        await until(lambda: (stage.told("OptimizationReady") or ("",))[0] == "True")
        for _ in range(5):  # a conflict of the first patches may still be on its way
            before = stage.patches()
            await stage.cycles(10)
            if stage.patches() == before:
                return
        pytest.fail(f"{stage.patches()} patches, and more with every cycle")


async def test_a_new_number_is_written(stage):
    """Load above the thresholds changes the number in the status and in the series."""
    stage.deployment(replicas=2)
    stage.va()
    stage.load["d"] = (0.95, 9)
    await stage.scrape()
    async with stage.controller():
        await until(lambda: (stage.number() or 0) > 2)
        assert stage.series() == {"va": stage.number()}
        assert stage.told("OptimizationReady") == ("True", "ScaleUp")
        assert stage.told("MetricsAvailable") == ("True", "MetricsAvailable")


async def test_two_numbers_in_a_row_do_not_conflict(stage):
    """The second patch builds on the answer to the first, although the watch is late."""
    stage.deployment(replicas=2)
    stage.va()
    async with stage.controller():
        await until(lambda: stage.told("OptimizationReady") == ("False", "MetricsMissing") and stage.app.idle)
        stage.api.faults.stall_watches()
        for number in (5, 6, 7):
            stage.app.ledger.record([replace(stage.decision(), desired=number)])
            await until(lambda number=number: stage.number() == number)
        assert stage.metric("wva_status_patches_total", result="conflict") == 0
        stage.api.faults.resume_watches()


async def test_the_first_decision_does_not_conflict_with_the_held_number(stage):
    """A start sends at most two patches, and neither of them conflicts."""
    stage.deployment(replicas=2)
    stage.va()
    await stage.scrape()
    async with stage.controller():
        await until(lambda: (stage.told("OptimizationReady") or ("",))[0] == "True" and stage.app.idle)
        assert stage.metric("wva_status_patches_total", result="conflict") == 0
        assert stage.patches() <= 2


async def test_a_conflict_is_tried_again_with_the_fresh_object(stage):
    """The patch names the version that it was computed from. It succeeds when the cache has the new version."""
    stage.deployment(replicas=2)
    stage.va()
    async with stage.controller():
        await until(lambda: stage.told("OptimizationReady") == ("False", "MetricsMissing") and stage.app.idle)
        stage.api.faults.stall_watches()
        stage.patch_va({"metadata": {"annotations": {"edited": "meanwhile"}}})
        decision = stage.decision()
        stage.app.ledger.record([replace(decision, desired=5)])
        await until(lambda: stage.metric("wva_status_patches_total", result="conflict"))
        assert stage.number() == 2
        stage.api.faults.resume_watches()
        await until(lambda: stage.number() == 5)


@pytest.mark.parametrize("status", [409, 429, 500, 503])
async def test_a_refused_patch_is_tried_again(stage, status):
    """WVA retries after each of these statuses."""
    stage.deployment(replicas=2)
    stage.va()
    stage.api.faults.answer(status, times=2, match=STATUS_PATCH)
    async with stage.controller():
        await until(lambda: stage.number() == 2)
        result = "conflict" if status == 409 else "error"
        assert stage.metric("wva_status_patches_total", result=result) >= 2
        await until(lambda: stage.metric("wva_status_patches_total", result="success"))


async def test_a_lost_connection_is_tried_again(stage):
    """WVA retries when the connection breaks."""
    stage.deployment(replicas=2)
    stage.va()
    stage.api.faults.drop(times=1, match=STATUS_PATCH)
    async with stage.controller():
        await until(lambda: stage.number() == 2)
        assert stage.metric("wva_status_patches_total", result="error") >= 1


def _at_rest(stage):
    """Return whether the cache has the last write, nothing is running, and no retry is waiting."""
    seen = int(stage.app.cache_versions()[VARIANTS]) >= stage.api.store.last_version(VARIANTS)
    return seen and stage.app.idle and stage.app.reconciling.variants.queue.retries(Key("ns", "va")) == 0


async def test_a_variant_deleted_before_its_patch_is_no_error(stage):
    """A 404 to a patch is not an error: the variant was deleted."""
    stage.deployment()
    stage.va()
    async with stage.controller():
        await until(lambda: stage.told("OptimizationReady") == ("False", "MetricsMissing") and stage.app.idle)
        await until(lambda: _at_rest(stage))
        stage.api.faults.stall_watches()
        stage.delete_va()
        before = stage.patches()
        stage.app.ledger.record([replace(stage.decision(), desired=5)])
        await until(lambda: stage.patches() > before)
        stage.api.faults.resume_watches()
        await until(lambda: stage.series() == {})
        assert stage.metric("wva_status_patches_total", result="error") == 0
        assert stage.metric("wva_reconciles_total", controller="variantautoscaling", result="timeout") == 0


async def test_one_variant_that_cannot_be_written_does_not_stop_the_others(stage):
    """WVA writes the other variants while it retries one."""
    for name in ("bad", "good"):
        stage.deployment(name)
    stage.va("bad", target="bad")
    path = "/apis/llmd.ai/v1alpha1/namespaces/ns/variantautoscalings/bad/status"
    stage.api.faults.answer(500, times=None, match=matching(verb="patch", path=path))
    async with stage.controller():
        await until(lambda: stage.metric("wva_status_patches_total", result="error"))
        stage.va("good", target="good")
        await until(lambda: stage.number("good") == 1)
        assert stage.status("bad") == {}
        assert stage.series() == {"bad": 1, "good": 1}
