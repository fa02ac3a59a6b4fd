"""Which nodes of a graph can share plans: those with the same operator and arguments of the same form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pteron.compiler.ir.values import Arg, Graph, SymInt, Tensor, Value, ValueId
from pteron.compiler.plan.memory import Layout


@dataclass(frozen=True, slots=True)
class NodeSignature:
    """What a node's plans depend on, besides its live shapes; and the values of the node, in order."""

    form: int  # equal for nodes that can share plans
    values: tuple[Value, ...]

    @property
    def ids(self) -> list[ValueId]:
        return [value.id for value in self.values]


def signatures(graph: Graph, layout: Layout) -> list[NodeSignature]:
    numbers: dict[Any, int] = {}  # small numbers for forms, which are slow to compare
    made = []
    for node in graph.nodes:
        values: dict[Value, int] = {}
        args = _form(node.args, values)
        form = (node.name, node.when is not None, node.index in layout.copies, args)
        made.append(NodeSignature(numbers.setdefault(form, len(numbers)), tuple(values)))
    return made


def _form(arg: Arg, values: dict[Value, int]) -> Any:
    """An argument, with values replaced by numbers in the order of their first use."""
    if isinstance(arg, tuple):
        return tuple([_form(item, values) for item in arg])
    if isinstance(arg, Tensor):
        place = values.setdefault(arg, len(values))
        return (place, arg.dtype, arg.max_shape, arg.constant is not None)
    if isinstance(arg, SymInt):
        return (values.setdefault(arg, len(values)),)
    return (type(arg), arg)
