"""Graphs drawn by hand: enough to try the sweep and the memory plan without a file or a GPU."""

from __future__ import annotations

from typing import Any

import pteron.ops  # noqa: F401  registers the operators
from pteron.ir.dtypes import DType
from pteron.ir.live import Live
from pteron.ir.values import Constant, Graph, Port, Shape, SymInt, Tensor, Value
from pteron.lower.builder import Builder
from pteron.plan.memory import Layout
from pteron.plan.sweep import LiveGraph
from pteron.pte.bytesource import ByteSource


class Sketch(Builder):
    """A builder that also knows inputs and outputs."""

    def __init__(self) -> None:
        super().__init__("sketch")

    def input(self, *shape: int, dtype: DType = DType.float32) -> Tensor:
        tensor = self.value(*shape, dtype=dtype)
        self.graph.inputs.append(Port(tensor.name, tensor, dtype.label, True))
        return tensor

    def integer(self) -> SymInt:
        symint = self.symint(f"n{len(self.graph.values)}")
        self.graph.inputs.append(Port(symint.name, symint, "int", True))
        return symint

    def constant(self, *shape: int, dtype: DType = DType.float32) -> Tensor:
        tensor = Tensor(self.value(*shape, dtype=dtype).id, dtype, shape, "constant")
        data = Constant(ByteSource(bytes(tensor.max_nbytes)).region(), dtype.label)
        self.graph.values[tensor.id] = tensor = Tensor(tensor.id, dtype, shape, f"c{tensor.id}", data)
        return tensor

    def value(self, *shape: int, dtype: DType = DType.float32) -> Tensor:
        return self.tensor(dtype, shape, f"v{len(self.graph.values)}")

    def add(self, name: str, *args: Any, shape: Shape | None = None, dtype: DType = DType.float32) -> Any:
        """A node with one output of the given largest shape, or a SymInt where there is none."""
        out = self.symint(f"s{len(self.graph.values)}") if shape is None else self.value(*shape, dtype=dtype)
        self.node(name, [*args, out], "sketch")
        return out

    def finish(self, *outputs: Value) -> Graph:
        assert not self.problems, self.problems
        self.graph.outputs = [Port(f"output{i}", v, "float32", True) for i, v in enumerate(outputs)]
        return self.graph


def live(graph: Graph, **options: Any) -> LiveGraph:
    return LiveGraph(graph, Layout.of(graph), **options)


def shape_of(graph: LiveGraph, value: Value) -> Live:
    return graph.live[value.id]
