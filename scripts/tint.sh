#!/usr/bin/env bash
# Installs Dawn for Node.js, which carries Tint, Chrome's WGSL compiler; tests/test_tint.py asks it
# about every kernel. Idempotent. Needs node and npm.
set -euo pipefail
cd "$(dirname "$0")/../tests/tint"

command -v npm >/dev/null 2>&1 || { printf 'setup: npm is needed for Tint, and was not found\n' >&2; exit 1; }
[ -d node_modules/webgpu ] || npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
