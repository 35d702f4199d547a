#!/usr/bin/env bash
# Deletes the kind cluster that setup.sh made: deploy/kind-emulator/teardown.sh [NAME]
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly HERE
DRY_RUN=${DRY_RUN:-false}
MISSING=()
# shellcheck source=../lib/output.sh
. "$HERE/../lib/output.sh"
# shellcheck source=../lib/settings.sh
. "$HERE/../lib/settings.sh"

NAME=${1:-${KIND_NAME:-kind-wva-gpu-cluster}}
matches name "$NAME" || fail "$NAME: expected $(expected name)"
need_command kind 'install it from https://kind.sigs.k8s.io'
say_missing
if kind get clusters 2>/dev/null | grep -qxF "$NAME"; then
  change kind delete cluster --name "$NAME"
else
  note "there is no cluster $NAME"
fi
