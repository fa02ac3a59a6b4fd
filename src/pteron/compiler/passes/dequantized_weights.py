"""Linear layers and embeddings read int8 weights directly.

The exporter writes `dequantize_affine`, which unpacks a whole matrix in every call, and a linear layer or an
embedding that reads the result. Here the two become one node, which reads the int8 weights.
"""

from __future__ import annotations

from typing import Any

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Arg, Constant, Graph, Node
from pteron.compiler.passes.edit import Replacement, Uses, rebuild

DEQUANTIZE = "torchao.dequantize_affine.default"
SCALES = (DType.float32, DType.float16)


def fuse(graph: Graph) -> Graph:
    uses = Uses(graph)
    replacements: dict[int, Replacement] = {}
    for node in graph.nodes:
        matrix = _matrix(node, uses)
        if matrix is None:
            continue
        readers = uses.readers[node.writes[0].id]
        calls = [_call(reader, node.writes[0], matrix) for reader in readers]
        # If another operator reads the matrix too, it is unpacked anyway.
        if None not in calls:
            for reader, call in zip(readers, calls, strict=True):
                assert call is not None
                replacements[reader.index] = Replacement(*call, (node, reader))
    return rebuild(graph, replacements)


def _matrix(node: Node, uses: Uses) -> tuple[Arg, ...] | None:
    """(codes, scales, zero points, group size) of a node that dequantizes a constant matrix to float32."""
    if node.name != DEQUANTIZE or node.when is not None:
        return None
    codes, block, scales, zeros, *_, out = node.args
    stored = [t for t in (codes, scales, zeros) if t is not None]
    fits = (
        len(block) == 2
        and block[0] == 1  # a group is a part of a row
        and codes.max_shape[1] % block[1] == 0
        and (codes.dtype, out.dtype) == (DType.int8, DType.float32)
        and scales.dtype in SCALES
        and all(isinstance(t.constant, Constant) and uses.is_settled(t) for t in stored)
        and len({t.max_shape for t in stored[1:]}) == 1
        and len(scales.max_shape) == 2
        and not uses.is_output(out)
    )
    return (codes, scales, zeros, block[1]) if fits else None


def _call(reader: Node, matrix: Any, parts: tuple[Arg, ...]) -> tuple[str, tuple[Arg, ...]] | None:
    """The operator that reads the parts of a matrix, with its arguments. None if there is none."""
    if reader.when is not None:
        return None
    match reader.name, reader.args:
        case "aten.linear.default", (x, weight, bias, out) if weight is matrix and matrix not in (x, bias):
            return "pteron.linear_int8", (x, *parts, bias, out)
        case "aten.embedding.default", (weight, indices, _, _, _, out) if weight is matrix:
            return "pteron.embedding_int8", (*parts, indices, out)
    return None
