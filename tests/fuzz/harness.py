"""What every target is: a module in ``targets`` with ``words`` and ``check``, and a folder of inputs in ``corpus``.

``check`` takes any bytes and tells whether they were taken for what they should be. It fails with AssertionError when
the result is not what its decoder promises, and lets every exception pass that the decoder does not declare.
"""

from __future__ import annotations

import gc
import importlib
import logging
import sys
import time
from pathlib import Path

import structlog

FOLDER = Path(__file__).parent
CORPUS = FOLDER / "corpus"
TARGETS = tuple(sorted(path.stem for path in (FOLDER / "targets").glob("*.py")))
MOST_BYTES = 64 * 1024
"""The largest input, unless a target says another: as large as an entry of a ConfigMap or a command line may be."""

LONGEST_SECONDS = 0.25
"""The event loop never waits longer for one piece of work."""


def target(name):
    """Return the module of a target."""
    return importlib.import_module(f"tests.fuzz.targets.{name}")


def play(module, data, *, slowness=1.0):
    """Check one input, also for its time; ``slowness`` is how many times slower the code runs than usual.

    Garbage collection does not count: it looks through the objects of all tests.
    """
    gc.disable()
    try:
        started = time.thread_time()
        taken = module.check(data)
        seconds = time.thread_time() - started
    finally:
        gc.enable()
    assert seconds <= LONGEST_SECONDS * slowness, f"{len(data)} bytes took {seconds:.2f} s"
    return taken


def short(*texts, most=1_000):
    """Assert that a message for users stays readable."""
    for text in texts:
        assert len(str(text)) <= most


def be_quiet():
    """Log next to nothing: messages about such inputs would fill a disk."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def inputs(name):
    """Return the files of a corpus."""
    return sorted((CORPUS / name).iterdir())


def unavailable():
    """Return why fuzzing cannot run here; empty if it can."""
    try:
        importlib.import_module("atheris")
    except ImportError as error:
        python = f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor} on {sys.platform}"
        return f"atheris is not there for {python} ({error})"
    return ""
