"""`pteron cache`: the models that were converted."""

from __future__ import annotations

from datetime import datetime

import typer

from pteron.cli import common
from pteron.cli.terminal import console, grid, nbytes, plural, print_json

app = typer.Typer(help="Show or clear the models that were converted.", no_args_is_help=True)


@app.command("list")
def list_models(as_json: common.AsJson = False) -> None:
    """Show the converted models, the most recently used first."""
    from pteron.llm.gguf import conversion_cache as cache

    found = cache.entries()
    total = sum(entry.nbytes for entry in found)
    if as_json:
        models = [
            {
                "name": entry.path.name,
                "nbytes": entry.nbytes,
                "last_used": datetime.fromtimestamp(entry.used).astimezone().isoformat(timespec="seconds"),
            }
            for entry in found
        ]
        folder = str(cache.folder())
        print_json({"folder": folder, "nbytes": total, "limit": cache.limit(), "models": models})
        return
    if found:
        rows = [
            (entry.path.name, nbytes(entry.nbytes), f"{datetime.fromtimestamp(entry.used):%Y-%m-%d %H:%M}")
            for entry in found
        ]
        console().print(grid(rows, header=("model", "size", "last used"), indent=0))
    room = f"{nbytes(total)} of at most {nbytes(cache.limit())} ({cache.LIMIT_VARIABLE} changes that)"
    console().print(f"{cache.folder()}: {plural(len(found), 'model')}, {room}")


@app.command()
def clear(as_json: common.AsJson = False) -> None:
    """Remove all converted models."""
    from pteron.llm.gguf import conversion_cache as cache

    freed = cache.clear()
    if as_json:
        print_json({"folder": str(cache.folder()), "freed_nbytes": freed})
    else:
        console().print(f"{nbytes(freed)} freed in {cache.folder()}")
