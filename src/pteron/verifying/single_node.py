"""One node of a program as a program of its own: to run it by another kernel, or on another device."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from pteron.arrays.numpy_arrays import convert_constant
from pteron.gpu.device import Device
from pteron.gpu.placement import Placement
from pteron.ir.values import Arg, Graph, Node, Port, SymInt, Tensor, Value, ValueId
from pteron.method import Method
from pteron.plan.routes import Choice, LiveShapes
from pteron.plan.sweep import plan
from pteron.verifying.walk import Array, NodeRun, results


@dataclass(frozen=True, slots=True)
class ByName:
    """Uses one route wherever it fits."""

    route: str

    def keeps(self, key: str, route: str) -> bool:
        return True

    def prefers(self, key: str, live: LiveShapes, fitting: Sequence[str]) -> str:
        return self.route if self.route in fitting else fitting[0]


class SingleNode:
    """A graph with one node. Its inputs are what the node reads; constants stay constants."""

    def __init__(self, graph: Graph, node: Node) -> None:
        self._states = {tensor.id for tensor in graph.states}
        self._own: dict[ValueId, Value] = {}
        self.graph = Graph(node.name)
        self.inputs: list[ValueId] = []  # the values of the whole program that are its inputs
        args = tuple(self._argument(arg) for arg in node.args)
        self._connect(node, args)

    def _argument(self, arg: Arg) -> Arg:
        if isinstance(arg, tuple):
            return tuple(self._argument(item) for item in arg)
        return self._value(arg) if isinstance(arg, (Tensor, SymInt)) else arg

    def _value(self, value: Value) -> Value:
        if value.id not in self._own:
            if isinstance(value, SymInt):
                self._own[value.id] = self.graph.symint(value.name)
            else:
                constant = None if value.id in self._states else value.constant
                self._own[value.id] = self.graph.tensor(value.dtype, value.max_shape, value.name, constant)
        return self._own[value.id]

    def _connect(self, node: Node, args: tuple[Arg, ...]) -> None:
        def own(values: Sequence[Any]) -> tuple[Any, ...]:
            return tuple(self._own[value.id] for value in values)

        graph = self.graph
        reads, writes, mutates = own(node.reads), own(node.writes), own(node.mutates)
        graph.nodes = [Node(0, node.name, node.op, args, reads, writes, mutates, node.origin)]
        for value in dict.fromkeys((*node.reads, *node.mutates)):
            mine = self._own[value.id]
            if isinstance(mine, SymInt) or mine.constant is None:
                kind = "int" if isinstance(mine, SymInt) else mine.dtype.label
                graph.inputs.append(Port(f"input{len(self.inputs)}", mine, kind, True))
                self.inputs.append(value.id)
        graph.outputs = [
            Port(f"output{number}", tensor, tensor.dtype.label, True)
            for number, tensor in enumerate(own(results(node)))
        ]

    def opened(
        self, device: Device, features: Collection[str], choice: Choice | None = None
    ) -> AbstractContextManager[Method]:
        return opened(self.graph, device, features, choice)

    def repeat(self, method: Method, run: NodeRun) -> list[Array]:
        return method.execute([run.given[value] for value in self.inputs])


@contextmanager
def opened(
    graph: Graph, device: Device, features: Collection[str], choice: Choice | None = None
) -> Iterator[Method]:
    """A graph as a method with weights of its own."""
    weights = Placement(device, convert_constant)
    try:
        method = Method(plan(graph, features, choice), device, weights)
        try:
            yield method
        finally:
            method.close()
    finally:
        weights.close()
