#!/usr/bin/env bash
# Installs Ray, Spark and Dask for the tests in tests/cluster, into .venv-cluster. This environment also sees the
# packages of .venv. It is a separate one because Ray brings packages that change how a web server runs. Idempotent.
set -euo pipefail
cd "$(dirname "$0")/.."

pins=requirements/cluster.txt
venv=.venv-cluster
stamp=$venv/.installed

if [ ! -x $venv/bin/python ]; then .venv/bin/python -m venv $venv; fi
base=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
own=$($venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "import site; site.addsitedir('$base')" >"$own/pteron-base.pth"
if ! { [ -f $stamp ] && cmp -s $stamp $pins; }; then
    printf 'cluster: installing the packages of %s into %s\n' $pins $venv
    $venv/bin/python -m pip install -qq -r $pins
    cp $pins $stamp
fi
if ! command -v java >/dev/null 2>&1; then
    printf 'cluster: without Java (Debian: default-jre-headless), the tests of Spark are skipped\n'
fi
