"""Keeps ``requirements/constraints.txt`` in step with ``pyproject.toml``.

Without arguments: fail unless the file was made from the dependencies that ``pyproject.toml`` declares now, pins every
one of them inside its range, and carries hashes. Needs no network. ``--update`` resolves again with uv and rewrites it.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "constraints.txt"
HEADER = "# Made by `python requirements/check.py --update` from pyproject.toml; inputs: "
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)


def declared() -> list[str]:
    """Return every dependency of the project and of its extras, and the Python range."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    return [
        project["requires-python"],
        *project["dependencies"],
        *(entry for name in sorted(extras) for entry in extras[name]),
    ]


def digest(entries: list[str]) -> str:
    """Return what the lock file was made from, as a short hash."""
    return hashlib.sha256(json.dumps(entries).encode()).hexdigest()[:32]


def problems() -> list[str]:
    """Return what is wrong with the lock file, one line each."""
    text = LOCK.read_text()
    pins = {canonicalize_name(name): version for name, version in _PIN.findall(text)}
    found = []
    if not text.startswith(HEADER + digest(declared())):
        found.append("the dependencies in pyproject.toml changed since the file was made")
    for entry in declared()[1:]:
        requirement = Requirement(entry)
        name = canonicalize_name(requirement.name)
        if name == "wva":
            continue
        if name not in pins:
            found.append(f"{name} is not pinned")
        elif not requirement.specifier.contains(pins[name]):
            found.append(f"{name}=={pins[name]} is outside {requirement.specifier}")
    found += [
        f"{name} has no hash"
        for name in pins
        if not re.search(rf"^{name}==.*\\\n +--hash=sha256:", text, re.MULTILINE | re.IGNORECASE)
    ]
    return found


def update() -> None:
    """Resolve again and write the file. Needs the ``uv`` command."""
    command = "uv pip compile pyproject.toml --extra dev --extra demo --universal --python-version 3.11"
    options = "--generate-hashes --no-header --no-annotate --no-emit-index-url --quiet"
    result = subprocess.run([*command.split(), *options.split()], cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S603 - a fixed command
    LOCK.write_text(f"{HEADER}{digest(declared())}\n{result.stdout}")


def main() -> int:
    """Check, or update when asked to."""
    if sys.argv[1:] == ["--update"]:
        update()
    found = problems()
    for line in found:
        sys.stderr.write(f"requirements/constraints.txt: {line}; run python requirements/check.py --update\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
