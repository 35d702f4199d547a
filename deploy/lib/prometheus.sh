# shellcheck shell=bash
# Prometheus over HTTPS, its CA, and the adapter that makes the number an external metric.

readonly CHARTS=https://prometheus-community.github.io/helm-charts
readonly STACK=kube-prometheus-stack
readonly ADAPTER=prometheus-adapter
readonly EXTERNAL=v1beta1.external.metrics.k8s.io
readonly RENEW_SECONDS=2592000 # a certificate that ends within 30 days is made anew

# own_prometheus_defaults: a Prometheus that this script installs, or one that was installed the same way.
own_prometheus_defaults() {
  [[ -z ${PROMETHEUS_URL:-} ]] || : "${DEPLOY_PROMETHEUS:=false}" # the caller has one
  : "${MONITORING_NAMESPACE:=workload-variant-autoscaler-monitoring}"
  : "${PROMETHEUS_SECRET_NAME:=prometheus-web-tls}"
  : "${PROMETHEUS_SECRET_NS:=$MONITORING_NAMESPACE}"
  : "${PROMETHEUS_URL:=https://$STACK-prometheus.$MONITORING_NAMESPACE.svc.cluster.local:9090}"
  [[ ${DEPLOY_PROMETHEUS:-true} != true || $PROMETHEUS_SECRET_NS == "$MONITORING_NAMESPACE" ]] ||
    fail "PROMETHEUS_SECRET_NS=$PROMETHEUS_SECRET_NS: a Prometheus that is installed here reads its certificate in" \
      "MONITORING_NAMESPACE=$MONITORING_NAMESPACE; leave it out, or set DEPLOY_PROMETHEUS=false"
}

# own_prometheus_place: without an installation of Prometheus its namespace must exist.
own_prometheus_place() {
  [[ $DEPLOY_PROMETHEUS == true ]] || namespace_is_there "$MONITORING_NAMESPACE" ||
    missing "the namespace of Prometheus: there is no $MONITORING_NAMESPACE; set MONITORING_NAMESPACE"
}

own_authority_places() { printf 'it is not in Secret %s/%s' "$PROMETHEUS_SECRET_NS" "$PROMETHEUS_SECRET_NAME"; }

# The parts of the URL, for the adapter, which wants them apart.
prometheus_host() {
  local rest=${PROMETHEUS_URL#https://}
  rest=${rest%/}
  printf 'https://%s' "${rest%%:*}"
}
prometheus_port() {
  local rest=${PROMETHEUS_URL#https://}
  rest=${rest%/}
  [[ $rest == *:* ]] && printf '%s' "${rest##*:}" || printf '443'
}

# fetch KIND NAME NAMESPACE PATH: one field of a ConfigMap or Secret; empty when there is none.
fetch() {
  "${KUBECTL[@]}" get "$1" "$2" --namespace "$3" --ignore-not-found --output "jsonpath=$4" 2>/dev/null || true
}

# fetch_certificate NAME NAMESPACE [PATH]: `tls.crt` of a Secret, decoded; the key is never read.
fetch_certificate() {
  local path=${3:-}
  [[ -n $path ]] || path='{.data.tls\.crt}'
  fetch secret "$1" "$2" "$path" | base64 -d 2>/dev/null || true
}

own_prometheus() {
  step "Prometheus: release $STACK in $MONITORING_NAMESPACE"
  serving_certificate
  local version=()
  [[ -z ${PROMETHEUS_STACK_VERSION:-} ]] || version=(--version "$PROMETHEUS_STACK_VERSION")
  change "${HELM[@]}" upgrade --install "$STACK" "$STACK" --repo "$CHARTS" --namespace "$MONITORING_NAMESPACE" \
    --values "$DEPLOY/lib/kube-prometheus-stack-values.yaml" --wait --timeout 10m \
    --set-string "prometheus.prometheusSpec.web.tlsConfig.keySecret.name=$PROMETHEUS_SECRET_NAME" \
    --set-string "prometheus.prometheusSpec.web.tlsConfig.cert.secret.name=$PROMETHEUS_SECRET_NAME" \
    ${version[@]+"${version[@]}"}
}

# The certificate that Prometheus serves: one that is there is kept until it is about to end.
serving_certificate() {
  local now=$WORK/serving.crt
  fetch_certificate "$PROMETHEUS_SECRET_NAME" "$PROMETHEUS_SECRET_NS" >"$now"
  if [[ -s $now ]]; then
    if openssl x509 -checkend "$RENEW_SECONDS" -noout -in "$now" >/dev/null; then
      note "Secret $PROMETHEUS_SECRET_NAME is there: its certificate is kept"
      return 0
    fi
    if [[ $(fetch secret "$PROMETHEUS_SECRET_NAME" "$PROMETHEUS_SECRET_NS" "$OURS_PATH") != "${OURS#*=}" ]]; then
      warn "the certificate in Secret $PROMETHEUS_SECRET_NAME ends within 30 days; this script did not make it, so renew it yourself"
      return 0
    fi
    note "the certificate in Secret $PROMETHEUS_SECRET_NAME ends within 30 days: it is made anew"
    change "${KUBECTL[@]}" delete secret "$PROMETHEUS_SECRET_NAME" --namespace "$PROMETHEUS_SECRET_NS"
  fi
  local base=$STACK-prometheus names
  names="DNS:$base,DNS:$base.$MONITORING_NAMESPACE,DNS:$base.$MONITORING_NAMESPACE.svc"
  names+=",DNS:$base.$MONITORING_NAMESPACE.svc.cluster.local,DNS:prometheus,DNS:localhost"
  change openssl req -x509 -newkey rsa:2048 -nodes -sha256 -days 365 -subj "/CN=$base" \
    -addext "subjectAltName=$names" -addext 'extendedKeyUsage=serverAuth' \
    -addext 'keyUsage=critical,digitalSignature,keyEncipherment,keyCertSign' \
    -keyout "$WORK/tls.key" -out "$WORK/tls.crt"
  change "${KUBECTL[@]}" create secret tls "$PROMETHEUS_SECRET_NAME" --namespace "$PROMETHEUS_SECRET_NS" \
    --cert "$WORK/tls.crt" --key "$WORK/tls.key"
  change "${KUBECTL[@]}" label secret "$PROMETHEUS_SECRET_NAME" --namespace "$PROMETHEUS_SECRET_NS" "$OURS"
}

# own_authority: the CA of that Prometheus to standard output. Its certificate signed itself, so it is its own CA, unless
# the Secret came from an issuer that left its CA beside it.
own_authority() {
  local authority
  authority=$(fetch_certificate "$PROMETHEUS_SECRET_NAME" "$PROMETHEUS_SECRET_NS" '{.data.ca\.crt}')
  [[ -n $authority ]] || authority=$(fetch_certificate "$PROMETHEUS_SECRET_NAME" "$PROMETHEUS_SECRET_NS")
  [[ -z $authority ]] || printf '%s\n' "$authority"
}

# find_ca_file: CA_FILE is the caller's file, else what the environment finds, else empty.
find_ca_file() {
  CA_FILE=
  if [[ -n ${PROM_CA_CERT_PATH:-} ]]; then
    CA_FILE=$PROM_CA_CERT_PATH
  else
    environment_authority >"$WORK/ca.crt"
    [[ ! -s $WORK/ca.crt ]] || CA_FILE=$WORK/ca.crt
  fi
  if [[ -n $CA_FILE ]]; then
    check_ca_file
  elif [[ $DRY_RUN == true && $DEPLOY_PROMETHEUS == true ]]; then
    CA_FILE=$WORK/tls.crt
  elif [[ $SKIP_TLS_VERIFY != true || $DEPLOY_PROMETHEUS_ADAPTER == true ]]; then
    fail "the CA of Prometheus is not known: $(environment_authority_places). Set PROM_CA_CERT_PATH to a PEM file;" \
      'for a try without it: SKIP_TLS_VERIFY=true and DEPLOY_PROMETHEUS_ADAPTER=false, as the adapter cannot do without'
  fi
}

# It becomes a ConfigMap that everybody may read: certificates only.
check_ca_file() {
  grep -q -- '-----BEGIN CERTIFICATE-----' "$CA_FILE" || fail "$CA_FILE has no PEM certificate"
  ! grep -q -- 'PRIVATE KEY-----' "$CA_FILE" || fail "$CA_FILE has a private key in it; give the certificate alone"
}

deploy_adapter() {
  step "adapter: release $ADAPTER in $MONITORING_NAMESPACE"
  local backend
  backend=$(external_metrics_backend)
  if [[ -n $backend && $backend != "$MONITORING_NAMESPACE/$ADAPTER" ]]; then
    warn "external metrics are served by $backend, and a cluster has one server of them: the adapter is not installed." \
      "With KEDA use a ScaledObject (actuator: keda in the chart), and set DEPLOY_PROMETHEUS_ADAPTER=false"
    return 0
  fi
  local version=()
  [[ -z ${PROMETHEUS_ADAPTER_VERSION:-} ]] || version=(--version "$PROMETHEUS_ADAPTER_VERSION")
  adapter_authority
  change "${HELM[@]}" upgrade --install "$ADAPTER" "$ADAPTER" --repo "$CHARTS" --namespace "$MONITORING_NAMESPACE" \
    --values "$(adapter_values)" --set-string "prometheus.url=$(prometheus_host)" \
    --set "prometheus.port=$(prometheus_port)" ${version[@]+"${version[@]}"}
}

# metrics_job: what Prometheus calls the controller, which is the name of the Service that the chart makes.
metrics_job() {
  local name=$WVA_RELEASE_NAME
  [[ $name == *workload-variant-autoscaler* ]] || name+=-workload-variant-autoscaler
  name=${name:0:55}
  printf '%s-metrics' "${name%-}"
}

# adapter_values: the values of the environment. Their rules name the target of the controller by namespace and job.
adapter_values() {
  local sample job
  sample=$DEPLOY/samples/$(environment_adapter_values)
  job=$(metrics_job)
  if [[ $WVA_NS/$job == workload-variant-autoscaler-system/workload-variant-autoscaler-metrics ]]; then
    printf '%s' "$sample"
    return 0
  fi
  sed -e "s/namespace=\"workload-variant-autoscaler-system\"/namespace=\"$WVA_NS\"/g" \
    -e "s/job=\"workload-variant-autoscaler-metrics\"/job=\"$job\"/g" "$sample" >"$WORK/adapter-values.yaml"
  printf '%s' "$WORK/adapter-values.yaml"
}

# external_metrics_backend: NAMESPACE/NAME of the Service behind external metrics; empty when there is none.
external_metrics_backend() {
  "${KUBECTL[@]}" get apiservice "$EXTERNAL" --ignore-not-found \
    --output 'jsonpath={.spec.service.namespace}/{.spec.service.name}' 2>/dev/null || true
}

# The adapter mounts its CA from the ConfigMap prometheus-ca; the values of the environment say under which key.
adapter_authority() {
  local manifest key
  key=$(environment_authority_key)
  if [[ $DRY_RUN == true && ! -e $CA_FILE ]]; then
    change "${KUBECTL[@]}" create configmap prometheus-ca --namespace "$MONITORING_NAMESPACE" --from-file "$key=$CA_FILE"
    return 0
  fi
  manifest=$("${KUBECTL[@]}" create configmap prometheus-ca --namespace "$MONITORING_NAMESPACE" \
    --from-file "$key=$CA_FILE" --dry-run=client --output yaml)
  change_with "$manifest" "${KUBECTL[@]}" apply --filename -
}

undeploy_adapter() {
  remove_release "$ADAPTER" "$MONITORING_NAMESPACE"
  change "${KUBECTL[@]}" delete configmap prometheus-ca --namespace "$MONITORING_NAMESPACE" --ignore-not-found
}

# The certificate stays: the next installation uses it, and another program may use it too.
undeploy_own_prometheus() { remove_release "$STACK" "$MONITORING_NAMESPACE"; }
