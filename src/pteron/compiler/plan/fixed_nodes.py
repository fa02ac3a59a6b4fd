"""Which nodes do the same in every call, because all sizes that they depend on are constants.

Their parameters can be a part of the shader text, so that the driver's compiler knows every size.
"""

from __future__ import annotations

from pteron.compiler.ir.values import Graph, Port, SymInt, Tensor, ValueId
from pteron.compiler.plan.dependencies import planning_values
from pteron.compiler.plan.size_check import held_sizes


def fixed_nodes(graph: Graph) -> frozenset[int]:
    """The nodes whose plan never changes, if sizes are pinned at load. Otherwise none are told apart."""
    if not any(port.pinned for port in graph.inputs):
        return frozenset()
    varying: set[ValueId] = {element.symint.id for element in graph.elements}
    for port in graph.inputs:
        if isinstance(port.value, (Tensor, SymInt)) and not _is_fixed(port):
            varying.add(port.value.id)
    fixed = set()
    for node in graph.nodes:
        if varying.isdisjoint(planning_values(node)):
            fixed.add(node.index)
        else:
            varying.update(value.id for value in node.writes)
    return frozenset(fixed)


def _is_fixed(port: Port) -> bool:
    """Whether calls are held to one shape of this input."""
    if not isinstance(port.value, Tensor):
        return False
    held = held_sizes(port)
    return not port.resizable or all(isinstance(held.get(d), int) for d in range(len(port.max_shape)))
