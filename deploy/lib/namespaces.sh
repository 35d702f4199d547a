# shellcheck shell=bash
# Namespaces: made when they are not there, marked as ours, and only those with the mark are ever deleted.

readonly OURS=wva.llmd.ai/created-by=install.sh
readonly OURS_PATH='{.metadata.labels.wva\.llmd\.ai/created-by}'

namespace_is_there() {
  [[ -n $("${KUBECTL[@]}" get namespace "$1" --ignore-not-found --output name 2>/dev/null || true) ]]
}

# ensure_namespace NAME [KEY=VALUE]: the label is set when there is none of that key; one with another value is kept.
ensure_namespace() {
  local name=$1 label=${2:-} phase now path
  phase=$("${KUBECTL[@]}" get namespace "$name" --ignore-not-found --output 'jsonpath={.status.phase}' || true)
  case $phase in
  Terminating) fail "namespace $name is being deleted; wait until it is gone and run this again" ;;
  '')
    change "${KUBECTL[@]}" create namespace "$name"
    change "${KUBECTL[@]}" label namespace "$name" "$OURS"
    ;;
  esac
  [[ -n $label ]] || return 0
  path=${label%%=*}
  path="{.metadata.labels.${path//./\\.}}"
  now=$("${KUBECTL[@]}" get namespace "$name" --ignore-not-found --output "jsonpath=$path" || true)
  if [[ -z $now ]]; then
    change "${KUBECTL[@]}" label namespace "$name" "$label"
  elif [[ $now != "${label#*=}" ]]; then
    warn "namespace $name has ${label%%=*}=$now, not ${label#*=}: it is left so, and is not scraped"
  fi
}

# delete_namespace NAME
delete_namespace() {
  local mark
  mark=$("${KUBECTL[@]}" get namespace "$1" --ignore-not-found --output "jsonpath=$OURS_PATH" || true)
  if [[ $mark == "${OURS#*=}" ]]; then
    change "${KUBECTL[@]}" delete namespace "$1" --wait=false
  else
    note "namespace $1 was not made by this script: it stays"
  fi
}
