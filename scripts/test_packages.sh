#!/usr/bin/env bash
# Installs the npm packages of the tests: Dawn for Node.js with Tint, Chrome's WGSL compiler (tests/tint), and
# Pyodide, CPython for browsers (tests/browser). Idempotent. Needs npm; CI installs it if it is missing.
set -euo pipefail
cd "$(dirname "$0")/../tests"

if [ "${CI:-}" = true ] && [ "$(id -u)" = 0 ] && ! command -v npm >/dev/null 2>&1; then
    apt-get install -y -qq npm >/dev/null
fi
command -v npm >/dev/null 2>&1 || { printf 'setup: npm is needed for Tint and Pyodide, and was not found\n' >&2; exit 1; }
for folder in tint browser; do
    (
        cd $folder
        [ -d node_modules ] && [ node_modules/.package-lock.json -nt package-lock.json ] ||
            npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
    )
done
