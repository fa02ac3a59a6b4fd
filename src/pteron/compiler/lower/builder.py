"""A graph under construction: its values, its nodes, and the problems found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pteron.compiler import ops
from pteron.compiler.ir.checks import OpError
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.op import OpSpec
from pteron.compiler.ir.problems import Problem
from pteron.compiler.ir.values import (
    Arg,
    Graph,
    Node,
    Shape,
    StoredConstant,
    SymInt,
    Tensor,
    ValueId,
    values_in,
)
from pteron.compiler.lower.budget import Budget
from pteron.compiler.ops.complex import ARITHMETIC, OF_COMPLEX
from pteron.errors import FormatError

CAST = "pteron.cast"
WRITE_BACK = "pteron.write_back"
NO_OPERATOR = "there is no such operator"
VIEW = "aten.view_copy.default"


class Builder:
    """Adds values and nodes. What cannot be added is recorded as a problem, so that all can be listed."""

    def __init__(self, name: str, budget: Budget | None = None) -> None:
        self.graph = Graph(name)
        self.budget = budget or Budget()
        self.producers: dict[ValueId, Node] = {}  # the last node that writes each value
        self.problems: list[Problem] = []
        self._when: SymInt | None = None

    def tensor(self, dtype: DType, shape: Shape, name: str, constant: StoredConstant | None = None) -> Tensor:
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
        spec = ops.find(name)
        if spec is None:
            self.problem(name, origin)
            return
        if name not in OF_COMPLEX and _is_complex(spec, args):
            if name in ARITHMETIC:
                self.node(ARITHMETIC[name], args, origin)
            else:
                why = "it does not take complex tensors: write the model with view_as_real"
                self.problem(name, origin, why)
            return
        try:
            node = spec.node(spec.bind(args), origin, index=len(self.graph.nodes), when=self._when)
        except OpError as error:
            raise FormatError(f"{name} ({origin}): {error}") from None
        self.budget.add_node(len(node.reads))
        *given, target = node.args
        if isinstance(target, Tensor) and target in node.reads:
            # A buffer mutation writes the buffer that it reads. No dispatch may do this: compute, then copy.
            result = self.tensor(target.dtype, target.max_shape, f"{target.name}.new")
            self.node(name, [*given, result], origin)
            self.node(WRITE_BACK, [result, target, None], origin)
            return
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
