"""Policies make themselves known."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from wva.sim import rivals
from wva.sim.commands import bench
from wva.sim.rivals import DEFAULTS, FAMILIES, OF_ROLES, POLICIES, registry, with_target

RIVAL = """
from wva.sim.rivals.registry import register_with_targets


def still(target):
    return lambda scenario, seed: []


register_with_targets("still", still, default=3, targets=(1, 2.5))
"""
REGISTERED = ("_policies", "_families", "_defaults", "_of_roles")


@pytest.fixture(name="as_before")
def _as_before():
    """Take back what a test registers."""
    before = {name: getattr(registry, name).copy() for name in REGISTERED}
    yield
    for name, content in before.items():
        getattr(registry, name).clear()
        getattr(registry, name).update(content)


@pytest.mark.usefixtures("as_before")
def test_a_new_rival_is_one_new_module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A module in the package is enough: the registry and the suites of the scorecard have its policies."""
    (tmp_path / "still.py").write_text(RIVAL, encoding="utf-8")
    monkeypatch.setattr(rivals, "__path__", [*rivals.__path__, str(tmp_path)])
    assert "still" not in POLICIES
    rivals.import_modules()
    monkeypatch.delitem(sys.modules, "wva.sim.rivals.still")
    assert [name for name in POLICIES if name.startswith("still")] == ["still", "still@1", "still@2.5"]
    assert (DEFAULTS["still"], FAMILIES["still"]) == (3, ("still@1", "still@2.5"))
    assert [name for name in bench._policies() if name.startswith("still")] == ["still", "still-tuned"]


@pytest.mark.usefixtures("as_before")
def test_a_policy_of_roles_has_two_targets() -> None:
    """Each pair is a policy; both numbers are in its name."""
    registry.register_by_role(
        "apart", lambda _one, _two: POLICIES["wva"], default=(1.5, 20.0), first=(1.5, 3.0), second=(20.0, 40.0)
    )
    assert FAMILIES["apart"] == ("apart@1.5,20", "apart@1.5,40", "apart@3,20", "apart@3,40")
    assert with_target("apart", DEFAULTS["apart"]) == "apart@1.5,20"
    assert "apart" in OF_ROLES


@pytest.mark.usefixtures("as_before")
def test_two_policies_with_one_name_are_refused() -> None:
    """The second would take the place of the first in every scorecard."""
    with pytest.raises(ValueError, match="hpa-kv: two policies have this name"):
        registry.register("hpa-kv", POLICIES["wva"])


def test_the_members_of_a_family_are_policies() -> None:
    """A target is part of the name. A suite tunes every policy that has one."""
    assert FAMILIES["hpa-queue"][:2] == ("hpa-queue@0.5", "hpa-queue@1")
    assert all(member in POLICIES for members in FAMILIES.values() for member in members)
    tuned = {name.removesuffix("-tuned") for name in bench._policies() if name.endswith("-tuned")}
    assert tuned == FAMILIES.keys() == DEFAULTS.keys()
