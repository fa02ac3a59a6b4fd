"""How long work tells its progress, and the bar that notebooks show of it.

The bar uses the IPython that runs the notebook. Nothing is imported for it. Elsewhere, and for short work,
nothing is shown.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from html import escape
from operator import length_hint
from typing import Any, TypeAlias

# Is told what is being done, how much of it is done, and how much there is (None: not known). Things are
# counted with integers. Other work is told as a share, a float of 1.0.
Progress: TypeAlias = Callable[[str, float, float | None], None]

DELAY = 1.0  # seconds of work before a bar is shown
INTERVAL = 0.1  # seconds between two changes of a bar


class NotebookBar:
    """A `Progress` that is shown."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._display = _notebook_display()
        self._handle: Any = None
        self._next = time.monotonic() + DELAY

    def over(self, results: Iterator[Any], rows: Any) -> Iterator[Any]:
        """The results, which are counted on the way. There is one for each of the rows."""
        if self._display is None:
            return results
        total = 0 if isinstance(rows, Mapping) else length_hint(rows)  # a mapping has columns by name
        return self._counted(results, total or None)

    def _counted(self, results: Iterator[Any], total: int | None) -> Iterator[Any]:
        done = 0
        for done, result in enumerate(results, 1):
            self("rows", done, total)
            yield result
        self("rows", done, done)

    def __call__(self, what: str, done: float, total: float | None) -> None:
        now = time.monotonic()
        is_end = self._handle is not None and done == total
        if self._display is None or (now < self._next and not is_end):
            return
        self._next = now + INTERVAL
        note = what if isinstance(total, float) else f"{done}" if total is None else f"{done} of {total}"
        amount = "" if total is None else f" value='{done}' max='{total}'"
        content = self._display.HTML(f"{escape(self._title)} <progress{amount}></progress> {escape(note)}")
        if self._handle is None:
            self._handle = self._display.display(content, display_id=True)
        else:
            self._handle.update(content)


def _notebook_display() -> Any:
    """The module `IPython.display`, if this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return sys.modules.get("IPython.display") if hasattr(shell, "kernel") else None
