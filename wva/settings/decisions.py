"""Settings of what is decided, by whom and from which ConfigMaps."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, SecretStr

from wva.settings.origin import ENV_ONLY, Count, PoolGroup, Switch, Token, VitalDuration, key


class DecisionSettings(BaseModel):
    """The pace, the features and their limits. Durations are seconds."""

    global_opt_interval: Annotated[VitalDuration, key("GLOBAL_OPT_INTERVAL", dynamic=True)] = Field(
        60.0, description="Time from the start of one cycle to the start of the next."
    )
    scale_to_zero: Annotated[Switch, key("WVA_SCALE_TO_ZERO")] = Field(
        False, description="Let idle models go to zero replicas unless the scale-to-zero ConfigMap says otherwise."
    )
    limited_mode: Annotated[Switch, key("WVA_LIMITED_MODE")] = Field(
        False, description="Keep the decisions within the GPUs of the nodes."
    )
    node_selector: Annotated[str, key("WVA_NODE_SELECTOR")] = Field(
        "", description="Label selector of the nodes whose GPUs count in limited mode; empty counts all."
    )
    scale_from_zero_max_concurrency: Annotated[Count, key("SCALE_FROM_ZERO_ENGINE_MAX_CONCURRENCY")] = Field(
        10,
        ge=0,
        description="How many pods of one picker are read at the same time for models at zero; 0: no scale from zero.",
    )
    epp_bearer_token: Annotated[Token, key("EPP_METRIC_READER_BEARER_TOKEN")] = Field(
        SecretStr(""), description="Bearer token for the metrics of endpoint pickers; a leading `Bearer ` is dropped."
    )
    pool_group: Annotated[PoolGroup, key("POOL_GROUP")] = Field(
        "", description="API group of the InferencePools to watch; empty watches both groups."
    )
    proactive_model: Annotated[Switch, key("EXPERIMENTAL_PROACTIVE_MODEL")] = Field(
        False, description="Experimental: run the queueing model beside the analyzer (HYBRID mode)."
    )


class IdentitySettings(BaseModel):
    """Which controller this is, and the ConfigMaps that it obeys."""

    controller_instance: Annotated[str, key("CONTROLLER_INSTANCE", places=ENV_ONLY)] = Field(
        "", description="Handle only variants with the label of this instance, and add the label to the metrics."
    )
    pod_namespace: Annotated[str, key("POD_NAMESPACE", places=ENV_ONLY)] = Field(
        "workload-variant-autoscaler-system",
        min_length=1,
        description="Namespace of the controller, with its ConfigMaps and its Lease.",
    )
    metrics_job: Annotated[str, key("WVA_METRICS_JOB", places=ENV_ONLY)] = Field(
        "",
        max_length=1024,
        description="Job of the controller's series in Prometheus. A start from zero waits for a number with this job "
        "and the namespace POD_NAMESPACE; empty: with any job.",
    )
    config_map_name: Annotated[str, key("CONFIG_MAP_NAME", places=ENV_ONLY)] = Field(
        "wva-variantautoscaling-config", min_length=1, description="Name of the main ConfigMap."
    )
    saturation_config_map_name: Annotated[str, key("SATURATION_CONFIG_MAP_NAME")] = Field(
        "wva-saturation-scaling-config", min_length=1, description="Name of the saturation ConfigMap."
    )
    scale_to_zero_config_map_name: Annotated[str, key("SCALE_TO_ZERO_CONFIG_MAP_NAME")] = Field(
        "wva-model-scale-to-zero-config", min_length=1, description="Name of the scale-to-zero ConfigMap."
    )
    service_class_config_map_name: Annotated[str, key("SERVICE_CLASS_CONFIG_MAP_NAME")] = Field(
        "service-classes-config", min_length=1, description="Name of the ConfigMap of service classes."
    )
    queueing_model_config_map_name: Annotated[str, key("QUEUEING_MODEL_CONFIG_MAP_NAME")] = Field(
        "wva-queueing-model-config", min_length=1, description="Name of the ConfigMap of the queueing model."
    )
