"""Which files of the program a run depends on: the modules that its policy and the stage import, and their imports.

A change of another file leaves a kept run as it is. Imports are read from the sources, also those within functions and
those for types alone: with too many files a run is made again without need, with too few a stale one would be kept.
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
    """Return the name of the module of a policy, which is a function or a ``partial`` of one."""
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
    """Return the files of modules and of everything in the package that they import, in order of their names."""
    files: set[Path] = set()
    pending = [path for module in modules for path in _files(module, package)]
    while pending:
        path = pending.pop()
        if path not in files:
            files.add(path)
            pending += _imports(path, package)
    return sorted(files)


@cache
def _imports(path: Path, package: Path) -> list[Path]:
    """Return the files of the package that a module imports, its functions included."""
    imported: list[Path] = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        imported += [file for name in names for file in _files(name, package)]
    return imported


def _files(module: str, package: Path) -> Iterator[Path]:
    """Yield the file of a module and those of the packages around it. A name in a module has no file of its own."""
    first, *rest = module.split(".")
    if first != package.name:
        return
    prefix = package
    for name in ("", *rest):
        prefix /= name
        for path in (prefix / "__init__.py", prefix.with_suffix(".py")):
            if path.is_file():
                yield path
