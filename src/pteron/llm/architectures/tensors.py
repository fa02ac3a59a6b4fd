"""Where a model's tensors come from."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


class Tensors(Protocol):
    """The tensors of a model under GGUF's names (`blk.0.attn_q.weight`), in torch's shapes: [out, in].

    A source whose files have other names presents its tensors under these. Tensors are read a few rows at a
    time, so that a large one never fills memory.
    """

    name: str  # of the file or folder, for errors

    @property
    def tensor_names(self) -> list[str]: ...

    def __contains__(self, name: object) -> bool: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def size(self, name: str) -> int:
        """The number of elements."""

    def expect(self, name: str, shape: tuple[int, ...]) -> None:
        """Refuse a tensor that is missing, of another shape, or of a type that cannot be read."""

    def read(self, name: str, rows: Any = slice(None)) -> Floats:
        """Rows of a tensor as float32; `rows` is a slice or an array of row numbers."""

    def kind(self, name: str) -> str:
        """GGUF's name of a tensor's type, such as F32, BF16 or Q4_K."""

    def stored(self, name: str, rows: Any = slice(None)) -> NDArray[np.uint8]:
        """Rows of a tensor in a block format as they are stored: [rows, bytes of a row]."""
