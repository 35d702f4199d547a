{{/* "true" when the chart mounts a CA of Prometheus: one that is given by value, ConfigMap or Secret. */}}
{{- define "wva.ca.mounted" -}}
{{- with .Values.wva.prometheus }}
{{- if or .caCert .tls.caConfigMap .tls.caSecret }}true{{ end }}
{{- end }}
{{- end }}

{{/* The file with the CA: where the chart mounts one, else a file of the image or of a volume that the user mounts. */}}
{{- define "wva.ca.path" -}}
{{- $path := .Values.wva.prometheus.tls.caCertPath }}
{{- if include "wva.ca.mounted" . }}
{{- default "/etc/wva/prometheus-ca/ca.crt" $path }}
{{- else if not (include "wva.ca.dropped" .) }}
{{- $path }}
{{- end }}
{{- end }}

{{/* "true" for the default path of version 0.5 without a CA: values of 0.5 have it, and no such file is there. */}}
{{- define "wva.ca.dropped" -}}
{{- $path := .Values.wva.prometheus.tls.caCertPath }}
{{- if and (eq $path "/etc/ssl/certs/prometheus-ca.crt") (not (include "wva.ca.mounted" .)) }}
{{- $own := false }}
{{- range .Values.wva.extraVolumeMounts }}
{{- if or (eq $path .mountPath) (hasPrefix (printf "%s/" (trimSuffix "/" .mountPath)) $path) }}{{ $own = true }}{{ end }}
{{- end }}
{{- if not $own }}true{{ end }}
{{- end }}
{{- end }}

{{/* Namespaces that get a copy of the CA. That of OpenShift's monitoring is there on OpenShift only. */}}
{{- define "wva.ca.namespaces" -}}
{{- $monitoring := .Values.wva.prometheus.monitoringNamespace }}
{{- $openshift := .Capabilities.APIVersions.Has "config.openshift.io/v1" }}
{{- $namespaces := list .Release.Namespace }}
{{- if or $openshift (not (hasPrefix "openshift-" $monitoring)) }}
{{- $namespaces = append $namespaces $monitoring | uniq }}
{{- end }}
{{- toJson $namespaces }}
{{- end }}

{{- define "wva.ca.configMap" -}}
{{ include "wva.fullname" . }}-prometheus-ca
{{- end }}

{{/* Host of the URL of Prometheus. */}}
{{- define "wva.prometheus.host" -}}
{{- regexReplaceAll "^https?://(\\[[^]]*\\]|[^:/]*).*$" .Values.wva.prometheus.baseURL "${1}" }}
{{- end }}

{{/* Namespace of the Service that the URL names; empty when it names none. */}}
{{- define "wva.prometheus.namespace" -}}
{{- $host := include "wva.prometheus.host" . }}
{{- if regexMatch "^[^.]+\\.[^.]+\\.svc(\\..*)?$" $host }}{{ index (splitList "." $host) 1 }}{{ end }}
{{- end }}

{{- define "wva.prometheus.port" -}}
{{- $url := .Values.wva.prometheus.baseURL }}
{{- $port := regexFind ":[0-9]+(/|$)" $url | trimAll ":/" }}
{{- default (ternary "443" "80" (hasPrefix "https://" $url)) $port }}
{{- end }}

{{/* Where the PROMETHEUS_ settings come from: the main ConfigMap. These are read at the start only. */}}
{{- define "wva.config.connection" -}}
{{- with .Values.wva.prometheus -}}
PROMETHEUS_BASE_URL: {{ .baseURL | quote }}
PROMETHEUS_TLS_INSECURE_SKIP_VERIFY: {{ .tls.insecureSkipVerify | quote }}
{{- if .allowHTTP }}
PROMETHEUS_ALLOW_HTTP: "true"
{{- end }}
{{- with include "wva.ca.path" $ }}
PROMETHEUS_CA_CERT_PATH: {{ . | quote }}
{{- end }}
{{- if .tls.clientSecret }}
PROMETHEUS_CLIENT_CERT_PATH: /etc/wva/prometheus-client/tls.crt
PROMETHEUS_CLIENT_KEY_PATH: /etc/wva/prometheus-client/tls.key
{{- end }}
{{- with .serverName }}
PROMETHEUS_SERVER_NAME: {{ . | quote }}
{{- end }}
{{- if ne .token.source "none" }}
PROMETHEUS_TOKEN_PATH: {{ .token.path | quote }}
{{- end }}
{{- if .headers.secretName }}
PROMETHEUS_HEADERS_PATH: /etc/wva/prometheus-headers/headers
{{- end }}
{{- if .parameters.secretName }}
PROMETHEUS_PARAMETERS_PATH: /etc/wva/prometheus-parameters/parameters
{{- end }}
{{- end }}
{{- end }}

{{/* Settings that are read at the start only: when they change the pods are replaced. */}}
{{- define "wva.config.static" -}}
{{ include "wva.config.connection" . }}
WVA_SCALE_TO_ZERO: {{ .Values.wva.scaleToZero | quote }}
WVA_LIMITED_MODE: {{ .Values.wva.limitedMode | quote }}
WVA_NODE_SELECTOR: {{ .Values.wva.nodeSelector | quote }}
{{- with .Values.wva.poolGroup }}
POOL_GROUP: {{ . | quote }}
{{- end }}
{{- with .Values.wva.targetKinds }}
WVA_TARGET_KINDS: {{ join "," . | quote }}
{{- end }}
{{- with .Values.wva.roleLabels }}
WVA_ROLE_LABELS: {{ join "," . | quote }}
{{- end }}
{{- with .Values.wva.roleValues }}
{{- $pairs := list }}
{{- range $value, $role := . }}
{{- $pairs = append $pairs (printf "%s=%s" $value $role) }}
{{- end }}
WVA_ROLE_VALUES: {{ join "," $pairs | quote }}
{{- end }}
{{- if .Values.wva.directActuation }}
WVA_DIRECT_ACTUATION: "true"
{{- end }}
SCALE_FROM_ZERO_ENGINE_MAX_CONCURRENCY: {{ int .Values.wva.scaleFromZeroMaxConcurrency | quote }}
EXPERIMENTAL_PROACTIVE_MODEL: {{ .Values.wva.proactiveModel | quote }}
WVA_INFERNO_METRIC_ALIASES: {{ .Values.wva.infernoMetricAliases | quote }}
LOG_ENCODING: {{ .Values.wva.logging.encoding | quote }}
{{- end }}

{{/* Settings that are followed while the process runs. */}}
{{- define "wva.config.live" -}}
GLOBAL_OPT_INTERVAL: {{ .Values.wva.reconcileInterval | quote }}
LOG_LEVEL: {{ .Values.wva.logging.level | quote }}
{{- with .Values.wva.prometheus.metricsCache }}
PROMETHEUS_METRICS_CACHE_ENABLED: {{ .enabled | quote }}
PROMETHEUS_METRICS_CACHE_MAX_SIZE: {{ int .maxSize | quote }}
{{- range $key, $value := dict "TTL" .ttl "CLEANUP_INTERVAL" .cleanupInterval "FETCH_INTERVAL" .fetchInterval "FRESH_THRESHOLD" .freshThreshold "STALE_THRESHOLD" .staleThreshold "UNAVAILABLE_THRESHOLD" .unavailableThreshold }}
PROMETHEUS_METRICS_CACHE_{{ $key }}: {{ $value | quote }}
{{- end }}
{{- end }}
{{- end }}
