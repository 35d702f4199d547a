"""A controller that does not use the queueing analyzer does not load numpy, which takes 20 MB."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import wva.app.application, wva.cli.main, wva.decide.pipeline
import wva.decide.measure.need
from tests.decide.story import Story
from tests.builders import variant
decisions = Story().cycle(variant("a", replicas=2), a=[(0.9, 6.0), (0.5, 0.0)])
assert decisions["a"].desired == 3, decisions
assert "numpy" not in sys.modules
import wva.decide.measure.queueing
assert "numpy" in sys.modules
"""


def test_capacity_only_does_not_import_numpy():
    """The test imports the whole program and decides; only the import of the queueing analyzer loads numpy."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=100, check=False)  # noqa: S603 - this interpreter, a constant program
    assert done.returncode == 0, done.stderr
