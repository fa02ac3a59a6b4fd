"""Give every 64-bit integer one word where that is enough, and two words elsewhere.

Lowering makes every int64 tensor a tensor of two words. Almost all of them are indices, sizes and masks, for
which one word is enough (see integer_analysis.py). What stays in two words gets conversions where an operator
takes only one word and needs no more, or computes in floats. An operator that cannot take two words is
refused, by its name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pteron.compiler import ops
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.integer_rules import IntegerRule
from pteron.compiler.ir.problems import Problem
from pteron.compiler.ir.values import Arg, Graph, Node, Port, Tensor, Value, ValueId, values_in
from pteron.compiler.lower.builder import CAST
from pteron.compiler.lower.integer_analysis import IntegerAnalysis


def narrow_integers(graph: Graph) -> list[Problem]:
    """Change the dtypes of int64 tensors in place, and return what is refused."""
    if not any(tensor.dtype is DType.int64 for tensor in graph.tensors()):
        return []
    narrowing = _Narrowing(graph)
    narrowing.run()
    return narrowing.problems


class _Narrowing:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.analysis = IntegerAnalysis(graph)
        self.problems: list[Problem] = []
        self.nodes: list[Node] = []
        self.tensors: dict[ValueId, Tensor] = {}  # the tensors that have changed
        self._casts: dict[tuple[ValueId, DType], Tensor] = {}  # since the last node that changed a tensor

    def run(self) -> None:
        graph = self.graph
        for tensor in graph.tensors():
            if tensor.dtype is DType.int64 and not self.analysis.is_wide(tensor):
                self._set_dtype(tensor, DType.int32)
        for node in graph.nodes:
            self._node(node)
        graph.nodes[:] = self.nodes
        graph.inputs[:] = [self._port(port) for port in graph.inputs]
        graph.outputs[:] = [self._port(port) for port in graph.outputs]
        graph.states[:] = [self._now(tensor) for tensor in graph.states]
        graph.elements[:] = [replace(e, source=self._now(e.source)) for e in graph.elements]

    def _set_dtype(self, tensor: Tensor, dtype: DType) -> None:
        changed = replace(tensor, dtype=dtype)
        self.tensors[tensor.id] = changed
        self.graph.values[tensor.id] = changed

    def _now(self, tensor: Tensor) -> Tensor:
        return self.tensors.get(tensor.id, tensor)

    def _port(self, port: Port) -> Port:
        return replace(port, value=self._now(port.value)) if isinstance(port.value, Tensor) else port

    # -- nodes ------------------------------------------------------------------------------------

    def _node(self, node: Node) -> None:
        values = (*node.reads, *node.writes)
        if any(isinstance(v, Tensor) and (v.id in self.tensors or v.dtype is DType.int64) for v in values):
            node = self._updated(node, self._fitting_args(node))
        self._add(node)
        if node.mutates:
            self._casts.clear()

    def _has_wide(self, values: Iterable[Value]) -> bool:
        return any(isinstance(v, Tensor) and self._now(v).dtype is DType.int64 for v in values)

    def _add(self, node: Node) -> None:
        self.nodes.append(replace(node, index=len(self.nodes)))

    def _updated(self, node: Node, args: tuple[Arg, ...]) -> Node:
        return node.op.node(args, node.origin, when=node.when)

    def _fitting_args(self, node: Node) -> tuple[Arg, ...]:
        """The arguments of a node with conversions where its operator needs them."""
        call = self.analysis.elementwise(node)
        if call is not None and call.has_large_symints and not call.from_float:
            # Which kernel computes it must not depend on the scalar of a call.
            return tuple(
                [self._converted(node, arg, DType.int64) for arg in node.args[:-1]]
                + [self._replaced(node.args[-1])]
            )
        if not self._has_wide((*node.reads, *node.writes)):
            return tuple([self._replaced(arg) for arg in node.args])
        if call is not None:
            computes_in_floats = (
                call.from_float and call.function is not None and call.function.expression != "x"
            )
            if computes_in_floats and self._has_wide(node.writes):
                self._refuse(node, node.writes)
            to = DType.float32 if computes_in_floats else None
            return tuple([self._converted(node, arg, to) for arg in node.args])
        return self._args_of_rule(node, node.op.integers)

    def _args_of_rule(self, node: Node, rule: IntegerRule) -> tuple[Arg, ...]:
        moved = self._dtype_of_moved(node, rule)
        if rule.accumulates and any(
            self._has_wide(values_in(arg)) for name, arg in node.named.items() if name in rule.accumulates
        ):
            self._widen(node.writes[:1])
        args: list[Arg] = []
        for name, arg in node.named.items():
            to = None
            if name in rule.moves and name not in node.op.mutates:
                to = moved
            elif name in rule.indices:
                to = DType.int32
            elif name in rule.floats or (name in rule.accumulates and _is_float(node.writes[0])):
                to = DType.float32
            elif (
                self._has_wide(values_in(arg))
                and name not in (*rule.moves, *rule.accumulates, *rule.shapes, *rule.decides)
                and name != node.op.parameters[-1]
            ):
                self._refuse(node, values_in(arg))
            args.append(self._converted(node, arg, to))
        return tuple(args)

    def _dtype_of_moved(self, node: Node, rule: IntegerRule) -> DType | None:
        """The dtype of the elements that a node moves, if some of them have two words. None: as they are."""
        moved = [v for name, arg in node.named.items() if name in rule.moves for v in values_in(arg)]
        results = [*node.mutates, *(node.writes[:1] if rule.places else node.writes)] if rule.moves else []
        if not self._has_wide([*moved, *results]):
            cannot = rule.one_word or (not rule.accumulates and rule.interval is None)
            if cannot and self._has_wide(node.writes):
                self._refuse(node, node.writes)
            return None
        if not node.mutates:
            self._widen(results)
        return next(self._now(t).dtype for t in results if isinstance(t, Tensor))

    def _widen(self, values: Iterable[Value]) -> None:
        """Give integers two words again. Only later nodes read them."""
        for value in values:
            if isinstance(value, Tensor) and value.dtype is DType.int64:
                self._set_dtype(value, DType.int64)

    def _replaced(self, arg: Arg) -> Arg:
        if isinstance(arg, tuple):
            return tuple([self._replaced(item) for item in arg])
        return self._now(arg) if isinstance(arg, Tensor) else arg

    def _converted(self, node: Node, arg: Arg, to: DType | None) -> Arg:
        """The argument, with a conversion of each tensor that has or needs two words and another dtype."""
        if isinstance(arg, tuple):
            return tuple([self._converted(node, item, to) for item in arg])
        if not isinstance(arg, Tensor):
            return arg
        tensor = self._now(arg)
        if to is None or tensor.dtype is to or DType.int64 not in (tensor.dtype, to):
            return tensor
        return self._cast(node, tensor, to)

    def _cast(self, node: Node, tensor: Tensor, to: DType) -> Tensor:
        key = (tensor.id, to)
        if key not in self._casts or node.when is not None:
            out = self.graph.tensor(to, tensor.max_shape, f"{tensor.name}.{to}")
            self._add(ops.known(CAST).node((tensor, out), node.origin, when=node.when))
            if node.when is not None:
                return out
            self._casts[key] = out
        return self._casts[key]

    def _refuse(self, node: Node, values: Iterable[Value]) -> None:
        name = next(v.name for v in values if isinstance(v, Tensor) and self._has_wide([v]))
        why = (
            f"it computes with 32-bit integers, but {name} may have integers beyond 32 bits: "
            "limit them with torch.clamp, or convert them to int32"
        )
        if Problem(node.name, node.origin, why) not in self.problems:
            self.problems.append(Problem(node.name, node.origin, why))


def _is_float(value: Value) -> bool:
    return isinstance(value, Tensor) and value.dtype.is_float
