"""What the page about upgrades promises is what the code and the tests have."""

import ast
import re

import pytest

from tests.docs.rendering import DOCS
from wva.api.crd import definition
from wva.hindsight import recordings

PAGE = (DOCS / "upgrade.md").read_text(encoding="utf-8")
ROOT = DOCS.parent


def test_the_formats_that_are_read_are_those_of_the_code():
    """The row about recordings has each format that this version reads."""
    named = re.search(r"reads formats ([\d, and]+),", PAGE)[1]
    assert {int(number) for number in re.findall(r"\d+", named)} == set(recordings.READ)


def test_the_kind_has_the_one_version_that_the_page_names():
    """A second version would need a conversion, of which the page says that there is none."""
    (version,) = [each["name"] for each in definition()["spec"]["versions"]]
    assert f"one version, `{version}`" in PAGE


def test_an_end_to_end_test_does_both_ways():
    """The test that the page speaks of exists."""
    tree = ast.parse((ROOT / "e2e" / "test_upgrade.py").read_text(encoding="utf-8"))
    tests = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert "test_a_rollout_and_its_way_back_move_nothing" in tests


@pytest.mark.parametrize("command", ["kubectl apply --server-side", "helm upgrade", "helm history", "helm rollback"])
def test_the_commands_are_those_of_the_page_that_is_run(command):
    """A command that is not run here stands on the page about installing, where it is."""
    (line,) = [line for line in PAGE.splitlines() if line.startswith(command)]
    assert line in (DOCS / "install.md").read_text(encoding="utf-8").splitlines()
