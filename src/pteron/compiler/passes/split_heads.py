"""One linear layer that computes queries, keys and values gets an output for each, on GPUs.

Vision models view its result as [B, S, 3, H, D], permute it to [3, B, H, S, D], and take it apart: four
copies. With three outputs, each is a view [B, S, H, D] and a permutation, which attention does not need.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Graph, Node, Shape, Tensor, ValueId
from pteron.compiler.passes.edit import Replacement, Uses, rebuild

LINEAR, VIEW, PERMUTE = "aten.linear.default", "aten.view_copy.default", "aten.permute_copy.default"
SLICE, SQUEEZE = "aten.slice_copy.Tensor", "aten.squeeze_copy.dims"
PARTS = 3


class ThreeHeads(NamedTuple):
    """What takes the result of a linear layer apart."""

    view: Node
    permute: Node
    parts: list[tuple[Node, Node]]  # a slice and a squeeze, in the order of the parts


def fuse(graph: Graph) -> Graph:
    graph = replace(graph, values=list(graph.values))
    uses = Uses(graph)
    replacements: dict[int, list[Replacement]] = {}
    for node in graph.nodes:
        split = _split_after(node, uses) if node.name == LINEAR and node.when is None else None
        if split is None:
            continue
        view, permute, parts = split
        linear_args: tuple[Any, ...] = node.args
        view_args: tuple[Any, ...] = view.args
        *read, y = linear_args
        _, sizes, viewed = view_args
        shape = (*viewed.max_shape[:2], *viewed.max_shape[3:])
        outs = [
            _value(graph, f"{y.name}.{n}", (*y.max_shape[:-1], shape[2] * shape[3])) for n in range(PARTS)
        ]
        rows = [_value(graph, f"{viewed.name}.{n}", shape) for n in range(PARTS)]
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


def _value(graph: Graph, name: str, shape: Shape) -> Tensor:
    made = Tensor(ValueId(len(graph.values)), DType.float32, shape, name)
    graph.values.append(made)
    return made


def _split_after(linear: Node, uses: Uses) -> ThreeHeads | None:
    view = _only_reader(linear, VIEW, uses)
    permute = None if view is None else _only_reader(view, PERMUTE, uses)
    if view is None or permute is None:
        return None
    made: Any = view.writes[0]
    order: Any = permute.args[1]
    if len(made.max_shape) != 5 or made.max_shape[2] != PARTS or tuple(order) != (2, 0, 3, 1, 4):
        return None
    if made.dtype is not DType.float32 or made.max_shape[4] % 4 or view.args[1][2] != PARTS:  # type: ignore[index]
        return None
    slices: list[Any] = uses.readers[permute.writes[0].id]
    if len(slices) != PARTS or uses.is_output(permute.writes[0]):  # type: ignore[arg-type]
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
    (result,) = node.writes
    readers = uses.readers[result.id]
    if len(readers) != 1 or readers[0].name != name or readers[0].when is not None:
        return None
    settled = isinstance(result, Tensor) and uses.is_settled(result) and not uses.is_output(result)
    return readers[0] if settled else None
