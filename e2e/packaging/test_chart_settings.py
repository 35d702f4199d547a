"""The controller knows and accepts all settings that the chart gives it."""

from __future__ import annotations

import pytest

from e2e.packaging.chart import NAMESPACE, Body, only
from e2e.packaging.chart_matrix import CASES
from wva.api.meta import Key
from wva.cli.flags import given_flags
from wva.cli.parser import build_parser
from wva.config import Inputs, Loaded, Settings, load
from wva.config.declare import ENVIRONMENT, declarations
from wva.config.live import LiveConfiguration
from wva.config.load import fatal_problems, unknown_keys

MAIN = "variantautoscaling-config"
WITH_CONTROLLER = sorted(name for name in CASES if not name.startswith("variant-alone"))


@pytest.fixture(params=WITH_CONTROLLER)
def items(request: pytest.FixtureRequest) -> list[Body]:
    """Give the objects of each set of values."""
    return CASES[request.param].render()


def test_every_setting_is_one_that_the_process_knows(items: list[Body]):
    """Flags, environment and main ConfigMap: all names are known where they stand and all values are accepted."""
    given, loaded = _loaded(items)
    known = {key for each in declarations(Settings).values() if ENVIRONMENT in each.places for key in each.keys}
    assert given.environment.keys() <= known
    assert unknown_keys(given.config_map) == []
    assert (loaded.problems, loaded.without_effect) == ((), ())
    assert fatal_problems(loaded, given) == []


def test_live_settings_stay_live(items: list[Body]):
    """Settings that may change at run time come from the ConfigMap: a flag or variable would fix their value."""
    _, loaded = _loaded(items)
    live = {name for name, field in declarations(Settings).items() if field.live}
    pinned = {name for name in live if loaded.sources[name] in {"flag", "environment"}}
    assert pinned <= {"verbosity"}  # only of the case that names this setting


def test_every_entry_of_the_other_config_maps_is_accepted(items: list[Body]):
    """The ConfigMaps have the names that the process reads, and it accepts each entry without a warning."""
    given, loaded = _loaded(items)
    live = LiveConfiguration(loaded.settings)
    for item in items:
        name = item["metadata"]["name"]
        others = name.endswith((MAIN, "-prometheus-ca")) or "-dashboard-" in name
        if item["kind"] == "ConfigMap" and not others:
            outcome = live.apply(Key(NAMESPACE, name), item["data"])
            assert (outcome.problems, outcome.ignored) == ((), ""), name
    assert live.warnings() == []
    assert given.environment["CONFIG_MAP_NAME"] == only(items, "ConfigMap", MAIN)["metadata"]["name"]


def test_what_the_table_of_the_seed_calls_thresholds_arrives():
    """Checks a few settings by name, so that the tests above cannot pass on an empty set."""
    _, loaded = _loaded(CASES["all-settings"].render())
    settings = loaded.settings
    assert (settings.limited_mode, settings.node_selector, settings.scale_to_zero) == (True, "gpu=true", True)
    assert (settings.metrics_cache_enabled, settings.metrics_cache_ttl, settings.metrics_cache_max_size) == (
        False,
        30,
        10,
    )
    assert settings.saturation_config_map_name == "thresholds"


def _loaded(items: list[Body]) -> tuple[Inputs, Loaded]:
    (container,) = only(items, "Deployment")["spec"]["template"]["spec"]["containers"]
    flags = given_flags(build_parser().parse_args(["run", *container["args"]]))
    environment = {entry["name"]: entry.get("value", NAMESPACE) for entry in container["env"]}
    given = Inputs(flags, environment, only(items, "ConfigMap", MAIN)["data"])
    return given, load(given)
