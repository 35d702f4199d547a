"""The time that pods of the simulated models take to start."""

from wva.sim.fleet.accelerators import MODELS
from wva.sim.stage.start_ups import START_UPS


def test_larger_models_take_longer():
    """More weights and layers take more time to load. Engines can be derived for each of these models."""
    by_size = sorted(START_UPS, key=lambda name: MODELS[name].parameters)
    seconds = [START_UPS[name].median_seconds for name in by_size]
    assert seconds == sorted(seconds)
    assert all(start.pull_seconds > 0 < start.pull_probability < 1 for start in START_UPS.values())
