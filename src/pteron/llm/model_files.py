"""What a language model or an embedder is loaded from: a program, or a model that is converted first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pteron._util.progress import Progress


def is_source(model: Any) -> bool:
    """Whether a model must be converted first: a GGUF file or a Hugging Face folder."""
    return isinstance(model, (str, Path)) and (Path(model).suffix == ".gguf" or Path(model).is_dir())


def model_file(
    model: Any,
    context_length: int | None = None,
    progress: Progress | None = None,
    *,
    ubatch: int | None = None,
) -> Any:
    """The `.pte` program of a model: itself, or converted in the cache."""
    if not is_source(model):
        return model
    from pteron.llm.gguf.conversion_cache import converted

    return converted(model, max_context=context_length, max_call=ubatch, progress=progress)
