"""The ``wva`` command. Sub-commands import what they need when they run, so that ``wva --help`` is quick."""

from __future__ import annotations

from wva.cli.main import main

__all__ = ["main"]
