"""Fuse attention that the exporter writes as two products and a softmax into one node.

The pattern is softmax(q @ k^T * scale + mask) @ v. Between these operators there are views, copies and
permutations. The scale may be divided among the queries, the keys and the scores. The mask is optional. So is
the part that sets rows without visible keys to 0. The fused kernel does not store the scores, and the
permutations from [B, S, H, D] to [B, H, S, D] and back become strides.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from typing import Any

from pteron.compiler.ir.constants import permutation
from pteron.compiler.ir.unread import without_unread
from pteron.compiler.ir.values import Constant, Graph, Node, Shape, Tensor, Value
from pteron.compiler.passes.edit import Replacement, Uses, rebuild

BMM, SOFTMAX, VIEW, EXPAND = (
    f"aten.{name}.default" for name in ("bmm", "_softmax", "view_copy", "expand_copy")
)
PERMUTE = "aten.permute_copy.default"
SWAP_HEADS = (0, 2, 1, 3)  # from [B, S, H, D] to [B, H, S, D], and back
SWAP_LAST = (0, 1, 3, 2)
NUMBER_FORMATS = {"float32": "<f", "float64": "<d"}


def fuse(graph: Graph) -> Graph:
    uses = Uses(graph)
    replacements: dict[int, Replacement] = {}
    inner: list[Value] = []
    for node in graph.nodes:
        found = Pattern(uses).match(node) if node.name == BMM else None
        if found is not None:
            replacements[node.index] = found.replacement
            inner += found.inner
    return without_unread(rebuild(graph, replacements), inner)


@dataclass(frozen=True, slots=True)
class Operand:
    """Queries, keys or values [B, H, S, D], the same by sequence if they are permuted, and their factor."""

    heads: Tensor
    sequence: Tensor | None
    factor: float


@dataclass(frozen=True, slots=True)
class Found:
    replacement: Replacement
    inner: list[Value]  # what is not needed any more if nothing else reads it


class Mismatch(Exception):
    """The nodes are not the pattern."""


@dataclass(slots=True)
class Pattern:
    """One attempt to match the pattern, backwards from the product with the values."""

    uses: Uses
    operands: dict[int, Node] = field(
        default_factory=dict
    )  # nodes between q, k, v and the products, by index
    inner: dict[int, Node] = field(default_factory=dict)  # nodes from the first product to the second

    def match(self, product: Node) -> Found | None:
        try:
            return self._match(product)
        except Mismatch:
            return None

    def _match(self, product: Node) -> Found:
        weights, values, result = product.args
        _require(product.when is None)
        softmax, empty_is_zero = self._softmax(weights)
        first, mask, factor, lead = self._scores(softmax)
        queries_3d, keys_3d, _ = first.args
        q, k, v = self._operand(queries_3d), self._keys(keys_3d), self._operand(values)
        batch, heads, length, width = q.heads.max_shape
        _require(
            k.heads.max_shape == v.heads.max_shape
            and k.heads.max_shape[:2] == (batch, heads) == lead
            and k.heads.max_shape[3] == width
            and v.factor == 1
            and q.heads.dtype.is_float
            and {k.heads.dtype, v.heads.dtype, result.dtype} == {q.heads.dtype}
        )
        self._require_only_inner_readers(product)
        by_sequence, after, out = self._output(product, (batch, heads, length, width), q.sequence is not None)
        keys_by_sequence = k.sequence is not None and v.sequence is not None
        read = (
            q.sequence if by_sequence else q.heads,
            k.sequence if keys_by_sequence else k.heads,
            v.sequence if keys_by_sequence else v.heads,
            mask,
        )
        _require(all(t is None or self.uses.is_settled(t) for t in (*read, out)))
        scale = factor * q.factor * k.factor
        args = (*read, scale, by_sequence, keys_by_sequence, empty_is_zero, out)
        inner = [v for node in {**self.inner, **self.operands}.values() for v in node.writes]
        return Found(Replacement("pteron.attention", args, (product, *after)), inner)

    # -- from the second product back to the first ----------------------------------------------------

    def _softmax(self, weights: Tensor) -> tuple[Node, bool]:
        """The softmax that computes the weights, and whether rows without visible keys become 0."""
        viewed, factor = self._unscaled(self._source_of_view(weights, self.inner), self.inner)
        _require(factor == 1)
        node = self._writer(viewed, self.inner)
        if node.name == SOFTMAX:
            return node, False
        _require(node.name == "aten.where.self")
        empty, zeros, computed, _ = node.args
        softmax = self._writer(computed, self.inner)
        _require(softmax.name == SOFTMAX)
        filled = self._named(zeros, "aten.full_like.default")
        _require(filled.args[1] == 0)
        seen = self._named(empty, "aten.logical_not.default").args[0]
        some = self._named(seen, "aten.any.dim")
        _require(some.args[1:3] == (-1, True))
        hidden = self._named(self._named(some.args[0], "aten.logical_not.default").args[0], "aten.eq.Scalar")
        _require(hidden.args[0] is softmax.args[0] and hidden.args[1] == -math.inf)
        return softmax, True

    def _scores(self, softmax: Node) -> tuple[Node, Tensor | None, float, Shape]:
        """The product of queries and keys, the mask, the factor of the scores, and their first two sizes."""
        scores, dim, half_to_float, _ = softmax.args
        _require(len(scores.max_shape) == 4 and dim in (-1, 3) and not half_to_float)
        lead, mask = scores.max_shape[:2], None
        node = self._writer(scores, self.inner)
        if node.name == "aten.add.Tensor":
            scores, mask, alpha, total = node.args
            _require(alpha == 1 and scores.max_shape == total.max_shape and mask.dtype.is_float)
        scores, factor = self._unscaled(scores, self.inner)
        product, more = self._unscaled(self._source_of_view(scores, self.inner), self.inner)
        first = self._writer(product, self.inner)
        _require(first.name == BMM)
        return first, mask, factor * more, lead

    def _require_only_inner_readers(self, product: Node) -> None:
        """Nothing else reads scores or weights: they would have to be computed anyway."""
        inside = {*self.inner, product.index}
        for node in self.inner.values():
            for tensor in node.writes:
                _require(not (isinstance(tensor, Tensor) and self.uses.is_output(tensor)))
                _require(all(reader.index in inside for reader in self.uses.readers[tensor.id]))

    # -- operands -------------------------------------------------------------------------------------

    def _operand(self, flat: Tensor) -> Operand:
        """Queries or values: [B, H, S, D], viewed as [B * H, S, D]."""
        flat, factor = self._unscaled(flat, self.operands)
        view = self._writer(flat, self.operands)
        # The kernel is compiled for this head size, so it must not be a live size.
        _require(view.name == VIEW and isinstance(view.args[1][-1], int))
        heads, more = self._unscaled(self._source_of_view(flat, self.operands), self.operands)
        return Operand(heads, self._permuted_from(heads, SWAP_HEADS), factor * more)

    def _keys(self, flat: Tensor) -> Operand:
        """Keys: [B, H, S, D], with the last dimensions swapped, viewed as [B * H, D, S]."""
        flat, factor = self._unscaled(flat, self.operands)
        swapped, more = self._unscaled(self._source_of_view(flat, self.operands), self.operands)
        heads = self._permuted_from(swapped, SWAP_LAST)
        if heads is None:
            raise Mismatch
        heads, again = self._unscaled(heads, self.operands)
        return Operand(heads, self._permuted_from(heads, SWAP_HEADS), factor * more * again)

    def _permuted_from(self, tensor: Tensor, order: tuple[int, ...]) -> Tensor | None:
        node = self.uses.writer.get(tensor.id)
        if node is None or node.name != PERMUTE or node.when is not None:
            return None
        source, dims, _ = node.args
        if permutation(source, dims) != order:
            return None
        self.operands[node.index] = node
        return source  # type: ignore[no-any-return]

    # -- the result -----------------------------------------------------------------------------------

    def _output(self, product: Node, shape: Shape, may_swap: bool) -> tuple[bool, list[Node], Tensor]:
        """Find whether the result is by sequence, the nodes after it that only move it, and their output.

        Permutations that cancel out are among these nodes.
        """
        view = self._only_reader(product)
        _require(view is not None and view.name == VIEW and view.args[-1].max_shape == shape)
        assert view is not None
        unchanged: tuple[int, ...] = (0, 1, 2, 3)
        nodes, order = [view], unchanged
        best = (False, [view])
        while (node := self._only_reader(nodes[-1])) is not None:
            if node.name == PERMUTE:
                dims = permutation(node.args[0], node.args[1])
                order = tuple(order[d] for d in dims)
            elif not _keeps_elements(node):
                break
            nodes.append(node)
            if order == unchanged or (order == SWAP_HEADS and may_swap):
                best = (order == SWAP_HEADS, list(nodes))
        return best[0], best[1], best[1][-1].args[-1]

    def _only_reader(self, node: Node) -> Node | None:
        result = node.args[-1]
        return self.uses.only_reader(result) if self.uses.is_settled(result) else None

    # -- steps back -----------------------------------------------------------------------------------

    def _writer(self, tensor: Any, among: dict[int, Node]) -> Node:
        node = self.uses.writer.get(tensor.id) if isinstance(tensor, Tensor) else None
        if node is None or node.when is not None or not self.uses.is_settled(tensor):
            raise Mismatch
        among[node.index] = node
        return node

    def _named(self, tensor: Any, name: str) -> Node:
        node = self._writer(tensor, self.inner)
        _require(node.name == name)
        return node

    def _unscaled(self, tensor: Tensor, among: dict[int, Node]) -> tuple[Tensor, float]:
        """The tensor before copies and multiplications by constants, and the product of the constants."""
        factor = 1.0
        while (node := self.uses.writer.get(tensor.id)) is not None:
            number = 1.0 if _keeps_elements(node) else self._multiplier(node)
            if number is None or node.when is not None or not self.uses.is_settled(tensor):
                break
            source = node.args[0]
            among[node.index] = node
            tensor, factor = source, factor * number
        return tensor, factor

    def _source_of_view(self, tensor: Tensor, among: dict[int, Node]) -> Tensor:
        """The tensor with four dimensions that is viewed with three, or the reverse."""
        tensor, factor = self._unscaled(tensor, among)
        _require(factor == 1)
        view = self._writer(tensor, among)
        source, _, _ = view.args if view.name == VIEW else (None, None, None)
        if source is None:
            raise Mismatch
        small, large = sorted((source.max_shape, tensor.max_shape), key=len)
        _require((len(small), len(large)) == (3, 4) and small == (large[0] * large[1], *large[2:]))
        return source  # type: ignore[no-any-return]

    def _multiplier(self, node: Node) -> float | None:
        """The constant that a node multiplies its first argument by."""
        match node.name, node.args:
            case "aten.mul.Scalar", (_, int() | float() as number, _):
                return float(number)
            case "aten.mul.Tensor", (Tensor(), Tensor(max_shape=()) as scalar, _):
                return self._number(scalar)
            case "aten.div.Tensor", (Tensor(), Tensor(max_shape=()) as scalar, _):
                divisor = self._number(scalar)
                return 1 / divisor if divisor else None
        return None

    def _number(self, scalar: Tensor) -> float | None:
        constant = scalar.constant
        if not isinstance(constant, Constant) or not self.uses.is_settled(scalar):
            return None
        code = NUMBER_FORMATS.get(constant.host_type)
        return None if code is None else float(struct.unpack(code, bytes(constant.data))[0])


def _keeps_elements(node: Node) -> bool:
    """Whether the output is equal to the first argument."""
    if node.op.alias is None and node.name != EXPAND:
        return False
    source, out = node.args[0], node.args[-1]
    return (source.max_shape, source.dtype) == (out.max_shape, out.dtype)


def _require(condition: bool) -> None:
    if not condition:
        raise Mismatch
