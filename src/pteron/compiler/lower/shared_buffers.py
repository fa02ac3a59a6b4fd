"""Mutable buffers that the methods of a program share: `MemoryPlanningPass(share_mutable_buffers=True)`.

The exporter then plans the buffers of all methods in one memory. A buffer has the same address in every
method. A buffer inside a delegate has no address, so no other method can use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from pteron.compiler.ir.problems import Problem
from pteron.compiler.ir.values import Constant, Graph, Tensor
from pteron.pte import schema

SHARED_MEMORY = 2  # the exporter uses this number, and refuses to share if a method uses it otherwise


def shared_memory(program: schema.Program) -> int | None:
    """The number of the memory that several methods share; None if there is none. It has one size in all."""
    sizes = [plan.non_const_buffer_sizes[SHARED_MEMORY:] for plan in program.execution_plan]
    asked = [size for size in sizes if size]
    return SHARED_MEMORY if len(asked) > 1 and len({*asked}) == 1 and len(asked[0]) == 1 else None


def divided_buffers(program: schema.Program, graphs: Mapping[str, Graph]) -> dict[str, list[Problem]]:
    """The buffers that methods were to share, but of which each has its own, because it is in a delegate."""
    if shared_memory(program) is None:
        return {}
    return {name: list(_divided(graph, graphs)) for name, graph in graphs.items()}


def _divided(graph: Graph, graphs: Mapping[str, Graph]) -> Iterator[Problem]:
    own = [tensor for tensor in graph.states if tensor.id not in graph.shared and tensor.max_nbytes]
    written = {tensor.id for tensor in graph.states}
    read = {
        value.id: value
        for node in graph.nodes
        for value in node.reads
        if isinstance(value, Tensor)
        and isinstance(value.constant, Constant)
        and value.id not in written
        and value.max_nbytes
    }
    others = {name: other.states for name, other in graphs.items() if other is not graph}
    found = [(tensor, _first(others, partial(_alike, tensor))) for tensor in own]
    found += [(tensor, _first(others, partial(_begins_as, tensor))) for tensor in read.values()]
    for tensor, name in found:
        if name is not None:
            yield Problem(
                f"a buffer {tensor.dtype}{list(tensor.max_shape)} that methods share",
                tensor.name,
                "the program was exported with share_mutable_buffers=True, but this method would not see "
                f"what method '{name}' writes, because a delegate contains the buffer: keep the operators "
                "that use it outside of delegates, with VulkanPartitioner(operator_blocklist=[...])",
            )


def _first(states: Mapping[str, Sequence[Tensor]], fits: Callable[[Tensor], bool]) -> str | None:
    """The first method that has a state that fits."""
    return next((name for name, tensors in states.items() if any(map(fits, tensors))), None)


def _alike(one: Tensor, other: Tensor) -> bool:
    """Whether two states may be the same buffer of the model."""
    if (one.dtype, one.max_shape) != (other.dtype, other.max_shape):
        return False
    starts = {t.constant.data for t in (one, other) if isinstance(t.constant, Constant)}
    return len(starts) <= 1


def _begins_as(constant: Tensor, state: Tensor) -> bool:
    """Whether a constant may be a state of another method, of which this method only knows the beginning."""
    if not _alike(constant, state):
        return False
    assert isinstance(constant.constant, Constant)
    return state.constant is not None or not any(constant.constant.data.view)
