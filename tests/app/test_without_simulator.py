"""The controller runs without the simulator: all its modules can be imported without `wva.sim`."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import importlib, pkgutil, sys
sys.modules["wva.sim"] = None  # importing it, or a part of it, raises ImportError from now on
import wva
count = 0
for top in pkgutil.iter_modules(wva.__path__, "wva."):
    if top.name in {"wva.sim", "wva.__main__"}:
        continue
    package = importlib.import_module(top.name)
    for found in pkgutil.walk_packages(getattr(package, "__path__", []), f"{top.name}."):
        importlib.import_module(found.name)
        count += 1
print(count)
from wva.cli.main import main
from wva.cli.parser import COMMANDS
for command in COMMANDS:
    try:
        main([command, "--help"])
    except SystemExit:
        pass
"""


def test_every_module_of_the_controller_is_imported_and_its_commands_answer():
    """A separate process blocks `wva.sim`, imports all other modules, and runs each command with ``--help``."""
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603 - our own code
    assert (done.returncode, done.stderr) == (0, "")
    count, _, usage = done.stdout.partition("\n")
    assert int(count) > 100
    assert usage.startswith("usage: wva run")
    assert "usage: wva migrate" in usage
