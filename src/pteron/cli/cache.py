"""`pteron cache`: the models that were converted."""

from __future__ import annotations

from datetime import datetime

import typer

from pteron.cli.terminal import console, nbytes
from pteron.extras import needs

app = typer.Typer(help="Show or clear the models that were converted.", no_args_is_help=True)


@app.command("list")
def list_models() -> None:
    """Show the converted models, the most recently used first."""
    from rich.table import Table

    with needs("llm", "to convert models"):
        from pteron.llm.gguf import conversion_cache as cache
    found = cache.entries()
    table = Table("model", "size", "last used", box=None)
    for entry in found:
        table.add_row(
            entry.path.name, nbytes(entry.nbytes), f"{datetime.fromtimestamp(entry.used):%Y-%m-%d %H:%M}"
        )
    if found:
        console().print(table)
    total = sum(entry.nbytes for entry in found)
    console().print(
        f"{cache.folder()}: {len(found)} models, {nbytes(total)} of at most {nbytes(cache.limit())} "
        f"({cache.LIMIT_VARIABLE} changes that)"
    )


@app.command()
def clear() -> None:
    """Remove all converted models."""
    with needs("llm", "to convert models"):
        from pteron.llm.gguf import conversion_cache as cache
    console().print(f"{nbytes(cache.clear())} freed in {cache.folder()}")
