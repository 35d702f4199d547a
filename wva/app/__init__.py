"""The composition root: builds everything, starts and stops it in the right order."""

from __future__ import annotations

from wva.app.application import Application, new_registry
from wva.app.election import election_problems
from wva.app.servers import Probes, server_problems

__all__ = ["Application", "Probes", "election_problems", "new_registry", "server_problems"]
