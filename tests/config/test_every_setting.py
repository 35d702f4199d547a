"""Every setting from every source: the code must match a table that was written by hand.

The other tests here derive their cases from the code, so they do not notice a setting that the code lacks. A setting
that is added, renamed, or given another default or source fails here until its row is changed, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import SecretStr

from wva.cli.flags import expand_booleans, given_flags
from wva.cli.parser import build_parser
from wva.config import Inputs, Settings, load
from wva.config.declare import declarations, shown
from wva.config.load import describe

BOTH = ("environment", "configmap")
ENVIRONMENT = ("environment",)


@dataclass(frozen=True)
class SettingRow:
    """One setting: its flags and keys, its default, and one text with its value."""

    flags: tuple[str, ...]
    keys: tuple[str, ...]
    default: object
    text: str
    value: object
    places: tuple[str, ...] = BOTH
    live: bool = False


def text(flags, keys, default="", *, value="x", **more):
    """Return the row of a text."""
    return SettingRow(flags, keys, default, value, value, **more)


def switch(flags, keys, *, default=False, **more):
    """Return the row of a boolean; the text says the opposite of the default."""
    return SettingRow(flags, keys, default, str(not default).lower(), not default, **more)


def duration(flags, keys, default, value=("1m30s", 90.0), **more):
    """Return the row of a duration."""
    return SettingRow(flags, keys, default, *value, **more)


ROWS = {
    "metrics_bind_address": text(
        ("--metrics-bind-address", "--metrics-addr"), ("METRICS_BIND_ADDRESS", "METRICS_ADDR"), "0", value=":8443"
    ),
    "console_bind_address": text(("--console-bind-address",), ("CONSOLE_BIND_ADDRESS",), "0", value=":8444"),
    "keda_push_bind_address": text(("--keda-push-bind-address",), ("KEDA_PUSH_BIND_ADDRESS",), "0", value=":9443"),
    "keda_push_client_ca_path": text(
        ("--keda-push-client-ca-path",), ("KEDA_PUSH_CLIENT_CA_PATH",), value="/etc/wva/ca.crt"
    ),
    "health_probe_bind_address": text(
        ("--health-probe-bind-address", "--probe-addr"),
        ("HEALTH_PROBE_BIND_ADDRESS", "PROBE_ADDR"),
        ":8081",
        value=":9000",
    ),
    "leader_elect": switch(("--leader-elect", "--enable-leader-election"), ("LEADER_ELECT",)),
    "leader_election_id": text(("--leader-election-id",), ("LEADER_ELECTION_ID",), "72dd1cf1.llm-d.ai"),
    "leader_election_lease_duration": duration(
        ("--leader-election-lease-duration",), ("LEADER_ELECTION_LEASE_DURATION",), 15.0
    ),
    "leader_election_renew_deadline": duration(
        ("--leader-election-renew-deadline",), ("LEADER_ELECTION_RENEW_DEADLINE",), 10.0
    ),
    "leader_election_retry_period": duration(
        ("--leader-election-retry-period",), ("LEADER_ELECTION_RETRY_PERIOD",), 2.0
    ),
    "rest_client_timeout": duration(("--rest-client-timeout",), ("REST_CLIENT_TIMEOUT",), 60.0),
    "metrics_secure": switch(("--metrics-secure",), ("METRICS_SECURE",), default=True),
    "enable_http2": switch(("--enable-http2",), ("ENABLE_HTTP2",)),
    "watch_namespace": text(("--watch-namespace",), ("WATCH_NAMESPACE",)),
    "metrics_cert_path": text(("--metrics-cert-path",), ("METRICS_CERT_PATH",)),
    "metrics_cert_name": text(("--metrics-cert-name",), ("METRICS_CERT_NAME",), "tls.crt"),
    "metrics_cert_key": text(("--metrics-cert-key",), ("METRICS_CERT_KEY",), "tls.key"),
    "webhook_cert_path": text(("--webhook-cert-path",), ("WEBHOOK_CERT_PATH",)),
    "webhook_cert_name": text(("--webhook-cert-name",), ("WEBHOOK_CERT_NAME",), "tls.crt"),
    "webhook_cert_key": text(("--webhook-cert-key",), ("WEBHOOK_CERT_KEY",), "tls.key"),
    "verbosity": SettingRow(("-v",), ("V",), 2, "4", 4, live=True),
    "log_level": SettingRow(("--zap-log-level",), ("LOG_LEVEL",), None, "WARN", "warn", live=True),
    "log_encoding": text(("--zap-encoder",), ("LOG_ENCODING",), "json", value="console"),
    "zap_devel": switch(("--zap-devel",), (), places=()),
    "zap_stacktrace_level": text(("--zap-stacktrace-level",), (), places=()),
    "zap_time_encoding": text(("--zap-time-encoding",), (), places=()),
    "event_loop": text(("--event-loop",), ("EVENT_LOOP",), "asyncio", value="uvloop", places=ENVIRONMENT),
    "record_dir": text(("--record-dir",), ("RECORD_DIR",)),
    "inferno_metric_aliases": switch(("--inferno-metric-aliases",), ("WVA_INFERNO_METRIC_ALIASES",)),
    "role_labels": text(
        ("--role-labels",), ("WVA_ROLE_LABELS",), "llm-d.ai/role", value="nvidia.com/dynamo-sub-component-type,role"
    ),
    "role_values": text(("--role-values",), ("WVA_ROLE_VALUES",), value="context=prefill,generation=decode"),
    "prometheus_base_url": text((), ("PROMETHEUS_BASE_URL",), value="https://prometheus:9090"),
    "prometheus_allow_http": switch((), ("PROMETHEUS_ALLOW_HTTP",)),
    "prometheus_tls_insecure_skip_verify": switch((), ("PROMETHEUS_TLS_INSECURE_SKIP_VERIFY",)),
    "prometheus_ca_cert_path": text((), ("PROMETHEUS_CA_CERT_PATH",)),
    "prometheus_client_cert_path": text((), ("PROMETHEUS_CLIENT_CERT_PATH",)),
    "prometheus_client_key_path": text((), ("PROMETHEUS_CLIENT_KEY_PATH",)),
    "prometheus_server_name": text((), ("PROMETHEUS_SERVER_NAME",)),
    "prometheus_bearer_token": SettingRow((), ("PROMETHEUS_BEARER_TOKEN",), SecretStr(""), "t", SecretStr("t")),
    "prometheus_token_path": text((), ("PROMETHEUS_TOKEN_PATH",)),
    "prometheus_headers": SettingRow((), ("PROMETHEUS_HEADERS",), SecretStr(""), "A: b", SecretStr("A: b")),
    "prometheus_headers_path": text((), ("PROMETHEUS_HEADERS_PATH",)),
    "prometheus_parameters": SettingRow((), ("PROMETHEUS_PARAMETERS",), SecretStr(""), "a=b", SecretStr("a=b")),
    "prometheus_parameters_path": text((), ("PROMETHEUS_PARAMETERS_PATH",)),
    "metrics_cache_enabled": switch((), ("PROMETHEUS_METRICS_CACHE_ENABLED",), default=True, live=True),
    "metrics_cache_ttl": duration((), ("PROMETHEUS_METRICS_CACHE_TTL",), None, live=True),
    "metrics_cache_cleanup_interval": duration((), ("PROMETHEUS_METRICS_CACHE_CLEANUP_INTERVAL",), 60.0, live=True),
    "metrics_cache_fetch_interval": duration(
        (), ("PROMETHEUS_METRICS_CACHE_FETCH_INTERVAL",), 30.0, ("0s", 0.0), live=True
    ),
    "fresh_threshold": duration((), ("PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD",), 60.0, ("45s", 45.0), live=True),
    "stale_threshold": duration((), ("PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD",), 120.0, live=True),
    "unavailable_threshold": duration(
        (), ("PROMETHEUS_METRICS_CACHE_UNAVAILABLE_THRESHOLD",), 300.0, ("10m", 600.0), live=True
    ),
    "metrics_cache_max_size": SettingRow((), ("PROMETHEUS_METRICS_CACHE_MAX_SIZE",), 0, "7", 7, live=True),
    "global_opt_interval": duration((), ("GLOBAL_OPT_INTERVAL",), 60.0, live=True),
    "fast_lane_interval": duration((), ("WVA_FAST_LANE_INTERVAL",), 4.0, ("0s", 0.0)),
    "scale_to_zero": switch((), ("WVA_SCALE_TO_ZERO",)),
    "limited_mode": switch((), ("WVA_LIMITED_MODE",)),
    "node_selector": text((), ("WVA_NODE_SELECTOR",), value="pool in (gpu),!spot"),
    "scale_from_zero_max_concurrency": SettingRow((), ("SCALE_FROM_ZERO_ENGINE_MAX_CONCURRENCY",), 10, "3", 3),
    "epp_bearer_token": SettingRow((), ("EPP_METRIC_READER_BEARER_TOKEN",), SecretStr(""), "Bearer t", SecretStr("t")),
    "epp_ca_path": text((), ("EPP_METRICS_CA_CERT_PATH",)),
    "pool_group": text((), ("POOL_GROUP",), value="inference.networking.k8s.io"),
    "target_kinds": text((), ("WVA_TARGET_KINDS",), value="StatefulSet,LeaderWorkerSet"),
    "direct_actuation": switch((), ("WVA_DIRECT_ACTUATION",)),
    "proactive_model": switch((), ("EXPERIMENTAL_PROACTIVE_MODEL",)),
    "controller_instance": text((), ("CONTROLLER_INSTANCE",), places=ENVIRONMENT),
    "pod_namespace": text((), ("POD_NAMESPACE",), "workload-variant-autoscaler-system", places=ENVIRONMENT),
    "metrics_job": text((), ("WVA_METRICS_JOB",), places=ENVIRONMENT),
    "config_map_name": text((), ("CONFIG_MAP_NAME",), "wva-variantautoscaling-config", places=ENVIRONMENT),
    "saturation_config_map_name": text((), ("SATURATION_CONFIG_MAP_NAME",), "wva-saturation-scaling-config"),
    "scale_to_zero_config_map_name": text((), ("SCALE_TO_ZERO_CONFIG_MAP_NAME",), "wva-model-scale-to-zero-config"),
    "service_class_config_map_name": text((), ("SERVICE_CLASS_CONFIG_MAP_NAME",), "service-classes-config"),
    "queueing_model_config_map_name": text((), ("QUEUEING_MODEL_CONFIG_MAP_NAME",), "wva-queueing-model-config"),
}
GIVEN = [
    *((name, "flag", flag) for name, row in ROWS.items() for flag in row.flags),
    *((name, place, key) for name, row in ROWS.items() for place in row.places for key in row.keys),
]


def loaded(name, source, spelling):
    """Load the settings with one setting given; a flag goes through the real command line."""
    row = ROWS[name]
    flags, environment, config_map = {}, {}, {}
    if source == "flag":
        words = expand_booleans(["run", f"{spelling}={row.text}"])
        flags = given_flags(build_parser().parse_args(words))
    else:
        (environment if source == "environment" else config_map)[spelling] = row.text
    return load(Inputs(flags, environment, config_map))


def test_every_setting_has_a_row_and_every_row_its_setting():
    """The rows are in the order of the documentation."""
    assert list(ROWS) == list(declarations(Settings))


@pytest.mark.parametrize("name", ROWS)
def test_the_row_says_where_a_setting_may_be_given(name):
    """The declaration has the flags, keys and sources of the row, and applies live if the row says so."""
    row, origin = ROWS[name], declarations(Settings)[name]
    assert tuple(f"-{flag}" if len(flag) == 1 else f"--{flag}" for flag in origin.flags) == row.flags
    assert (origin.keys if origin.places else ()) == row.keys
    assert set(origin.places) == set(row.places)
    assert bool(origin.live) == row.live


@pytest.mark.parametrize("name", ROWS)
def test_without_any_source_the_default_is_in_force(name):
    """WVA names ``default`` as the source."""
    result = load(Inputs({}, {}, {}))
    assert getattr(result.settings, name) == ROWS[name].default
    assert result.sources[name] == "default"


@pytest.mark.parametrize(("name", "source", "spelling"), GIVEN)
def test_each_spelling_in_each_source_is_in_force(name, source, spelling):
    """WVA takes the value of the text, and names its source. No other setting changes."""
    row, result = ROWS[name], loaded(name, source, spelling)
    assert getattr(result.settings, name) == row.value
    assert result.problems == ()
    assert {key: where for key, where in result.sources.items() if where != "default"} == {name: source}
    entry = next(entry for entry in describe(result) if spelling in (*entry.flags, *entry.keys))
    assert (entry.value, entry.source) == (shown(row.value), source)
    assert entry.default == shown(row.default)
    assert entry.applies == ("live" if row.live else "start")


@pytest.mark.parametrize(("name", "source", "spelling"), [entry for entry in GIVEN if entry[1] == "configmap"])
def test_the_environment_wins_over_the_config_map(name, source, spelling):
    """This holds for every spelling of every setting that both sources may give."""
    del source
    row = ROWS[name]
    result = load(Inputs({}, {row.keys[-1]: row.text}, {spelling: "nonsense"}))
    assert getattr(result.settings, name) == row.value
    assert result.sources[name] == "environment"


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.flags and row.places])
def test_the_flag_wins_over_the_environment(name):
    """This holds for every setting that both sources may give."""
    row = ROWS[name]
    flags = given_flags(build_parser().parse_args(expand_booleans(["run", f"{row.flags[-1]}={row.text}"])))
    result = load(Inputs(flags, dict.fromkeys(row.keys, "nonsense"), dict.fromkeys(row.keys, "nonsense")))
    assert getattr(result.settings, name) == row.value
    assert result.sources[name] == "flag"


READ_BY_SETTINGS = {"verbosity": "effective_log_level", "log_level": "effective_log_level"}
SOURCE = "\n".join(
    path.read_text(encoding="utf-8")
    for path in sorted((Path(__file__).parents[2] / "wva").rglob("*.py"))
    if path.parent.name != "settings"
)


@pytest.mark.parametrize("name", ROWS)
def test_every_setting_is_read_by_somebody_or_says_that_it_does_nothing(name):
    """The code reads every setting, except those that are declared to have no effect."""
    read = re.search(rf"\.{READ_BY_SETTINGS.get(name, name)}\b", SOURCE) is not None
    assert read != bool(declarations(Settings)[name].no_effect)
