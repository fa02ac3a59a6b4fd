"""Build a graph by hand, without a file: for one operator, or for a test."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import (
    Arg,
    Constant,
    Graph,
    Node,
    Port,
    Shape,
    SymInt,
    Tensor,
    Value,
    numel,
)
from pteron.compiler.ops import known
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
        self,
        *shape: int,
        dtype: DType = DType.float32,
        data: bytes | None = None,
        host: str = "",
        layout: str = "",
    ) -> Tensor:
        """A constant tensor: these bytes in the host type `host`, or zeros."""
        stored = ByteSource(bytes(numel(shape) * dtype.itemsize) if data is None else data).region()
        name = f"c{len(self.graph.values)}"
        return self.graph.tensor(dtype, shape, name, Constant(stored, host or dtype.label), layout)

    def value(self, *shape: int, dtype: DType = DType.float32) -> Tensor:
        """A tensor that a node writes."""
        return self.graph.tensor(dtype, shape, f"v{len(self.graph.values)}")

    def node(
        self, name: str, args: Iterable[Arg], origin: str = "sketch", when: SymInt | None = None
    ) -> Node:
        """A node. It runs only in calls in which `when` is not 0. Its outputs are its last argument."""
        spec = known(name)
        node = spec.node(spec.bind(args), origin, index=len(self.graph.nodes), when=when)
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
        """Return the graph with these outputs."""
        self.graph.outputs = [
            Port(f"output{i}", v, v.dtype.label if isinstance(v, Tensor) else "int", True)
            for i, v in enumerate(outputs)
        ]
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
