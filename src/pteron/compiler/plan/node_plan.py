"""What a rule gave for one node at one set of live shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from pteron.compiler.ir.dispatch import Dispatch
from pteron.compiler.ir.live import ContentRule, Guard, Live
from pteron.compiler.ir.values import Node, Tensor, Value, ValueId


@dataclass(slots=True, eq=False, weakref_slot=True)
class NodePlan:
    """One node at one set of live shapes: the shapes of its outputs, and its dispatches."""

    results: tuple[tuple[ValueId, Live], ...]
    route: str
    dispatches: list[Dispatch]
    guards: tuple[Guard, ...]
    contents: tuple[ContentRule, ...] = ()
    own: Mapping[ValueId, Value] = field(
        default_factory=dict
    )  # this node's value for each one in `dispatches`

    def for_twin(self, mine: Mapping[ValueId, Value]) -> NodePlan:
        """The plan of another node with the same signature. `mine` maps this node's values to that node's."""
        return NodePlan(
            tuple([(mine[value].id, live) for value, live in self.results]),
            self.route,
            self.dispatches,
            tuple([replace(guard, value=mine[guard.value].id) for guard in self.guards]),
            tuple([replace(rule, tensor=cast(Tensor, mine[rule.tensor.id])) for rule in self.contents]),
            mine,
        )


def skipped(node: Node) -> NodePlan:
    """The plan of a node in a branch that is not taken: it runs nothing, and nothing reads its outputs."""
    results = tuple((v.id, v.max_shape if isinstance(v, Tensor) else 0) for v in node.writes)
    return NodePlan(results, "skipped", [], ())
