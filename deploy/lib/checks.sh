# shellcheck shell=bash
# What has to be there before anything is changed; all that is not is said at once.

readonly HELM_MAJOR=3

check_commands() {
  need_command kubectl 'install it from https://kubernetes.io/docs/tasks/tools/'
  need_command helm 'install version 3 or later from https://helm.sh/docs/intro/install/'
  environment_commands
  say_missing
  [[ $UNDEPLOY == true || $DEPLOY_WVA != true ]] || image_is_named ||
    missing "the image of the controller: no registry has the chart's; build and push one (docs/image.md), then give" \
      'IMG=REGISTRY/wva:TAG, or wva.image.repository in VALUES_FILE'
  local version
  version=$("${HELM[@]}" version --template '{{.Version}}' 2>/dev/null || true)
  [[ $version =~ ^v?([0-9]+) && ${BASH_REMATCH[1]} -ge $HELM_MAJOR ]] ||
    missing "helm: version $HELM_MAJOR or later, and this is ${version:-unknown}"
}

check_cluster() {
  local answer
  if ! answer=$("${KUBECTL[@]}" get --raw /version --request-timeout 20s 2>&1); then
    missing "a cluster: kubectl does not reach one (${answer%%$'\n'*}); set KUBECONFIG or KUBE_CONTEXT"
    say_missing
  fi
  check_right create namespaces
  check_right create customresourcedefinitions.apiextensions.k8s.io
  check_right create clusterroles.rbac.authorization.k8s.io
  environment_cluster
  check_kinds
  say_missing
}

check_right() {
  [[ $("${KUBECTL[@]}" auth can-i "$1" "$2" --all-namespaces 2>/dev/null || true) == yes ]] ||
    missing "the right to $1 $2: ask for cluster-admin, or ask a cluster administrator to install"
}

check_kinds() {
  if [[ $DEPLOY_PROMETHEUS != true ]] && ! served servicemonitors.monitoring.coreos.com; then
    missing "the kind ServiceMonitor: the Prometheus Operator is not installed, so Prometheus would not scrape WVA and vLLM"
  fi
  if ! served inferencepools.inference.networking.k8s.io && ! served inferencepools.inference.networking.x-k8s.io; then
    note 'InferencePools are not served: nothing scales from zero until they are'
  fi
}

# served CRD
served() { [[ -n $("${KUBECTL[@]}" get customresourcedefinition "$1" --ignore-not-found --output name 2>/dev/null || true) ]]; }

# check_target: a variant without its Deployment waits for it; that is said, and no error.
say_target() {
  local target=${LLM_D_MODELSERVICE_NAME:-ms-inference-scheduling-llm-d-modelservice}-decode
  [[ $DEPLOY_VA == true && -z ${VALUES_FILE:-} ]] || return 0
  [[ -n $("${KUBECTL[@]}" get deployment "$target" --namespace "$LLMD_NS" --ignore-not-found --output name 2>/dev/null || true) ]] ||
    note "Deployment $target is not in $LLMD_NS: the variant waits for it (TargetResolved=False)"
}
