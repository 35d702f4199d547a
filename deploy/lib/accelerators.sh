# shellcheck shell=bash
# GPU products and their short names, the ones that WVA compares.

# short_name PRODUCT: NVIDIA-H100-80GB-HBM3 is H100, Intel-Gaudi-2-96GB is Gaudi-2, a name without a dash is one already.
short_name() {
  local vendor first second rest
  IFS=- read -r vendor first second rest <<<"$1"
  case $vendor in
  [Ii][Nn][Tt][Ee][Ll]) printf '%s' "${first:-$vendor}${second:+-$second}" ;;
  *) printf '%s' "${first:-$vendor}" ;;
  esac
}

# accelerators_of_nodes: the short names of the GPUs that the nodes are labelled with, one line each.
accelerators_of_nodes() {
  local path='{range .items[*]}' vendor product
  for vendor in nvidia amd intel; do
    path+="{.metadata.labels.$vendor\\.com/gpu\\.product}{\"\\n\"}"
  done
  "${KUBECTL[@]}" get nodes --output "jsonpath=$path{end}" 2>/dev/null | sort -u | while read -r product; do
    [[ -z $product ]] || printf '%s\n' "$(short_name "$product")"
  done | sort -u
}

# find_accelerator: what the caller gave stays; else the one that the nodes have. Several are a question to the caller.
find_accelerator() {
  local found
  [[ -z ${ACCELERATOR_TYPE:-} && $DEPLOY_VA == true ]] || return 0
  found=$(accelerators_of_nodes || true)
  case $(printf '%s' "$found" | grep -c .) in
  0) warn "no node is labelled with a GPU product: the variant gets the accelerator of the chart; give ACCELERATOR_TYPE" ;;
  1)
    ACCELERATOR_TYPE=$found
    note "accelerator of the nodes: $found"
    ;;
  *) missing "ACCELERATOR_TYPE: the nodes have several, $(printf '%s' "$found" | paste -sd ' ' -); say which one the variant runs on" ;;
  esac
}
