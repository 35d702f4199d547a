"""Builds all parts of the controller, and starts and stops them in the right order."""

from __future__ import annotations

from wva.app.application import Application, new_registry
from wva.app.election import election_problems
from wva.app.servers import Probes, server_problems

__all__ = ["Application", "Probes", "election_problems", "new_registry", "server_problems"]
