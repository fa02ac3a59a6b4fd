"""The command line, called in this process."""

from __future__ import annotations

import json
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from pteron.cli.commands import app


def pteron_cli(*arguments: object, code: int = 0, **options: Any) -> Result:
    """Run a command, which must end with this code."""
    result = CliRunner().invoke(app, [str(a) for a in arguments], **options)
    assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
    return result


def answer(*arguments: object, **options: Any) -> Any:
    """The JSON output of a command."""
    return json.loads(pteron_cli(*arguments, "--json", **options).stdout)
