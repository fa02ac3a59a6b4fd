"""A GGUF file: its facts and its tensors, refused with a clear error where they are not sound."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any, TypeVar

import gguf
import numpy as np
from numpy.typing import NDArray

from pteron.errors import FormatError, UnsupportedError
from pteron.llm.architectures.tensors import Floats
from pteron.llm.gguf.reader import Reader, TensorEntry

T = TypeVar("T")

_Type = gguf.GGMLQuantizationType
_BLOCK_SIZES = {int(kind): size for kind, size in gguf.GGML_QUANT_SIZES.items()}
_STORED_AS = {_Type.F32: np.float32, _Type.F16: np.float16}


class GgufFile:
    """An open GGUF file. Tensors are read a few rows at a time, so that a large one never fills memory."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        reader = Reader(path, _BLOCK_SIZES)
        self._facts = reader.facts
        self._tensors: dict[str, TensorEntry] = reader.tensors
        if self.get("split.count", int, 1) > 1:
            raise UnsupportedError(
                f"{self.name}: one part of a split model: merge the parts first (gguf-split --merge)"
            )

    # -- facts ----------------------------------------------------------------------------------

    def get(self, key: str, kind: type[T], default: T) -> T:
        """A fact of the given type, or the default where the file does not state it."""
        return self.require(key, kind) if key in self._facts else default

    def require(self, key: str, kind: type[T]) -> T:
        if key not in self._facts:
            raise FormatError(f"{self.name}: the fact {key!r} is missing")
        value = self._facts[key]()
        if kind is float and isinstance(value, int):
            value = float(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise FormatError(
                f"{self.name}: the fact {key!r} should be {kind.__name__}, not {type(value).__name__}"
            )
        return value

    # -- tensors --------------------------------------------------------------------------------

    @property
    def tensor_names(self) -> list[str]:
        return list(self._tensors)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def shape(self, name: str) -> tuple[int, ...]:
        """As numpy and torch say it: [out, in]."""
        return tuple(reversed(self._tensor(name).dims))

    def size(self, name: str) -> int:
        return prod(self.shape(name))

    def expect(self, name: str, shape: tuple[int, ...]) -> None:
        """Refuse a tensor that is missing, of another shape, or of a type that cannot be read."""
        if self.shape(name) != shape:
            raise FormatError(f"{self.name}: tensor {name!r} has shape {self.shape(name)}, expected {shape}")
        kind = _Type(self._tensor(name).type)
        if kind not in _READABLE:
            raise UnsupportedError(
                f"{self.name}: tensor {name!r} has type {kind.name}, which cannot be read as floats"
            )

    def read(self, name: str, rows: Any = slice(None)) -> Floats:
        """Rows of a tensor as float32; `rows` is a slice or an array of row numbers."""
        tensor = self._tensor(name)
        kind = _Type(tensor.type)
        stored = np.frombuffer(tensor.data, _STORED_AS.get(kind, np.uint8))
        with np.errstate(all="ignore"):  # damaged scales overflow; the result is checked instead
            values: Floats = gguf.dequantize(stored.reshape(*self.shape(name)[:-1], -1)[rows], kind)
            values = values.astype(np.float32, copy=False)
        if not np.isfinite(values).all():
            raise FormatError(
                f"{self.name}: tensor {name!r} holds values that are not finite: the file is damaged"
            )
        return values

    def kind(self, name: str) -> str:
        """GGUF's name of a tensor's type, such as Q4_K."""
        return str(_Type(self._tensor(name).type).name)

    def stored(self, name: str, rows: Any = slice(None)) -> NDArray[np.uint8]:
        """Rows of a tensor as they are stored, in bytes: [rows, bytes of a row]."""
        stored = np.frombuffer(self._tensor(name).data, np.uint8)
        chosen: NDArray[np.uint8] = stored.reshape(*self.shape(name)[:-1], -1)[rows]
        return chosen

    def _tensor(self, name: str) -> TensorEntry:
        try:
            return self._tensors[name]
        except KeyError:
            raise FormatError(f"{self.name}: tensor {name!r} is missing") from None


def _is_readable(kind: Any) -> bool:
    block, nbytes = gguf.GGML_QUANT_SIZES[kind]
    try:
        gguf.dequantize(np.zeros((1, nbytes), np.uint8).view(_STORED_AS.get(kind, np.uint8)), kind)
    except NotImplementedError:
        return False
    return bool(block)


_READABLE = frozenset(kind for kind in gguf.GGML_QUANT_SIZES if _is_readable(kind))
