"""A graph under construction: its values, its nodes, and the problems found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pteron.errors import FormatError
from pteron.ir import op as registry
from pteron.ir.checks import OpError
from pteron.ir.dtypes import DType
from pteron.ir.op import OpSpec
from pteron.ir.problems import Problem
from pteron.ir.values import (
    Arg,
    Constant,
    Folded,
    Graph,
    Joined,
    Node,
    Shape,
    SymInt,
    Tensor,
    ValueId,
    values_in,
)
from pteron.lower.budget import Budget

CAST = "pteron.cast"
WRITE_BACK = "pteron.write_back"
NO_OPERATOR = "there is no such operator"
VIEW = "aten.view_copy.default"

# The operators that accept complex tensors, besides views.
OF_COMPLEX = frozenset({"aten._conj_physical.default", "aten.view_as_real_copy.default"})


class Builder:
    """Adds values and nodes. What cannot be added is recorded as a problem, so that all can be listed."""

    def __init__(self, name: str, budget: Budget | None = None) -> None:
        self.graph = Graph(name)
        self.budget = budget or Budget()
        self.producers: dict[ValueId, Node] = {}  # the last node that writes each value
        self.problems: list[Problem] = []
        self._when: SymInt | None = None

    def tensor(
        self, dtype: DType, shape: Shape, name: str, constant: Constant | Joined | Folded | None = None
    ) -> Tensor:
        self.budget.add_steps()
        return self.graph.tensor(dtype, shape, name, constant)

    def symint(self, name: str) -> SymInt:
        self.budget.add_steps()
        return self.graph.symint(name)

    def problem(self, what: str, where: str, why: str = NO_OPERATOR) -> None:
        self.problems.append(Problem(what, where, why))

    def node(self, name: str, args: Iterable[Arg], origin: str) -> None:
        """Add a call of an operator. The last argument holds its outputs."""
        args = tuple(args)
        spec = registry.find(name)
        if spec is None:
            self.problem(name, origin)
            return
        if name not in OF_COMPLEX and _is_complex(spec, args):
            self.problem(name, origin, "it does not take complex tensors: write the model with view_as_real")
            return
        try:
            bound = spec.bind(args)
        except OpError as error:
            raise FormatError(f"{name} ({origin}): {error}") from None
        reads = tuple(value for arg in bound[:-1] for value in values_in(arg))
        self.budget.add_node(len(reads))
        target = bound[-1]
        if isinstance(target, Tensor) and target in reads:
            # A buffer mutation writes the buffer that it reads. No dispatch may do this: compute, then copy.
            result = self.tensor(target.dtype, target.max_shape, f"{target.name}.new")
            self.node(name, [*bound[:-1], result], origin)
            self.node(WRITE_BACK, [result, target, None], origin)
            return
        index = len(self.graph.nodes)
        node = Node(
            index, name, spec, bound, reads, spec.outputs(bound), spec.mutated(bound), origin, self._when
        )
        self.graph.nodes.append(node)
        self.producers.update((value.id, node) for value in node.writes)

    @contextmanager
    def only_when(self, condition: SymInt, origin: str) -> Iterator[None]:
        """Nodes added inside the `with` run only in calls where the condition holds."""
        outer = self._when
        if outer is not None:
            both = self.symint(f"{outer.name}&{condition.name}")
            self.node("sym_and", [outer, condition, both], origin)
            condition = both
        self._when = condition
        try:
            yield
        finally:
            self._when = outer


def _is_complex(spec: OpSpec, args: Iterable[Arg]) -> bool:
    """Whether an operator would have to compute with complex elements. A view does not compute."""
    dtypes = {value.dtype for arg in args for value in values_in(arg) if isinstance(value, Tensor)}
    return DType.complex64 in dtypes and (spec.alias is None or len(dtypes) > 1)
