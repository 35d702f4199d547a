# shellcheck shell=bash
# Any Kubernetes cluster: Prometheus is installed unless DEPLOY_PROMETHEUS=false. Read by deploy/install.sh.

environment_defaults() { own_prometheus_defaults; }

environment_commands() {
  [[ $DEPLOY_PROMETHEUS != true ]] ||
    need_command openssl 'it makes the certificate of Prometheus; or set DEPLOY_PROMETHEUS=false'
  [[ ${DEPLOY_LLM_D:-false} != true ]] ||
    warn 'DEPLOY_LLM_D=true has no effect in this environment: llm-d is not cloned or installed; follow its own guide'
}

prepare_cluster() { :; }

cluster_is_there() { :; }

environment_cluster() { own_prometheus_place; }

environment_namespace() { ensure_namespace "$1"; }

environment_prometheus() { :; }

environment_adapter_values() { printf 'prometheus-adapter-values.yaml'; }

environment_authority_key() { printf 'ca.crt'; }

environment_authority() { own_authority; }

environment_authority_places() { own_authority_places; }

deploy_workload() { :; }

undeploy_workload() { :; }

delete_cluster() { warn 'DELETE_CLUSTER=true has no effect in this environment: only a kind cluster is ever deleted'; }
