"""Two valid texts for every setting, and the values they stand for."""

from __future__ import annotations

from pydantic import SecretStr

from wva.config import Inputs, Settings, load
from wva.config.declare import POOL_GROUPS, TARGET_KINDS, declarations

FIELDS = declarations(Settings)
SPECIAL = {
    "verbosity": (("1", 1), ("4", 4)),
    "log_level": (("debug", "debug"), ("ERROR", "error")),
    "event_loop": (("uvloop", "uvloop"), ("asyncio", "asyncio")),
    "log_encoding": (("json", "json"), ("console", "console")),
    "scale_from_zero_max_concurrency": (("3", 3), ("25", 25)),
    "metrics_cache_ttl": (("90s", 90.0), ("1h30m", 5400.0)),
    "metrics_cache_max_size": (("100", 100), ("0", 0)),
    "target_kinds": tuple((kind, kind) for kind in TARGET_KINDS),
    "role_labels": (("example.com/stage", "example.com/stage"), ("a.b/c , d", "a.b/c,d")),
    "role_values": (("P=prefill", "P=prefill"), ("ctx=prefill, gen=both", "ctx=prefill,gen=prefill-decode")),
    "pool_group": tuple((group, group) for group in POOL_GROUPS),
    "epp_bearer_token": (("Bearer one", SecretStr("one")), ("two", SecretStr("two"))),
    **dict.fromkeys(
        ("prometheus_bearer_token", "prometheus_headers", "prometheus_parameters"),
        (("one", SecretStr("one")), ("two", SecretStr("two"))),
    ),
    # Each text keeps fresh below unavailable while the other setting has its default.
    "fresh_threshold": (("11s", 11.0), ("0.5m", 30.0)),
    "stale_threshold": (("90s", 90.0), ("4m", 240.0)),
    "unavailable_threshold": (("9m", 540.0), ("1h", 3600.0)),
}


def samples(name):
    """Return ((text, value), (text, value)) for a field."""
    if name in SPECIAL:
        return SPECIAL[name]
    default = FIELDS[name].default
    if isinstance(default, bool):
        return (("true", True), ("false", False))
    if isinstance(default, float):
        return (("90s", 90.0), ("1h30m", 5400.0))
    return (("one", "one"), ("two", "two"))


def loaded(*, flags=None, environment=None, config_map=None):
    """Load the settings from these sources."""
    return load(Inputs(flags or {}, environment or {}, config_map or {}))


def sources(name):
    """Return the sources of a field, most important first."""
    origin = FIELDS[name]
    found = ["flag"] if origin.flags else []
    return found + [source for source in ("environment", "configmap") if source in origin.places]


def given(name, texts):
    """Load the settings with one field given; ``texts`` has its text for each source."""
    key = FIELDS[name].keys[0]
    return loaded(
        flags={name: texts["flag"]} if "flag" in texts else {},
        environment={key: texts["environment"]} if "environment" in texts else {},
        config_map={key: texts["configmap"]} if "configmap" in texts else {},
    )
