"""Assembles the files that the image lays over its base.

In: this repository, pip, and the interpreter that runs it, which must be of the base image's minor version (wheels and
bytecode are for one). Out: a directory with

- ``/manager``           the entry point, and ``/usr/local/bin/wva`` that leads to it
- ``/opt/wva/lib``       the program and its dependencies: wheels only, each checked against the hashes of the lock
- ``/opt/wva/bytecode``  all of it compiled with optimisation, and the interpreter's standard library
- ``/opt/wva/sbom.cdx.json``, ``/licenses/LICENSE``

Nothing in it can install anything: no pip, no setuptools, no shell. The tools that build the wheel and the bill come
from the same lock and stay outside.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, Final

from image import bytecode
from image.launcher import launcher
from image.lock import LockError, canonical, closure, pip, subset

ROOT: Final = Path(__file__).resolve().parent.parent
HOME: Final = PurePosixPath("/opt/wva")
LIBRARIES: Final = HOME / "lib"
BYTECODE: Final = HOME / "bytecode"
BILL: Final = HOME / "sbom.cdx.json"
ENTRY: Final = PurePosixPath("/manager")
COMMAND: Final = PurePosixPath("/usr/local/bin/wva")
LICENCE: Final = PurePosixPath("/licenses/LICENSE")
INTERPRETER: Final = PurePosixPath("/usr/bin/python3")
_NOT_SHIPPED: Final = ("bin", "share", "include")
_OF_THE_BUILD: Final = ("direct_url.json", "INSTALLER", "REQUESTED", "RECORD")
"""Files in which pip records this installation: they have paths of the build, and names of removed files."""
SIMULATOR: Final = (
    "__init__.py", "emulator/", "loadgen/",
    *(f"commands/{name}.py" for name in ("__init__", "emulator", "loadgen")),
    *(f"fleet/{name}.py" for name in (
        "__init__", "blocks", "columns", "compiled", "counters", "engine", "families", "lists", "metrics", "observed",
        "parameters", "replica", "requests", "steps",
    )),
)  # fmt: skip
"""The modules of ``wva/sim`` in the image: the emulator, the load generator and the engine that they run."""


class Assembly:
    """One directory that becomes the image's files."""

    def __init__(self, root: Path, *, interpreter: PurePosixPath = INTERPRETER) -> None:
        """Take the directory, which must be empty or absent, and the path of Python in the image."""
        if root.exists() and any(root.iterdir()):
            raise LockError(f"{root} is not empty")
        self._root = root
        self._interpreter = interpreter
        project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        extras: dict[str, list[str]] = project["optional-dependencies"]
        self._dependencies = [*project["dependencies"], *extras["keda-push"]]
        self._tools = extras["image"]
        self._lock = (ROOT / "requirements" / "constraints.txt").read_text(encoding="utf-8")

    def place(self, path: PurePosixPath) -> Path:
        """Return the present place of a path of the image, and create its folder."""
        here = self._root / path.relative_to("/")
        here.parent.mkdir(parents=True, exist_ok=True)
        return here

    def build(self) -> None:
        """Make everything. LockError when the lock or pip does not give what is needed."""
        with TemporaryDirectory() as directory:
            tools = Path(directory, "tools")
            self._install(self._tools, tools)
            self._install(self._dependencies, self.place(LIBRARIES))
            self._install_program(Path(directory), tools)
            self._write_bill(tools)
        self._compile()
        self._write_entry()
        shutil.copyfile(ROOT / "LICENSE", self.place(LICENCE))
        _readable_by_all(self._root)

    def _install(self, requirements: Sequence[str], target: Path) -> None:
        """Install the closure of some requirements, every file against its hash."""
        with TemporaryDirectory() as directory:
            names = closure(self._lock, requirements)
            wanted = Path(directory, "requirements.txt")
            wanted.write_text(subset(self._lock, names), encoding="utf-8")
            pip(
                "install", "--no-deps", "--no-compile", "--only-binary", ":all:", "--require-hashes",
                "--target", str(target), "--requirement", str(wanted),
            )  # fmt: skip
        if missing := set(names) - {canonical(item.name) for item in distributions(path=[str(target)])}:
            raise LockError(f"pip did not install {', '.join(sorted(missing))}")

    def _install_program(self, scratch: Path, tools: Path) -> None:
        """Build the wheel with the locked backend, from a copy so that the source may be read-only, and install it."""
        source = scratch / "source"
        copy_program(source / "wva")
        (source / "requirements").mkdir()
        for name in ("pyproject.toml", "README.md", "LICENSE", "requirements/build_backend.py"):
            shutil.copyfile(ROOT / name, source / name)
        wheels = scratch / "wheels"
        with_tools = {**os.environ, "PYTHONPATH": str(tools)}
        pip(
            "wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(wheels), str(source),
            environment=with_tools,
        )  # fmt: skip
        libraries = self.place(LIBRARIES)
        pip(
            "install", "--no-deps", "--no-index", "--no-compile", "--target", str(libraries),
            *map(str, wheels.glob("*.whl")),
        )  # fmt: skip
        for name in _NOT_SHIPPED:
            shutil.rmtree(libraries / name, ignore_errors=True)
        for record in (record for name in _OF_THE_BUILD for record in libraries.glob(f"*.dist-info/{name}")):
            record.unlink()

    def _write_bill(self, tools: Path) -> None:
        """Write the bill of materials with the locked library."""
        command = [sys.executable, "-m", "image.sbom", str(self.place(LIBRARIES))]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tools), str(ROOT)))}
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
        self.place(BILL).write_bytes(done.stdout)

    def _compile(self) -> None:
        into = self.place(BYTECODE)
        jobs = [
            *bytecode.libraries(self.place(LIBRARIES), path=LIBRARIES, into=into),
            *bytecode.standard_library(into),
        ]
        bytecode.compile_all(jobs)

    def _write_entry(self) -> None:
        entry = self.place(ENTRY)
        entry.write_text(launcher(self._interpreter, libraries=LIBRARIES, bytecode=BYTECODE), encoding="utf-8")
        entry.chmod(0o755)
        self.place(COMMAND).symlink_to(ENTRY)


def copy_program(target: Path) -> None:
    """Copy the package ``wva`` to a new directory. Of the simulator, copy only the files that SIMULATOR names."""
    shutil.copytree(ROOT / "wva", target, ignore=shutil.ignore_patterns("__pycache__", "sim"))
    for name in SIMULATOR:
        here, there = ROOT / "wva" / "sim" / name, target / "sim" / name
        there.parent.mkdir(parents=True, exist_ok=True)
        if here.is_dir():
            shutil.copytree(here, there, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(here, there)


def _readable_by_all(root: Path) -> None:
    """Let all users read and only the owner write, since any user id may run the image."""
    for path in (root, *root.rglob("*")):
        if path.is_symlink():
            continue
        runs = path.is_dir() or path.stat().st_mode & 0o100
        path.chmod(0o755 if runs else 0o644)


def main(argv: Sequence[str] | None = None) -> int:
    """Assemble a directory. After a LockError, print the reason and return 1."""
    parser = argparse.ArgumentParser(prog="python -m image.assemble", description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path, help="an empty or absent directory")
    parser.add_argument(
        "--interpreter", type=PurePosixPath, default=INTERPRETER, help=f"the image's Python (default: {INTERPRETER})"
    )
    arguments = parser.parse_args(argv)
    try:
        Assembly(arguments.directory.absolute(), interpreter=arguments.interpreter).build()
    except LockError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
