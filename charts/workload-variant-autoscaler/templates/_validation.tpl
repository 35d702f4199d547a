{{/* What a schema cannot say: values that contradict each other. Every message names the keys and what to do. */}}
{{- define "wva.validate" -}}
{{- $prometheus := .Values.wva.prometheus }}
{{- $problems := list }}
{{- if and (hasPrefix "http://" $prometheus.baseURL) (not $prometheus.allowHTTP) }}
{{- $problems = append $problems (printf "wva.prometheus.baseURL is %s: plain HTTP carries queries and token unencrypted; use https:// or set wva.prometheus.allowHTTP=true" $prometheus.baseURL) }}
{{- end }}
{{- $authorities := 0 }}
{{- range list $prometheus.caCert $prometheus.tls.caConfigMap $prometheus.tls.caSecret }}
{{- if . }}{{ $authorities = add1 $authorities }}{{ end }}
{{- end }}
{{- if gt (int $authorities) 1 }}
{{- $problems = append $problems "wva.prometheus.caCert, wva.prometheus.tls.caConfigMap and wva.prometheus.tls.caSecret each give the CA of Prometheus: set one of them" }}
{{- end }}
{{- if and $prometheus.caCert (not (contains "-----BEGIN CERTIFICATE-----" $prometheus.caCert)) }}
{{- $problems = append $problems "wva.prometheus.caCert holds no PEM certificate: give the text of the file, for example with --set-file wva.prometheus.caCert=ca.crt" }}
{{- end }}
{{- if and (eq $prometheus.token.source "secret") (not $prometheus.token.secretName) }}
{{- $problems = append $problems "wva.prometheus.token.source is secret: set wva.prometheus.token.secretName" }}
{{- end }}
{{- if and (eq .Values.wva.epp.tokenSource "secret") (not .Values.wva.epp.secretName) }}
{{- $problems = append $problems "wva.epp.tokenSource is secret: set wva.epp.secretName" }}
{{- end }}
{{- if and (gt (int .Values.wva.replicaCount) 1) (not .Values.wva.leaderElection.enabled) }}
{{- $problems = append $problems (printf "wva.replicaCount is %d without leader election: every pod would decide; set wva.leaderElection.enabled=true or one replica" (int .Values.wva.replicaCount)) }}
{{- end }}
{{- if and .Values.wva.watchNamespace (not .Values.wva.namespaceScoped) }}
{{- $problems = append $problems "wva.watchNamespace is set while wva.namespaceScoped is false: set wva.namespaceScoped=true, or leave it empty to watch all namespaces" }}
{{- end }}
{{- if and .Values.wva.scaleNamespaces .Values.wva.namespaceScoped }}
{{- $problems = append $problems "wva.scaleNamespaces is set while wva.namespaceScoped is true: the rights are in the watched namespace alone then; leave it empty" }}
{{- end }}
{{- if and .Values.wva.console.enabled (not (and .Values.wva.metrics.enabled .Values.wva.metrics.secure)) }}
{{- $problems = append $problems "wva.console.enabled needs wva.metrics.enabled=true and wva.metrics.secure=true: the console asks for a token as /metrics does" }}
{{- end }}
{{- if and .Values.wva.console.enabled (eq (int .Values.wva.console.port) (int .Values.wva.metrics.port)) }}
{{- $problems = append $problems (printf "wva.console.port and wva.metrics.port are both %d: set one of them to another port" (int .Values.wva.console.port)) }}
{{- end }}
{{- if and .Values.wva.kedaPush.enabled (not (and .Values.wva.metrics.enabled .Values.wva.metrics.secure)) }}
{{- $problems = append $problems "wva.kedaPush.enabled needs wva.metrics.enabled=true and wva.metrics.secure=true: KEDA asks over TLS, with the certificate of /metrics" }}
{{- end }}
{{- if and .Values.wva.kedaPush.enabled (eq (int .Values.wva.kedaPush.port) (int .Values.wva.metrics.port)) }}
{{- $problems = append $problems (printf "wva.kedaPush.port and wva.metrics.port are both %d: set one of them to another port" (int .Values.wva.kedaPush.port)) }}
{{- end }}
{{- if and .Values.wva.kedaPush.enabled .Values.wva.console.enabled (eq (int .Values.wva.kedaPush.port) (int .Values.wva.console.port)) }}
{{- $problems = append $problems (printf "wva.kedaPush.port and wva.console.port are both %d: set one of them to another port" (int .Values.wva.kedaPush.port)) }}
{{- end }}
{{- if and (not .Values.wva.serviceAccount.create) (not .Values.wva.serviceAccount.name) }}
{{- $problems = append $problems "wva.serviceAccount.create is false: set wva.serviceAccount.name to the ServiceAccount that exists, or let the chart make one" }}
{{- end }}
{{- if and .Values.wva.metrics.certificate.enabled (not (and .Values.wva.metrics.enabled .Values.wva.metrics.secure)) }}
{{- $problems = append $problems "wva.metrics.certificate.enabled needs wva.metrics.enabled=true and wva.metrics.secure=true: nothing else is served with the certificate" }}
{{- end }}
{{- if and .Values.wva.metrics.certificate.enabled (not .Values.wva.metrics.certificate.issuerRef.name) }}
{{- $problems = append $problems "wva.metrics.certificate.enabled is true: set wva.metrics.certificate.issuerRef.name to the Issuer of cert-manager, and its kind if it is a ClusterIssuer" }}
{{- end }}
{{- if and (include "wva.monitors" (list . .Values.vllmPodMonitor.enabled)) .Values.vllmService.enabled (include "wva.monitors" (list . .Values.vllmService.serviceMonitor.enabled)) }}
{{- $problems = append $problems "vllmPodMonitor.enabled and vllmService.serviceMonitor.enabled would scrape the same pods twice: set vllmService.serviceMonitor.enabled=false or vllmPodMonitor.enabled=false" }}
{{- end }}
{{- if and .Values.wva.limitedMode .Values.wva.namespaceScoped }}
{{- $problems = append $problems "wva.limitedMode needs the nodes, which a controller with wva.namespaceScoped=true may not read: set one of them to false" }}
{{- end }}
{{- if and (include "wva.controller" .) .Values.va.enabled (ne .Values.llmd.targetKind "Deployment") (not (has .Values.llmd.targetKind .Values.wva.targetKinds)) }}
{{- $problems = append $problems (printf "llmd.targetKind is %s, which wva.targetKinds does not have: add it, so that the controller may scale this kind" .Values.llmd.targetKind) }}
{{- end }}
{{- if gt (int .Values.hpa.minReplicas) (int .Values.hpa.maxReplicas) }}
{{- $problems = append $problems (printf "hpa.minReplicas is %d, above hpa.maxReplicas %d" (int .Values.hpa.minReplicas) (int .Values.hpa.maxReplicas)) }}
{{- end }}
{{- if and .Values.va.enabled .Values.va.serviceClass (not (hasKey .Values.wva.serviceClasses .Values.va.serviceClass)) }}
{{- $problems = append $problems (printf "va.serviceClass is %s, which wva.serviceClasses does not have: %s" .Values.va.serviceClass (keys .Values.wva.serviceClasses | sortAlpha | join ", ")) }}
{{- end }}
{{- if and (eq (include "wva.actuator" .) "keda") (not (include "wva.controller" .)) (not (and .Values.wva.metrics.job .Values.wva.metrics.namespace)) }}
{{- $problems = append $problems "actuator is keda and another release installs the controller: set wva.metrics.namespace to the controller's namespace and wva.metrics.job to the name of its Service of /metrics, so that KEDA takes the number from the controller and from no other pod" }}
{{- end }}
{{- with $problems }}
{{- fail (printf "\nthese values contradict each other:\n- %s" (join "\n- " .)) }}
{{- end }}
{{- end }}
