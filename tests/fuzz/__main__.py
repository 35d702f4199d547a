"""Fuzzing that follows coverage: ``python -m tests.fuzz [TARGET ...] [--seconds 60] [--parallel 2] [--seed N]``.

Each target runs in its own process and keeps the inputs that reach new code in ``build/fuzz/TARGET`` for the next run.
The end of the output names an input that fails; put it into ``tests/fuzz/corpus/TARGET`` with the change that mends it.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.fuzz.harness import TARGETS, inputs, unavailable

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "fuzz"
GRACE_SECONDS = 120
"""Extra time for the imports, for the inputs of the corpus, and for the last input."""

_RUNS = re.compile(r"^(?:Done|#)\s*(\d+)", re.MULTILINE)
_TOLD_LINES = 40


def fuzz(name, options, seconds):
    """Run one target; return how many inputs it tried, and the end of its output if it failed, else ""."""
    work = WORK / name
    work.mkdir(parents=True, exist_ok=True)
    before = set(work.iterdir())
    command = [sys.executable, "-m", "tests.fuzz.engine", name, str(work), *options]
    log = work / "log"
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)  # noqa: S603 - ourselves
        try:
            code = process.wait(timeout=seconds + GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
    text = log.read_text(errors="replace")
    runs = max((int(found) for found in _RUNS.findall(text)), default=0)
    if code == 0:
        return runs, ""
    failing = [str(path.relative_to(ROOT)) for path in sorted(set(work.iterdir()) - before) if "-" in path.name]
    end = "\n".join(text.splitlines()[-_TOLD_LINES:])
    return runs, f"{end}\nfuzz: {name} failed with status {code}, input: {', '.join(failing) or 'none was kept'}"


def run(names, seconds, parallel, seed):
    """Fuzz some targets side by side; return the exit code. With the same seed and inputs they try the same first."""
    started = time.monotonic()
    options = [f"-max_total_time={seconds}", f"-seed={seed}"]
    with ThreadPoolExecutor(parallel) as pool:
        results = dict(zip(names, pool.map(lambda name: fuzz(name, options, seconds), names), strict=True))
    for name, (runs, failure) in results.items():
        sys.stdout.write(f"{failure}\n" if failure else f"{name}: {runs:,} inputs\n")
    total, failed = sum(runs for runs, _ in results.values()), sum(bool(failure) for _, failure in results.values())
    took = time.monotonic() - started
    sys.stdout.write(
        f"fuzz: {len(names)} targets, {seconds} s each, {total:,} inputs, {failed} failed in {took:.0f} s, "
        f"--seed {seed}\n"
    )
    return 1 if failed else 0


def minimize(name):
    """Add the inputs of past runs that reach new code to the corpus of a target; return the exit code."""
    before = len(inputs(name))
    engine = [sys.executable, "-m", "tests.fuzz.engine", name, str(WORK / name)]
    done = subprocess.run([*engine, "-merge=1", "-use_counters=0"], cwd=ROOT, check=False)  # noqa: S603 - ourselves
    sys.stdout.write(f"{name}: {before} inputs before, {len(inputs(name))} now\n")
    return done.returncode


def main():
    """Fuzz the targets; without atheris print so, and fail unless ``WVA_E2E_UNAVAILABLE`` is skip."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"default: all of {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--parallel", type=int, default=2, help="how many targets run side by side")
    parser.add_argument("--seed", type=int, help="of the random changes (1 to 4294967295); default: any")
    parser.add_argument("--minimize", action="store_true", help="add what past runs have found to the corpora")
    arguments = parser.parse_args()
    names = arguments.targets or list(TARGETS)
    unknown = sorted(set(names) - set(TARGETS))
    if unknown:
        parser.error(f"no target {', '.join(unknown)}: expected some of {', '.join(TARGETS)}")
    reason = unavailable()
    if reason:
        sys.stdout.write(f"fuzz: NOTHING WAS FUZZED: {reason}\n")
        return 0 if os.environ.get("WVA_E2E_UNAVAILABLE") == "skip" else 1
    if arguments.minimize:
        return max(minimize(name) for name in names)
    return run(names, arguments.seconds, arguments.parallel, arguments.seed or 1 + secrets.randbelow(2**32 - 1))


if __name__ == "__main__":
    sys.exit(main())
