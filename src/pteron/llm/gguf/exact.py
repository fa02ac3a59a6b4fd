"""Weights as the file has them: the same numbers, in operators of Pteron's own.

Block formats become codes, scales and minima. float32, float16 and bfloat16 stay as they are. Formats that
are not known here become float16.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pteron.errors import FormatError
from pteron.llm.architectures.tensors import Floats, Tensors
from pteron.llm.architectures.transformer import Rows
from pteron.llm.gguf.codes import Coded, code, joined
from pteron.llm.gguf.delegate_builder import DelegateBuilder, Value
from pteron.llm.gguf.formats import FORMATS, decode_blocks
from pteron.llm.gguf.weights import EMBEDDING, HEAD, Matrix, Weights

FLOATS = ("F32", "F16", "BF16")
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

    def expert_product(self, g: DelegateBuilder, x: Value, chosen: Value, columns: int) -> Value:
        """The rows are those of several matrices, `columns` each."""
        shape = (*chosen.shape, columns)
        return g.call("pteron.experts_affine.default", x, chosen, *self._arguments(g), shape=shape)

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
    values: NDArray[Any]  # of bfloat16, which numpy has not: its bits
    bias: Floats | None = None

    def product(self, g: DelegateBuilder, x: Value) -> Value:
        bias = None if self.bias is None else g.constant(self.bias)
        shape = (*x.shape[:-1], len(self.values))
        return g.call("aten.linear.default", x, self._constant(g), bias, shape=shape)

    def expert_product(self, g: DelegateBuilder, x: Value, chosen: Value, columns: int) -> Value:
        """The rows are those of several matrices, `columns` each."""
        matrices = FloatMatrix(self.values.reshape(-1, columns, self.values.shape[1]))
        shape = (*chosen.shape, columns)
        return g.call("pteron.experts.default", x, chosen, matrices._constant(g), shape=shape)

    def lookup(self, g: DelegateBuilder, tokens: Value) -> Value:
        shape, table = (*tokens.shape, self.values.shape[1]), self._constant(g)
        return g.call("aten.embedding.default", table, tokens, -1, False, False, shape=shape)

    def _constant(self, g: DelegateBuilder) -> Value:
        return g.constant(self.values, "bfloat16" if self.values.dtype == np.uint16 else None)


class ExactWeights(Weights):
    def __init__(self, tensors: Tensors, on_matrix: Callable[[int], None]) -> None:
        """`on_matrix` hears the size of each matrix that is done."""
        super().__init__(tensors)
        self._on_matrix = on_matrix
        self._table: Matrix | None = None

    def linear(self, name: str, rows: Rows | None = None) -> Matrix:
        return self._matrix(name, rows)

    def expert_product(self, g: DelegateBuilder, x: Value, name: str, chosen: Value) -> Value:
        columns = self._tensors.shape(f"{name}.weight")[1]
        return self._matrix(name).expert_product(g, x, chosen, columns)

    def embedding(self) -> Matrix:
        if self._table is None:
            self._table = self._matrix(EMBEDDING)
        return self._table

    def head(self) -> Matrix:
        return self.embedding() if self.is_tied else self._matrix(HEAD)

    @property
    def description(self) -> str:
        sizes: Counter[str] = Counter()
        for name in self._tensors.tensor_names:
            if len(self._tensors.shape(name)) > 1:
                sizes[self._tensors.kind(name)] += self._tensors.size(name)
        kinds = [kind for kind, _ in sizes.most_common()]
        forms = {
            "as in the file": [kind for kind in kinds if kind in (*FORMATS, *FLOATS)],
            "rounded to float16": [kind for kind in kinds if kind not in (*FORMATS, *FLOATS)],
        }
        return "; ".join(f"{form}: {', '.join(some)}" for form, some in forms.items() if some)

    def _matrix(self, name: str, rows: Rows | None = None) -> CodedMatrix | FloatMatrix:
        tensor = f"{name}.weight"
        bias, kind = self.bias(name, rows), self._tensors.kind(tensor)
        blocks = list(self._blocks(tensor, rows))
        made: CodedMatrix | FloatMatrix
        if kind in FORMATS:
            made = CodedMatrix(joined([self._coded(tensor, block) for block in blocks]), bias)
        else:
            made = self._of_floats(tensor, blocks, bias)
        width = self._tensors.shape(tensor)[-1]
        self._on_matrix(self._tensors.size(tensor) if rows is None else len(rows) * width)
        return made

    def _blocks(self, tensor: str, rows: Rows | None) -> Iterator[Any]:
        """Which rows to read at a time: some, or those of one expert."""
        if len(self._tensors.shape(tensor)) == 3:
            yield from range(self._tensors.shape(tensor)[0])
            return
        height, width = self._tensors.shape(tensor)
        chosen = height if rows is None else len(rows)
        step = max(1, AT_ONCE // width)
        for start in range(0, chosen, step):
            block = slice(start, min(start + step, chosen))
            yield block if rows is None else rows[block]

    def _coded(self, tensor: str, rows: Any) -> Coded:
        parts = decode_blocks(self._tensors.kind(tensor), self._tensors.stored(tensor, rows))
        for numbers in (parts.scales, parts.minima, parts.factors):
            if numbers is not None and not np.isfinite(numbers).all():
                where = f"{self._tensors.name}: tensor {tensor!r}"
                raise FormatError(f"{where} holds values that are not finite: the file is damaged")
        return code(parts)

    def _of_floats(self, tensor: str, blocks: list[Any], bias: Floats | None) -> CodedMatrix | FloatMatrix:
        """A matrix that is stored in no block format."""
        kind = self._tensors.kind(tensor)
        return FloatMatrix(
            np.concatenate([_stored(self._tensors.read(tensor, block), kind) for block in blocks]), bias
        )


def _stored(values: Floats, kind: str) -> NDArray[Any]:
    """Numbers of a kind, as they are stored."""
    if kind == "BF16":
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    if kind == "F32" or np.abs(values).max() > np.finfo(np.float16).max:
        return values
    return values.astype(np.float16)
