"""Values that operators may set. For each branch of a template, one set takes it and one set does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from e2e.packaging.chart import (
    CONTROLLER,
    DEVELOPMENT,
    LLM_D,
    MONITORING,
    OPENSHIFT,
    Body,
    Values,
    nested,
    parsed,
    text,
)

V0_5 = Path(__file__).parent / "data" / "values-0.5.0.yaml"
AUTHORITY = "-----BEGIN CERTIFICATE-----\nMAo=\n-----END CERTIFICATE-----\n"
DIGEST = "sha256:" + "0" * 64


@dataclass(frozen=True, kw_only=True)
class Case:
    """One set of values, the kinds that the cluster serves beside its own, and the release's name."""

    values: Values = field(default_factory=dict)
    files: Sequence[Path] = ()
    apis: Sequence[str] = ()
    release: str = "wva"

    def render(self) -> list[Body]:
        """Return the objects, which the caller may change."""
        return parsed(self._text)

    @cached_property
    def _text(self) -> str:
        return text(self.values, *self.files, apis=self.apis, release=self.release)


def merged(*parts: Values) -> Body:
    """Return values laid over each other."""
    result: Body = {}
    for part in parts:
        for key, value in part.items():
            beneath = result.get(key)
            both = isinstance(beneath, dict) and isinstance(value, dict)
            result[key] = merged(beneath, value) if both else value
    return result


def _keys(**paths: object) -> Body:
    """Return values from keyword arguments in which two underscores are a dot."""
    return merged(*(nested(path.replace("__", "."), value) for path, value in paths.items()))


_MODEL = {"modelID": "acme/chat-13b", "namespace": "prod"}
_SCRAPE = {
    "scrapeTimeout": "5s",
    "relabelings": [{"targetLabel": "cluster", "replacement": "east"}],
    "metricRelabelings": [{"sourceLabels": ["__name__"], "regex": "python_.*", "action": "drop"}],
}
CASES = {
    "default": Case(),
    "default-with-prometheus-operator": Case(apis=[MONITORING]),
    "default-on-openshift": Case(apis=[MONITORING, OPENSHIFT]),
    "development": Case(files=[DEVELOPMENT]),
    "development-with-prometheus-operator": Case(files=[DEVELOPMENT], apis=[MONITORING]),
    "controller-alone-by-its-file": Case(files=[CONTROLLER], apis=[MONITORING]),
    "beside-llm-d": Case(files=[LLM_D], apis=[MONITORING]),
    "version-0.5.0": Case(files=[V0_5], apis=[MONITORING]),
    "release-named-as-the-chart": Case(release="workload-variant-autoscaler"),
    "long-release": Case(release="a-release-whose-name-is-as-long-as-it-is-allowed-to"),
    "numbers-for-names": Case(
        release="7",
        apis=[MONITORING],
        values=_keys(
            fullnameOverride="wva",
            wva__controllerInstance="9",
            wva__imagePullSecret="10",
            wva__metrics__certSecret="11",
            wva__prometheus__tls__caSecret="12",
            wva__prometheus__tls__clientSecret="13",
            wva__prometheus__token={"source": "secret", "secretName": "14", "secretKey": "15"},
            wva__epp={"tokenSource": "secret", "secretName": "16", "secretKey": "17"},
            wva__prometheus__monitoringNamespace="18",
            wva__prometheus__serviceAccountName="19",
            wva__networkPolicy={"enabled": True, "ingressNamespaces": ["20"]},
            wva__priorityClassName="21",
            wva__namespaceScoped=True,
            wva__watchNamespace="22",
            llmd={"namespace": "23", "modelName": "24", "modelID": "25", "deploymentName": "26"},
            va__accelerator="40",
            commonLabels={"a": "27"},
        ),
    ),
    "full-name": Case(values=_keys(fullnameOverride="wva")),
    "name": Case(values=_keys(nameOverride="autoscaler")),
    "labels-and-annotations": Case(
        values=_keys(
            commonLabels={"team": "inference"},
            commonAnnotations={"team": "inference"},
            wva__annotations={"a": "b"},
            wva__podAnnotations={"a": "b"},
            wva__podLabels={"a": "b"},
            wva__serviceAccount__annotations={"a": "b"},
            wva__metrics__serviceAnnotations={"a": "b"},
            wva__metrics__serviceMonitor__labels={"release": "kube-prometheus-stack"},
            vllmService__serviceMonitor__labels={"release": "kube-prometheus-stack"},
            hpa__annotations={"a": "b"},
            va__annotations={"a": "b"},
        ),
        apis=[MONITORING],
    ),
    "variant-alone": Case(values=_keys(controller__enabled=False), apis=[MONITORING]),
    "variant-alone-by-the-older-switch": Case(values=_keys(wva__enabled=False)),
    "controller-alone": Case(
        values=_keys(va__enabled=False, hpa__enabled=False, vllmService__enabled=False), apis=[MONITORING]
    ),
    "another-deployment": Case(values=_keys(llmd__deploymentName="chat")),
    "keda": Case(values=_keys(actuator="keda")),
    "keda-with-all-settings": Case(
        values=_keys(
            actuator="keda",
            wva__controllerInstance="blue",
            keda__serverAddress="https://prometheus.example.org",
            keda__authenticationRef="prometheus",
            keda__authModes="bearer",
            keda__unsafeSsl=True,
            keda__fallback__failureThreshold=3,
            hpa__minReplicas=0,
        )
    ),
    "nothing-applies": Case(values=_keys(actuator="none")),
    "no-hpa": Case(values=_keys(hpa__enabled=False)),
    "instance": Case(values=_keys(wva__controllerInstance="blue")),
    "namespace-of-the-variant": Case(values=_keys(wva__namespaceScoped=True)),
    "namespace-of-the-release": Case(values=_keys(wva__namespaceScoped=True, va__enabled=False)),
    "roles-only": Case(
        values=_keys(wva__namespaceScoped=True, wva__metrics__secure=False, wva__epp__tokenSource="none")
    ),
    "named-namespace": Case(values=_keys(wva__namespaceScoped=True, wva__watchNamespace="models")),
    "one-replica": Case(values=_keys(wva__replicaCount=1, wva__leaderElection__enabled=False)),
    "no-disruption-budget": Case(values=_keys(wva__podDisruptionBudget__enabled=False)),
    "disruption-in-percent": Case(values=_keys(wva__podDisruptionBudget__maxUnavailable="50%")),
    "image": Case(
        values=_keys(
            wva__image__repository="registry.example.org/wva",
            wva__image__tag="v1",
            wva__imagePullPolicy="Always",
            wva__imagePullSecret="registry",
        )
    ),
    "several-pull-secrets": Case(
        values=_keys(wva__imagePullSecret="registry", wva__imagePullSecrets=[{"name": "mirror"}, {"name": "registry"}])
    ),
    "account-of-ones-own": Case(
        values=_keys(
            wva__serviceAccount={"create": False, "name": "autoscaler"}, wva__imagePullSecrets=[{"name": "mirror"}]
        )
    ),
    "probes": Case(
        values=_keys(
            wva__livenessProbe={"timeoutSeconds": 10},
            wva__readinessProbe__periodSeconds=5,
            wva__startupProbe__failureThreshold=60,
        )
    ),
    "probes-as-kubernetes-has-them": Case(values=_keys(wva__livenessProbe=None, wva__readinessProbe=None)),
    "digest": Case(values=_keys(wva__image__digest=DIGEST)),
    "more-of-the-pod": Case(
        values=_keys(
            wva__extraArgs=["--record-dir=/tmp/cycles"],
            wva__extraEnv=[{"name": "V", "value": "4"}],
            wva__extraVolumes=[{"name": "cycles", "emptyDir": {}}],
            wva__extraVolumeMounts=[{"name": "cycles", "mountPath": "/cycles"}],
        )
    ),
    "scheduling": Case(
        values=_keys(
            wva__podNodeSelector={"kubernetes.io/os": "linux"},
            wva__tolerations=[{"key": "control-plane", "operator": "Exists"}],
            wva__priorityClassName="system-cluster-critical",
            wva__affinity={
                "podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 1,
                            "podAffinityTerm": {
                                "topologyKey": "zone",
                                "labelSelector": {"matchLabels": {"control-plane": "controller-manager"}},
                            },
                        }
                    ]
                }
            },
            wva__topologySpreadConstraints=[
                {
                    "maxSkew": 1,
                    "topologyKey": "zone",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"a": "b"}},
                }
            ],
        )
    ),
    "no-spread": Case(values=_keys(wva__topologySpreadConstraints=[])),
    "plain-metrics": Case(values=_keys(wva__metrics__secure=False, wva__metrics__port=8080), apis=[MONITORING]),
    "no-metrics": Case(values=_keys(wva__metrics__enabled=False, wva__networkPolicy__enabled=True), apis=[MONITORING]),
    "console": Case(
        values=_keys(
            wva__console={"enabled": True, "port": 9444},
            wva__networkPolicy={"enabled": True, "ingressNamespaces": ["ingress"]},
        ),
        apis=[MONITORING],
    ),
    "keda-push": Case(
        values=_keys(
            wva__kedaPush={"enabled": True, "port": 9444, "clientCASecret": "keda-ca", "namespace": "autoscaling"},
            wva__networkPolicy__enabled=True,
        ),
        apis=[MONITORING],
    ),
    "certificate": Case(values=_keys(wva__metrics__certSecret="metrics-tls"), apis=[MONITORING]),
    "certificate-of-another-authority": Case(
        values=_keys(
            wva__metrics__certSecret="metrics-tls",
            wva__metrics__serviceMonitor__tlsConfig={"ca": {"configMap": {"name": "service-ca", "key": "ca.crt"}}},
        ),
        apis=[MONITORING],
    ),
    "certificate-of-cert-manager": Case(
        values=_keys(
            wva__metrics__certificate={"enabled": True, "issuerRef": {"name": "internal", "kind": "ClusterIssuer"}},
        ),
        apis=[MONITORING],
    ),
    "certificate-of-cert-manager-with-all-settings": Case(
        values=_keys(
            wva__metrics__certSecret="metrics-tls",
            wva__metrics__certificate={
                "enabled": True,
                "issuerRef": {"name": "internal"},
                "duration": "720h",
                "renewBefore": "240h",
            },
            wva__kedaPush__enabled=True,
        ),
    ),
    "more-of-the-scrapes": Case(
        values=_keys(
            wva__metrics__serviceMonitor=_SCRAPE,
            vllmService__serviceMonitor=_SCRAPE,
        ),
        apis=[MONITORING],
    ),
    "pod-monitor": Case(
        values=_keys(vllmPodMonitor__enabled="auto", vllmService__serviceMonitor__enabled=False), apis=[MONITORING]
    ),
    "pod-monitor-with-all-settings": Case(
        values=_keys(
            vllmService__enabled=False,
            vllmPodMonitor={
                **_SCRAPE,
                "enabled": True,
                "namespaces": ["prod", "staging"],
                "selector": {"matchLabels": {"app": "vllm"}},
                "labels": {"release": "kube-prometheus-stack"},
            },
        ),
    ),
    "monitors-in-any-case": Case(
        values=_keys(wva__metrics__serviceMonitor__enabled=True, vllmService__serviceMonitor__enabled=True)
    ),
    "no-monitors": Case(
        values=_keys(wva__metrics__serviceMonitor__enabled=False, vllmService__serviceMonitor__enabled=False),
        apis=[MONITORING],
    ),
    "authority": Case(values=_keys(wva__prometheus__caCert=AUTHORITY)),
    "authority-beside-the-controller": Case(
        values=_keys(wva__prometheus__caCert=AUTHORITY, wva__prometheus__monitoringNamespace="wva-system")
    ),
    "authority-among-those-of-the-system": Case(
        values=_keys(
            wva__prometheus__caCert=AUTHORITY,
            wva__prometheus__tls__caCertPath="/etc/ssl/certs/prometheus-ca.crt",
        )
    ),
    "authority-in-a-config-map": Case(values=_keys(wva__prometheus__tls__caConfigMap="prometheus-ca")),
    "authority-in-a-secret": Case(
        values=_keys(wva__prometheus__tls__caSecret="prometheus-ca", wva__prometheus__tls__caKey="tls.crt")
    ),
    "authority-in-a-volume": Case(
        values=_keys(
            wva__prometheus__tls__caCertPath="/ca/ca.crt",
            wva__extraVolumes=[{"name": "ca", "configMap": {"name": "ca"}}],
            wva__extraVolumeMounts=[{"name": "ca", "mountPath": "/ca"}],
        )
    ),
    "authority-of-the-image": Case(values=_keys(wva__prometheus__tls__caCertPath="/etc/ssl/certs/ca-certificates.crt")),
    "authority-nowhere": Case(
        values=_keys(
            wva__prometheus__tls__caCertPath="/etc/ssl/certs/prometheus-ca.crt",
            wva__extraVolumes=[{"name": "etc", "emptyDir": {}}],
            wva__extraVolumeMounts=[{"name": "etc", "mountPath": "/etc/ssl/cert"}],
        )
    ),
    "client-certificate": Case(values=_keys(wva__prometheus__tls__clientSecret="prometheus-client")),
    "token-in-a-secret": Case(
        values=_keys(wva__prometheus__token__source="secret", wva__prometheus__token__secretName="prometheus")
    ),
    "headers-and-parameters": Case(
        values=_keys(
            wva__prometheus__headers={"secretName": "prometheus", "secretKey": "tenant"},
            wva__prometheus__parameters__secretName="prometheus",
        )
    ),
    "token-for-an-audience": Case(values=_keys(wva__prometheus__token__audience="prometheus")),
    "no-token": Case(values=_keys(wva__prometheus__token__source="none", wva__epp__tokenSource="none")),
    "pickers-over-https": Case(values=_keys(wva__epp__caConfigMap="picker-ca")),
    "picker-token-in-a-secret": Case(values=_keys(wva__epp__tokenSource="secret", wva__epp__secretName="epp")),
    "plain-prometheus": Case(
        values=_keys(
            wva__prometheus__baseURL="http://prometheus.monitoring.svc:9090",
            wva__prometheus__allowHTTP=True,
            wva__prometheus__serviceAccountName="prometheus-k8s",
            wva__networkPolicy__enabled=True,
        )
    ),
    "account-of-prometheus-on-openshift": Case(
        values=_keys(wva__prometheus__serviceAccountName="prometheus-k8s"), apis=[OPENSHIFT]
    ),
    "not-as-on-openshift": Case(values=_keys(wva__prometheus__clusterMonitoringView=False), apis=[OPENSHIFT]),
    "prometheus-elsewhere": Case(
        values=_keys(
            wva__prometheus__baseURL="https://prometheus.example.org/select/0",
            wva__prometheus__serverName="prometheus",
            wva__networkPolicy__enabled=True,
            wva__networkPolicy__ingressNamespaces=["monitoring"],
        )
    ),
    "stateful-set-targets": Case(values=_keys(wva__targetKinds=["StatefulSet"], llmd__targetKind="StatefulSet")),
    "direct-actuation": Case(
        values=_keys(wva__directActuation=True, wva__scaleFromZeroMaxConcurrency=0, wva__targetKinds=["StatefulSet"])
    ),
    "named-namespaces": Case(
        values=_keys(
            wva__scaleNamespaces=["prod", "staging"], wva__directActuation=True, wva__targetKinds=["StatefulSet"]
        )
    ),
    "named-namespaces-without-starts": Case(
        values=_keys(wva__scaleNamespaces=["prod"], wva__directActuation=True, wva__scaleFromZeroMaxConcurrency=0)
    ),
    "leader-worker-set-targets": Case(
        values=_keys(
            wva__targetKinds=["LeaderWorkerSet"], wva__namespaceScoped=True, llmd__targetKind="LeaderWorkerSet"
        )
    ),
    "immutable": Case(values=_keys(wva__configMap__immutable=True)),
    "all-settings": Case(
        values=_keys(
            wva__nodeSelector="gpu=true",
            wva__poolGroup="inference.networking.k8s.io",
            wva__roleLabels=["nvidia.com/dynamo-sub-component-type", "llm-d.ai/role"],
            wva__roleValues={"context": "prefill", "generation": "decode"},
            wva__limitedMode=True,
            wva__scaleToZero=True,
            wva__configMap__saturationName="thresholds",
            wva__prometheus__metricsCache={
                "enabled": False,
                "ttl": "30s",
                "cleanupInterval": "1m",
                "fetchInterval": "0",
                "freshThreshold": "1m",
                "staleThreshold": "2m",
                "unavailableThreshold": "5m",
                "maxSize": 10,
            },
        )
    ),
    "no-start-from-zero": Case(values=_keys(wva__scaleFromZeroMaxConcurrency=0)),
    "thresholds": Case(
        values=_keys(
            wva__capacityScaling__default={
                "kvCacheThreshold": "0.7",  # a text, as `--set` gives it
                "analyzerName": "saturation",
                "optimizerName": "greedy-by-score",
                "enableLimiter": True,
                "compatibility": "v0.5",
            },
            wva__capacityScaling__overrides={
                "chat": {**_MODEL, "kvSpareTrigger": 0.35, "queueSpareTrigger": 0},
                "other": {"modelID": "7", "analyzerName": "queueing"},
            },
        )
    ),
    "scale-to-zero": Case(
        values=_keys(
            wva__modelScaleToZero={
                "default": {"enabled": False, "retentionPeriod": "15m"},
                "overrides": {"chat": {**_MODEL, "enabled": True}},
            }
        )
    ),
    "scale-to-zero-of-one-model": Case(
        values=_keys(wva__modelScaleToZero__overrides={"chat": {**_MODEL, "enabled": True}})
    ),
    "queueing-model": Case(
        values=_keys(
            wva__queueingModel={
                "default": {"sloMultiplier": 3, "tuningEnabled": False, "saturationPolicy": "RoundRobin"},
                "overrides": {"chat": {**_MODEL, "targetTTFT": 500, "targetITL": 50}},
            }
        )
    ),
    "classes-costs-and-profiles": Case(
        values=_keys(
            wva__serviceClasses__free={
                "name": "Free",
                "priority": 9,
                "data": [{"model": "acme/chat-13b", "slo-tpot": 200, "slo-ttft": 2000}],
            },
            wva__acceleratorCosts={"A100": {"device": "NVIDIA-A100-PCIE-80GB", "cost": "40.00"}},
            wva__modelPerformance={
                "chat-a100": {"modelID": "acme/chat-13b", "acc": "A100", "accCount": 1, "alpha": 20.5, "beta": 0.4}
            },
            va__serviceClass="free",
        )
    ),
    "no-class": Case(values=_keys(va__serviceClass="")),
    "vllm-inside-the-cluster": Case(
        values=_keys(vllmService__type="ClusterIP", vllmService__scheme="https"), apis=[MONITORING]
    ),
    "alerts-and-dashboards": Case(
        values=_keys(observability__alerts__enabled=True, observability__dashboards__enabled=True)
    ),
    "alerts-where-they-are-taken": Case(
        apis=[MONITORING],
        values=_keys(
            observability__alerts={"enabled": "auto", "labels": {"release": "kube-prometheus-stack"}},
            observability__dashboards={"enabled": True, "labels": None, "annotations": None},
        ),
    ),
    "vllm-on-a-port-of-the-clusters-choice": Case(values=_keys(vllmService__nodePort=0)),
}
