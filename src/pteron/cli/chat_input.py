"""Read messages in the terminal: lines with history, pasted text, and messages of several lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

LineReader: TypeAlias = Callable[[str], str]  # takes the text before the cursor; raises EOFError at the end

BLOCK = '"""'


def read_message(read: LineReader) -> str:
    """One message. It may have several lines: between three quotes, or if a line ends with a backslash.

    A pasted text comes as one line that contains line breaks.
    """
    text = read("> ")
    if text.lstrip().startswith(BLOCK):
        text = text.lstrip().removeprefix(BLOCK)
        while not text.rstrip().endswith(BLOCK):
            text += "\n" + read(". ")
        return text.rstrip().removesuffix(BLOCK).strip("\n")
    while text.endswith("\\"):
        text = text.removesuffix("\\") + "\n" + read(". ")
    return text


def line_reader() -> LineReader:
    """The best reader for this terminal. Without a terminal: the lines of standard input."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _read_line
    if find_spec("prompt_toolkit") is None:
        return input
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    kept = history_file()
    session: PromptSession[str] = PromptSession(history=FileHistory(kept) if kept else InMemoryHistory())
    return session.prompt


def history_file() -> Path | None:
    """The messages of earlier runs, in a file that only its owner can read. None if it cannot be written."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    path = Path(base) / "pteron" / "chat_history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError:
        return None
    return path


def _read_line(before: str) -> str:
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.removesuffix("\n")
