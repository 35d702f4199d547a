# shellcheck shell=bash
# The variables of install.sh: which there are, what they may be, and which of the original's have no effect here.

# Every variable that is read, with the kind of value it takes. docs/install-script.md has the same list.
known_settings() {
  cat <<'TABLE'
ENVIRONMENT environment
CLUSTER_TYPE cluster_type
KUBE_CONTEXT context
WVA_NS name
LLMD_NS name
MONITORING_NAMESPACE name
WVA_RELEASE_NAME name
IMG image
WVA_IMAGE_REPO repository
WVA_IMAGE_TAG tag
WVA_IMAGE_PULL_POLICY pull_policy
WVA_LOG_LEVEL level
WVA_RECONCILE_INTERVAL duration
NAMESPACE_SCOPED flag
CONTROLLER_INSTANCE label
VALUES_FILE file
MODEL_ID model
LLM_D_MODELSERVICE_NAME name
ACCELERATOR_TYPE label
SLO_TPOT count
SLO_TTFT count
VLLM_SVC_ENABLED flag
VLLM_SVC_NODEPORT count
HPA_MIN_REPLICAS count
HPA_STABILIZATION_SECONDS count
ENABLE_SCALE_TO_ZERO flag
PROMETHEUS_URL url
PROM_CA_CERT_PATH file
PROMETHEUS_SECRET_NAME name
PROMETHEUS_SECRET_NS name
PROMETHEUS_STACK_VERSION version
PROMETHEUS_ADAPTER_VERSION version
SKIP_TLS_VERIFY flag
DEPLOY_PROMETHEUS flag
DEPLOY_WVA flag
DEPLOY_LLM_D flag
DEPLOY_PROMETHEUS_ADAPTER flag
DEPLOY_VA flag
DEPLOY_HPA flag
DECODE_REPLICAS count
VLLM_MAX_NUM_SEQS count
CLUSTER_NAME name
CLUSTER_NODES count
CLUSTER_GPUS count
CLUSTER_GPU_TYPE gpu_type
K8S_VERSION version
KIND_EXPERIMENTAL_PROVIDER engine
WAIT_TIMEOUT duration
SKIP_CHECKS flag
DRY_RUN flag
UNDEPLOY flag
DELETE_NAMESPACES flag
DELETE_CLUSTER flag
TABLE
}

# Variables of the original that have no effect here, and why.
ignored_settings() {
  cat <<'TABLE'
WVA_PROJECT the script finds the repository by its own place
WELL_LIT_PATH_NAME names are not derived from a guide; give LLMD_NS and LLM_D_MODELSERVICE_NAME
NAMESPACE_SUFFIX names are not derived from a guide; give LLMD_NS
DEFAULT_MODEL_ID no llm-d values are rewritten; give MODEL_ID
LLM_D_OWNER llm-d is not cloned or installed; follow its own guide
LLM_D_PROJECT llm-d is not cloned or installed; follow its own guide
LLM_D_RELEASE llm-d is not cloned or installed; follow its own guide
LLM_D_EPP_NAME llm-d is not cloned or installed; follow its own guide
LLM_D_MODELSERVICE_VALUES llm-d is not cloned or installed; follow its own guide
LLM_D_INFERENCE_SCHEDULER_IMG llm-d is not cloned or installed; follow its own guide
EXAMPLE_DIR llm-d is not cloned or installed; follow its own guide
CLIENT_PREREQ_DIR llm-d is not cloned or installed; follow its own guide
GATEWAY_PREREQ_DIR llm-d is not cloned or installed; follow its own guide
GATEWAY_PROVIDER no gateway is installed; follow llm-d's own guide
INSTALL_GATEWAY_CTRLPLANE no gateway is installed; follow llm-d's own guide
BENCHMARK_MODE no llm-d values are rewritten; docs/emulator.md has a load generator
ITL_AVERAGE_LATENCY_MS the emulator's latencies follow from its accelerator and its load
TTFT_AVERAGE_LATENCY_MS the emulator's latencies follow from its accelerator and its load
MULTI_MODEL_TESTING for a further model install the chart once more with controller.enabled=false
MODEL_ID_2 for a further model install the chart once more with controller.enabled=false
HF_TOKEN no model is downloaded here; it is not read
E2E_TESTS_ENABLED nothing is ever asked
TABLE
}

warn_of_ignored() {
  local name why
  while read -r name why; do
    [[ -z ${!name:-} ]] || warn "$name is set and has no effect: $why"
  done < <(ignored_settings)
}

# matches KIND VALUE
matches() {
  case $1 in
  flag) [[ $2 == true || $2 == false ]] ;;
  count) [[ $2 =~ ^(0|[1-9][0-9]{0,8})$ ]] ;;
  name) [[ ${#2} -le 53 && $2 =~ ^[a-z0-9]([-a-z0-9]*[a-z0-9])?$ ]] ;;
  label) [[ ${#2} -le 63 && $2 =~ ^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$ ]] ;;
  context) [[ $2 =~ ^[A-Za-z0-9@:/._-]+$ && $2 != -* ]] ;;
  image) [[ $2 =~ ^[a-z0-9][a-z0-9._:/-]*(:[A-Za-z0-9_][A-Za-z0-9._-]*|@sha256:[0-9a-f]{64})$ ]] ;;
  repository) [[ $2 =~ ^[a-z0-9][a-z0-9._:/-]*$ ]] ;;
  tag) [[ $2 =~ ^[A-Za-z0-9_][A-Za-z0-9._-]*$ ]] ;;
  model) [[ $2 =~ ^[A-Za-z0-9][A-Za-z0-9._/:@-]*$ ]] ;;
  version) [[ $2 =~ ^v?[0-9][A-Za-z0-9.+-]*$ ]] ;;
  duration) [[ $2 =~ ^([0-9]+(h|m|s))+$ ]] ;;
  url) [[ $2 =~ ^https://[A-Za-z0-9.-]+(:[0-9]+)?/?$ ]] ;;
  level) [[ $2 =~ ^(debug|info|warn|error)$ ]] ;;
  pull_policy) [[ $2 =~ ^(Always|IfNotPresent|Never)$ ]] ;;
  file) [[ -f $2 && -r $2 ]] ;;
  environment) [[ $2 =~ ^(kubernetes|openshift|kind-emulator)$ ]] ;;
  cluster_type) [[ $2 =~ ^(kind|kubernetes|openshift)$ ]] ;;
  engine) [[ $2 =~ ^(docker|podman|nerdctl)$ ]] ;;
  gpu_type) [[ $2 =~ ^(mix|nvidia-mix|amd-mix|nvidia|amd|intel)$ ]] ;;
  esac
}

# expected KIND: what a value of that kind looks like, in words.
expected() {
  case $1 in
  flag) echo 'true or false' ;;
  count) echo 'a whole number' ;;
  name) echo 'at most 53 lower-case letters, digits and dashes, as names of namespaces are' ;;
  label) echo 'at most 63 letters, digits, dashes, dots and underscores, as values of labels are' ;;
  context) echo 'the name of a kubeconfig context' ;;
  image) echo 'REPOSITORY:TAG or REPOSITORY@sha256:DIGEST' ;;
  repository) echo 'an image repository without a tag' ;;
  tag) echo 'an image tag' ;;
  model) echo 'a model id, such as Qwen/Qwen3-0.6B' ;;
  version) echo 'a version, such as 1.2.3' ;;
  duration) echo 'a duration, such as 90s or 5m' ;;
  url) echo 'https://HOST or https://HOST:PORT, without user, path or query (the value is not shown)' ;;
  level) echo 'debug, info, warn or error' ;;
  pull_policy) echo 'Always, IfNotPresent or Never' ;;
  file) echo 'a file that can be read' ;;
  environment) echo 'kubernetes, openshift or kind-emulator' ;;
  cluster_type) echo 'kind, kubernetes or openshift' ;;
  engine) echo 'docker, podman or nerdctl' ;;
  gpu_type) echo 'mix, nvidia-mix, amd-mix, nvidia, amd or intel' ;;
  esac
}

# check_settings: ends the script when a variable has a value it cannot have; all of them are named.
check_settings() {
  local name kind value problems=()
  while read -r name kind; do
    value=${!name:-}
    [[ -z $value ]] || matches "$kind" "$value" && continue
    [[ $kind == url ]] && value='...'
    problems+=("$name=$value: expected $(expected "$kind")")
  done < <(known_settings)
  if [[ -n ${IMG:-} && -n ${WVA_IMAGE_REPO:-}${WVA_IMAGE_TAG:-} ]]; then
    problems+=("IMG=$IMG: given together with WVA_IMAGE_REPO or WVA_IMAGE_TAG; give one of them")
  fi
  [[ ${#problems[@]} -eq 0 ]] && return 0
  printf 'ERROR: %s\n' "${problems[@]}" >&2
  exit 1
}
