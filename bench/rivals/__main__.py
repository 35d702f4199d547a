"""Records runs of the planner of ai-dynamo, of its own code: ``python -m bench.rivals``, by hand only.

``ray_serve.py`` beside this records examples of Ray Serve's policy for a test.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.rivals.planned_runs import CHOSEN, VERSION, installed, record
from wva.sim.scorecard.recorded import FOLDER, save


def main() -> None:
    """Install what is missing, play, and write the file."""
    parser = argparse.ArgumentParser(prog="python -m bench.rivals")
    parser.add_argument("--environment", type=Path, default=Path(".venv-dynamo"), help="where the planner is installed")
    parser.add_argument("--out", type=Path, default=FOLDER / f"dynamo-{VERSION}.json", help="the file to write")
    parser.add_argument("--scenario", nargs="+", choices=CHOSEN, default=CHOSEN, help="only these (default: all six)")
    arguments = parser.parse_args()
    names = tuple(arguments.scenario)
    command = "tox -e rivals" + ("" if names == CHOSEN else f" -- --scenario {' '.join(names)}")
    save(record(installed(arguments.environment.absolute()), command, names), arguments.out)
    print(arguments.out)


if __name__ == "__main__":
    main()
