{{/* Names. A name is cut so that it is valid where it is used: 63 characters for Services and label values. */}}
{{- define "wva.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "wva.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (default .Chart.Name .Values.nameOverride) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (default .Chart.Name .Values.nameOverride) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* (list $ "suffix"): the full name with a suffix, of at most 63 characters. */}}
{{- define "wva.named" -}}
{{- $root := index . 0 }}
{{- $suffix := index . 1 }}
{{- $room := int (sub 62 (len $suffix)) }}
{{- printf "%s-%s" (include "wva.fullname" $root | trunc $room | trimSuffix "-") $suffix }}
{{- end }}

{{- define "wva.serviceAccountName" -}}
{{- default (printf "%s-controller-manager" (include "wva.fullname" .)) .Values.wva.serviceAccount.name }}
{{- end }}

{{/* The Secrets with which the image is pulled: on the ServiceAccount if the chart makes it, else on the pods. Empty is none. */}}
{{- define "wva.imagePullSecrets" -}}
{{- $secrets := .Values.wva.imagePullSecrets }}
{{- with .Values.wva.imagePullSecret }}
{{- $secrets = prepend $secrets (dict "name" .) }}
{{- end }}
{{- with $secrets }}
imagePullSecrets:
  {{- range uniq . }}
  - name: {{ .name | quote }}
  {{- end }}
{{- end }}
{{- end }}

{{/* The Secret with the certificate of /metrics: one that exists, or the one that cert-manager writes; empty is none. */}}
{{- define "wva.certSecret" -}}
{{- with .Values.wva.metrics }}
{{- if .certSecret }}
{{- .certSecret }}
{{- else if .certificate.enabled }}
{{- include "wva.named" (list $ "metrics-tls") }}
{{- end }}
{{- end }}
{{- end }}

{{- define "wva.readerName" -}}
{{ include "wva.fullname" . }}-metrics-reader
{{- end }}

{{- define "wva.selectorLabels" -}}
app.kubernetes.io/name: {{ include "wva.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "wva.podSelectorLabels" -}}
{{ include "wva.selectorLabels" . }}
control-plane: controller-manager
{{- end }}

{{- define "wva.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "wva.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* (list $ annotations ...): common and own annotations, the later ones win; nothing when there are none. */}}
{{- define "wva.annotations" -}}
{{- $root := index . 0 }}
{{- $all := dict }}
{{- range rest . }}
{{- $all = merge $all (default dict .) }}
{{- end }}
{{- $all = merge $all (default dict $root.Values.commonAnnotations) }}
{{- with $all }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What Prometheus calls the controller as a target. A page of another pod cannot have these two labels. */}}
{{- define "wva.metricsJob" -}}
{{- default (include "wva.named" (list . "metrics")) .Values.wva.metrics.job }}
{{- end }}

{{- define "wva.metricsNamespace" -}}
{{- default .Release.Namespace .Values.wva.metrics.namespace }}
{{- end }}

{{/* The matchers of a selector that takes the controller's series only. */}}
{{- define "wva.metricsTarget" -}}
{{ printf "job=%q,namespace=%q" (include "wva.metricsJob" .) (include "wva.metricsNamespace" .) }}
{{- end }}

{{/* "true" when the controller is installed by this release. */}}
{{- define "wva.controller" -}}
{{- if and .Values.controller.enabled .Values.wva.enabled }}true{{ end }}
{{- end }}

{{- define "wva.image" -}}
{{- with .Values.wva.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end }}
{{- end }}

{{- define "wva.target" -}}
{{- default (printf "%s-decode" .Values.llmd.modelName) .Values.llmd.deploymentName }}
{{- end }}

{{/* The one expression for what is scaled: the variant and its scaler name the same object. */}}
{{- define "wva.targetReference" -}}
apiVersion: {{ ternary "leaderworkerset.x-k8s.io/v1" "apps/v1" (eq .Values.llmd.targetKind "LeaderWorkerSet") }}
kind: {{ .Values.llmd.targetKind }}
name: {{ include "wva.target" . | quote }}
{{- end }}

{{- define "wva.variant" -}}
{{ include "wva.named" (list . "va") }}
{{- end }}

{{/* hpa, keda or none: what this release applies the number with. */}}
{{- define "wva.actuator" -}}
{{- if and (eq .Values.actuator "hpa") (not .Values.hpa.enabled) }}none{{ else }}{{ .Values.actuator }}{{ end }}
{{- end }}

{{/*
"true" when the controller of this release has the demand analyzer or the queueing model for all models or for some: nothing else
reads objectives.
*/}}
{{- define "wva.readsObjectives" -}}
{{- $analyzers := list (include "wva.analyzer" .) }}
{{- range .Values.wva.capacityScaling.overrides }}
{{- $analyzers = append $analyzers (default "" .analyzerName) }}
{{- end }}
{{- if or (has "demand" $analyzers) (has "queueing" $analyzers) .Values.wva.proactiveModel .Values.wva.queueingModel.default .Values.wva.queueingModel.overrides }}true{{ end }}
{{- end }}

{{/* hpa.behavior. `--set hpa.behavior.scaleUp.policies[0].value=5` makes a policy of this one key; the others keep their defaults. */}}
{{- define "wva.behavior" -}}
{{- $behavior := dict }}
{{- range $direction, $rules := .Values.hpa.behavior }}
{{- $policies := list }}
{{- range $rules.policies }}
{{- $policies = append $policies (merge (dict) . (dict "type" "Pods" "value" 10 "periodSeconds" 150)) }}
{{- end }}
{{- $_ := set $behavior $direction (merge (dict "policies" $policies) $rules) }}
{{- end }}
{{- toYaml $behavior }}
{{- end }}

{{/* The namespace that a namespace-scoped controller watches; empty is all. */}}
{{- define "wva.watchNamespace" -}}
{{- if .Values.wva.namespaceScoped }}
{{- default (ternary .Values.llmd.namespace .Release.Namespace .Values.va.enabled) .Values.wva.watchNamespace }}
{{- end }}
{{- end }}

{{/* (list $ switch): "true" when a switch of true, false or auto says to use the prometheus-operator's kinds. */}}
{{- define "wva.monitors" -}}
{{- $root := index . 0 }}
{{- $switch := toString (index . 1) }}
{{- if or (eq $switch "true") (and (eq $switch "auto") ($root.Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) }}true{{ end }}
{{- end }}

{{/* What a monitor says of its scrapes beside their interval; empty fields are left out. */}}
{{- define "wva.scrape" -}}
{{- with .scrapeTimeout }}
scrapeTimeout: {{ . | quote }}
{{- end }}
{{- with .relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "wva.openshiftView" -}}
{{- $switch := toString .Values.wva.prometheus.clusterMonitoringView }}
{{- if or (eq $switch "true") (and (eq $switch "auto") (.Capabilities.APIVersions.Has "config.openshift.io/v1")) }}true{{ end }}
{{- end }}

{{/* The ConfigMaps. */}}
{{- define "wva.mainConfigMap" -}}
{{ include "wva.fullname" . }}-variantautoscaling-config
{{- end }}

{{- define "wva.saturationConfigMap" -}}
{{- default (printf "%s-wva-saturation-scaling-config" (include "wva.fullname" .)) .Values.wva.configMap.saturationName }}
{{- end }}

{{- define "wva.serviceClassConfigMap" -}}
{{ include "wva.fullname" . }}-service-classes-config
{{- end }}

{{/* An entry of a ConfigMap from values: modelID is model_id there, the rest has the same name. `--set` makes a text of 0.5. */}}
{{- define "wva.entry" -}}
{{- $entry := dict }}
{{- range $key, $value := . }}
{{- $name := get (dict "modelID" "model_id" "enabled" "enable_scale_to_zero" "retentionPeriod" "retention_period") $key }}
{{- if and (kindIs "string" $value) (not (has $key (list "modelID" "namespace" "acc"))) (regexMatch "^[0-9]+([.][0-9]+)?$" $value) }}
{{- $value = float64 $value }}
{{- end }}
{{- if not (and (kindIs "string" $value) (empty $value)) }}
{{- $_ := set $entry (default $key $name) $value }}
{{- end }}
{{- end }}
{{- toYaml $entry }}
{{- end }}

{{/*
Analyzer of the entry `default` of the saturation ConfigMap. `auto` is the demand analyzer. Where thresholds are not those of
values.yaml, or an optimizer is named, it is none: the controller then takes the percentage analyzer, for which they are.
*/}}
{{- define "wva.analyzer" -}}
{{- $entry := .Values.wva.capacityScaling.default }}
{{- if ne (default "" $entry.analyzerName) "auto" }}
{{- $entry.analyzerName }}
{{- else }}
{{- $found := ternary "" "demand" (not (empty $entry.optimizerName)) }}
{{- range $key, $shipped := dict "kvCacheThreshold" 0.8 "queueLengthThreshold" 5 "kvSpareTrigger" 0.1 "queueSpareTrigger" 3 }}
{{- if and (hasKey $entry $key) (ne (float64 (get $entry $key)) (float64 $shipped)) }}
{{- $found = "" }}
{{- end }}
{{- end }}
{{- $found }}
{{- end }}
{{- end }}

{{/* Data of a ConfigMap with `default` and `overrides`. */}}
{{- define "wva.entries" -}}
{{- with .default }}
default: |
  {{- include "wva.entry" . | nindent 2 }}
{{- end }}
{{- range $name, $entry := .overrides }}
{{ $name }}: |
  {{- include "wva.entry" $entry | nindent 2 }}
{{- end }}
{{- end }}

{{/* The right to scale the targets of variants. */}}
{{- define "wva.scaleRules" -}}
- apiGroups: [apps]
  resources: [deployments/scale]
  verbs: [patch]
{{- if has "StatefulSet" .Values.wva.targetKinds }}
- apiGroups: [apps]
  resources: [statefulsets/scale]
  verbs: [patch]
{{- end }}
{{- if has "LeaderWorkerSet" .Values.wva.targetKinds }}
- apiGroups: [leaderworkerset.x-k8s.io]
  resources: [leaderworkersets/scale]
  verbs: [patch]
{{- end }}
{{- end }}
