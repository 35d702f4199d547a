#!/usr/bin/env bash
# Makes a kind cluster whose nodes have GPUs that are not there: labels as the GPU operators set them, and a capacity that
# the scheduler believes. Running it again repairs them; after a restart of the nodes that is needed, as the kubelet
# forgets GPUs that no device plugin has reported.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly HERE
DRY_RUN=${DRY_RUN:-false}
MISSING=()
# shellcheck source=../lib/output.sh
. "$HERE/../lib/output.sh"
# shellcheck source=../lib/settings.sh
. "$HERE/../lib/settings.sh"
# shellcheck source=../lib/accelerators.sh
. "$HERE/../lib/accelerators.sh"
# shellcheck source=gpus.sh
. "$HERE/gpus.sh"

NAME='kind-wva-gpu-cluster'
NODES=3
GPUS=2
TYPE=mix
MODEL=NVIDIA-A100-PCIE-80GB
MEMORY=81920

usage() {
  cat <<'TEXT'
Usage: deploy/kind-emulator/setup.sh [options]

  -c NAME    cluster (kind-wva-gpu-cluster)
  -n NODES   nodes, the control plane among them (3)
  -g GPUS    GPUs on each node (2)
  -t TYPE    mix, nvidia-mix, amd-mix, nvidia, amd or intel (mix)
  -d MODEL   product of the types nvidia, amd and intel (NVIDIA-A100-PCIE-80GB)
  -m MEM     memory of a GPU in MiB (81920)
  --dry-run  show what would be changed, change nothing
  -h         this text

Variables: K8S_VERSION (v1.32.0), ENABLE_SCALE_TO_ZERO (true: with the feature gate HPAScaleToZero), DRY_RUN.
TEXT
}

parse_options() {
  while [[ $# -gt 0 ]]; do
    case $1 in
    -c | -n | -g | -t | -d | -m)
      [[ $# -ge 2 && -n $2 ]] || fail "$1 needs a value; see -h"
      take_option "$1" "$2"
      shift
      ;;
    --dry-run) DRY_RUN=true ;;
    -h | --help)
      usage
      exit 0
      ;;
    *) fail "unknown option $1; see -h" ;;
    esac
    shift
  done
}

# take_option OPTION VALUE
take_option() {
  local kind
  case $1 in
  -c) kind=name && NAME=$2 ;;
  -n) kind=count && NODES=$2 ;;
  -g) kind=count && GPUS=$2 ;;
  -t) kind=gpu_type && TYPE=$2 ;;
  -d) kind=label && MODEL=$2 ;;
  -m) kind=count && MEMORY=$2 ;;
  esac
  matches "$kind" "$2" || fail "$1 $2: expected $(expected "$kind")"
}

check() {
  : "${K8S_VERSION:=v1.32.0}" "${ENABLE_SCALE_TO_ZERO:=true}"
  matches version "$K8S_VERSION" || fail "K8S_VERSION=$K8S_VERSION: expected $(expected version)"
  matches flag "$ENABLE_SCALE_TO_ZERO" || fail "ENABLE_SCALE_TO_ZERO=$ENABLE_SCALE_TO_ZERO: expected $(expected flag)"
  [[ $NODES -ge 1 ]] || fail "-n $NODES: expected at least 1"
  need_command kind 'install it from https://kind.sigs.k8s.io'
  need_command kubectl 'install it from https://kubernetes.io/docs/tasks/tools/'
  say_missing
  KUBECTL=(kubectl --context "kind-$NAME")
}

configuration() {
  printf 'kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\n'
  [[ $ENABLE_SCALE_TO_ZERO != true ]] || printf 'featureGates:\n  HPAScaleToZero: true\n'
  printf 'nodes:\n- role: control-plane\n'
  local node
  for ((node = 1; node < NODES; node++)); do
    printf -- '- role: worker\n'
  done
}

exists() { kind get clusters 2>/dev/null | grep -qxF "$NAME"; }

create() {
  if exists; then
    note "cluster $NAME is there"
    return 0
  fi
  change_with "$(configuration)" kind create cluster --name "$NAME" --image "kindest/node:v${K8S_VERSION#v}" --config -
}

# The control plane's node carries workloads as well: it has GPUs.
open_control_plane() {
  "${KUBECTL[@]}" get nodes --output 'jsonpath={.items[*].spec.taints[*].key}' |
    grep -q node-role.kubernetes.io/control-plane || return 0
  change "${KUBECTL[@]}" taint nodes --all node-role.kubernetes.io/control-plane-
}

# equip NODE NUMBER: what an earlier type left on the node goes.
equip() {
  local product vendor other labels amounts
  product=$(gpu_of "$TYPE" "$2" "$MODEL")
  vendor=$(vendor_of "$TYPE" "$product")
  labels=("$vendor/gpu.count=$GPUS" "$vendor/gpu.product=$product" "$vendor/gpu.memory=$MEMORY")
  if [[ $TYPE == *-mix ]]; then
    labels+=("gpu-config=$GPUS$(short_name "$product")")
  else
    labels+=(gpu-config-)
  fi
  amounts="\"$vendor/gpu\":\"$GPUS\""
  for other in nvidia.com amd.com intel.com; do
    [[ $other != "$vendor" ]] || continue
    labels+=("$other/gpu.count-" "$other/gpu.product-" "$other/gpu.memory-")
    amounts+=",\"$other/gpu\":null"
  done
  change "${KUBECTL[@]}" label node "$1" --overwrite "${labels[@]}"
  change "${KUBECTL[@]}" patch node "$1" --subresource status --type merge --patch \
    "{\"status\":{\"capacity\":{$amounts},\"allocatable\":{$amounts}}}"
}

equip_all() {
  local name number=0
  while read -r name; do
    [[ -n $name ]] || continue
    equip "$name" "$number"
    number=$((number + 1))
  done < <("${KUBECTL[@]}" get nodes --output 'jsonpath={range .items[*]}{.metadata.name}{"\n"}{end}' | sort)
}

main() {
  parse_options "$@"
  check
  create
  if [[ $DRY_RUN == true ]] && ! exists; then
    note 'the rest depends on the nodes, which are not there yet'
    return 0
  fi
  change "${KUBECTL[@]}" wait nodes --all --for condition=Ready --timeout 120s
  open_control_plane
  equip_all
  "${KUBECTL[@]}" get nodes --label-columns nvidia.com/gpu.product,amd.com/gpu.product,intel.com/gpu.product
}

main "$@"
