"""Progress bars on stderr. They are shown only on a terminal, and disappear when the work is done."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from pteron._util.progress import Progress
from pteron.cli.terminal import PIPE_WIDTH

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import ProgressColumn


def progress_console() -> Console:
    """A console on stderr, so that stdout contains only the answer."""
    console = Console(stderr=True, highlight=False)
    return console if console.is_terminal else Console(stderr=True, highlight=False, width=PIPE_WIDTH)


def _bar(*columns: ProgressColumn, auto_refresh: bool = True) -> Bar:
    from rich.progress import Progress as Bar

    console = progress_console()
    hidden = not console.is_terminal
    return Bar(*columns, console=console, transient=True, disable=hidden, auto_refresh=auto_refresh)


@contextmanager
def steps(first: str) -> Iterator[Progress]:
    """Show what a command is doing. The bar is drawn only when it is told something.

    So no thread of it runs while a call is timed.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with _bar(*columns, auto_refresh=False) as bar:
        task = bar.add_task(first, total=None)
        bar.refresh()

        def report(what: str, done: float, total: float | None) -> None:
            bar.update(task, description=what, completed=done, total=total, refresh=True)

        yield report


@contextmanager
def conversion_bar() -> Iterator[Progress]:
    """A bar that hears of the share of a conversion that is done."""
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with _bar(*columns) as bar:
        task = bar.add_task("reading", total=1.0)
        yield lambda what, done, _: bar.update(task, completed=done, description=what)


@contextmanager
def loading_bar(model: Path, device: Any) -> Iterator[Progress]:
    """Show how many bytes are on the GPU, as counted by the device, while the block runs.

    The function that the block gets shows the current step and its finished share, too.
    """
    from rich.progress import BarColumn, DownloadColumn, TextColumn

    columns = (TextColumn("loading {task.description}"), BarColumn(), DownloadColumn(binary_units=True))
    with _bar(*columns) as progress:
        total = model.stat().st_size
        task = progress.add_task(model.name, total=total)
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.1):
                progress.update(task, completed=min(device.allocated_nbytes, total))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield lambda what, done, _: progress.update(task, description=f"{model.name}, {what}: {done:.0%}")
        finally:
            done.set()
            watcher.join()


class PromptBar:
    """Shows how much of the prompt has been read. It disappears when the answer begins."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn

        columns = (SpinnerColumn(), TextColumn("reading the prompt"), BarColumn(), MofNCompleteColumn())
        self._progress = _bar(*columns)
        self._task = self._progress.add_task("prompt", total=None)

    def __call__(self, done: int, total: int) -> None:
        self._progress.update(self._task, completed=done, total=total)

    def __enter__(self) -> PromptBar:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()
