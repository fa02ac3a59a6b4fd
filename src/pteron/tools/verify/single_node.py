"""One node of a program as a program of its own: to run it by another kernel, or on another device."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from pteron.api.method import Method
from pteron.compiler.ir.values import Graph, Node, Port, SymInt, Tensor, Value, ValueId
from pteron.compiler.plan.routes import Choice
from pteron.compiler.plan.sweep import plan
from pteron.compiler.sketch import Sketch, replaced
from pteron.engine.arrays.numpy_arrays import convert_constant
from pteron.engine.devices.device import Device
from pteron.engine.weight_store import WeightStore
from pteron.tools.verify.walk import NodeRun, results


class SingleNode:
    """A graph with one node. Its inputs are what the node reads; constants stay constants."""

    def __init__(self, graph: Graph, node: Node) -> None:
        self._states = {tensor.id for tensor in graph.states}
        self._own: dict[ValueId, Value] = {}
        self.inputs: list[ValueId] = []  # the values of the whole program that are its inputs
        sketch = Sketch(node.name)
        self.graph = sketch.graph
        mine = sketch.node(node.name, replaced(node.args, (Tensor, SymInt), self._value), node.origin)
        for value in dict.fromkeys((*node.reads, *node.mutates)):
            own = self._own[value.id]
            if isinstance(own, SymInt) or own.constant is None:
                kind = "int" if isinstance(own, SymInt) else own.dtype.label
                self.graph.inputs.append(Port(f"input{len(self.inputs)}", own, kind, True))
                self.inputs.append(value.id)
        sketch.finish(*results(mine))

    def _value(self, value: Value) -> Value:
        if value.id not in self._own:
            if isinstance(value, SymInt):
                self._own[value.id] = self.graph.symint(value.name)
            else:
                constant = None if value.id in self._states else value.constant
                self._own[value.id] = self.graph.tensor(
                    value.dtype, value.max_shape, value.name, constant, value.layout
                )
        return self._own[value.id]

    def open(
        self, device: Device, features: Collection[str], choice: Choice | None = None
    ) -> AbstractContextManager[Method]:
        return open_graph(self.graph, device, features, choice)

    def given(self, run: NodeRun) -> list[Any]:
        """The inputs of the node in a run."""
        return [run.given[value] for value in self.inputs]


@contextmanager
def open_graph(
    graph: Graph, device: Device, features: Collection[str], choice: Choice | None = None
) -> Iterator[Method]:
    """Open a graph as a method with weights of its own."""
    weights = WeightStore(device, convert_constant)
    try:
        method = Method(plan(graph, features, choice), device, weights)
        try:
            yield method
        finally:
            method.close()
    finally:
        weights.close()
