"""Outputs that are not inputs. A file has many names: links count, too."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pteron.errors import InputError


def refuse_inputs(output: Path, inputs: Iterable[Path]) -> None:
    """Refuse an output that is an input under any name, or a folder that holds one."""
    for path in inputs:
        if not path.exists():
            continue
        if output.exists() and output.samefile(path):
            raise InputError(f"{output} is {_named(path, output)}: choose another output")
        if output.is_dir() and output.resolve() in path.resolve().parents:
            raise InputError(f"{output} holds {path}, which is read: choose another output")


def refuse_inside(output: Path, folder: Path) -> None:
    """Refuse an output in a folder of inputs: it would be one of them."""
    if folder.is_dir() and folder.resolve() in output.resolve().parents:
        raise InputError(f"{output} is in {folder}, which is read: choose another output")


def _named(path: Path, output: Path) -> str:
    return "an input" if path == output else f"another name of {path}, which is read"
