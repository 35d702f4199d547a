{{/* (list $ kind name namespace): the binding of a role to the controller; kind is Role or ClusterRole. */}}
{{- define "wva.binding" -}}
{{- $root := index . 0 }}
{{- $kind := index . 1 }}
{{- $name := printf "%s-%s" (include "wva.fullname" $root) (index . 2) }}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ trimSuffix "-role" $name }}-rolebinding
  {{- with index . 3 }}
  namespace: {{ . | quote }}
  {{- end }}
  labels:
    {{- include "wva.labels" $root | nindent 4 }}
  {{- include "wva.annotations" (list $root) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ $name | quote }}
subjects:
  - kind: ServiceAccount
    name: {{ include "wva.serviceAccountName" $root | quote }}
    namespace: {{ $root.Release.Namespace | quote }}
{{- end }}

{{/* (list $ name namespace): head of a role; without a namespace of a ClusterRole. */}}
{{- define "wva.role" -}}
{{- $root := index . 0 }}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ ternary "ClusterRole" "Role" (empty (index . 2)) }}
metadata:
  name: {{ include "wva.fullname" $root }}-{{ index . 1 }}
  {{- with index . 2 }}
  namespace: {{ . | quote }}
  {{- end }}
  labels:
    {{- include "wva.labels" $root | nindent 4 }}
    {{- range $key, $value := slice . 3 | first | default dict }}
    {{ $key }}: {{ $value | quote }}
    {{- end }}
  {{- include "wva.annotations" (list $root) | nindent 2 }}
{{- end }}

{{/* What namespaces say for themselves: the ConfigMaps of these names and no others. */}}
{{- define "wva.localConfigMaps" -}}
- apiGroups: [""]
  resources: [configmaps]
  resourceNames:
    {{- range uniq (list (include "wva.saturationConfigMap" .) "wva-saturation-scaling-config" "saturation-scaling-config" "capacity-scaling-config" "wva-model-scale-to-zero-config" "model-scale-to-zero-config" "wva-queueing-model-config") }}
    - {{ . }}
    {{- end }}
  verbs: [list, watch]
{{- end }}
