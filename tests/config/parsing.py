"""The entries of one ConfigMap, read as the controller reads them, without a cluster."""

from __future__ import annotations

from wva.config import Inputs, load
from wva.config.kinds import MapKind
from wva.config.live import LiveConfiguration
from wva.slices import at_once


class Parsed:
    """What WVA takes from a ConfigMap after it has taken earlier ones."""

    def __init__(self, make, data, previous=None, *, namespace=""):
        """Take the ConfigMaps one after the other; the last one is ``data``."""
        self.history = [*(previous.history if previous else []), data]
        self.held = make()
        for each in self.history:
            at_once(self.held.take(namespace, each))
        said = self.held.of(namespace)
        self.values, self.good = said.values, said.good
        self.errors, self.warnings = tuple(said.errors), tuple(said.warnings)

    def __eq__(self, other):
        """Compare the values, the kept entries, the errors and the warnings."""
        return (self.values, self.good, self.errors, self.warnings) == (
            other.values,
            other.good,
            other.errors,
            other.warnings,
        )

    __hash__ = None


class ParsedSaturation(Parsed):
    """A saturation ConfigMap; ``policy`` is the policy that decisions use."""

    def __init__(self, data, previous=None):
        """Take the ConfigMaps, and keep the policy of a live configuration."""
        live = LiveConfiguration(load(Inputs({}, {}, {})).settings)
        super().__init__(lambda: live._maps[MapKind.SATURATION], data, previous)
        self.policy = live.policy


def _global(kind):
    return lambda: LiveConfiguration(load(Inputs({}, {}, {})).settings)._maps[kind]


def parse_saturation(data, *, previous=None):
    """Parse a global saturation ConfigMap."""
    return ParsedSaturation(data, previous)


def parse_costs(data, *, previous=None):
    """Parse the ConfigMap of accelerator costs."""
    return Parsed(_global(MapKind.ACCELERATOR_COSTS), data, previous)


def parse_profiles(data, *, previous=None):
    """Parse the ConfigMap of measured performance."""
    return Parsed(_global(MapKind.PROFILES), data, previous)


def parse_service_classes(data, *, previous=None):
    """Parse the ConfigMap of service classes."""
    return Parsed(_global(MapKind.SERVICE_CLASSES), data, previous)


def parse_layered(kind, data, *, previous=None, namespace=""):
    """Parse a ConfigMap whose entries are for models."""
    return Parsed(kind, data, previous, namespace=namespace)
