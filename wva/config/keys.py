"""Every key of the configuration, declared once: open this file to add one.

``Settings`` are about the process: they come from flags, the environment and the main ConfigMap. The other classes are
entries of the ConfigMaps that say how to decide; their defaults are in ``wva/model/policy.py``. Durations are seconds.
The form of a key checks its value; ``wva/model/policy.py`` checks values that contradict each other. A new key is one
declaration here and the place that reads its value; ``python -m tests.docs.rendering`` brings it into
docs/configuration.md or docs/config-maps.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, SecretStr
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from wva.config import declare
from wva.config.declare import ENVIRONMENT, GLOBAL_DEFAULT, Form, Live, by_key, field, flag, key, only
from wva.godurations import EXPECTED_DURATION, parse_positive_duration
from wva.kube.leader_times import Durations
from wva.model.inventory import UnknownInventory
from wva.model.objectives import DEFAULT_OBJECTIVES, IN_TIME, ITL_MILLISECONDS, TIGHTEST, TTFT_MILLISECONDS
from wva.model.optimizers import ANALYZERS_BY_NAME, Analyzer, BestEffort, Optimizer
from wva.model.policy import DEFAULT_SLO_MULTIPLIER, MAX_KEEP_WARM_SECONDS, MAX_SURGE_FACTOR, Compatibility
from wva.model.roles import ROLE_LABEL
from wva.model.service import MAX_BATCH_SIZE
from wva.numbers import Real, Whole

INTERVAL_CHANGE: Final = Live("Updated optimization interval", "interval_updated")
CACHE_CHANGE: Final = Live("Updated Prometheus cache config", "metrics_cache_updated")
LOG_CHANGE: Final = Live("Updated log config", "log_level_updated")

LISTENING: Final = "where it listens"
LEADING: Final = "who leads"
CLUSTER: Final = "the API server"
TELLING: Final = "logs, recordings and names of metrics"
PODS: Final = "what the labels of pods mean"
PROCESS: Final = "the process"
COMPATIBILITY: Final = "accepted for compatibility, without effect"

_ELECTION: Final = Durations()
_DEBUG_VERBOSITY: Final = 4

Address = Annotated[str, replace(declare.TEXT, metavar="ADDRESS")]
Directory = Annotated[str, replace(declare.TEXT, metavar="DIR")]
File = Annotated[str, replace(declare.TEXT, metavar="FILE")]
Switch = Annotated[bool, declare.SWITCH]
Duration = Annotated[float, declare.DURATION]
Count = Annotated[int, declare.COUNT]
Name = Annotated[str, declare.NAME]


def accepted(default: object, no_effect: str, **more: Any) -> Any:
    """Declare a setting that the Go controller has and that changes nothing here."""
    return flag(default, "Accepted for compatibility.", no_effect=no_effect, group=COMPATIBILITY, **more)


def connection(default: object, meaning: str) -> Any:
    """Declare a setting of the connection to Prometheus; if the environment gives the URL, all come from there."""
    return key(default, meaning, shut_out_by="PROMETHEUS_BASE_URL")


def cache(default: object, meaning: str, name: str) -> Any:
    """Declare a setting of the kept answers of Prometheus."""
    return key(default, meaning, f"PROMETHEUS_METRICS_CACHE_{name}", live=CACHE_CHANGE)


class Settings(BaseSettings):
    """Every setting with its effective value."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore")

    # --- where the process listens, who leads, how it logs ---

    metrics_bind_address: Address = flag(
        "0",
        "Address of /metrics, such as :8443; 0 switches it off.",
        "metrics-bind-address",
        "metrics-addr",
        group=LISTENING,
    )
    console_bind_address: Address = flag(
        "0", "Address of the console, such as :8444; 0 switches it off.", group=LISTENING
    )
    keda_push_bind_address: Address = flag(
        "0",
        "Address of the external scaler that KEDA asks for numbers, such as :9443; 0 switches it off.",
        group=LISTENING,
    )
    keda_push_client_ca_path: File = flag(
        "",
        "File of the authorities (PEM) of KEDA's client certificate, followed while it runs; empty lets everybody in.",
        group=LISTENING,
    )
    health_probe_bind_address: Address = flag(
        ":8081",
        "Address of /healthz and /readyz; 0 switches them off.",
        "health-probe-bind-address",
        "probe-addr",
        group=LISTENING,
    )
    leader_elect: Switch = flag(
        False,
        "With several processes, let only one decide: the leader, elected through a Lease.",
        "leader-elect",
        "enable-leader-election",
        keys=("LEADER_ELECT",),
        group=LEADING,
    )
    leader_election_id: Name = flag("72dd1cf1.llm-d.ai", "Name of the Lease.", group=LEADING)
    leader_election_lease_duration: Duration = flag(
        _ELECTION.lease_seconds,
        "How long a standby waits after the leader's last renewal before it takes over.",
        group=LEADING,
    )
    leader_election_renew_deadline: Duration = flag(
        _ELECTION.renew_deadline_seconds,
        "How long the leader tries to renew the Lease before it stops leading.",
        group=LEADING,
    )
    leader_election_retry_period: Duration = flag(
        _ELECTION.retry_period_seconds, "Time between two attempts to acquire or renew the Lease.", group=LEADING
    )
    rest_client_timeout: Duration = flag(60.0, "Time limit of one request to the API server.", group=CLUSTER)
    metrics_secure: Switch = flag(
        True,
        "Serve /metrics over HTTPS to clients that the API server allows; false: plain HTTP for all.",
        group=LISTENING,
    )
    enable_http2: Switch = accepted(False, "the endpoints speak HTTP/1.1 only; true changes nothing")
    watch_namespace: str = flag("", "Watch only this namespace; empty watches all.", metavar="NAMESPACE", group=CLUSTER)
    metrics_cert_path: Directory = flag(
        "", "Directory with the certificate of /metrics; empty: WVA makes a self-signed one.", group=LISTENING
    )
    metrics_cert_name: File = flag("tls.crt", "File name of the certificate in that directory.", group=LISTENING)
    metrics_cert_key: File = flag("tls.key", "File name of its private key.", group=LISTENING)
    webhook_cert_path: Directory = accepted("", "there is no webhook")
    webhook_cert_name: File = accepted("tls.crt", "there is no webhook")
    webhook_cert_key: File = accepted("tls.key", "there is no webhook")
    verbosity: Annotated[int, declare.whole(0, 10)] = flag(
        2,
        "Log verbosity as in the Go controller: 0 to 3 is info, 4 and above debug. LOG_LEVEL wins.",
        "v",
        live=LOG_CHANGE,
        group=TELLING,
    )
    log_level: Annotated[Literal["debug", "info", "warn", "error"] | None, declare.LEVEL] = flag(
        None,
        "Log level: debug, info, warn or error. When absent, the verbosity counts.",
        "zap-log-level",
        keys=("LOG_LEVEL",),
        live=LOG_CHANGE,
        group=TELLING,
    )
    log_encoding: Annotated[Literal["json", "console"], declare.one_of("json", "console")] = flag(
        "json", "Form of the log lines.", "zap-encoder", keys=("LOG_ENCODING",), metavar="FORM", group=TELLING
    )
    zap_devel: Switch = accepted(False, "use --zap-encoder and --zap-log-level", places=())
    zap_stacktrace_level: str = accepted("", "unexpected errors always carry their traceback", places=())
    zap_time_encoding: str = accepted("", "times are ISO 8601 in UTC", places=())
    event_loop: Annotated[Literal["asyncio", "uvloop"], declare.one_of("asyncio", "uvloop")] = flag(
        "asyncio",
        "Event loop. uvloop is faster with many connections, but can abort the process when one is reset while it "
        "opens.",
        places=(ENVIRONMENT,),
        group=PROCESS,
    )
    record_dir: Directory = flag(
        "", "Directory for recordings of the last 100 cycles, for `wva replay`; empty records nothing.", group=TELLING
    )
    inferno_metric_aliases: Switch = flag(
        False,
        "Publish wva_current_replicas, wva_desired_replicas, wva_desired_ratio and wva_desired_source a second time "
        "under their older names, which begin with inferno_ instead of wva_.",
        keys=("WVA_INFERNO_METRIC_ALIASES",),
        group=TELLING,
    )

    # --- what the labels of pods mean ---

    role_labels: Annotated[str, declare.ROLE_KEYS] = flag(
        ROLE_LABEL,
        "Keys of the labels that say the role of a pod, with a comma between them; the first that it has counts.",
        keys=("WVA_ROLE_LABELS",),
        group=PODS,
    )
    role_values: Annotated[str, declare.ROLE_VALUES] = flag(
        "",
        "What further values of these labels mean, such as context=prefill,generation=decode.",
        keys=("WVA_ROLE_VALUES",),
        group=PODS,
    )

    # --- the connection to Prometheus ---

    prometheus_base_url: str = connection("", "URL of Prometheus; required.")
    prometheus_allow_http: Switch = connection(
        False, "Allow a plain http URL: queries and token cross the network unencrypted."
    )
    prometheus_tls_insecure_skip_verify: Switch = connection(
        False, "Do not verify the certificate of Prometheus; development only."
    )
    prometheus_ca_cert_path: str = connection("", "File with the CA of Prometheus.")
    prometheus_client_cert_path: str = connection("", "Client certificate for mTLS.")
    prometheus_client_key_path: str = connection("", "Private key of the client certificate.")
    prometheus_server_name: str = connection("", "Name expected in the certificate.")
    prometheus_bearer_token: Annotated[SecretStr, declare.SECRET] = connection(
        SecretStr(""), "Bearer token; wins over PROMETHEUS_TOKEN_PATH."
    )
    prometheus_token_path: str = connection("", "File with the bearer token; WVA reads it again when it changes.")
    prometheus_headers: Annotated[SecretStr, declare.SECRET] = connection(
        SecretStr(""),
        "Further headers of every query, such as `X-Scope-OrgID: team-a`, one in each line; wins over "
        "PROMETHEUS_HEADERS_PATH.",
    )
    prometheus_headers_path: str = connection("", "File with such headers; WVA reads it again when it changes.")
    prometheus_parameters: Annotated[SecretStr, declare.SECRET] = connection(
        SecretStr(""),
        "Further parameters of the URL of every query, such as `namespace=models`, one in each line; wins over "
        "PROMETHEUS_PARAMETERS_PATH.",
    )
    prometheus_parameters_path: str = connection("", "File with such parameters; WVA reads it again when it changes.")

    # --- how long an answer of Prometheus counts ---

    metrics_cache_enabled: Switch = cache(
        True, "Use an answer of Prometheus again within the TTL; false: every cycle asks.", "ENABLED"
    )
    metrics_cache_ttl: Annotated[float | None, declare.DURATION] = cache(
        None, "TTL: how long an answer may be used again. When absent, every cycle asks.", "TTL"
    )
    metrics_cache_cleanup_interval: Duration = cache(
        60.0, "Drop kept answers that were not used for this long.", "CLEANUP_INTERVAL"
    )
    metrics_cache_fetch_interval: Annotated[float, declare.OPTIONAL_DURATION] = cache(
        30.0, "How often kept answers are renewed between cycles; 0: never.", "FETCH_INTERVAL"
    )
    fresh_threshold: Duration = cache(
        60.0, "A sample younger than this, or than two scrape intervals of its pod, is fresh.", "FRESH_THRESHOLD"
    )
    stale_threshold: Duration = cache(
        120.0, "An answer older than this is not used again, even within the TTL.", "STALE_THRESHOLD"
    )
    unavailable_threshold: Duration = cache(
        300.0, "A sample this old or older is missing; between this and fresh it is stale.", "UNAVAILABLE_THRESHOLD"
    )
    metrics_cache_max_size: Count = cache(
        0, "How many answers are kept at most, one for each 100 namespaces; 0: no limit.", "MAX_SIZE"
    )

    # --- the pace, the features and their limits ---

    global_opt_interval: Annotated[float, declare.VITAL_DURATION] = key(
        60.0, "Time from the start of one cycle to the start of the next.", live=INTERVAL_CHANGE
    )
    fast_lane_interval: Annotated[float, declare.OPTIONAL_DURATION] = key(
        4.0,
        "How often one query looks between cycles whether a model has more requests than its replicas carry; 0: never.",
        "WVA_FAST_LANE_INTERVAL",
    )
    scale_to_zero: Switch = key(
        False,
        "Let idle models go to zero replicas unless the scale-to-zero ConfigMap says otherwise.",
        "WVA_SCALE_TO_ZERO",
    )
    limited_mode: Switch = key(False, "Keep the decisions within the GPUs of the nodes.", "WVA_LIMITED_MODE")
    node_selector: str = key(
        "", "Label selector of the nodes whose GPUs count in limited mode; empty counts all.", "WVA_NODE_SELECTOR"
    )
    scale_from_zero_max_concurrency: Count = key(
        10,
        "How many pods of one picker are read at the same time for models at zero; 0: no scale from zero.",
        "SCALE_FROM_ZERO_ENGINE_MAX_CONCURRENCY",
    )
    epp_bearer_token: Annotated[SecretStr, declare.TOKEN] = key(
        SecretStr(""),
        "Bearer token for the metrics of endpoint pickers; a leading `Bearer ` is dropped.",
        "EPP_METRIC_READER_BEARER_TOKEN",
    )
    epp_ca_path: str = key(
        "",
        "File with the CA (PEM) of the metrics of endpoint pickers. If it is set, all of them are read over https, and "
        "each certificate must have the name SERVICE.NAMESPACE.svc.",
        "EPP_METRICS_CA_CERT_PATH",
    )
    pool_group: Annotated[str, declare.POOL_GROUP] = key(
        "", "API group of the InferencePools to watch; empty watches both groups."
    )
    target_kinds: Annotated[str, declare.TARGET_KINDS_LIST] = key(
        "",
        f"Kinds that are scaled beside Deployment: {', '.join(declare.TARGET_KINDS)}, "
        "or several with a comma between them.",
        "WVA_TARGET_KINDS",
    )
    direct_actuation: Switch = key(
        False,
        "Write the numbers of variants with the annotation `wva.llmd.ai/actuation: direct` to their targets.",
        "WVA_DIRECT_ACTUATION",
    )
    proactive_model: Switch = key(
        False, "Experimental: run the queueing model beside the analyzer (HYBRID mode).", "EXPERIMENTAL_PROACTIVE_MODEL"
    )

    # --- which controller this is, and the ConfigMaps that it obeys ---

    controller_instance: str = key(
        "",
        "Handle only variants with the label of this instance, and add the label to the metrics.",
        places=(ENVIRONMENT,),
    )
    pod_namespace: Name = key(
        "workload-variant-autoscaler-system",
        "Namespace of the controller, with its ConfigMaps and its Lease.",
        places=(ENVIRONMENT,),
    )
    metrics_job: Annotated[str, declare.text_of(0, 1024, "at most 1,024 characters")] = key(
        "",
        "Job of the controller's series in Prometheus. A start from zero waits for a number with this job and the "
        "namespace POD_NAMESPACE; empty: with any job.",
        "WVA_METRICS_JOB",
        places=(ENVIRONMENT,),
    )
    config_map_name: Name = key("wva-variantautoscaling-config", "Name of the main ConfigMap.", places=(ENVIRONMENT,))
    saturation_config_map_name: Name = key("wva-saturation-scaling-config", "Name of the saturation ConfigMap.")
    scale_to_zero_config_map_name: Name = key("wva-model-scale-to-zero-config", "Name of the scale-to-zero ConfigMap.")
    service_class_config_map_name: Name = key("service-classes-config", "Name of the ConfigMap of service classes.")
    queueing_model_config_map_name: Name = key(
        "wva-queueing-model-config", "Name of the ConfigMap of the queueing model."
    )

    @property
    def effective_log_level(self) -> str:
        """The level in force: LOG_LEVEL if given, else what the verbosity means."""
        return self.log_level or ("debug" if self.verbosity >= _DEBUG_VERBOSITY else "info")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic's signature
        init_settings: PydanticBaseSettingsSource,
        *_: Any,
        **__: Any,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take only what the settings are made with: ``load`` reads the sources and judges each value."""
        return (init_settings,)


LIMITS: Final = ("fresh_threshold", "unavailable_threshold")
"""A fresh sample must not be older than a missing one: these two are judged together."""


# --- entries of the ConfigMaps that say how to decide -----------------------------------------------------------------

SHARE: Final = declare.number(Real(0, 1))
POSITIVE_SHARE: Final = declare.number(Real(0, 1, above=True))
REQUESTS: Final = declare.number(Real(0, 1_000_000_000))
"""Up to more requests than any queue holds. Sums over replicas stay far from where floating point overflows."""
QUOTED: Final = declare.number(Real(0, 1_000_000_000), quoted=True)
"""A number that may stand in quotes, because documented examples have them."""
QUOTED_WHOLE: Final = declare.number(Whole(0, 1_000_000_000), quoted=True)
QUOTED_SHARE: Final = declare.number(IN_TIME, quoted=True)
BATCH_SIZE: Final = declare.number(Whole(0, MAX_BATCH_SIZE), quoted=True)
_KEEP_WARM: Final = {"auto": MAX_KEEP_WARM_SECONDS, "off": 0.0, "false": 0.0}
"""Programs that write YAML turn ``off`` into ``false``."""
KEEP_WARM: Final = Form(
    only(
        lambda text: _KEEP_WARM[text] if text in _KEEP_WARM else parse_positive_duration(text),
        lambda seconds: seconds <= MAX_KEEP_WARM_SECONDS,
    ),
    f"auto, off or {EXPECTED_DURATION}, at most 24h",
    lambda seconds: {MAX_KEEP_WARM_SECONDS: "auto", 0.0: "off"}.get(seconds) or declare.shown(seconds),
)
ANALYZER: Final = Form(
    only(ANALYZERS_BY_NAME.get),
    ", ".join(name for name in ANALYZERS_BY_NAME if name),
    lambda analyzer: analyzer.shown,
    words=tuple(ANALYZERS_BY_NAME),
    instead=Analyzer.PERCENTAGE,
)
OPTIMIZER: Final = replace(
    declare.member_of(Optimizer),
    expected=", ".join(optimizer.value or '""' for optimizer in Optimizer),
    show=lambda optimizer: f'"{optimizer}"',
)
TARGET_TTFT: Final = replace(
    declare.number(TTFT_MILLISECONDS),
    show=lambda milliseconds: f"{milliseconds or 1000.0 * DEFAULT_OBJECTIVES.ttft_seconds:g}",
)
TARGET_ITL: Final = replace(
    declare.number(ITL_MILLISECONDS),
    show=lambda milliseconds: f"{milliseconds or 1000.0 * DEFAULT_OBJECTIVES.itl_seconds:g}",
)
IN_TIME_SHARE: Final = replace(declare.number(IN_TIME), show=lambda share: f"{share or DEFAULT_OBJECTIVES.in_time:g}")
SURGE_FACTOR: Final = declare.number(Real(1, MAX_SURGE_FACTOR))
SLO_MULTIPLIER: Final = replace(
    REQUESTS,
    read=only(lambda text: REQUESTS.read(text) or DEFAULT_SLO_MULTIPLIER, lambda multiplier: multiplier > 1),
    expected="a number above 1, or 0 for the default of 3, without quotes",
)

Boolean = Annotated[bool | None, declare.BOOLEAN]
Requests = Annotated[float | None, REQUESTS]
Quoted = Annotated[float | None, QUOTED]
QuotedWhole = Annotated[int | None, QUOTED_WHOLE]
ModelId = Annotated[str | None, Form(str, "a model id")]


class EntryFields(BaseModel):
    """The fields of an entry; None means not given."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def names(cls) -> frozenset[str]:
        """Return the fields under the names that people write."""
        return frozenset(by_key(cls))


class ModelFields(EntryFields):
    """The fields of an entry that is for one model, or for all."""

    model_id: ModelId = field("model_id", "The model that an entry is for; the entry `default` is for all.")
    namespace: Annotated[str | None, Form(str, "a namespace")] = field(
        "namespace", "The namespace of the model. Without it the entry is for the model in every namespace."
    )


class SaturationFields(ModelFields):
    """An entry of the saturation ConfigMap: thresholds and analyzer of a model."""

    kv_cache_threshold: Annotated[float | None, SHARE] = field(
        "kvCacheThreshold", "A replica is saturated when this share of its KV cache is in use; 0 to 1."
    )
    queue_length_threshold: Requests = field(
        "queueLengthThreshold", "A replica is also saturated when this many requests wait; 0 to 10^9."
    )
    kv_spare_trigger: Annotated[float | None, SHARE] = field(
        "kvSpareTrigger", "The model grows when its mean spare KV share is below this; 0 to `kvCacheThreshold`."
    )
    queue_spare_trigger: Requests = field(
        "queueSpareTrigger", "The model also grows when its mean spare queue is below this; at least 0."
    )
    enable_limiter: Boolean = field(
        "enableLimiter",
        "Only in the global `default`: `true` keeps growth within the GPUs of the cluster "
        "([scarce GPUs](decisions.md#scarce-gpus)).",
        unset="false",
        place=GLOBAL_DEFAULT,
    )
    unknown_inventory: Annotated[UnknownInventory | None, declare.member_of(UnknownInventory)] = field(
        "unknownInventory",
        "Only in the global `default`: what the GPU limit allows while WVA does not know how many GPUs there are. "
        "`no-growth` allows nothing beyond what was granted before, `unlimited` allows all growth. Every decision says "
        "so.",
        unset="no-growth",
        place=GLOBAL_DEFAULT,
    )
    analyzer_name: Annotated[Analyzer | None, ANALYZER] = field(
        "analyzerName",
        '`demand` is the [demand analyzer](demand-analyzer.md), `percentage` (or `""`) the '
        "[percentage analyzer](decisions.md#the-percentage-analyzer), `saturation` the "
        "[token analyzer](token-analyzer.md), `queueing` the [queueing model](queueing-model.md). Any other name "
        "counts as `percentage`, and the condition `ConfigurationValid` names it. Without a name, see below.",
    )
    optimizer_name: Annotated[Optimizer | None, OPTIMIZER] = field(
        "optimizerName",
        '`""` uses the optimizer of the analyzer. With the demand analyzer there is no other. With the percentage '
        "analyzer choose `sized` (default) or `one-step`. With the token analyzer choose `cost-aware` (default) or "
        "`greedy-by-score`. With the queueing model choose `model-based` (default), `cost-aware` or `greedy-by-score`. "
        "See [optimizers](optimizers.md).",
    )
    scale_up_threshold: Annotated[float | None, POSITIVE_SHARE] = field(
        "scaleUpThreshold", "With the token analyzer the model grows above this utilization; above 0 and at most 1."
    )
    scale_down_boundary: Annotated[float | None, POSITIVE_SHARE] = field(
        "scaleDownBoundary",
        "With the token analyzer the model may shrink below this utilization; above 0 and lower than "
        "`scaleUpThreshold`.",
    )
    compatibility: Annotated[Compatibility | None, declare.member_of(Compatibility)] = field(
        "compatibility",
        "Only in the global `default`: `v0.5` brings back the numbers of v0.5.1 "
        "([decisions](decisions.md#compatibility-v05)).",
        place=GLOBAL_DEFAULT,
    )
    transition_deadline_seconds: Annotated[float | None, declare.DURATION] = field(
        "transitionDeadline",
        "An unfinished change counts as on its way for so long at most, and [for less](decisions.md#changes-take-time) "
        "where another variant can serve and the last pods started faster. Set a longer time for models that load "
        "slowly.",
    )
    keep_warm: Annotated[float | None, KEEP_WARM] = field(
        "keepWarm",
        "With the [demand analyzer](demand-analyzer.md): how long replicas are kept for demand that has gone and is "
        "known to come back. `auto` lets the analyzer decide from how often, and after how long, it came back. `off` "
        "keeps none. A duration such as `30m`, at most `24h`, is `auto` with a limit.",
    )
    surge_factor: Annotated[float | None, SURGE_FACTOR] = field(
        "surgeFactor",
        "With the [demand analyzer](demand-analyzer.md): for requests that wait, replicas for at most this many times "
        "the demand are ordered; 1 to 16. Less leaves fewer replicas idle after a jump, and requests wait for longer.",
    )
    target_ttft_milliseconds: Annotated[float | None, TARGET_TTFT] = field(
        "targetTTFT",
        "With the [demand analyzer](demand-analyzer.md): the [objective](objectives.md) for the time to the first "
        "token, in milliseconds; 1 to 3,600,000.",
    )
    target_itl_milliseconds: Annotated[float | None, TARGET_ITL] = field(
        "targetITL",
        "With the demand analyzer: the objective for the mean time between the tokens of an answer, in milliseconds; "
        "1 to 60,000.",
    )
    in_time: Annotated[float | None, IN_TIME_SHARE] = field(
        "inTime", "With the demand analyzer: the share of requests that shall meet both objectives; 0.5 to 0.999."
    )
    tightest_ttft_milliseconds: Annotated[float | None, TARGET_TTFT] = field(
        "tightestTTFT",
        "Only in the global `default`: the shortest time to the first token, in milliseconds, that "
        "[a tenant may ask for](objectives.md#what-a-tenant-may-ask-for).",
        unset=f"{1000.0 * TIGHTEST.ttft_seconds:g}",
        place=GLOBAL_DEFAULT,
    )
    tightest_itl_milliseconds: Annotated[float | None, TARGET_ITL] = field(
        "tightestITL",
        "Only in the global `default`: the shortest time between tokens, in milliseconds, that a tenant may ask for.",
        unset=f"{1000.0 * TIGHTEST.itl_seconds:g}",
        place=GLOBAL_DEFAULT,
    )


class ScaleToZeroFields(ModelFields):
    """An entry of the scale-to-zero ConfigMap: whether and when a model may go to zero replicas."""

    enabled: Boolean = field(
        "enable_scale_to_zero", "Whether the model may go to zero replicas.", unset="WVA_SCALE_TO_ZERO"
    )
    retention_seconds: Annotated[float | None, declare.DURATION] = field(
        "retention_period",
        "The model goes to zero after so long without a request, rounded up to a window. A value above 24h causes a "
        "warning. With a value above 168h (7 days) the model never goes to zero.",
        unset="10m",
    )


class QueueingFields(ModelFields):
    """An entry of the queueing ConfigMap: it switches the queueing analyzer on for its model, or for all."""

    namespace: Annotated[str | None, Form(str, "a namespace")] = field(
        "namespace",
        "The namespace of the model. Both are required; in the ConfigMap of a namespace, `namespace` is that "
        "namespace.",
    )
    slo_multiplier: Annotated[float | None, SLO_MULTIPLIER] = field(
        "sloMultiplier",
        "Without targets, replicas are planned for a utilization of 1 - 1/multiplier. The value is above 1; 0 means "
        "the default.",
    )
    tuning_enabled: Boolean = field("tuningEnabled", "Whether WVA learns the parameters of a replica while it serves.")
    target_ttft_milliseconds: Requests = field(
        "targetTTFT",
        "Target in milliseconds for the time to the first token. Give both targets or neither; 0 derives them.",
    )
    target_itl_milliseconds: Requests = field("targetITL", "Target in milliseconds for the time per further token.")
    unlimited: Boolean = field(
        "unlimited",
        "Only in the global `default`: with `true` the [model-based optimizer]"
        "(queueing-model.md#the-model-based-optimizer) ignores GPUs, with `false` it keeps to those of the cluster. "
        "Without the field it keeps to them while a GPU limit is in force.",
        unset="follows the GPU limit",
        place=GLOBAL_DEFAULT,
    )
    saturation_policy: Annotated[BestEffort | None, declare.member_of(BestEffort)] = field(
        "saturationPolicy",
        "Only in the global `default`: what a model gets if it cannot have everything it needs: `None` (by priority, "
        "as much as there is), `PriorityExhaustive`, `PriorityRoundRobin` or `RoundRobin`.",
        unset="None",
        place=GLOBAL_DEFAULT,
    )
    delayed_best_effort: Boolean = field(
        "delayedBestEffort",
        "Only in the global `default`: with `true` such models get their part after all service classes were served, "
        "not after each class.",
        unset="false",
        place=GLOBAL_DEFAULT,
    )


class ClassFields(EntryFields):
    """What a service class says of itself; ``data``, the list of its models, stands beside these."""

    name: Annotated[str | None, Form(str, "the name of the class")] = field("name", "The class.")
    priority: Annotated[int | None, replace(QUOTED_WHOLE, expected=f"{QUOTED_WHOLE.expected}, without quotes")] = field(
        "priority", "Priority 1 is the most important; a value outside of 1 to 100 counts as 100.", unset="100"
    )


class TargetFields(EntryFields):
    """What a service class asks of one model."""

    model: ModelId = field("model", "The model id. It stands for the model in every namespace.")
    slo_tpot: Quoted = field(
        "slo-tpot", "Target time per further token, in milliseconds; 0 means no target.", unset="0"
    )
    slo_itl: Quoted = field("slo-itl", "The same as `slo-tpot`, which wins.", unset="0")
    slo_ttft: Quoted = field(
        "slo-ttft", "Target time to the first token, in milliseconds; 0 means no target.", unset="0"
    )
    slo_ttw: Quoted = field("slo-ttw", "The same as `slo-ttft`, which wins.", unset="0")
    in_time: Annotated[float | None, QUOTED_SHARE] = field(
        "in-time", "Share of requests that shall meet both times, for the demand analyzer; 0.5 to 0.999.", unset="0.99"
    )
    slo_tps: Quoted = field("slo-tps", "Target rate in tokens per second; 0 means no target.", unset="0")


class CostFields(EntryFields):
    """The cost of one accelerator."""

    cost: Quoted = field("cost", "Cost of one accelerator per hour. Use the same currency for all.")
    device: Annotated[str | None, Form(str, "the product name of the device")] = field(
        "device", "Product name of the device."
    )


class ProfileFields(EntryFields):
    """The parameters of one model on one accelerator."""

    model_id: ModelId = field("model_id", "The model id. It stands for the model in every namespace.")
    name: ModelId = field("name", "The same as `model_id`, which wins.")
    acc: Annotated[str | None, Form(str, "the name of an accelerator")] = field("acc", "The accelerator.")
    acc_count: QuotedWhole = field("accCount", "How many accelerators one replica uses.", unset="1")
    alpha: Quoted = field("alpha", "A decode step with n requests takes alpha + beta * n milliseconds.")
    beta: Quoted = field("beta", "See `alpha`.")
    gamma: Quoted = field(
        "gamma", "The prefill of i tokens with n requests takes gamma + delta * i * n milliseconds.", unset="0"
    )
    delta: Quoted = field("delta", "See `gamma`.", unset="0")
    max_batch_size: Annotated[int | None, BATCH_SIZE] = field(
        "maxBatchSize", "How many requests run at once, up to 100,000; 0 means that it is not known.", unset="0"
    )
    at_tokens: QuotedWhole = field(
        "atTokens",
        "The length of answers, in tokens, at which `maxBatchSize` was measured; 0 means that it holds for every "
        "length.",
        unset="0",
    )
