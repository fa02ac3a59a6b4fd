"""The command line: one file per command, and nothing heavy imported before a command needs it."""

import sys
from io import TextIOWrapper


def main() -> None:
    from pteron.cli.app import app

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without × or ≤ is no reason to fail
    app()
