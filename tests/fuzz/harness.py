"""Runs targets. A target is a module in ``targets`` with ``words`` and ``check``, and a folder of inputs in ``corpus``.

``check`` gets any bytes and tells whether the decoder accepts them. It raises AssertionError if the result breaks a
promise of the decoder, and does not catch exceptions that the decoder does not declare.
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
"""The largest input by default: WVA allows an entry of a ConfigMap or a command line this size."""

LONGEST_SECONDS = 0.25
"""The longest time that one piece of work may keep the event loop."""


def target(name):
    """Return the module of a target."""
    return importlib.import_module(f"tests.fuzz.targets.{name}")


def play(module, data, *, slowness=1.0):
    """Check one input and its time; ``slowness`` is how many times slower the code runs than usual.

    Garbage collection is off, because its time depends on the objects of all tests.
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
    """Assert that no text is longer than a message for users may be."""
    for text in texts:
        assert len(str(text)) <= most


def be_quiet():
    """Log critical messages only: messages about such inputs would fill a disk."""
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
