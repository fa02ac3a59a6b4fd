"""The command line: one file per command, and nothing heavy imported before a command needs it."""


def main() -> None:
    from pteron.cli.app import app

    app()
