"""The numbers stay within the bounds of the scaler of the target."""

from __future__ import annotations

from tests.app.stage import until
from wva.api.meta import Key

HPAS = "horizontalpodautoscalers.autoscaling"


def hpa(stage, *, maximum):
    """Create an HPA of Deployment d."""
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    spec = {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": maximum}
    stage.api.store.create(HPAS, {"metadata": {"name": "hpa", "namespace": "ns"}, "spec": spec})


async def test_the_number_of_a_target_is_kept_within_its_hpa(stage):
    """WVA publishes no number above the maximum of the HPA, because the HPA would not follow it."""
    stage.deployment(replicas=6)
    stage.va()
    hpa(stage, maximum=4)
    async with stage.controller():
        await until(lambda: stage.series() == {"va": 4})
        await until(lambda: stage.number() == 4)


async def test_a_scaler_that_comes_later_counts_from_the_next_cycle(stage):
    """WVA follows the bounds of an HPA that is created while it runs."""
    stage.deployment(replicas=1)
    stage.va()
    await stage.scrape()
    async with stage.controller(interval="50ms"):
        await until(lambda: stage.series() == {"va": 1})
        hpa(stage, maximum=4)
        await until(lambda: stage.series() == {"va": 2})


async def test_an_annotation_narrows(stage):
    """The maximum in an annotation of the VA limits the number."""
    stage.deployment(replicas=6)
    stage.va()
    stage.patch_va({"metadata": {"annotations": {"wva.llmd.ai/max-replicas": "5"}}})
    async with stage.controller():
        await until(lambda: stage.series() == {"va": 5})


async def test_an_annotation_that_is_no_number_is_told(stage):
    """The condition ConfigurationValid reports it, and the number ignores it."""
    stage.deployment(replicas=6)
    stage.va()
    stage.patch_va({"metadata": {"annotations": {"wva.llmd.ai/max-replicas": "few"}}})
    async with stage.controller():
        await until(lambda: (stage.told("ConfigurationValid") or ("",))[0] == "False")
        assert "wva.llmd.ai/max-replicas: got 'few'" in stage.message("ConfigurationValid")
        assert stage.number() == 6


async def test_the_maximum_is_shown_beside_the_number(stage):
    """The maximum is read from the caches at each scrape. The reason of the number is a series, too."""
    stage.deployment(replicas=6)
    stage.va()
    hpa(stage, maximum=4)
    async with stage.controller():
        await until(lambda: stage.series("wva_maximum_replicas") == {"va": 4})
        await until(lambda: stage.series("wva_desired_reason") == {"va": 1})
        stage.api.store.delete(HPAS, Key("ns", "hpa"))
        await until(lambda: stage.series("wva_maximum_replicas") == {})
