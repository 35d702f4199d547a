# shellcheck shell=bash
# OpenShift: its own monitoring (Thanos) is used, nothing of it is installed or removed. Read by deploy/install.sh.

readonly USER_MONITORING=openshift.io/user-monitoring=true

environment_defaults() {
  : "${MONITORING_NAMESPACE:=openshift-user-workload-monitoring}"
  : "${PROMETHEUS_URL:=https://thanos-querier.openshift-monitoring.svc.cluster.local:9091}"
  : "${DEPLOY_PROMETHEUS:=false}"
  [[ $DEPLOY_PROMETHEUS != true ]] ||
    fail 'DEPLOY_PROMETHEUS=true: OpenShift has its own Prometheus; expected false, which is the default here'
}

environment_commands() {
  [[ ${DEPLOY_LLM_D:-false} != true ]] ||
    warn 'DEPLOY_LLM_D=true has no effect in this environment: llm-d is not cloned or installed; follow its own guide'
}

prepare_cluster() { :; }

cluster_is_there() { :; }

environment_cluster() {
  served clusterversions.config.openshift.io ||
    missing 'OpenShift: this cluster serves no config.openshift.io; use ENVIRONMENT=kubernetes'
  namespace_is_there "$MONITORING_NAMESPACE" ||
    missing "monitoring of user workloads: there is no namespace $MONITORING_NAMESPACE; set enableUserWorkload: true in" \
      'ConfigMap cluster-monitoring-config of openshift-monitoring'
}

environment_namespace() { ensure_namespace "$1" "$USER_MONITORING"; }

# The adapter asks Thanos with its own ServiceAccount, which the chart lets it do.
environment_prometheus() { [[ $DEPLOY_PROMETHEUS_ADAPTER != true ]] || printf 'serviceAccountName: "%s"' "$ADAPTER"; }

environment_adapter_values() { printf 'prometheus-adapter-values-openshift.yaml'; }

environment_authority_key() { printf 'service-ca.crt'; }

# The service CA first: it lasts. The certificate of Thanos itself, the last resort, is renewed often.
environment_authority() {
  local found
  found=$(fetch configmap openshift-service-ca.crt openshift-monitoring '{.data.service-ca\.crt}')
  [[ -n $found ]] || found=$(fetch configmap openshift-service-ca openshift-config '{.data.service-ca\.crt}')
  [[ -n $found ]] || found=$(fetch_certificate thanos-querier-tls openshift-monitoring)
  [[ -z $found ]] || printf '%s\n' "$found"
}

environment_authority_places() {
  printf '%s' 'it is neither in ConfigMap openshift-monitoring/openshift-service-ca.crt, nor in ConfigMap' \
    ' openshift-config/openshift-service-ca, nor in Secret openshift-monitoring/thanos-querier-tls'
}

deploy_workload() { :; }

undeploy_workload() { :; }

delete_cluster() { warn 'DELETE_CLUSTER=true has no effect in this environment: only a kind cluster is ever deleted'; }
