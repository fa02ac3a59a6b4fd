"""What language models and embedders have in common."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Self

from pteron.api.program import Program
from pteron.llm.tokenizer import Tokenizer


class LoadedModel:
    """A program and its tokenizer. It is pickled as its file and its options."""

    def __init__(
        self, program: Program, tokenizer: Tokenizer, description: Mapping[str, Any] | None = None
    ) -> None:
        self.program = program
        self.tokenizer = tokenizer
        self.description = description or {}
        self.origin: partial[Self] | None = None  # how to load it again

    def reload(self) -> None:
        """Load the model on a new device, after `DeviceLost`."""
        self.program.reload()

    def __reduce__(self) -> Any:
        if self.origin is None:
            raise TypeError("only a model that pteron.llm has loaded can be pickled")
        return self.origin, ()

    def close(self) -> None:
        """Free everything on the GPU, and end the tokenizer's process."""
        self.tokenizer.close()
        self.program.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
