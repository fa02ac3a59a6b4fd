"""Run a call one node at a time, and read what each node reads and writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from pteron.arrays.numpy_arrays import from_gpu
from pteron.gpu.device import Command
from pteron.gpu.staging import read_back
from pteron.gpu.state import State
from pteron.ir.values import Node, SymInt, Tensor, Value, ValueId, numel
from pteron.method import Method

POISON = b"\xff"  # NaN as a float, and out of range as an index

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


def poison(method: Method) -> None:
    """Fill all activations, so that a read of memory that a call did not write gives a wrong result."""
    for buffer in method._executor.activations:
        method.device.write(buffer, 0, POISON * buffer.size)


def walk(method: Method, inputs: Sequence[Any]) -> Iterator[NodeRun]:
    """The nodes that use the GPU, in program order. All memory is poisoned before the call."""
    executor, device = method._executor, method.device
    with device.lock:
        poison(method)
        copies, state = method._prepare(method._read_inputs(method._in_order(inputs, {})), None)
        if copies:
            device.submit(copies, (), ())
        for index, group in groupby(executor.launched(), key=lambda launched: launched[0]):
            launches = [launch for _, launch in group]
            node = method.graph.nodes[index]
            reads = (*node.reads, *node.mutates, *_fused_integers(node))
            given = {value.id: _read(method, value, state) for value in reads}
            commands: list[Command] = [executor._command(launch, state) for launch in launches]
            device.submit((), commands, ())
            plan = executor.live.plans[index]
            assert plan is not None
            yield NodeRun(
                node,
                plan.route,
                tuple(launch.site.kernel.name for launch in launches),
                given,
                [_read(method, tensor, state) for tensor in results(node)],
            )


def _read(method: Method, value: Value, state: State) -> Any:
    executor = method._executor
    if isinstance(value, SymInt):
        return executor.live.live[value.id]
    shape, dtype = executor.live.shape(value), value.dtype
    nbytes = numel(shape) * dtype.itemsize
    if not nbytes:
        return np.empty(shape, np.float32 if dtype.label == "bfloat16" else dtype.label)
    return read_back(
        method.device,
        executor.buffer(value, state),
        nbytes,
        lambda data: from_gpu(data[:nbytes], dtype, dtype.label, shape),
    )
