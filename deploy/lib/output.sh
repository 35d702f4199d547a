# shellcheck shell=bash
# Words for people, and the one door through which anything is changed.

note() { printf '%s\n' "$*"; }

step() { printf '\n== %s\n' "$*"; }

warn() { printf 'WARNING: %s\n' "$*" >&2; }

fail() {
  printf 'ERROR: %s\n' "$*" >&2
  exit 1
}

# change COMMAND...: runs what changes something; with --dry-run it is only shown, ready to be pasted.
change() {
  if [[ $DRY_RUN == true ]]; then
    local line
    line=$(printf ' %q' "$@")
    printf 'would run:%s\n' "$line"
    return 0
  fi
  "$@"
}

# change_with TEXT COMMAND...: the same with TEXT on standard input. The text is shown, so it must not be a secret.
change_with() {
  local text=$1
  shift
  if [[ $DRY_RUN == true ]]; then
    change "$@"
    printf '%s\n' "$text" | sed 's/^/    /'
    return 0
  fi
  printf '%s\n' "$text" | "$@"
}

# missing WHAT: remembers what is not there, to say all of it at once.
missing() { MISSING+=("$*"); }

has_command() { command -v "$1" >/dev/null 2>&1; }

# need_command NAME WHY
need_command() { has_command "$1" || missing "$1: the command is not on the PATH; $2"; }

# say_missing: ends the script when something is missing.
say_missing() {
  [[ ${#MISSING[@]} -eq 0 ]] && return 0
  printf 'ERROR: missing:\n' >&2
  printf -- '  - %s\n' "${MISSING[@]}" >&2
  exit 1
}
