"""How many rows of a file are done: a bar on a terminal, or a line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from rich.console import Console

from pteron._util.progress import Progress
from pteron.cli.progress import progress_console

SECONDS = 30.0  # between two lines


def row_progress(name: str, count: int | None) -> AbstractContextManager[Progress]:
    """The first rows that it is told of are those of an earlier run. They do not count for the speed."""
    console = progress_console()
    return (_bar if console.is_terminal else _lines)(console, name, count)


@contextmanager
def _bar(console: Console, name: str, count: int | None) -> Iterator[Progress]:
    """A bar with the finished rows, rows per second, and the time left."""
    from rich import progress

    speed = progress.TextColumn("{task.fields[speed]}")
    columns: Any = (progress.TextColumn("{task.description}"), progress.BarColumn())
    columns = (*columns, progress.MofNCompleteColumn(), speed, progress.TimeRemainingColumn())
    before: float | None = None
    with progress.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(name, total=count, speed="")

        def report(what: str, done: float, total: float | None) -> None:
            nonlocal before
            before = done if before is None else before
            bar.update(task, completed=done, speed=_rate(done - before, bar.tasks[0].elapsed or 0.0))

        yield report


@contextmanager
def _lines(console: Console, name: str, count: int | None) -> Iterator[Progress]:
    """A line at the start, one every half minute, and one at the end."""
    began = time.monotonic()
    shown = -SECONDS  # the time of the last line, since the start
    before: float | None = None
    newest: float = 0

    def say(seconds: float) -> None:
        rows = f"{newest} rows" if count is None else f"{newest} of {count} rows"
        rate = _rate(newest - (before or 0), seconds)
        console.print(f"{name}: {rows}{f', {rate}' if rate else ''}", soft_wrap=True, markup=False)

    def report(what: str, done: float, total: float | None) -> None:
        nonlocal before, newest, shown
        before = done if before is None else before
        newest, seconds = done, time.monotonic() - began
        if seconds - shown >= SECONDS:
            say(seconds)
            shown = seconds

    try:
        yield report
    finally:
        say(time.monotonic() - began)


def _rate(rows: float, seconds: float) -> str:
    return f"{rows / seconds:.1f} rows/s" if rows > 0 and seconds > 0 else ""
