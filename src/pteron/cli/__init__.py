"""The command line: one file per command. A command imports large packages only when it runs."""

import sys
from io import TextIOWrapper


def main() -> None:
    from pteron.cli.commands import app

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # do not fail in a terminal that cannot print × or ≤
    app()
