"""Which rights of the controller the doctor misses, and where."""

from __future__ import annotations

import pytest

from wva.doctor.installation import InstalledController, rights_links
from wva.doctor.rights import NEEDED

USER = "system:serviceaccount:system:manager"
SCALE = ("deployments/scale", "services")


class RightsOfOne:
    """A cluster in which one account has every right but those to scale, which it has in some namespaces."""

    def __init__(self, *scales_in):
        """``scales_in`` are these namespaces."""
        self.scales_in = scales_in

    async def may(self, user, namespace, group, resource, verb, name=""):
        """Answer as the API server; a right in all namespaces is asked for with no namespace."""
        assert user == USER
        assert any((each.group, each.resource) == (group, resource) and verb in each.verbs for each in NEEDED), name
        return resource not in SCALE or namespace in self.scales_in


async def problems(cluster, *, watched="", namespaces):
    """Return what the doctor says of the rights."""
    installation = InstalledController("system", account="manager")
    links = rights_links(cluster, installation, frozenset(), watched=watched, namespaces=namespaces)
    return sorted([each.finding.problem async for each in links])


@pytest.mark.parametrize(
    ("scales_in", "namespaces", "where"),
    [
        (["a", "b"], ["a", "b"], None),
        (["", "a", "b"], ["a", "b"], None),
        (["a"], ["a", "b"], "in b"),
        (["a"], ["a", *"bcdefgh"], "in b, c, d, e, f and 2 more"),
        ([], ["a", "b"], "in all namespaces"),
        ([], [], "in all namespaces"),
    ],
)
async def test_the_right_to_scale_is_enough_where_the_variants_are(scales_in, namespaces, where):
    """An installation may grant it in named namespaces; the doctor names those of variants that lack it."""
    missing = ("get services", "patch deployments/scale.apps")
    expected = [] if where is None else [f"may not {right} {where}" for right in missing]
    assert await problems(RightsOfOne(*scales_in), namespaces=namespaces) == expected


async def test_a_controller_of_one_namespace_needs_it_there():
    """The namespaces of other variants do not matter."""
    assert await problems(RightsOfOne("a"), watched="a", namespaces=["a", "b"]) == []
    found = await problems(RightsOfOne("b"), watched="a", namespaces=["a", "b"])
    assert found == ["may not get services in a", "may not patch deployments/scale.apps in a"]
