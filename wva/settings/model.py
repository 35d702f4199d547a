"""Every setting of the process, each described once (surface.md 2.2, 2.3).

A field says its type, default and meaning; the ``Origin`` in its annotation says where it may be given: its flags (the
first is canonical, the others are accepted spellings) and its keys in the environment and in the main ConfigMap. The
flag parser, the sources and the documentation's test are derived from this one table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from wva.godurations import parse_bool, parse_duration
from wva.settings.sources import Layers, LayerSource

_ENVIRONMENT: Final = "environment"
_CONFIG_MAP: Final = "configmap"
_BOTH: Final = frozenset({_ENVIRONMENT, _CONFIG_MAP})
_ENV_ONLY: Final = frozenset({_ENVIRONMENT})
_FLAG_ONLY: Final[frozenset[str]] = frozenset()
_NO_WEBHOOK: Final = "there is no webhook"
_DEBUG_VERBOSITY: Final = 4


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a setting may be given.

    ``flags`` without dashes; ``keys`` in the sources named by ``places``. ``dynamic`` settings follow the ConfigMap at
    run time. ``no_effect`` says why an accepted setting changes nothing here; giving it is answered with a warning.
    """

    flags: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    places: frozenset[str] = _BOTH
    dynamic: bool = False
    no_effect: str = ""
    metavar: str = "TEXT"


def _given(
    *flags: str,
    keys: tuple[str, ...] = (),
    places: frozenset[str] = _BOTH,
    no_effect: str = "",
    metavar: str = "TEXT",
    dynamic: bool = False,
) -> Origin:
    """Return the Origin of a setting with flags; its key is the first flag in upper case unless given."""
    return Origin(flags, keys or (flags[0].replace("-", "_").upper(),), places, dynamic, no_effect, metavar)


def _key(*keys: str, places: frozenset[str] = _BOTH, dynamic: bool = False) -> Origin:
    """Return the Origin of a setting without a flag."""
    return Origin((), keys, places, dynamic)


def _positive(seconds: float) -> float:
    if seconds <= 0:
        raise ValueError("must be greater than zero")
    return seconds


def _as_duration(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) else value


def _as_bool(value: object) -> object:
    return parse_bool(value) if isinstance(value, str) else value


def _as_level(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


Duration = Annotated[float, BeforeValidator(_as_duration), AfterValidator(_positive)]
Switch = Annotated[bool, BeforeValidator(_as_bool)]
Level = Annotated[Literal["debug", "info", "warn", "error"], BeforeValidator(_as_level)]


class Settings(BaseSettings):
    """Every setting with its effective value. Durations are seconds."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore")

    metrics_bind_address: Annotated[
        str,
        _given(
            "metrics-bind-address", "metrics-addr", keys=("METRICS_BIND_ADDRESS", "METRICS_ADDR"), metavar="ADDRESS"
        ),
    ] = Field("0", description="Address of /metrics, such as :8443; 0 switches it off.")
    health_probe_bind_address: Annotated[
        str,
        _given(
            "health-probe-bind-address",
            "probe-addr",
            keys=("HEALTH_PROBE_BIND_ADDRESS", "PROBE_ADDR"),
            metavar="ADDRESS",
        ),
    ] = Field(":8081", description="Address of /healthz and /readyz; 0 switches them off.")
    leader_elect: Annotated[Switch, _given("leader-elect", "enable-leader-election", metavar="BOOL")] = Field(
        False, description="Elect one leader among several processes through a Lease."
    )
    leader_election_id: Annotated[str, _given("leader-election-id")] = Field(
        "72dd1cf1.llm-d.ai", min_length=1, description="Name of the Lease."
    )
    leader_election_lease_duration: Annotated[
        Duration, _given("leader-election-lease-duration", metavar="DURATION")
    ] = Field(60.0, description="How long a standby waits after the last renewal it saw before it takes over.")
    leader_election_renew_deadline: Annotated[
        Duration, _given("leader-election-renew-deadline", metavar="DURATION")
    ] = Field(50.0, description="How long the leader keeps trying to renew before it gives up leading.")
    leader_election_retry_period: Annotated[Duration, _given("leader-election-retry-period", metavar="DURATION")] = (
        Field(10.0, description="Time between two attempts to acquire or renew.")
    )
    rest_client_timeout: Annotated[Duration, _given("rest-client-timeout", metavar="DURATION")] = Field(
        60.0, description="Time limit of one request to the API server."
    )
    metrics_secure: Annotated[Switch, _given("metrics-secure", metavar="BOOL")] = Field(
        True, description="Serve /metrics over HTTPS; false is plain HTTP."
    )
    enable_http2: Annotated[
        Switch,
        _given("enable-http2", metavar="BOOL", no_effect="the endpoints speak HTTP/1.1 only; true changes nothing"),
    ] = Field(False, description="Accepted for compatibility.")
    watch_namespace: Annotated[str, _given("watch-namespace", metavar="NAMESPACE")] = Field(
        "", description="Watch this namespace only; empty watches all."
    )
    metrics_cert_path: Annotated[str, _given("metrics-cert-path", metavar="DIR")] = Field(
        "", description="Directory with the certificate of /metrics; empty makes a self-signed one."
    )
    metrics_cert_name: Annotated[str, _given("metrics-cert-name", metavar="FILE")] = Field(
        "tls.crt", description="File name of the certificate in that directory."
    )
    metrics_cert_key: Annotated[str, _given("metrics-cert-key", metavar="FILE")] = Field(
        "tls.key", description="File name of its private key."
    )
    webhook_cert_path: Annotated[str, _given("webhook-cert-path", metavar="DIR", no_effect=_NO_WEBHOOK)] = Field(
        "", description="Accepted for compatibility."
    )
    webhook_cert_name: Annotated[str, _given("webhook-cert-name", metavar="FILE", no_effect=_NO_WEBHOOK)] = Field(
        "tls.crt", description="Accepted for compatibility."
    )
    webhook_cert_key: Annotated[str, _given("webhook-cert-key", metavar="FILE", no_effect=_NO_WEBHOOK)] = Field(
        "tls.key", description="Accepted for compatibility."
    )
    verbosity: Annotated[int, _given("v", keys=("V",), metavar="N")] = Field(
        2, ge=0, le=10, description="Log verbosity of the original: 0 to 3 is info, 4 and above debug. LOG_LEVEL wins."
    )
    log_level: Annotated[Level | None, _given("zap-log-level", keys=("LOG_LEVEL",), metavar="LEVEL")] = Field(
        None, description="debug, info, warn or error; when absent, what the verbosity says."
    )
    log_encoding: Annotated[
        Literal["json", "console"], _given("zap-encoder", keys=("LOG_ENCODING",), metavar="FORM")
    ] = Field("json", description="Form of the log lines.")
    zap_devel: Annotated[
        Switch,
        _given("zap-devel", places=_FLAG_ONLY, metavar="BOOL", no_effect="use --zap-encoder and --zap-log-level"),
    ] = Field(False, description="Accepted for compatibility.")
    zap_stacktrace_level: Annotated[
        str,
        _given("zap-stacktrace-level", places=_FLAG_ONLY, no_effect="unexpected errors always carry their traceback"),
    ] = Field("", description="Accepted for compatibility.")
    zap_time_encoding: Annotated[
        str, _given("zap-time-encoding", places=_FLAG_ONLY, no_effect="times are ISO 8601 in UTC")
    ] = Field("", description="Accepted for compatibility.")
    record_dir: Annotated[str, _given("record-dir", metavar="DIR")] = Field(
        "", description="Directory for recordings of the last 100 cycles, input of `wva decide`; empty records nothing."
    )
    prometheus_base_url: Annotated[str, _key("PROMETHEUS_BASE_URL")] = Field(
        "", description="URL of Prometheus; required."
    )
    prometheus_allow_http: Annotated[Switch, _key("PROMETHEUS_ALLOW_HTTP")] = Field(
        False, description="Allow a plain http URL: queries and token cross the network unencrypted."
    )
    prometheus_tls_insecure_skip_verify: Annotated[Switch, _key("PROMETHEUS_TLS_INSECURE_SKIP_VERIFY")] = Field(
        False, description="Do not verify the certificate of Prometheus; development only."
    )
    prometheus_ca_cert_path: Annotated[str, _key("PROMETHEUS_CA_CERT_PATH")] = Field(
        "", description="File with the CA of Prometheus."
    )
    prometheus_client_cert_path: Annotated[str, _key("PROMETHEUS_CLIENT_CERT_PATH")] = Field(
        "", description="Client certificate for mTLS."
    )
    prometheus_client_key_path: Annotated[str, _key("PROMETHEUS_CLIENT_KEY_PATH")] = Field(
        "", description="Private key of the client certificate."
    )
    prometheus_server_name: Annotated[str, _key("PROMETHEUS_SERVER_NAME")] = Field(
        "", description="Name expected in the certificate."
    )
    prometheus_bearer_token: Annotated[SecretStr, _key("PROMETHEUS_BEARER_TOKEN")] = Field(
        SecretStr(""), description="Bearer token; wins over the file."
    )
    prometheus_token_path: Annotated[str, _key("PROMETHEUS_TOKEN_PATH")] = Field(
        "", description="File with the bearer token, read again when it changes."
    )
    global_opt_interval: Annotated[Duration, _key("GLOBAL_OPT_INTERVAL", dynamic=True)] = Field(
        60.0, description="Time from the start of one cycle to the start of the next."
    )
    fresh_threshold: Annotated[Duration, _key("PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD", dynamic=True)] = Field(
        60.0, description="A sample younger than this is fresh."
    )
    unavailable_threshold: Annotated[Duration, _key("PROMETHEUS_METRICS_CACHE_UNAVAILABLE_THRESHOLD", dynamic=True)] = (
        Field(300.0, description="A sample at least this old counts as missing; between the two it is stale.")
    )
    controller_instance: Annotated[str, _key("CONTROLLER_INSTANCE", places=_ENV_ONLY)] = Field(
        "", description="Take only variants labelled for this instance and label the metrics with it."
    )
    pod_namespace: Annotated[str, _key("POD_NAMESPACE", places=_ENV_ONLY)] = Field(
        "workload-variant-autoscaler-system",
        min_length=1,
        description="Namespace of the controller: of its ConfigMaps and its Lease.",
    )
    config_map_name: Annotated[str, _key("CONFIG_MAP_NAME", places=_ENV_ONLY)] = Field(
        "wva-variantautoscaling-config", min_length=1, description="Name of the main ConfigMap."
    )
    saturation_config_map_name: Annotated[str, _key("SATURATION_CONFIG_MAP_NAME", places=_ENV_ONLY)] = Field(
        "wva-saturation-scaling-config", min_length=1, description="Name of the saturation ConfigMap."
    )

    @property
    def effective_log_level(self) -> str:
        """The level in force: LOG_LEVEL if given, else what the verbosity means."""
        return self.log_level or ("debug" if self.verbosity >= _DEBUG_VERBOSITY else "info")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the base class's signature
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - same
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - same
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Use the layers handed to ``load``, most important first, instead of pydantic's own environment reader."""
        layers = init_settings().get("layers")
        if not isinstance(layers, Layers):
            return (init_settings,)
        return tuple(LayerSource(settings_cls, layer) for layer in layers.values)


def origin_of(field: FieldInfo) -> Origin:
    """Return where a field of ``Settings`` may be given. Every field has an Origin; the lookup fails otherwise."""
    return next(entry for entry in field.metadata if isinstance(entry, Origin))
