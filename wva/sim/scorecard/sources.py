"""Which files of the program a run depends on: the modules that its policy and the stage import, and theirs.

A change of another file leaves a kept run as it is. Imports are read from the sources, also those within functions and
those for types alone: too many files make a run again that need not be, too few would keep one that is stale.
"""

from __future__ import annotations

import ast
import platform
from collections.abc import Iterable, Iterator
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import numpy as np

import wva

PACKAGE: Final = Path(wva.__file__).parent
STAGE: Final = "wva.sim.stage.run"
"""The module that plays a run, whatever its policy."""


def module_of(policy: Any) -> str:
    """Return the name of the module that a policy is from: a function, or one with some arguments given already."""
    while isinstance(policy, partial):
        policy = policy.func
    return str(policy.__module__)


def digest_of(*modules: str, package: Path = PACKAGE) -> str:
    """Return the digest of these modules and all that they import, and of the versions of Python and numpy."""
    digest = blake2b(digest_size=16)
    digest.update(f"{platform.python_version()} {np.__version__}".encode())
    for path in sources((STAGE, *modules), package):
        digest.update(f"\0{path.relative_to(package).as_posix()}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def sources(modules: Iterable[str], package: Path = PACKAGE) -> list[Path]:
    """Return the files of modules and of all that they import of the package, in order of their names."""
    found: set[Path] = set()
    to_see = [path for module in modules for path in _files(module, package)]
    while to_see:
        path = to_see.pop()
        if path not in found:
            found.add(path)
            to_see += _imports(path, package)
    return sorted(found)


@cache
def _imports(path: Path, package: Path) -> list[Path]:
    """Return the files that a module imports of the package; a function imports what it imports."""
    found: list[Path] = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        found += [each for name in names for each in _files(name, package)]
    return found


def _files(module: str, package: Path) -> Iterator[Path]:
    """Yield the file of a module and those of the packages around it; of a name within a module only the latter."""
    first, *rest = module.split(".")
    if first != package.name:
        return
    place = package
    for name in ("", *rest):
        place /= name
        for path in (place / "__init__.py", place.with_suffix(".py")):
            if path.is_file():
                yield path
