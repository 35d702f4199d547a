"""The composition root: builds everything, starts and stops it in the right order."""

from __future__ import annotations

from wva.app.application import Application
from wva.app.election import election_problems
from wva.app.environment import Environment, new_registry
from wva.app.probes import Probes
from wva.app.servers import server_problems

__all__ = [
    "Application",
    "Environment",
    "Probes",
    "election_problems",
    "new_registry",
    "server_problems",
]
