"""A checkout of Pteron: this one, or another commit in a temporary folder."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Tree:
    """Pteron comes from `source`. `tool` has the part of this tool that imports Pteron."""

    source: Path
    tool: Path = ROOT

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """The variables of a process that imports both."""
        return {**variables, "PYTHONPATH": os.pathsep.join((str(self.source), str(self.tool)))}


HERE = Tree(ROOT / "src")


@contextmanager
def checkout(revision: str) -> Iterator[Tree]:
    """Another commit of this repository."""
    with tempfile.TemporaryDirectory(prefix="pteron-") as folder:
        place = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(place), revision], check=True)
        try:
            has_tool = (place / "benchmarks" / "gpu_model" / "record.py").exists()
            yield Tree(place / "src", place if has_tool else ROOT)
        finally:
            subprocess.run([*git, "remove", "--force", str(place)], check=True)


def commit() -> str:
    """The short name of this checkout's commit."""
    done = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def cache_folder() -> Path:
    """Where compiled kernels and counts are kept. It may be deleted."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "pteron" / "gpu-model"
