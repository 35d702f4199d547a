"""numpy costs a process 20 MB: whoever does not select the queueing analyzer does not pay."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import wva.app.application, wva.cli.main, wva.decide.pipeline
import wva.decide.queueing.service, wva.decide.measure.need
from tests.decide.story import Story
from tests.builders import variant
decisions = Story().cycle(variant("a", replicas=2), a=[(0.9, 6.0), (0.5, 0.0)])
assert decisions["a"].desired == 3, decisions
assert "numpy" not in sys.modules
import wva.decide.measure.queueing
assert "numpy" in sys.modules
"""


def test_capacity_only_does_not_import_numpy():
    """The whole program is imported and decides; only the door to the queueing analyzer brings numpy in."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=100, check=False)  # noqa: S603 - this interpreter, a constant program
    assert done.returncode == 0, done.stderr
