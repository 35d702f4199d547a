# shellcheck shell=bash
# Which fake GPU each node of a kind cluster gets. Read by setup.sh and install.sh.

# gpu_of TYPE NODE MODEL: the product of the node with that number, counted from 0; MODEL is for the types of one kind.
gpu_of() {
  local mix
  case $1 in
  mix) mix=(NVIDIA-A100-PCIE-80GB AMD-MI300X-192G Intel-Gaudi-2-96GB) ;;
  nvidia-mix) mix=(NVIDIA-H100-SXM5-80GB NVIDIA-A100-PCIE-80GB AMD-MI300X-192G) ;;
  amd-mix) mix=(AMD-MI300X-192G AMD-MI250-128G NVIDIA-A100-PCIE-80GB) ;;
  nvidia | amd | intel) mix=("$3" "$3" "$3") ;;
  esac
  printf '%s' "${mix[$(($2 % 3))]}"
}

# vendor_of TYPE PRODUCT: the prefix of the resource and of the labels.
vendor_of() {
  case $1/$2 in
  nvidia/* | *mix/NVIDIA-*) printf 'nvidia.com' ;;
  amd/* | *mix/AMD-*) printf 'amd.com' ;;
  intel/* | *mix/Intel-*) printf 'intel.com' ;;
  esac
}

# product_for TYPE MODEL ACCELERATOR: the product of which ACCELERATOR is the short name; empty when no node has it.
product_for() {
  local node product
  for node in 0 1 2; do
    product=$(gpu_of "$1" "$node" "$2")
    if [[ $(short_name "$product") == "$3" ]]; then
      printf '%s' "$product"
      return 0
    fi
  done
}
