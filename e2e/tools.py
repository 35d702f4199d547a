"""Run the tools operators have (helm, kubectl, kustomize, promtool), built from their pinned Go modules."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from e2e.controlplane.build import TOOLS, BuildError

_TIMEOUT_SECONDS = 120
_SHORT_LIVED = {"GOGC": "off"}  # short-lived tools need no garbage collection, which takes a quarter of their time


class ToolError(Exception):
    """A tool exited with another code than 0; the text is its command and what it wrote."""


def binary(name: str) -> Path:
    """Return where the tool of this name is. BuildError when it is unknown, NotBuiltError when it is not there."""
    for module in TOOLS:
        if name in module.packages:
            return module.binary(name)
    raise BuildError(f"no tool named {name}")


def run(
    name: str, *arguments: str | Path, stdin: str = "", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a tool to its end and return what it wrote, whatever its exit code. TimeoutExpired after 120 s."""
    return subprocess.run(
        [binary(name), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_SECONDS,
        env={**_SHORT_LIVED, **os.environ, **(environment or {})},
    )


def output(name: str, *arguments: str | Path, stdin: str = "", environment: Mapping[str, str] | None = None) -> str:
    """Run a tool that must succeed and return its standard output. ToolError when it does not."""
    done = run(name, *arguments, stdin=stdin, environment=environment)
    if done.returncode != 0:
        shown = " ".join(map(str, (name, *arguments)))
        raise ToolError(f"{shown}\nexit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout
