"""Weights as the file has them: the same numbers, in operators of Pteron's own.

Block formats become codes, scales and minima. float32 stays; other floats become float16, which rounds
bfloat16 numbers below 2^-17, by 2^-25 at most. Formats that are not known here become float16, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pteron.errors import FormatError
from pteron.llm.gguf.codes import Coded, code, joined
from pteron.llm.gguf.delegate_builder import DelegateBuilder, Value
from pteron.llm.gguf.formats import FORMATS, decode_blocks
from pteron.llm.gguf.quantize import Floats
from pteron.llm.gguf.source import GgufFile
from pteron.llm.gguf.weights import EMBEDDING, HEAD, Matrix, Order, Weights

# Weights that are decoded at a time: so a large matrix needs little memory beside its own.
AT_ONCE = 1 << 22


@dataclass(frozen=True, slots=True)
class CodedMatrix:
    coded: Coded
    bias: Floats | None = None

    def product(self, g: DelegateBuilder, x: Value) -> Value:
        bias = None if self.bias is None else g.constant(self.bias)
        shape = (*x.shape[:-1], self.coded.rows)
        return g.call("pteron.linear_affine.default", x, *self._arguments(g), bias, shape=shape)

    def lookup(self, g: DelegateBuilder, tokens: Value) -> Value:
        shape = (*tokens.shape, self.coded.depth)
        return g.call("pteron.embedding_affine.default", *self._arguments(g), tokens, shape=shape)

    def _arguments(self, g: DelegateBuilder) -> tuple[Any, ...]:
        coded = self.coded
        table = None if coded.table is None else g.shared_constant(np.array(coded.table, np.float32))
        codes, scales = g.constant(coded.words), g.constant(coded.scales)
        return codes, scales, coded.bits, coded.group_size, coded.zero, table


@dataclass(frozen=True, slots=True)
class FloatMatrix:
    values: NDArray[Any]
    bias: Floats | None = None

    def product(self, g: DelegateBuilder, x: Value) -> Value:
        bias = None if self.bias is None else g.constant(self.bias)
        shape = (*x.shape[:-1], len(self.values))
        return g.call("aten.linear.default", x, g.constant(self.values), bias, shape=shape)

    def lookup(self, g: DelegateBuilder, tokens: Value) -> Value:
        shape, table = (*tokens.shape, self.values.shape[1]), g.constant(self.values)
        return g.call("aten.embedding.default", table, tokens, -1, False, False, shape=shape)


class ExactWeights(Weights):
    def __init__(self, file: GgufFile, on_matrix: Callable[[int], None]) -> None:
        """`on_matrix` hears the size of each matrix that is done."""
        super().__init__(file)
        self._on_matrix = on_matrix
        self._table: Matrix | None = None

    def linear(self, name: str, order: Order | None = None) -> Matrix:
        return self._matrix(name, order)

    def embedding(self) -> Matrix:
        if self._table is None:
            self._table = self._matrix(EMBEDDING)
        return self._table

    def head(self) -> Matrix:
        return self.embedding() if self.is_tied else self._matrix(HEAD)

    @property
    def description(self) -> str:
        sizes: Counter[str] = Counter()
        for name in self._file.tensor_names:
            if len(self._file.shape(name)) > 1:
                sizes[self._file.kind(name)] += self._file.size(name)
        return f"as in the GGUF file: {', '.join(kind for kind, _ in sizes.most_common())}"

    def _matrix(self, name: str, order: Order | None = None) -> Matrix:
        tensor = f"{name}.weight"
        bias, kind = self.bias(name, order), self._file.kind(tensor)
        blocks = list(self._blocks(tensor, order))
        made: Matrix
        if kind in FORMATS:
            made = CodedMatrix(joined([self._coded(tensor, rows) for rows in blocks]), bias)
        else:
            values = np.concatenate([self._floats(tensor, rows, kind) for rows in blocks])
            made = FloatMatrix(values, bias)
        self._on_matrix(self._file.size(tensor))
        return made

    def _blocks(self, tensor: str, order: Order | None) -> Iterator[Any]:
        """Which rows to read at a time."""
        rows, width = self._file.shape(tensor)
        step = max(1, AT_ONCE // width)
        for start in range(0, rows, step):
            block = slice(start, min(start + step, rows))
            yield block if order is None else order[block]

    def _coded(self, tensor: str, rows: Any) -> Coded:
        parts = decode_blocks(self._file.kind(tensor), self._file.stored(tensor, rows))
        for numbers in (parts.scales, parts.minima):
            if numbers is not None and not np.isfinite(numbers).all():
                where = f"{self._file.name}: tensor {tensor!r}"
                raise FormatError(f"{where} holds values that are not finite: the file is damaged")
        return code(parts)

    def _floats(self, tensor: str, rows: Any, kind: str) -> NDArray[Any]:
        values = self._file.read(tensor, rows)
        largest = np.finfo(np.float16).max
        return values if kind == "F32" or np.abs(values).max() > largest else values.astype(np.float16)
