# Shared by scripts/release-check: reporting, and installing clients into a cache.
# Sourced, never run. The caller sets CACHE (kept between runs) and SCRATCH (removed at the end).
# shellcheck shell=bash

: "${INSPECTOR_VERSION:=2.12.0}"
: "${TYPESCRIPT_SDK_VERSION:=1.32.2}"
: "${TYPESCRIPT_CLIENT_VERSION:=2.4.0}"
: "${CLAUDE_CODE_VERSION:=2.1.325}"
: "${CODEX_VERSION:=0.166.0}"
: "${PYTHON_SDK_1_VERSION:=1.30.0}"
: "${PYTHON_SDK_2_VERSION:=2.3.0}"
: "${NODE_MAJOR:=24}"

passed=0 failed=0 skipped=0

# report VERDICT GROUP CHECK [DETAIL]
report() {
    case $1 in
        PASS) passed=$((passed + 1)) ;;
        FAIL) failed=$((failed + 1)) ;;
        SKIP) skipped=$((skipped + 1)) ;;
    esac
    local detail
    detail=$(printf '%s' "${4:-}" | tr '\n\t' '  ' | cut -c1-"${DETAIL_WIDTH:-240}")
    printf '%-4s  %-10s  %-34s  %s\n' "$1" "$2" "$3" "$detail"
}

# check GROUP CHECK COMMAND...: passes when the command ends with 0 within CHECK_SECONDS.
# The last line it printed is the detail; a failure shows its last four.
check() {
    local group=$1 name=$2 output code=0
    shift 2
    output=$(timeout "${CHECK_SECONDS:-90}" "$@" 2>&1 </dev/null) || code=$?
    if [ "$code" -eq 0 ]; then
        report PASS "$group" "$name" "$(printf '%s\n' "$output" | tail -n 1)"
    else
        report FAIL "$group" "$name" "exit $code: $(printf '%s\n' "$output" | tail -n 4)"
    fi
}

# wanted GROUP: respects --only and --skip.
wanted() {
    case ",${ONLY:-}," in ,,) ;; *",$1,"*) ;; *) return 1 ;; esac
    case ",${SKIP:-}," in *",$1,"*) return 1 ;; esac
    return 0
}

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

node_is_recent() {
    node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 22 || (a === 22 && b >= 19) ? 0 : 1)' 2>/dev/null
}

# Inspector and Claude Code want node 22.19 or newer; the registry carries node itself as a package.
ensure_node() {
    node_is_recent && return 0
    command -v npm >/dev/null || return 1
    local system machine
    system=$(uname -s | tr '[:upper:]' '[:lower:]')
    machine=$(uname -m)
    case $machine in x86_64) machine=x64 ;; aarch64) machine=arm64 ;; esac
    npm_install "node-$NODE_MAJOR" "node-$system-$machine@$NODE_MAJOR" || return 1
    PATH="$CACHE/node-$NODE_MAJOR/node_modules/node-$system-$machine/bin:$PATH"
    node_is_recent
}

# npm_install FOLDER PACKAGE...: once per folder; the mark is written only after a complete install.
npm_install() {
    local folder="$CACHE/$1"
    shift
    [ -e "$folder/.complete" ] && return 0
    rm -rf "$folder"
    mkdir -p "$folder"
    printf '{"private": true, "type": "module"}\n' >"$folder/package.json"
    (cd "$folder" && npm install --no-audit --no-fund "$@" >install.log 2>&1 </dev/null) || return 1
    touch "$folder/.complete"
}

# python_install FOLDER REQUIREMENT...
python_install() {
    local folder="$CACHE/$1"
    shift
    [ -e "$folder/.complete" ] && return 0
    rm -rf "$folder"
    mkdir -p "$CACHE"
    python3 -m venv "$folder" >/dev/null 2>&1 || return 1
    "$folder/bin/pip" install --quiet "$@" >"$folder/install.log" 2>&1 </dev/null || return 1
    touch "$folder/.complete"
}

# not_installed GROUP WHAT: a client that cannot be installed is a failed check, because the release was
# not tried with it; leave the group out with --skip when that is meant.
not_installed() {
    report FAIL "$1" "install $2" "could not be installed; log in ${CACHE##*/}, or leave it out with --skip $1"
}
