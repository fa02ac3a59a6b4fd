"""Graphs that tests build without a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pteron.fusion
import pteron.ops  # noqa: F401  both register operators
from pteron.ir.dtypes import DType
from pteron.ir.live import Live
from pteron.ir.op import find
from pteron.ir.values import Arg, Constant, Graph, Node, Port, Shape, SymInt, Tensor, Value, numel, values_in
from pteron.plan.memory import Layout
from pteron.plan.sweep import LiveGraph
from pteron.pte.bytesource import ByteSource


class Sketch:
    """Builds a graph. No pass changes its nodes."""

    def __init__(self, name: str = "sketch") -> None:
        self.graph = Graph(name)

    def input(self, *shape: int, dtype: DType = DType.float32, host: str = "") -> Tensor:
        """An input tensor. Its host type is `host`, or the stored type."""
        tensor = self.value(*shape, dtype=dtype)
        self.graph.inputs.append(Port(tensor.name, tensor, host or dtype.label, True))
        return tensor

    def integer(self) -> SymInt:
        """An integer input."""
        symint = self.graph.symint(f"n{len(self.graph.values)}")
        self.graph.inputs.append(Port(symint.name, symint, "int", True))
        return symint

    def constant(
        self, *shape: int, dtype: DType = DType.float32, data: bytes | None = None, host: str = ""
    ) -> Tensor:
        """A constant tensor: these bytes in the host type `host`, or zeros."""
        stored = ByteSource(bytes(numel(shape) * dtype.itemsize) if data is None else data).region()
        name = f"c{len(self.graph.values)}"
        return self.graph.tensor(dtype, shape, name, Constant(stored, host or dtype.label))

    def value(self, *shape: int, dtype: DType = DType.float32) -> Tensor:
        """A tensor that a node writes."""
        return self.graph.tensor(dtype, shape, f"v{len(self.graph.values)}")

    def node(
        self, name: str, args: Iterable[Arg], origin: str = "sketch", when: SymInt | None = None
    ) -> Node:
        """A node. It runs only in calls in which `when` is not 0. Its outputs are its last argument."""
        spec = find(name)
        assert spec is not None, f"{name} is not registered"
        bound = spec.bind(tuple(args))
        reads = tuple(value for arg in bound[:-1] for value in values_in(arg))
        index = len(self.graph.nodes)
        node = Node(index, name, spec, bound, reads, spec.outputs(bound), spec.mutated(bound), origin, when)
        self.graph.nodes.append(node)
        return node

    def add(self, name: str, *args: Any, shape: Shape | None = None, dtype: DType = DType.float32) -> Any:
        """A node with one output: a tensor of the given largest shape, or a SymInt if there is no shape."""
        out: Value
        if shape is None:
            out = self.graph.symint(f"s{len(self.graph.values)}")
        else:
            out = self.value(*shape, dtype=dtype)
        self.node(name, [*args, out])
        return out

    def finish(self, *outputs: Value) -> Graph:
        self.graph.outputs = [Port(f"output{i}", v, "float32", True) for i, v in enumerate(outputs)]
        return self.graph


def replaced(args: Any, kinds: tuple[type, ...], replace: Callable[[Any], Any]) -> Any:
    """The arguments with every object of these kinds replaced, also in lists."""
    if isinstance(args, kinds):
        return replace(args)
    return tuple(replaced(arg, kinds, replace) for arg in args) if isinstance(args, (list, tuple)) else args


def found(args: Any, kinds: tuple[type, ...]) -> list[Any]:
    """All objects of these kinds in the arguments, also in lists, in order."""
    leaves: list[Any] = []
    replaced(args, kinds, leaves.append)
    return leaves


def live(graph: Graph, **options: Any) -> LiveGraph:
    return LiveGraph(graph, Layout.of(graph), **options)


def shape_of(graph: LiveGraph, value: Value) -> Live:
    return graph.live[value.id]
