# shellcheck shell=bash
# A kind cluster with fake GPUs and emulated model servers: everything but the GPUs is real. Read by deploy/install.sh.

# shellcheck source=gpus.sh
. "$DEPLOY/kind-emulator/gpus.sh"

readonly GPU_MODEL=NVIDIA-A100-PCIE-80GB

environment_defaults() {
  own_prometheus_defaults
  : "${CLUSTER_NAME:=kind-wva-gpu-cluster}" "${CLUSTER_NODES:=3}" "${CLUSTER_GPUS:=4}" "${CLUSTER_GPU_TYPE:=mix}"
  : "${KUBE_CONTEXT:=kind-$CLUSTER_NAME}" # never the cluster that kubectl happens to point to
  : "${LLMD_NS:=llm-d-sim}" "${LLM_D_MODELSERVICE_NAME:=ms-sim-llm-d-modelservice}"
  : "${MODEL_ID:=unsloth/Meta-Llama-3.1-8B}" "${ACCELERATOR_TYPE:=A100}" "${SLO_TPOT:=24}" "${SLO_TTFT:=500}"
  : "${DEPLOY_LLM_D:=true}" "${WVA_LOG_LEVEL:=debug}"
  : "${KIND_EXPERIMENTAL_PROVIDER:=docker}"
  if [[ -z ${IMG:-} ]]; then
    : "${WVA_IMAGE_REPO:=wva}"
    : "${WVA_IMAGE_TAG:=$(sed -n 's/^appVersion: *"\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' "$CHART/Chart.yaml")}"
  fi
}

controller_image() { printf '%s' "${IMG:-$WVA_IMAGE_REPO:$WVA_IMAGE_TAG}"; }

image_is_here() { "$KIND_EXPERIMENTAL_PROVIDER" image inspect "$(controller_image)" >/dev/null 2>&1; }

environment_commands() {
  need_command kind 'install it from https://kind.sigs.k8s.io'
  need_command "$KIND_EXPERIMENTAL_PROVIDER" 'kind runs its nodes in it; KIND_EXPERIMENTAL_PROVIDER names another one'
  [[ $DEPLOY_PROMETHEUS != true ]] ||
    need_command openssl 'it makes the certificate of Prometheus; or set DEPLOY_PROMETHEUS=false'
  [[ $UNDEPLOY != true ]] || return 0
  has_command "$KIND_EXPERIMENTAL_PROVIDER" || return 0
  [[ $(controller_image) == */* ]] || image_is_here ||
    missing "the image $(controller_image): $KIND_EXPERIMENTAL_PROVIDER does not have it; build it (docs/image.md) or give IMG"
}

cluster_exists() { kind get clusters 2>/dev/null | grep -qxF "$CLUSTER_NAME"; }

prepare_cluster() {
  step "cluster $CLUSTER_NAME"
  if cluster_exists; then
    note "cluster $CLUSTER_NAME is there"
  else
    DRY_RUN=$DRY_RUN K8S_VERSION=${K8S_VERSION:-} ENABLE_SCALE_TO_ZERO=${ENABLE_SCALE_TO_ZERO:-} \
      "$DEPLOY/kind-emulator/setup.sh" -c "$CLUSTER_NAME" -n "$CLUSTER_NODES" -g "$CLUSTER_GPUS" \
      -t "$CLUSTER_GPU_TYPE" -d "$GPU_MODEL"
  fi
  if image_is_here; then
    change "$KIND_EXPERIMENTAL_PROVIDER" save --output "$WORK/image.tar" "$(controller_image)"
    change kind load image-archive "$WORK/image.tar" --name "$CLUSTER_NAME"
  else
    note "image $(controller_image) is not here: the nodes pull it"
  fi
}

# Only a dry run goes on without one.
cluster_is_there() { cluster_exists; }

environment_cluster() { own_prometheus_place; }

environment_namespace() { ensure_namespace "$1"; }

environment_prometheus() { :; }

environment_adapter_values() { printf 'prometheus-adapter-values.yaml'; }

environment_authority_key() { printf 'ca.crt'; }

environment_authority() { own_authority; }

environment_authority_places() { own_authority_places; }

# The model server: the controller's own image emulates vLLM. The script sets no replicas: the HPA does.
workload() {
  local product vendor
  product=$(product_for "$CLUSTER_GPU_TYPE" "$GPU_MODEL" "$ACCELERATOR_TYPE")
  [[ -n $product ]] || fail "ACCELERATOR_TYPE=$ACCELERATOR_TYPE: no node of CLUSTER_GPU_TYPE=$CLUSTER_GPU_TYPE has it"
  vendor=$(vendor_of "$CLUSTER_GPU_TYPE" "$product")
  cat <<YAML
apiVersion: apps/v1
kind: Deployment
metadata:
  name: $LLM_D_MODELSERVICE_NAME-decode
  namespace: $LLMD_NS
  labels: &labels
    app.kubernetes.io/part-of: kind-emulator
    llm-d.ai/inferenceServing: "true"
    llm-d.ai/model: $LLM_D_MODELSERVICE_NAME
spec:
  selector:
    matchLabels: *labels
  template:
    metadata:
      labels: *labels
    spec:
      nodeSelector:
        $vendor/gpu.product: $product
      securityContext:
        runAsNonRoot: true
        seccompProfile: {type: RuntimeDefault}
      containers:
      - name: vllm
        image: $(controller_image)
        imagePullPolicy: ${WVA_IMAGE_PULL_POLICY:-IfNotPresent}
        args:
        - emulator
        - "--model=$MODEL_ID"
        - "--accelerator=$ACCELERATOR_TYPE"
        - --host=0.0.0.0
        - --port=8200
        - --startup=15s
$([[ -z ${VLLM_MAX_NUM_SEQS:-} ]] || printf '        - --max-num-seqs=%s\n' "$VLLM_MAX_NUM_SEQS")
        ports:
        - {name: vllm, containerPort: 8200}
        readinessProbe:
          httpGet: {path: /health, port: vllm}
        livenessProbe:
          httpGet: {path: /ping, port: vllm}
        resources:
          limits: {$vendor/gpu: 1}
        securityContext:
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities: {drop: [ALL]}
YAML
}

deploy_workload() {
  [[ $DEPLOY_LLM_D == true ]] || return 0
  step "emulated model server $LLM_D_MODELSERVICE_NAME-decode in $LLMD_NS"
  local manifest target=$LLM_D_MODELSERVICE_NAME-decode here
  manifest=$(workload)
  ensure_namespace "$LLMD_NS"
  here=$("${KUBECTL[@]}" get deployment "$target" --namespace "$LLMD_NS" --ignore-not-found --output name 2>/dev/null || true)
  change_with "$manifest" "${KUBECTL[@]}" apply --filename -
  if [[ -z $here && -n ${DECODE_REPLICAS:-} ]]; then
    change "${KUBECTL[@]}" scale deployment "$target" --namespace "$LLMD_NS" --replicas "$DECODE_REPLICAS"
  fi
}

undeploy_workload() {
  [[ $DEPLOY_LLM_D == true ]] || return 0
  change "${KUBECTL[@]}" delete deployment "$LLM_D_MODELSERVICE_NAME-decode" --namespace "$LLMD_NS" --ignore-not-found
}

delete_cluster() { DRY_RUN=$DRY_RUN "$DEPLOY/kind-emulator/teardown.sh" "$CLUSTER_NAME"; }
