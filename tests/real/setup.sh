#!/bin/sh
# Installs the servers and clients that tests/real drives: none of them is ours. All goes to .real/ in the repository's
# root (or $ISTHMUS_REAL), nothing is installed twice, and a missing Debian package is named or, as root, installed.
set -eu
cd "$(dirname "$0")/../.."
real=${ISTHMUS_REAL:-$PWD/.real}
python=${PYTHON:-.venv/bin/python}
mkdir -p "$real"

# wanted NAME TEXT: true if NAME is not installed in the version TEXT stands for
wanted() { [ "$(cat "$real/$1.installed" 2>/dev/null)" != "$2" ]; }
installed() { printf '%s\n' "$2" > "$real/$1.installed"; }

missing=
for program in chromium pandoc zsh fish; do command -v "$program" >/dev/null 2>&1 || missing="$missing $program"; done
command -v redis-server >/dev/null 2>&1 || missing="$missing redis-server"
[ -n "$(ls /usr/lib/postgresql/*/bin/postgres 2>/dev/null)" ] || missing="$missing postgresql"
command -v tinyproxy >/dev/null 2>&1 || missing="$missing tinyproxy-bin"  # the package without a service
if [ -n "$missing" ]; then  # each is named as its package is
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $missing >/dev/null
    else
        echo "tests/real needs these packages of Debian: apt-get install$missing" >&2; exit 1
    fi
fi
command -v npm >/dev/null 2>&1 || { echo "tests/real needs Node.js with npm" >&2; exit 1; }

# venv NAME PACKAGE…: not compiled, for most of what comes is never imported, and compiling takes longer than all else
venv() {
    name=$1; shift
    wanted "$name" "$*" || return 0
    [ -x "$real/$name/bin/python" ] || "$python" -m venv "$real/$name"
    "$real/$name/bin/python" -m pip install --no-compile --quiet --disable-pip-version-check "$@"
    installed "$name" "$*"
}
# Beside the rest, as none of it keeps more than one processor busy. All that builds on mcp 2.x is in one environment: the
# servers for files bring most of it.
venv filers markitdown-mcp==0.0.1a7 'markitdown[docx,pdf]' mcp-pandoc==0.11.1 excel-mcp-server==2.2.2 \
    office-word-mcp-server==1.1.11 mcp==2.3.0 fastmcp==4.1.2 fastmcp-tasks==4.1.2 & other=$!
venv canaille pytest-iam==0.3.0
venv moto 'moto[s3,server]==5.2.5'  # for tests/storage
venv client1 mcp==1.30.0 websockets==17.4 hypercorn==0.18.0

# packages NAME PACKAGE…
packages() {
    name=$1; shift
    wanted "$name" "$*" || return 0
    mkdir -p "$real/$name"
    (cd "$real/$name" && { [ -f package.json ] || npm init -y >/dev/null; } && npm install --no-fund --no-audit --silent "$@")
    installed "$name" "$*"
}
packages node @modelcontextprotocol/server-everything@2026.8.31 @modelcontextprotocol/server-filesystem@2026.8.31 \
    @modelcontextprotocol/sdk@1.32.2 @playwright/mcp@0.0.83
packages axe axe-core@4.14.1  # for tests/app/watch
packages idp oidc-provider@9.13.3
packages clis @anthropic-ai/claude-code@2.1.332 @google/gemini-cli@0.61.0
packages node2 @modelcontextprotocol/client@2.4.0 @modelcontextprotocol/server@2.4.0 @modelcontextprotocol/node@2.1.2

# The official JSON Schemas of the protocol, for tests/eras: only what the conformance suite's package holds, not the suite.
suite="@modelcontextprotocol/conformance@0.2.0-alpha.12"
if wanted schemas "$suite"; then
    mkdir -p "$real/schemas"
    (cd "$real/schemas" && npm pack --silent "$suite" >/dev/null && tar xzf modelcontextprotocol-conformance-*.tgz package/dist/index.js)
    node tests/eras/schemas.mjs "$real/schemas/package/dist/index.js" "$real/schemas"
    rm -r "$real/schemas/package" "$real"/schemas/*.tgz
    installed schemas "$suite"
fi
wait "$other"
