"""The memory plan of a method as JSON: which tensors share a buffer, and when."""

from __future__ import annotations

from typing import Any

from pteron.compiler.ir.values import SymInt, ValueId
from pteron.compiler.plan.memory import aligned, lifetimes, plan_memory
from pteron.compiler.plan.sweep import LiveGraph


def memory_form(live: LiveGraph) -> dict[str, Any]:
    """Sizes in bytes, at the largest shape. Memory is the same at every live shape.

    `tensors` are the storages of activations: from `first` to `last` in program order, in one buffer.
    `aliases` are the values that have these bytes. Before the first node is -1: an input.
    """
    graph, layout = live.graph, live.layout
    scratch = live.scratch()
    plan = plan_memory(graph, layout, scratch)
    aliases: dict[ValueId, list[ValueId]] = {}
    for value, owner in layout.storage.items():
        aliases.setdefault(owner, []).append(value)
    tensors: list[dict[str, Any]] = [
        {
            "name": graph.values[int(span.storage)].name,  # type: ignore[arg-type]
            "aliases": aliases[span.storage],  # type: ignore[index]
            "nbytes": span.nbytes,
            "first": span.first,
            "last": span.last,
            "buffer": plan.placement[span.storage],
        }
        for span in lifetimes(graph, layout)
    ]
    tensors += [
        {
            "name": f"scratch {name} of node {node}",
            "aliases": [],
            "nbytes": aligned(nbytes),
            "first": node,
            "last": node,
            "buffer": plan.placement[node, name],
        }
        for node, name, nbytes in scratch
    ]
    constants = {t.id: t for n in graph.nodes for t in n.reads if not isinstance(t, SymInt) and t.constant}
    states = {t.id for t in graph.states}
    return {
        "buffers": plan.buffers,
        "tensors": tensors,
        "needed": _needed(tensors, len(graph.nodes)),
        "activations": plan.nbytes,
        "unshared": sum(t["nbytes"] for t in tensors),
        "state": sum(aligned(t.max_nbytes) for t in graph.states),
        "constants": sum(t.max_nbytes for i, t in constants.items() if i not in states),
    }


def _needed(tensors: list[dict[str, Any]], nodes: int) -> list[int]:
    """The bytes in use at each node. Its maximum is the least memory that any plan could have."""
    steps = [0] * (nodes + 1)
    for tensor in tensors:
        steps[max(tensor["first"], 0)] += tensor["nbytes"]
        steps[min(tensor["last"] + 1, nodes)] -= tensor["nbytes"]
    total, needed = 0, []
    for step in steps[:nodes]:
        total += step
        needed.append(total)
    return needed
