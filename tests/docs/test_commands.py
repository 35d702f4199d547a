"""A test runs each command of README and docs, or the page says next to the command why not.

e2e/packaging/test_page_commands.py runs those that need no cluster, because they take half a minute.
"""

from __future__ import annotations

import ast
import os
import re

import pytest

from tests.docs.commands import (
    OWN_TEST,
    PAGES,
    ROOT,
    CommandFailedError,
    complaints,
    of_kind,
    run,
    runs_of,
    steps,
    steps_of,
)

CI = (ROOT / ".ci" / "run").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_no_command_is_hidden(page):
    """No command is indented, in a block of another language, or in a block of output."""
    assert list(complaints((ROOT / page).read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("test", [*OWN_TEST.values(), "e2e/test_pages.py"])
def test_what_needs_a_cluster_has_its_end_to_end_test(test):
    """The end-to-end tests run the commands from the text of the pages."""
    tree = ast.parse((ROOT / test).read_text(encoding="utf-8"))
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert "run_page" in called
    assert OWN_TEST.keys() <= set(PAGES)


@pytest.mark.parametrize("page", [page for page in PAGES if of_kind(page, "ci")])
def test_what_ci_runs_stands_there(page):
    """Each command with the mark ``ci`` is a line of .ci/run."""
    for step in of_kind(page, "ci"):
        assert f"\n{step.text}" in CI


def test_a_page_that_promises_every_command_names_the_exceptions():
    """A page with a block that no test runs does not claim that tests run every command."""
    for page in PAGES:
        if of_kind(page, "not run"):
            text = (ROOT / page).read_text(encoding="utf-8")
            promises = re.findall(
                r"(?:every|each|all) commands?\b[^.|]*\b(?:runs?|tested|is run|are run)\b", text, re.IGNORECASE
            )
            assert promises == [], page


def test_a_command_that_fails_is_found(tmp_path):
    """A block fails even if the failing command is not its last one."""
    with pytest.raises(CommandFailedError, match="exit code 1"):
        run("false\ntrue\n", dict(os.environ), directory=tmp_path)


def test_a_command_that_never_ends_is_found(tmp_path):
    """What counts is the CPU time of a process, also of one that a command has started."""
    with pytest.raises(CommandFailedError, match="exit code 137"):
        run("bash -c 'while :; do :; done'\ntrue\n", dict(os.environ), directory=tmp_path, cpu_seconds=1)


def test_a_command_that_writes_something_else_is_found(tmp_path):
    """A block fails if it does not write the output that the page shows."""
    assert run("echo one\n", dict(os.environ), directory=tmp_path, expected="one\n") == "one\n"
    with pytest.raises(CommandFailedError, match="expected to write\ntwo"):
        run("echo one\n", dict(os.environ), directory=tmp_path, expected="two\n")


def test_the_text_below_a_block_is_what_it_writes():
    """A text block with the mark ``output`` belongs to the command above it."""
    ((_, expected),) = [pair for pair in runs_of("docs/demo.md", "here") if pair[1]]
    assert "llama-a100 1 -> 2" in expected


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("```sh\ntrue\n```\n", ["here"]),
        ("<!-- cluster -->\n```sh\ntrue\n```\n", ["cluster"]),
        ("*Not run: it needs\nthe network.*\n\n```sh\ntrue\n```\n", ["not run"]),
        ("\n<!-- commands: cluster -->\n```sh\ntrue\n```\n<!-- ci -->\n```sh\ntrue\n```\n", ["cluster", "ci"]),
        ("<!-- then: load comes -->\n", ["event"]),
        ("```yaml\na: 1\n```\n", []),
        ("```sh\ntrue\n```\n\n<!-- output -->\n```text\n```\n", ["here", "output"]),
    ],
)
def test_who_runs_a_block_stands_before_it(text, kinds):
    """The mark is in the line before the block, or before a blank line."""
    assert [step.kind for step in steps_of(text)] == kinds


@pytest.mark.parametrize(
    "text",
    [
        "```bash\ntrue\n```\n",
        "- first:\n  ```sh\n  true\n  ```\n",
        "```text\n$ wva demo\n```\n",
        "```\nkubectl get va\n```\n",
        "```sh\ntrue\n",
        "~~~sh\ntrue\n~~~\n",
        "<!-- cluster -->\n```yaml\na: 1\n```\n",
        "<!-- output -->\n```yaml\na: 1\n```\n",
    ],
)
def test_a_hidden_command_is_found(text):
    """``complaints`` finds each way to hide a command."""
    assert len(list(complaints(text))) == 1


def test_every_page_is_walked():
    """PAGES contains every page of the repository."""
    found = {str(path.relative_to(ROOT)) for name in ("docs", "charts") for path in (ROOT / name).rglob("*.md")}
    assert found | {"README.md", "CHANGELOG.md", "CONTRIBUTING.md"} == set(PAGES)
    assert {step.kind for page in PAGES for step in steps(page)} >= {"here", "cluster", "yours", "not run"}
