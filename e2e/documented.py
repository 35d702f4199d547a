"""The commands of a page of the documentation, run as a reader would: copied in order, in one shell's environment.

Fenced ``sh`` blocks are run. A comment line directly before one says otherwise:

- ``<!-- yours -->``: the reader sets these variables to what is theirs; here the test does.
- ``<!-- not run: REASON -->``: cannot be run here, and why.

``<!-- then: NAME -->`` between blocks names something that happens by itself on a real cluster and is done by the test.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parent.parent
_TIMEOUT_SECONDS = 400
_STEP = re.compile(
    r"^(?:<!-- (?P<mark>yours|not run: [^\n]+) -->\n)?```sh\n(?P<text>.*?)^```$|^<!-- then: (?P<event>[^\n]+) -->$",
    re.MULTILINE | re.DOTALL,
)
_EXPORT = re.compile(r"^export ([A-Z_]+)=", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens: a block is run, variables are set by the reader, or something happens by itself."""

    kind: Literal["run", "yours", "skipped", "event"]
    text: str


class CommandFailedError(Exception):
    """A block of a page did not end with status 0; the text is the block and what it wrote."""


def steps(page: Path) -> Iterator[Step]:
    """Yield what happens on a page, in order."""
    for found in _STEP.finditer(page.read_text(encoding="utf-8")):
        mark = found["mark"] or ""
        if found["event"]:
            yield Step("event", found["event"])
        elif mark.startswith("not run"):
            yield Step("skipped", found["text"])
        else:
            yield Step("yours" if mark == "yours" else "run", found["text"])


def variables(text: str) -> set[str]:
    """Return the names that a block exports."""
    return set(_EXPORT.findall(text))


def run_page(
    page: Path, *, environment: Mapping[str, str], yours: Mapping[str, str], events: Mapping[str, Callable[[], None]]
) -> list[str]:
    """Run a page from top to bottom and return what each block wrote.

    ``yours`` replaces the reader's variables, and must name exactly those; ``events`` must have each event of the page.
    Raises CommandFailedError.
    """
    written = []
    for step in steps(page):
        if step.kind == "event":
            events[step.text]()
        elif step.kind == "yours":
            assert variables(step.text) == set(yours)
        elif step.kind == "run":
            written.append(_run(step.text, {**os.environ, **environment, **yours}))
    return written


def _run(text: str, environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=_TIMEOUT_SECONDS,
    )
    if done.returncode:
        raise CommandFailedError(f"{text}\nexit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout
