#!/usr/bin/env bash
# Installs Dawn for Node.js. It contains Tint, Chrome's WGSL compiler; tests/pure/test_tint.py compiles
# every kernel with it. Idempotent. Needs node and npm; CI installs them if they are missing.
set -euo pipefail
cd "$(dirname "$0")/../tests/tint"

if [ "${CI:-}" = true ] && [ "$(id -u)" = 0 ] && ! command -v npm >/dev/null 2>&1; then
    apt-get install -y -qq npm >/dev/null
fi
command -v npm >/dev/null 2>&1 || { printf 'setup: npm is needed for Tint, and was not found\n' >&2; exit 1; }
[ -d node_modules/webgpu ] || npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
