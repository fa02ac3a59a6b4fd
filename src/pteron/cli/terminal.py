"""Output of the command line: tables for people, JSON for programs, errors in red."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pteron.errors import PteronError

WIDTH = 100  # at most on a terminal, so that tables stay readable
PIPE_WIDTH = 100_000  # in pipes and files no line is wrapped: one row is one line, for grep and awk


def console() -> Console:
    """The console for tables."""
    width = min(Console().width, WIDTH) if sys.stdout.isatty() else PIPE_WIDTH
    return Console(width=width, highlight=False, markup=False)


def complain(message: str) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True).print(Text(f"error: {message}", style="red"))


def in_words(error: PteronError | OSError) -> str:
    """An error that a user can cause, as one sentence."""
    if isinstance(error, PteronError) or error.filename is None:
        return str(error)
    return f"{error.filename}: {error.strerror}"


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, allow_nan=False))


def grid(rows: Iterable[Sequence[object]], *, header: Iterable[str] = (), indent: int = 2) -> Table:
    """A table without lines. The last column takes the remaining width."""
    names = list(header)
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=bool(names), pad_edge=False, header_style="dim")
    cells = [[cell if isinstance(cell, Text) else Text(str(cell)) for cell in row] for row in rows]
    width = max((len(row) for row in cells), default=len(names))
    for number in range(width):
        title = names[number] if number < len(names) else ""
        table.add_column((" " * indent if number == 0 else "") + title, overflow="fold")
    for row in cells:
        table.add_row(Text(" " * indent) + row[0], *row[1:])
    return table


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table in Markdown. All columns but the first are right-aligned."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = [c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))]
        return "| " + " | ".join(padded) + " |"

    yield line(header)
    yield "| " + " | ".join("-" * (w - 1) + (":" if i else "-") for i, w in enumerate(widths)) + " |"
    yield from map(line, rows)


def heading(text: str, note: str = "") -> Text:
    return Text.assemble((text, "bold"), (f"  {note}" if note else "", "dim"))


def nbytes(count: int) -> str:
    """A number of bytes with a unit."""
    if count < 1024:
        return f"{count} B"
    size = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024 or unit == "GiB":
            break
    return f"{size:.1f} {unit}"


def shape(sizes: Iterable[int], dynamic: Iterable[int] = ()) -> str:
    """A shape. ≤ marks the dynamic dimensions."""
    moving = set(dynamic)
    return "(" + ", ".join(f"≤{n}" if d in moving else str(n) for d, n in enumerate(sizes)) + ")"


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
