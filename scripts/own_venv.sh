#!/usr/bin/env bash
# Installs the packages of requirements/NAME.txt into .venv-NAME, an environment that also sees the packages of .venv.
# It is a separate one because these packages change others: Ray changes how a web server runs, and
# optimum-executorch wants another version of transformers. Idempotent.
#
#   scripts/own_venv.sh cluster|optimum
set -euo pipefail
cd "$(dirname "$0")/.."

name=$1
pins=requirements/$name.txt
venv=.venv-$name
stamp=$venv/.installed

if [ ! -x $venv/bin/python ]; then .venv/bin/python -m venv $venv; fi
base=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
own=$($venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "import site; site.addsitedir('$base')" >"$own/pteron-base.pth"
if ! { [ -f $stamp ] && cmp -s $pins $stamp; }; then
    printf '%s: installing the packages of %s into %s\n' "$name" $pins $venv
    $venv/bin/python -m pip install -qq -r $pins
    cp $pins $stamp
fi
if [ "$name" = cluster ] && ! command -v java >/dev/null 2>&1; then
    printf 'cluster: without Java (Debian: default-jre-headless), the tests of Spark are skipped\n'
fi
