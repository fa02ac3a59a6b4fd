"""One linear layer that computes queries, keys and values gets an output for each, on GPUs.

Vision models view its result as [B, S, 3, H, D], permute it to [3, B, H, S, D], and take it apart: four
copies. With three outputs, each is a view [B, S, H, D] and a permutation, which attention does not need.
"""

from __future__ import annotations

from typing import NamedTuple

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Graph, Node
from pteron.compiler.passes.edit import Replacement, Uses, growable, rebuild

LINEAR, VIEW, PERMUTE = "aten.linear.default", "aten.view_copy.default", "aten.permute_copy.default"
SLICE, SQUEEZE = "aten.slice_copy.Tensor", "aten.squeeze_copy.dims"
PARTS = 3


class ThreeHeads(NamedTuple):
    """What takes the result of a linear layer apart."""

    view: Node
    permute: Node
    parts: list[tuple[Node, Node]]  # a slice and a squeeze, in the order of the parts


def fuse(graph: Graph) -> Graph:
    graph = growable(graph)
    uses = Uses(graph)
    replacements: dict[int, list[Replacement]] = {}
    for node in graph.nodes:
        split = _split_after(node, uses) if node.name == LINEAR and node.when is None else None
        if split is None:
            continue
        view, permute, parts = split
        *read, y = node.args
        _, sizes, viewed = view.args
        shape = (*viewed.max_shape[:2], *viewed.max_shape[3:])
        flat = (*y.max_shape[:-1], shape[2] * shape[3])
        outs = [graph.tensor(DType.float32, flat, f"{y.name}.{n}") for n in range(PARTS)]
        rows = [graph.tensor(DType.float32, shape, f"{viewed.name}.{n}") for n in range(PARTS)]
        replacements[node.index] = [Replacement("pteron.linears", (*read, tuple(outs)), (node,))]
        gone = (permute, view, *(each for part in parts for each in part))
        replacements[permute.index] = [
            *(
                Replacement(VIEW, (out, (*sizes[:2], *sizes[3:]), row), gone)
                for out, row in zip(outs, rows, strict=True)
            ),
            *(
                Replacement(PERMUTE, (row, (0, 2, 1, 3), squeeze.args[-1]), gone)
                for row, (_, squeeze) in zip(rows, parts, strict=True)
            ),
        ]
    return rebuild(graph, replacements)


def _split_after(linear: Node, uses: Uses) -> ThreeHeads | None:
    view = _only_reader(linear, VIEW, uses)
    permute = None if view is None else _only_reader(view, PERMUTE, uses)
    if view is None or permute is None:
        return None
    _, sizes, made = view.args
    _, order, permuted = permute.args
    if len(made.max_shape) != 5 or made.max_shape[2] != PARTS or tuple(order) != (2, 0, 3, 1, 4):
        return None
    if made.dtype is not DType.float32 or made.max_shape[4] % 4 or sizes[2] != PARTS:
        return None
    slices = uses.readers[permuted.id]
    if len(slices) != PARTS or uses.is_output(permuted):
        return None
    parts = []
    for n, each in enumerate(sorted(slices, key=lambda each: each.index)):
        squeeze = _only_reader(each, SQUEEZE, uses)
        if each.name != SLICE or tuple(each.args[1:5]) != (0, n, n + 1, 1) or squeeze is None:
            return None
        if squeeze.args[1] != (0,):
            return None
        parts.append((each, squeeze))
    return ThreeHeads(view, permute, parts)


def _only_reader(node: Node, name: str, uses: Uses) -> Node | None:
    result = node.args[-1]
    reader = uses.only_reader(result)
    return reader if reader is not None and reader.name == name and uses.is_settled(result) else None
