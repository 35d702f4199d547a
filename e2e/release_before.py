"""The release before this one, from the history of the repository, and how to run its program.

It is the last tag ``v*`` that is not this commit. While no version has a tag, a commit stands for it: ``STAND_IN``.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
STAND_IN = "56ad7256a8b943272198539cbd84ce666c1a0056"
"""A commit of the first version's development, some hundred commits before its end."""
_TIMEOUT_SECONDS = 60


class NoReleaseError(Exception):
    """The clone has no history, or a shallow one."""


def unpack(directory: Path) -> str:
    """Write the program of the release before into a folder, and return the name of its commit or tag.

    NoReleaseError when the history does not have it.
    """
    tag = _git("describe", "--tags", "--abbrev=0", "--match=v*", "HEAD^")
    name = tag.stdout.decode().strip() if tag.returncode == 0 else STAND_IN
    archive = _git("archive", "--format=tar", name, "wva")
    if archive.returncode != 0:
        raise NoReleaseError(f"the history of {ROOT} does not have {name}: {archive.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(directory, filter="data")
    return name


def environment(directory: Path) -> Mapping[str, str]:
    """Return the variables with which ``python -m wva`` is the program in a folder, wherever it is started."""
    return {"PYTHONPATH": str(directory), "PYTHONSAFEPATH": "1"}


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False, timeout=_TIMEOUT_SECONDS)
