"""The pinned requirements of ``requirements/constraints.txt`` with their hashes, and the part that one purpose needs.

In: the lock file, and direct requirements as ``pyproject.toml`` declares them. Out: these requirements and everything
that they depend on, as a requirements file with versions and hashes, for ``pip --require-hashes``. The lock covers all
purposes. pip tells which part one purpose needs on this Python and this platform.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

_ENTRY = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;\\]+)[^\\\n]*(?:\\\n[^\\\n]*)*", re.MULTILINE)
_SEPARATORS = re.compile(r"[-_.]+")


class LockError(Exception):
    """The lock file lacks a requirement, or pip failed; the text gives the reason."""


def canonical(name: str) -> str:
    """Return a distribution's name as the index compares it."""
    return _SEPARATORS.sub("-", name).lower()


def entries(text: str) -> Mapping[str, list[str]]:
    """Return the entries of each distribution, hashes and markers included, by canonical name.

    Several of them when Pythons differ in what they can have; the markers say which is for whom.
    """
    found: dict[str, list[str]] = {}
    for match in _ENTRY.finditer(text):
        found.setdefault(canonical(match["name"]), []).append(match[0])
    bare = sorted(name for name, pinned in found.items() if any("--hash=" not in entry for entry in pinned))
    if bare:
        raise LockError(f"no hash for {', '.join(bare)}")
    return found


def pins(text: str) -> str:
    """Return the lock as constraints without hashes: while pip resolves, it would want hashes of everything."""
    heads = (entry.splitlines()[0] for pinned in entries(text).values() for entry in pinned)
    return "".join(f"{head.rstrip(' ' + chr(92))}\n" for head in heads)


def subset(text: str, names: Sequence[str]) -> str:
    """Return the entries of these distributions as a requirements file; LockError for one that is not pinned."""
    found = entries(text)
    wanted = sorted({canonical(name) for name in names})
    if missing := [name for name in wanted if name not in found]:
        raise LockError(f"not in the lock: {', '.join(missing)}; run python requirements/check.py --update")
    return "".join(f"{entry}\n" for name in wanted for entry in found[name])


def closure(text: str, direct: Sequence[str]) -> list[str]:
    """Return the names of everything that ``direct`` requirements need here. LockError when pip refuses.

    pip is asked what it would install; nothing is installed and, with wheels only, no code of a dependency runs.
    """
    with TemporaryDirectory() as directory:
        constraints, report = Path(directory, "constraints.txt"), Path(directory, "report.json")
        constraints.write_text(pins(text), encoding="utf-8")
        pip(
            "install", "--dry-run", "--ignore-installed", "--report", str(report), "--only-binary", ":all:",
            "--constraint", str(constraints), *direct,
        )  # fmt: skip
        answer: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return sorted(canonical(item["metadata"]["name"]) for item in answer["install"])


def pip(*arguments: str, environment: Mapping[str, str] | None = None) -> None:
    """Run pip of this Python. If pip fails, LockError has its output."""
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise LockError(f"pip {' '.join(arguments[:1])} failed:\n{done.stdout}{done.stderr}")
