"""Compiles modules in advance into one folder, and points the interpreter to this folder.

The image is read-only, and Debian's standard library has no bytecode. Without this folder each start would compile some
hundred modules. The libraries never change in the image, so the interpreter takes their bytecode unchecked. The
standard library belongs to the base image: its bytecode has the hash of the source, and the interpreter compiles a
changed source again.
"""

from __future__ import annotations

import importlib.util
import os
import py_compile
import sys
import sysconfig
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

OPTIMIZATION: Final = 1  # what -O reads: no asserts; docstrings stay, some libraries read them
_LEFT_OUT: Final = frozenset(
    ("site-packages", "dist-packages", "__pycache__", "test", "tests", "idlelib", "lib2to3", "ensurepip", "tkinter",
     "turtledemo", "pydoc_data", "venv", "_pyrepl", "unittest", "distutils")
)  # fmt: skip
"""Folders of the standard library that the controller never imports."""
_CHUNK: Final = 50


@dataclass(frozen=True, slots=True)
class Job:
    """One module: its file here, its path in the image, its bytecode here, and whether its source is compared."""

    source: Path
    path: PurePosixPath
    target: Path
    checked: bool


def libraries(folder: Path, *, path: PurePosixPath, into: Path) -> Iterator[Job]:
    """Yield the modules of a folder that will lie at ``path`` in the image."""
    for source in sorted(folder.rglob("*.py")):
        in_image = path / source.relative_to(folder).as_posix()
        yield Job(source, in_image, cached(in_image, into), checked=False)


def standard_library(into: Path) -> Iterator[Job]:
    """Yield the modules of this interpreter's standard library, which in the image lies at the same path."""
    folder = Path(sysconfig.get_path("stdlib"))
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(set(folders) - _LEFT_OUT)
        for name in sorted(files):
            if name.endswith(".py"):
                source = Path(parent, name)
                yield Job(source, PurePosixPath(source), cached(PurePosixPath(source), into), checked=True)


def cached(path: PurePosixPath, into: Path) -> Path:
    """Return where an interpreter with ``sys.pycache_prefix`` of ``into`` looks for the bytecode of ``path``."""
    name = Path(importlib.util.cache_from_source(path.name, optimization=OPTIMIZATION)).name
    return into / path.parent.relative_to("/") / name


def compile_all(jobs: list[Job]) -> int:
    """Compile on all cores and return how many modules were compiled.

    A module that does not compile is left out: libraries carry templates and syntax of other Pythons.
    """
    with ProcessPoolExecutor() as pool:
        return sum(pool.map(_compile, jobs, chunksize=_CHUNK))


def _compile(job: Job) -> bool:
    mode = py_compile.PycInvalidationMode.CHECKED_HASH if job.checked else py_compile.PycInvalidationMode.UNCHECKED_HASH
    job.target.parent.mkdir(parents=True, exist_ok=True)
    try:
        py_compile.compile(
            str(job.source), cfile=str(job.target), dfile=str(job.path), doraise=True, optimize=OPTIMIZATION,
            invalidation_mode=mode,
        )  # fmt: skip
    except py_compile.PyCompileError as error:
        sys.stderr.write(f"left out: {error.msg.strip().splitlines()[-1]}\n")
        return False
    return True
