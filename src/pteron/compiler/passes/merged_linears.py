"""Fuse linear layers that read the same tensor into one product with several outputs.

Examples are the query, key and value projections, and the two projections of a gated unit. Their weights are
joined into one constant. One larger kernel uses the GPU better than several small kernels.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pteron.compiler.ir.constants import joined_constant
from pteron.compiler.ir.values import Constant, Graph, Node, Shape, Tensor
from pteron.compiler.ops.outputs import MAX_OUTPUTS
from pteron.compiler.passes import large_weights
from pteron.compiler.passes.edit import Replacement, Uses, growable, rebuild


@dataclass(frozen=True, slots=True)
class JoinedOperator:
    """The operator that replaces several linear operators, and the axis along which constants are joined."""

    name: str
    axes: Mapping[str, int]  # for each argument with a constant; the weight comes first


JOINED_OPERATORS = {
    "aten.linear.default": JoinedOperator("pteron.linears", {"weight": 0, "bias": 0}),
    "et_vk.linear_q4gsw.default": JoinedOperator(
        "pteron.linears_q4gsw", {"weights": 0, "scales": 1, "bias": 0}
    ),
    "pteron.linear_affine.default": JoinedOperator(
        "pteron.linears_affine", {"weights": 0, "scales": 0, "bias": 0}
    ),
    "pteron.linear_int8": JoinedOperator(
        "pteron.linears_int8", {"weights": 0, "scales": 0, "zeros": 0, "bias": 0}
    ),
}


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear node. Nodes with equal `key` can be joined."""

    node: Node
    constants: dict[str, Tensor]
    key: tuple[Any, ...]

    @property
    def weight(self) -> Tensor:
        return next(iter(self.constants.values()))


def fuse(graph: Graph) -> Graph:
    graph = growable(graph)
    replacements: dict[int, Replacement] = {}
    uses = Uses(graph)
    for group in _groups(graph, uses):
        first, kind = group[0].node, JOINED_OPERATORS[group[0].node.name]
        args = first.named
        for name in group[0].constants:
            args[name] = joined_constant(graph, [each.constants[name] for each in group], kind.axes[name])
        *read, _ = args.values()
        outs = tuple(each.node.args[-1] for each in group)
        # At the position of the first node: the common input is computed before it.
        replacements[first.index] = Replacement(kind.name, (*read, outs), tuple(_replaced(group, uses)))
    return rebuild(graph, replacements)


def _replaced(group: list[Linear], uses: Uses) -> Iterator[Node]:
    """The nodes to replace: the linears, and views that only the later ones read."""
    first = group[0].node.args[0]
    for linear in group:
        x = linear.node.args[0]
        if x is not first and uses.readers[x.id] == [linear.node] and not uses.is_output(x):
            yield uses.writer[x.id]
        yield linear.node


def _groups(graph: Graph, uses: Uses) -> Iterator[list[Linear]]:
    """Groups of linear nodes that one kernel can compute: at least two nodes, at most `MAX_OUTPUTS`."""
    readers = Counter(id(v.constant) for node in graph.nodes for v in node.reads if isinstance(v, Tensor))
    by_key: dict[tuple[Any, ...], list[list[Linear]]] = defaultdict(list)
    for node in graph.nodes:
        linear = _linear(node, uses)
        # A weight that other nodes read too, such as an embedding table, would be stored twice.
        if linear is None or readers[id(linear.weight.constant)] > 1:
            continue
        groups = by_key[linear.key]
        if not groups or not _has_room(groups[-1], linear):
            groups.append([])
        groups[-1].append(linear)
    return (group for groups in by_key.values() for group in groups if len(group) > 1)


def _has_room(group: list[Linear], another: Linear) -> bool:
    nbytes = sum(each.weight.max_nbytes for each in (*group, another))
    return len(group) < MAX_OUTPUTS and nbytes <= large_weights.LARGEST_NBYTES


def _size(tensor: Tensor, axis: int) -> Shape:
    """The size of an axis, as a shape of one dimension; empty if there is no such axis."""
    return tensor.max_shape[axis : axis + 1]


def _linear(node: Node, uses: Uses) -> Linear | None:
    """A node as a `Linear`; None if it cannot be joined."""
    kind = JOINED_OPERATORS.get(node.name)
    if kind is None or node.when is not None:
        return None
    args = node.named
    x, out = args.pop("x"), args.pop("out")
    constants = {name: arg for name in kind.axes if isinstance(arg := args.pop(name), Tensor)}
    columns = out.max_shape[-1:]  # empty in a damaged program: passes run before rules check the shapes
    whole = [n % 4 for n in columns] == [0] and all(
        isinstance(tensor.constant, Constant) and _size(tensor, kind.axes[name]) == columns
        for name, tensor in constants.items()
    )
    if not whole or not all(map(uses.is_settled, (x, out, *constants.values()))):
        return None
    forms = ((name, t.dtype, _without_axis(t.max_shape, kind.axes[name])) for name, t in constants.items())
    return Linear(node, constants, (node.name, _view_key(x, uses), out.dtype, *forms, *args.items()))


def _view_key(x: Tensor, uses: Uses) -> Any:
    """A key for a tensor. Two equal views of the same tensor have equal keys."""
    node = uses.writer.get(x.id)
    if node is None or node.op.alias is None or node.when is not None:
        return x.id
    source, *how = node.args[:-1]
    if not isinstance(source, Tensor) or not uses.is_settled(source):
        return x.id
    return (node.name, _view_key(source, uses), x.dtype, *how)


def _without_axis(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]
