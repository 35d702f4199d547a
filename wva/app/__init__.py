"""The composition root: builds everything, starts and stops it in the right order."""

from __future__ import annotations

from wva.app.application import Application, Environment, new_registry, prometheus_settings

__all__ = ["Application", "Environment", "new_registry", "prometheus_settings"]
