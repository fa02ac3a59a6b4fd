"""Places of results. They are prepared before the work, so that a result is not lost at the end."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def prepare_file(path: Path | None) -> None:
    """Make the folder of a file that will be written. Raises OSError if it cannot be written."""
    if path is None:
        return
    prepare_folder(path.parent)
    if path.exists():
        os.close(os.open(path, os.O_WRONLY))  # refused for folders and for files that are read-only


def prepare_folder(path: Path | None) -> None:
    """Make a folder. Raises OSError if no file can be written into it."""
    if path is None:
        return
    path.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
