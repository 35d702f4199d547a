"""The documentation has exactly the conditions, reasons, events, sources and commands of the code."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tests.docs.rendering import DOCS
from wva.api.variantautoscaling import ConditionType, TargetReason
from wva.cli.parser import build_parser
from wva.config.watch import DELETED_EVENT, IGNORED_EVENT, IMMUTABLE_EVENT, INVALID_EVENT
from wva.controllers import EXCLUDED_EVENT
from wva.model.decision import HOLD_REASONS, Reason, Source
from wva.publish import announce
from wva.publish.obstacles import OBSTACLES

ROOT = DOCS.parent
OTHER_EVENTS = {
    INVALID_EVENT,
    IMMUTABLE_EVENT,
    DELETED_EVENT,
    IGNORED_EVENT,
    EXCLUDED_EVENT,
    "LeaderElection",
}
CONDITIONS = (DOCS / "conditions.md").read_text()


def _section(title):
    """Return the text of one section of docs/conditions.md."""
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", CONDITIONS, re.DOTALL | re.MULTILINE)[1]


def _first_cells(title):
    """Return every code word in the first column of a section's table."""
    rows = [line.split("|")[1] for line in _section(title).splitlines() if line.startswith("| ")]
    return {word for row in rows for word in re.findall(r"`([A-Za-z]+)`", row)}


def test_every_condition_type_is_described_and_exists():
    """The first column of the table has exactly the condition types of the code."""
    assert _first_cells("Conditions") == {type_.value for type_ in ConditionType}


def test_every_reason_of_a_decision_is_described_and_exists():
    """The table of obstacles has the reasons of a hold. Another table has all other reasons."""
    of_holds = {reason.value for reason in HOLD_REASONS if reason is not Reason.NOT_DECIDED}
    assert _first_cells("Reasons of a decision") == {reason.value for reason in Reason} - of_holds
    assert of_holds <= _first_cells("Why a variant is not scaled")


def test_every_reason_of_the_target_is_described():
    """The section on conditions has every reason of the conditions about the target."""
    described = set(re.findall(r"`([A-Za-z]+)`", _section("Conditions")))
    assert {reason.value for reason in TargetReason} <= described


def test_every_event_is_described_and_exists():
    """The page has exactly the events of the code."""
    events = {getattr(announce, name) for name in vars(announce) if name.endswith("_EVENT")}
    of_obstacles = {obstacle.event for obstacle in OBSTACLES}
    assert _first_cells("Events") == (events | OTHER_EVENTS) - of_obstacles
    told = set(re.findall(r"\| `(\w+)` \|$", _section("Why a variant is not scaled"), re.MULTILINE))
    assert told == of_obstacles
    assert '"LeaderElection"' in (ROOT / "wva" / "kube" / "leader.py").read_text()


def test_every_source_of_a_number_is_described():
    """docs/metrics.md has every value of wva_desired_source."""
    text = (DOCS / "metrics.md").read_text()
    assert all(source.value in text for source in Source)


def test_the_role_of_a_scraper_is_called_as_it_is_installed():
    """docs/metrics.md names the installed role, with the prefix that the overlays add."""
    role = yaml.safe_load((ROOT / "deploy" / "rbac" / "metrics_reader_role.yaml").read_text(encoding="utf-8"))
    overlay = yaml.safe_load((ROOT / "deploy" / "base" / "manager" / "kustomization.yaml").read_text(encoding="utf-8"))
    named = set(re.findall(r"--clusterrole=(\S*metrics-reader)", (DOCS / "metrics.md").read_text(encoding="utf-8")))
    assert named == {f"{overlay['namePrefix']}{role['metadata']['name']}"}


def test_every_command_that_the_pages_name_exists():
    """Each ``wva NAME`` in README and docs is an existing command."""
    parser = build_parser()
    (commands,) = [action for action in parser._actions if action.dest == "command"]
    pages = [ROOT / "README.md", *sorted(Path(DOCS).glob("*.md"))]
    for page in pages:
        for name in re.findall(r"`wva ([a-z]+)", page.read_text()):
            assert name in commands.choices, f"{page.name} names wva {name}"


def test_the_commands_on_the_first_screen_are_those_that_ci_runs():
    """.ci/run contains the README's test command unchanged."""
    readme = (ROOT / "README.md").read_text()
    command = "python3 -m venv .venv && .venv/bin/pip install tox && .venv/bin/tox"
    assert command in readme.split("\n## ")[0]
    assert f"\n{command}\n" in (ROOT / ".ci" / "run").read_text()
