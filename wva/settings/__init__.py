"""Settings of the process: flags over environment over main ConfigMap over defaults."""

from __future__ import annotations

from wva.settings.load import Given, Loaded, Problem, fatal_problems, load
from wva.settings.model import Settings
from wva.settings.origin import Origin, origin_of

__all__ = ["Given", "Loaded", "Origin", "Problem", "Settings", "fatal_problems", "load", "origin_of"]
