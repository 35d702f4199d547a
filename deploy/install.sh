#!/usr/bin/env bash
# Installs the Workload Variant Autoscaler and what it needs into a cluster, or removes it. Running it again changes
# nothing that is in place already. docs/install-script.md lists the variables; what the caller gave is never overwritten.
set -euo pipefail
umask 077

DEPLOY=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly DEPLOY
readonly CHART=${DEPLOY%/*}/charts/workload-variant-autoscaler
MISSING=()

# shellcheck source=lib/output.sh
. "$DEPLOY/lib/output.sh"
# shellcheck source=lib/settings.sh
. "$DEPLOY/lib/settings.sh"
# shellcheck source=lib/namespaces.sh
. "$DEPLOY/lib/namespaces.sh"
# shellcheck source=lib/prometheus.sh
. "$DEPLOY/lib/prometheus.sh"
# shellcheck source=lib/accelerators.sh
. "$DEPLOY/lib/accelerators.sh"
# shellcheck source=lib/chart.sh
. "$DEPLOY/lib/chart.sh"
# shellcheck source=lib/checks.sh
. "$DEPLOY/lib/checks.sh"

usage() {
  cat <<'TEXT'
Usage: deploy/install.sh [options]

  -i, --wva-image IMAGE      image of the controller, REPOSITORY:TAG or REPOSITORY@sha256:DIGEST   (IMG)
  -m, --model ID             model of the variant                                                  (MODEL_ID)
  -a, --accelerator NAME     accelerator of the variant                                            (ACCELERATOR_TYPE)
  -r, --release-name NAME    Helm release                                                          (WVA_RELEASE_NAME)
  -e, --environment NAME     kubernetes, openshift or kind-emulator                                (ENVIRONMENT)
  -u, --undeploy             remove instead of install                                             (UNDEPLOY)
      --dry-run              show what would be changed, change nothing                            (DRY_RUN)
  -h, --help                 this text

An option wins over its variable. All other settings are variables: docs/install-script.md.
TEXT
}

parse_options() {
  while [[ $# -gt 0 ]]; do
    case $1 in
    -i | --wva-image | -m | --model | -a | --accelerator | -r | --release-name | -e | --environment)
      [[ $# -ge 2 && -n $2 ]] || fail "$1 needs a value; see --help"
      take_option "$1" "$2"
      shift
      ;;
    -u | --undeploy) UNDEPLOY=true ;;
    --dry-run) DRY_RUN=true ;;
    -h | --help)
      usage
      exit 0
      ;;
    *) fail "unknown option $1; see --help" ;;
    esac
    shift
  done
}

# take_option OPTION VALUE: it goes before the variables that say the same.
# shellcheck disable=SC2034 # the variables are read by their names
take_option() {
  case $1 in
  -i | --wva-image)
    IMG=$2
    unset WVA_IMAGE_REPO WVA_IMAGE_TAG
    ;;
  -m | --model) MODEL_ID=$2 ;;
  -a | --accelerator) ACCELERATOR_TYPE=$2 ;;
  -r | --release-name) WVA_RELEASE_NAME=$2 ;;
  -e | --environment)
    ENVIRONMENT=$2
    unset CLUSTER_TYPE
    ;;
  esac
}

choose_environment() {
  if [[ ${CLUSTER_TYPE:-} == kind ]]; then
    [[ ${ENVIRONMENT:-kind-emulator} == kind-emulator ]] ||
      fail "CLUSTER_TYPE=kind and ENVIRONMENT=$ENVIRONMENT contradict each other; give one of them"
    ENVIRONMENT='kind-emulator'
  fi
  : "${ENVIRONMENT:=${CLUSTER_TYPE:-kubernetes}}"
  matches environment "$ENVIRONMENT" || fail "ENVIRONMENT=$ENVIRONMENT: expected $(expected environment)"
  # shellcheck source=kubernetes/install.sh
  . "$DEPLOY/$ENVIRONMENT/install.sh"
}

# What the caller gave, by option or variable, before anything has a default.
note_given() {
  local name kind
  GIVEN=
  while read -r name kind; do
    [[ -z ${!name:-} ]] || GIVEN+=" $name"
  done < <(known_settings)
}

set_defaults() {
  environment_defaults
  : "${WVA_NS:=workload-variant-autoscaler-system}"
  : "${LLMD_NS:=llm-d-inference-scheduler}"
  : "${WVA_RELEASE_NAME:=workload-variant-autoscaler}"
  : "${SKIP_TLS_VERIFY:=false}" "${SKIP_CHECKS:=false}" "${DRY_RUN:=false}" "${UNDEPLOY:=false}"
  : "${DEPLOY_PROMETHEUS:=true}" "${DEPLOY_WVA:=true}" "${DEPLOY_PROMETHEUS_ADAPTER:=true}"
  : "${DEPLOY_VA:=true}" "${DEPLOY_HPA:=true}" "${DEPLOY_LLM_D:=false}"
  : "${DELETE_NAMESPACES:=false}" "${DELETE_CLUSTER:=false}" "${WAIT_TIMEOUT:=120s}" "${VALUES_FILE:=}"
  KUBECTL=(kubectl)
  HELM=(helm)
  if [[ -n ${KUBE_CONTEXT:-} ]]; then
    KUBECTL+=(--context "$KUBE_CONTEXT")
    HELM+=(--kube-context "$KUBE_CONTEXT")
  fi
}

deploy() {
  if [[ $SKIP_CHECKS != true ]]; then
    check_commands
    prepare_cluster
    ! cluster_is_there || check_cluster
  else
    prepare_cluster
  fi
  find_accelerator
  say_missing
  step 'namespaces'
  if [[ $DEPLOY_WVA == true ]]; then
    environment_namespace "$WVA_NS"
    [[ $DEPLOY_VA != true ]] || environment_namespace "$LLMD_NS"
  fi
  [[ $DEPLOY_PROMETHEUS != true ]] || ensure_namespace "$MONITORING_NAMESPACE"
  [[ $DEPLOY_PROMETHEUS != true ]] || own_prometheus
  [[ $DEPLOY_WVA != true && $DEPLOY_PROMETHEUS_ADAPTER != true ]] || find_ca_file
  deploy_workload
  [[ $DEPLOY_WVA != true ]] || deploy_controller
  [[ $DEPLOY_PROMETHEUS_ADAPTER != true ]] || deploy_adapter
  say_done
}

say_done() {
  [[ $DRY_RUN != true ]] || return 0
  step 'done'
  [[ $DEPLOY_WVA != true ]] || say_target
  note "kubectl get variantautoscalings -n $LLMD_NS"
  note "kubectl get --raw /apis/external.metrics.k8s.io/v1beta1/namespaces/$LLMD_NS/wva_desired_replicas"
  note "kubectl logs -n $WVA_NS -l control-plane=controller-manager"
}

undeploy() {
  [[ $SKIP_CHECKS == true ]] || check_commands
  say_missing
  step 'removing'
  [[ $DEPLOY_WVA != true ]] || remove_release "$WVA_RELEASE_NAME" "$WVA_NS"
  undeploy_workload
  [[ $DEPLOY_PROMETHEUS_ADAPTER != true ]] || undeploy_adapter
  [[ $DEPLOY_PROMETHEUS != true ]] || undeploy_own_prometheus
  if [[ $DELETE_NAMESPACES == true ]]; then
    local namespace
    for namespace in "$WVA_NS" "$LLMD_NS" "$MONITORING_NAMESPACE"; do
      delete_namespace "$namespace"
    done
  fi
  note 'the kind VariantAutoscaling and its objects stay; to delete them all:' \
    'kubectl delete crd variantautoscalings.llmd.ai'
  [[ $DELETE_CLUSTER != true ]] || delete_cluster
}

main() {
  parse_options "$@"
  note_given
  choose_environment
  set_defaults
  check_settings
  warn_of_ignored
  WORK=$(mktemp -d)
  trap 'rm -rf "$WORK"' EXIT
  if [[ $UNDEPLOY == true ]]; then
    undeploy
  else
    deploy
  fi
}

main "$@"
