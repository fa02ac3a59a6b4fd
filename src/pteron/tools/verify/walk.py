"""Run a call one node at a time, and read what each node reads and writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pteron.api.method import Method
from pteron.compiler.ir.values import Node, SymInt, Tensor, ValueId
from pteron.engine.call import Call
from pteron.engine.steps import Step

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class NodeRun:
    """One node of one call. Arrays have the dtype of the GPU; bfloat16 is read as float32."""

    node: Node
    route: str
    kernels: tuple[str, ...]
    given: dict[ValueId, Any]  # what the node reads before it runs, and the integers of fused nodes
    made: list[Array]  # what it writes, and then what it changes in place

    @property
    def results(self) -> tuple[Tensor, ...]:
        return results(self.node)


def results(node: Node) -> tuple[Tensor, ...]:
    """The tensors that a node writes, and then those that it changes in place."""
    return (*(value for value in node.writes if isinstance(value, Tensor)), *node.mutates)


def originals(node: Node) -> Iterator[Node]:
    """The nodes of the file in a fused node, in program order. Passes may replace fused nodes."""
    if not node.replaces:
        yield node
    for replaced in node.replaces:
        yield from originals(replaced)


def _fused_integers(node: Node) -> Iterator[SymInt]:
    """Integers that the nodes of the file read, and the fused node perhaps not."""
    for original in originals(node):
        yield from (value for value in original.reads if isinstance(value, SymInt))


def walk(method: Method, inputs: Sequence[Any], *, poisoned: bool = True) -> Iterator[NodeRun]:
    """The nodes that use the GPU, in program order. The memory between nodes is poisoned before the call."""
    with method.prepare(*inputs) as call:
        if poisoned:
            call.poison()
        for step in call.steps():
            if step.kernels:
                yield run_step(call, step)


def run_step(call: Call, step: Step) -> NodeRun:
    """Run one node, and read what it reads and writes."""
    node = step.node
    reads = (*node.reads, *node.mutates, *_fused_integers(node))
    given = {value.id: call.read(value) for value in reads}
    step.run()
    made = [call.read(tensor) for tensor in results(node)]
    return NodeRun(node, step.route, step.kernels, given, made)
