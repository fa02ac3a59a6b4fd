"""The folder of the user's caches. Everything in it can be deleted at any time."""

from __future__ import annotations

import os
from pathlib import Path


def folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pteron"
