"""Finds the commands in the pages of the documentation, and runs them.

A command for the reader is in a fenced ``sh`` block. The line before the block says which test runs it:

- no such line: e2e/packaging/test_page_commands.py runs the block, without a cluster and without the network
- ``<!-- cluster -->``: e2e/test_pages.py runs it on a real control plane, or the test that OWN_TEST names
- ``<!-- ci -->``: .ci/run contains the line unchanged
- ``<!-- yours -->``: the reader sets these variables to their own values, and the test to its own
- ``*Not run: REASON.*``: no test runs it; the reader sees this line and the reason

``<!-- commands: cluster -->`` on a page marks each of its blocks without such a line as ``cluster``.
``<!-- output -->`` before a ``text`` block says that the block above it writes this text.
``<!-- then: NAME -->`` between blocks names an event that happens by itself on a real cluster; the test causes it.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = tuple(
    str(path.relative_to(ROOT))
    for folder, pattern in ((ROOT, "*.md"), (ROOT / "docs", "**/*.md"), (ROOT / "charts", "**/*.md"))
    for path in sorted(folder.glob(pattern))
)
"""Every page with commands that a reader may copy."""
OWN_TEST: Final = {
    "docs/install.md": "e2e/test_install_page.py",
    "docs/backtest.md": "e2e/test_backtest.py",
    "docs/day-two.md": "e2e/test_day_two.py",
    "docs/roles.md": "e2e/test_samples.py",
}
"""Pages with their own test. e2e/test_pages.py runs all other pages that need a cluster."""
INSTALLING: Final = ("docs/kustomize.md", "charts/workload-variant-autoscaler/README.md")
"""Pages that install the controller: their commands need a cluster without it."""
_SHOWN: Final = ("deploy", "charts", "docs")
"""The folders of the repository that commands read."""

Kind = Literal["here", "cluster", "ci", "yours", "not run", "output", "event"]
CPU_SECONDS: Final = 400
"""A process of a command that computes for longer does not end; a busy machine changes nothing."""
HANGING_SECONDS: Final = 3600
"""A block that takes so long waits for something that does not come."""
_FENCE: Final = re.compile(
    r"(?:^(?:<!-- (?P<mark>cluster|ci|yours|output) -->|\*Not run: (?P<reason>[^*]+)\.\*)\n{1,2})?"
    r"^```(?P<language>\w*)\n(?P<text>.*?)^```$"
    r"|^<!-- then: (?P<event>[^\n]+) -->$",
    re.MULTILINE | re.DOTALL,
)
_ANY_FENCE: Final = re.compile(r"^[ >]*(?:```|~~~)", re.MULTILINE)
_EXPORT: Final = re.compile(r"^export ([A-Z_]+)=", re.MULTILINE)
_TYPED: Final = re.compile(
    r"^(?:\$ .*|(?:sudo )?(?:\S*/)?(?:kubectl|oc|helm|wva|pip|python3?|tox|podman|docker|promtool|curl|git)(?: .*)?)$",
    re.MULTILINE,
)
_OTHER_LANGUAGES: Final = {"", "text", "yaml", "json", "promql", "python"}


@dataclass(frozen=True, slots=True)
class PageStep:
    """One step of a page. ``text`` is the block, or the name of an event; ``line`` counts from 1."""

    kind: Kind
    text: str
    line: int
    reason: str = ""


class CommandFailedError(Exception):
    """A block of a page failed, or wrote other text than the page shows; the message has the block and its output."""


def steps_of(text: str) -> Iterator[PageStep]:
    """Yield the steps of a page's text, in order."""
    usual: Kind = "cluster" if "\n<!-- commands: cluster -->\n" in text else "here"
    for found in _FENCE.finditer(text):
        line = text.count("\n", 0, found.end()) + 1
        if found["event"]:
            yield PageStep("event", found["event"], line)
        elif found["language"] == "sh":
            kind = "not run" if found["reason"] else found["mark"] or usual
            yield PageStep(kind, found["text"], line, found["reason"] or "")
        elif found["mark"] == "output":
            yield PageStep("output", found["text"], line)


def steps(page: str) -> Iterator[PageStep]:
    """Yield the steps of a page, in order."""
    return steps_of((ROOT / page).read_text(encoding="utf-8"))


def of_kind(page: str, *kinds: Kind) -> list[PageStep]:
    """Return the steps of a page that have one of these kinds."""
    return [step for step in steps(page) if step.kind in kinds]


def complaints(text: str) -> Iterator[str]:
    """Yield each reason why the tests would overlook a command of a page."""
    blocks = [found for found in _FENCE.finditer(text) if found["language"] is not None]
    if 2 * len(blocks) != len(_ANY_FENCE.findall(text)):
        yield "a block is indented, quoted or not closed; the tests find blocks that begin at the margin"
    for found in blocks:
        language, body = found["language"], found["text"]
        if language not in {"sh", *_OTHER_LANGUAGES}:
            yield f"```{language}: a shell block is called sh"
        elif language in {"", "text"} and (typed := _TYPED.search(body)):
            yield f"{typed[0]!r} is a command in a block that is not called sh"
        elif found["mark"] == "output" and language != "text":
            yield f"```{language}: what a command writes is in a text block"
        elif language != "sh" and (found["mark"] or found["reason"]) and found["mark"] != "output":
            yield f"```{language}: only a shell block is run"


def runs_of(page: str, kind: Kind) -> Iterator[tuple[str, str]]:
    """Yield each block of a kind with the output that the page shows for it; "" if the page shows none."""
    everything = [*steps(page), None]
    for step, after in pairwise(everything):
        if step is not None and step.kind == kind:
            yield step.text, after.text if after is not None and after.kind == "output" else ""


def variables(text: str) -> set[str]:
    """Return the names that a block exports."""
    return set(_EXPORT.findall(text))


def workspace(folder: Path) -> Path:
    """Create a folder where commands can write and find the folders of the repository that they read."""
    folder.mkdir()
    for name in _SHOWN:
        (folder / name).symlink_to(ROOT / name)
    return folder


def run_page(
    page: str,
    *,
    environment: Mapping[str, str],
    directory: Path = ROOT,
    yours: Mapping[str, str] | None = None,
    events: Mapping[str, Callable[[], None]] | None = None,
) -> list[str]:
    """Run the ``cluster`` blocks of a page from top to bottom, and return the output of each.

    ``yours`` has a value for each of the reader's variables; ``events`` must have each event of the page.
    Raises CommandFailedError.
    """
    written: list[str] = []
    for step in steps(page):
        if step.kind == "event":
            (events or {})[step.text]()
        elif step.kind == "yours":
            assert variables(step.text) == set(yours or {})
        elif step.kind == "cluster":
            written.append(run(step.text, {**os.environ, **environment, **(yours or {})}, directory=directory))
    return written


def run(
    text: str, environment: Mapping[str, str], *, directory: Path, expected: str = "", cpu_seconds: int = CPU_SECONDS
) -> str:
    """Run a block in a folder and return its standard output, which must contain the expected text.

    Each process of the block may use so many seconds of CPU. Raises CommandFailedError.
    """
    done = subprocess.run(  # noqa: S603 - the repository's own pages
        ["/bin/bash", "-euo", "pipefail", "-c", f"ulimit -t {cpu_seconds}\n{text}"],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=HANGING_SECONDS,
    )
    if done.returncode:
        raise CommandFailedError(f"{text}\nexit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    if expected not in done.stdout:
        raise CommandFailedError(f"{text}\nexpected to write\n{expected}\nwrote\n{done.stdout}")
    return done.stdout
