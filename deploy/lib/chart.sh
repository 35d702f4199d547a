# shellcheck shell=bash
# The controller's release. The order of its values: the chart's, then what this script had to choose or find out, then
# the caller's VALUES_FILE, then the caller's variables and options. So nothing that the caller gave is overwritten.

# given VARIABLE: whether the caller gave it, rather than this script a default.
given() { [[ " $GIVEN " == *" $1 "* ]]; }

# text VARIABLE KEY, plain VARIABLE KEY (numbers and booleans): a value for what the caller gave.
text() { ! given "$1" || VALUES+=(--set-string "$2=${!1}"); }
plain() { ! given "$1" || VALUES+=(--set "$2=${!1}"); }

# chosen VARIABLE KEY: an entry of a YAML map for what the caller did not give, if there is anything to say.
chosen() { given "$1" || [[ -z ${!1:-} ]] || printf '%s: "%s", ' "$2" "${!1}"; }
chosen_number() { given "$1" || [[ -z ${!1:-} ]] || printf '%s: %s, ' "$2" "${!1}"; }

# image_is_named: whether the caller or the environment says where the image is; the chart's own name is in no registry.
image_is_named() {
  [[ -n ${IMG:-}${WVA_IMAGE_REPO:-} ]] || { [[ -n $VALUES_FILE ]] && grep -q 'repository:' "$VALUES_FILE"; }
}

image_values() {
  if [[ ${IMG:-} == *@* ]]; then
    VALUES+=(--set-string "wva.image.repository=${IMG%@*}" --set-string "wva.image.digest=${IMG##*@}")
  elif [[ -n ${IMG:-} ]]; then
    VALUES+=(--set-string "wva.image.repository=${IMG%:*}" --set-string "wva.image.tag=${IMG##*:}")
  fi
  text WVA_IMAGE_REPO wva.image.repository
  text WVA_IMAGE_TAG wva.image.tag
  text WVA_IMAGE_PULL_POLICY wva.imagePullPolicy
}

controller_values() {
  plain NAMESPACE_SCOPED wva.namespaceScoped
  text CONTROLLER_INSTANCE wva.controllerInstance
  text WVA_LOG_LEVEL wva.logging.level
  text WVA_RECONCILE_INTERVAL wva.reconcileInterval
  plain ENABLE_SCALE_TO_ZERO wva.scaleToZero
  text MONITORING_NAMESPACE wva.prometheus.monitoringNamespace
  text PROMETHEUS_URL wva.prometheus.baseURL
  plain SKIP_TLS_VERIFY wva.prometheus.tls.insecureSkipVerify
  [[ -z $CA_FILE ]] || VALUES+=(--set-file "wva.prometheus.caCert=$CA_FILE")
}

variant_values() {
  plain DEPLOY_VA va.enabled
  text ACCELERATOR_TYPE va.accelerator
  plain SLO_TPOT va.sloTpot
  plain SLO_TTFT va.sloTtft
  text LLMD_NS llmd.namespace
  text LLM_D_MODELSERVICE_NAME llmd.modelName
  text MODEL_ID llmd.modelID
  plain DEPLOY_HPA hpa.enabled
  plain HPA_MIN_REPLICAS hpa.minReplicas
  plain HPA_STABILIZATION_SECONDS hpa.behavior.scaleUp.stabilizationWindowSeconds
  plain HPA_STABILIZATION_SECONDS hpa.behavior.scaleDown.stabilizationWindowSeconds
  plain VLLM_SVC_ENABLED vllmService.enabled
  plain VLLM_SVC_NODEPORT vllmService.nodePort
}

# What this script chose. Every value has passed check_settings or is a word of this script, so quotes are enough.
chosen_values() {
  cat <<YAML
wva:
  image: {$(chosen WVA_IMAGE_REPO repository)$(chosen WVA_IMAGE_TAG tag)}
  prometheus: {$(chosen MONITORING_NAMESPACE monitoringNamespace)$(chosen PROMETHEUS_URL baseURL)$(environment_prometheus)}
  logging: {$(chosen WVA_LOG_LEVEL level)}
va: {$(chosen ACCELERATOR_TYPE accelerator)$(chosen_number SLO_TPOT sloTpot)$(chosen_number SLO_TTFT sloTtft)}
llmd: {$(chosen LLMD_NS namespace)$(chosen LLM_D_MODELSERVICE_NAME modelName)$(chosen MODEL_ID modelID)}
YAML
}

deploy_controller() {
  step "controller: release $WVA_RELEASE_NAME in $WVA_NS"
  VALUES=(--values -)
  [[ -z $VALUES_FILE ]] || VALUES+=(--values "$VALUES_FILE")
  image_values
  controller_values
  variant_values
  # Helm installs the definition once and never again: an upgrade has to apply it first.
  change "${KUBECTL[@]}" apply --server-side --force-conflicts --filename "$CHART/crds"
  change_with "$(chosen_values)" \
    "${HELM[@]}" upgrade --install "$WVA_RELEASE_NAME" "$CHART" --namespace "$WVA_NS" --skip-crds "${VALUES[@]}"
  wait_for_controller
}

wait_for_controller() {
  local selector="app.kubernetes.io/instance=$WVA_RELEASE_NAME,control-plane=controller-manager"
  change "${KUBECTL[@]}" rollout status deployment --namespace "$WVA_NS" --selector "$selector" \
    --timeout "$WAIT_TIMEOUT" && return 0
  fail "the controller is not ready after $WAIT_TIMEOUT. Its pods say why:" \
    "kubectl -n $WVA_NS describe pods -l $selector; kubectl -n $WVA_NS logs -l $selector"
}

# release_exists NAME NAMESPACE
release_exists() { "${HELM[@]}" status "$1" --namespace "$2" >/dev/null 2>&1; }

# remove_release NAME NAMESPACE
remove_release() {
  if release_exists "$1" "$2"; then
    change "${HELM[@]}" uninstall "$1" --namespace "$2" --wait
  else
    note "release $1 is not installed in $2"
  fi
}
