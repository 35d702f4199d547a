"""The page about rivals has every policy with its default target, and no other policies."""

from __future__ import annotations

import re

from tests.docs.rendering import DOCS
from wva.sim.rivals import DEFAULTS, FAMILIES, POLICIES, with_target
from wva.sim.rivals.readings import LoadReading
from wva.sim.scorecard.recorded import recordings

PAGE = (DOCS / "rivals.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `([\w.-]+)` \| ([\d.]*(?:, [\d.]+)?)", PAGE, re.MULTILINE))


def test_every_policy_has_its_row():
    """The page has a row for each policy without a target in its name, and for each program that was recorded."""
    recorded = {name for found in recordings() if not found.ending for name in found.policies}
    assert set(ROWS) == {name for name in POLICIES if "@" not in name} | recorded


def test_the_targets_are_the_defaults():
    """The page has the default targets of the code, and no target for a policy without one."""
    assert DEFAULTS.keys() == FAMILIES.keys()
    for name, target in ROWS.items():
        default = DEFAULTS.get(name)
        told = f"{name}@{target.replace(', ', ',')}" if target else None
        assert told == (None if default is None else with_target(name, default)), name


def test_the_example_of_a_target_exists():
    """Each name with a target that the page mentions is a policy."""
    examples = re.findall(r"`([\w-]+@[\d.]+(?:,[\d.]+)?)`", PAGE)
    assert examples
    assert set(examples) <= set(POLICIES)
    assert all(name.split("@")[0] in FAMILIES for name in POLICIES if "@" in name)
    assert {load.value for load in LoadReading} == {"kv", "queue", "inflight"}
