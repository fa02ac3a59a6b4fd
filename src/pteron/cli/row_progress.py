"""How many rows of a file are done: a bar on a terminal, or a line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias

from rich.console import Console

from pteron.cli.progress import progress_console

Report: TypeAlias = Callable[[int, int], None]  # rows that are done, and those that were done before
SECONDS = 30.0  # between two lines


def row_progress(name: str, count: int | None) -> AbstractContextManager[Report]:
    console = progress_console()
    return (_bar if console.is_terminal else _lines)(console, name, count)


@contextmanager
def _bar(console: Console, name: str, count: int | None) -> Iterator[Report]:
    """A bar with the finished rows, rows per second, and the time left."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    speed = TextColumn("{task.fields[speed]}")
    columns: Any = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), speed)
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task(name, total=count, speed="")

        def report(done: int, before: int) -> None:
            rate = _rate(done - before, bar.tasks[0].elapsed or 0.0)
            bar.update(task, completed=done, speed=rate)

        yield report


@contextmanager
def _lines(console: Console, name: str, count: int | None) -> Iterator[Report]:
    """A line at the start, one every half minute, and one at the end."""
    began = time.monotonic()
    shown = -SECONDS  # the time of the last line, since the start
    newest = (0, 0)

    def say(done: int, before: int, seconds: float) -> None:
        rows = f"{done} rows" if count is None else f"{done} of {count} rows"
        rate = _rate(done - before, seconds)
        console.print(f"{name}: {rows}{f', {rate}' if rate else ''}", soft_wrap=True, markup=False)

    def report(done: int, before: int) -> None:
        nonlocal shown, newest
        newest, seconds = (done, before), time.monotonic() - began
        if seconds - shown >= SECONDS:
            say(done, before, seconds)
            shown = seconds

    try:
        yield report
    finally:
        say(*newest, time.monotonic() - began)


def _rate(rows: int, seconds: float) -> str:
    return f"{rows / seconds:.1f} rows/s" if rows > 0 and seconds > 0 else ""
