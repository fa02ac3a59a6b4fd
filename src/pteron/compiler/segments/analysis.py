"""Row analysis: may the tokens of several sequences be computed in one call of a program for one sequence?

The program has a sequence dimension, S. For each tensor the analysis finds the dimension with a row for each
token, and for each node what it does with rows:

    row-wise    row i of its outputs depends only on row i of its inputs
    segmented   it depends on the position, too, or on the KV cache: there is a twin for several sequences
    last        it selects the last row; the twin selects the last row of each sequence
    apart       it does not depend on the tokens
    mixing      anything else: the program is for one sequence at a time

Integers are followed as sums of the number of tokens S, the position of the first token and a constant, so
that a slice from `position` to `position + S` is recognised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from pteron.compiler.ir.row_rules import MixesRows, RowArguments, RowWise, Segmented
from pteron.compiler.ir.values import Arg, Graph, Node, SymInt, Tensor, Value, ValueId, numel, values_in

OPEN_END = 2**31 - 1  # from this value on, the `end` of a slice is the end of the dimension


class Kind(Enum):
    ROW_WISE = "row-wise"
    SEGMENTED = "segmented"
    LAST = "last"
    APART = "apart"
    MIXING = "mixing"


class TokenRows(NamedTuple):
    """The dimension of a tensor's rows: one row for each token, or one for each sequence (its last token)."""

    dim: int
    is_last: bool = False


class Sum(NamedTuple):
    """An integer: length * S + position * (the position of the first token) + constant."""

    length: int = 0
    position: int = 0
    constant: int = 0


S, POSITION, END = Sum(length=1), Sum(position=1), Sum(length=1, position=1)


@dataclass(frozen=True, slots=True)
class MixingNode:
    """The first node that needs more than one row at a time."""

    node: Node | None  # None: the inputs are those of no sequence
    reason: str

    def __str__(self) -> str:
        return self.reason if self.node is None else f"{self.node.label}: {self.reason}"


@dataclass(slots=True)
class RowAnalysis:
    """What is known of the rows of a method."""

    graph: Graph
    length: int = 0  # the largest S
    rows: dict[ValueId, TokenRows] = field(default_factory=dict)
    kinds: list[Kind] = field(default_factory=list)  # of the nodes, up to the first that mixes
    positions: set[ValueId] = field(default_factory=set)  # input tensors with the position of the first token
    mixing: MixingNode | None = None

    @property
    def is_batchable(self) -> bool:
        return self.mixing is None


def analyse(graph: Graph) -> RowAnalysis:
    return _Analyst(graph).run()


class _Analyst:
    def __init__(self, graph: Graph) -> None:
        self.found = RowAnalysis(graph)
        self._graph = graph
        self._states = {tensor.id for tensor in graph.states}
        self._dims: dict[ValueId, int] = {}  # of the rows
        self._integers: dict[ValueId, Sum | None] = {}  # None: it depends on the tokens in another way
        self._offsets: set[ValueId] = set()  # tensors 0, 1, .. S - 1

    def run(self) -> RowAnalysis:
        reason = self._read_inputs()
        if reason is not None:
            self.found.mixing = MixingNode(None, reason)
            return self.found
        for node in self._graph.nodes:
            try:
                self.found.kinds.append(self._visit(node))
            except MixesRows as error:
                self.found.kinds.append(Kind.MIXING)
                self.found.mixing = MixingNode(node, str(error))
                break
        return self.found

    # -- inputs ---------------------------------------------------------------------------------

    def _read_inputs(self) -> str | None:
        """Find the rows of the inputs, and the position. Returns why they are not those of a sequence."""
        ports = [port for port in self._graph.inputs if isinstance(port.value, (Tensor, SymInt))]
        first = ports[0].value if ports else None
        dim = _first_dim(first) if isinstance(first, Tensor) else None
        if not isinstance(first, Tensor) or dim is None or not ports[0].resizable:
            return "the first input is not a tensor with a dimension for several tokens"
        self.found.length = first.max_shape[dim]
        for port in ports:
            if not isinstance(port.value, Tensor):
                return f"{port.name} is an integer, but a position must be in a tensor"
            shape, dim = port.value.max_shape, _first_dim(port.value)
            if dim is not None and shape[dim] == self.found.length and port.resizable:
                self._has_rows(port.value, TokenRows(dim))
            elif dim is None and not port.value.dtype.is_float:
                self.found.positions.add(port.value.id)
            else:
                return f"{port.name} {list(shape)} has neither a row for each token nor a position"
        for element in self._graph.elements:
            is_position = element.source.id in self.found.positions or (
                self._dim(element.source) == element.dim and element.index == 0
            )
            self._integers[element.symint.id] = POSITION if is_position else None
        return None

    # -- nodes ----------------------------------------------------------------------------------

    def _visit(self, node: Node) -> Kind:
        if all(isinstance(value, SymInt) for value in node.writes) and node.writes:
            return self._visit_integers(node)
        self._check_states(node)
        special = _SPECIAL.get(node.name)
        kind = special(self, node) if special else None
        if kind is not None:
            return kind
        if not any(map(self._depends, node.reads)) and not self._touches_states(node):
            return Kind.APART
        if node.when is not None:
            raise MixesRows("it is in a branch")
        self._check_values(node)
        if isinstance(node.op.rows, Segmented):
            return self._visit_segmented(node, node.op.rows)
        if not isinstance(node.op.rows, RowWise):
            raise MixesRows("this operator is not known to treat rows independently")
        return self._visit_row_wise(node, node.op.rows)

    def _visit_integers(self, node: Node) -> Kind:
        args = node.args
        result: Sum | None = None
        match node.name:
            case "sym_size.int" | "aten::sym_size.int":
                tensor, dim = args[0], args[1] % len(args[0].max_shape)
                if self._dim(tensor) != dim:
                    return Kind.APART
                result = None if self.found.rows[tensor.id].is_last else S
            case _ if not any(map(self._depends, node.reads)):
                return Kind.APART
            case "add" | "executorch_prim::add.Scalar":
                result = self._combined(args[0], args[1], 1)
            case "sub" | "executorch_prim::sub.Scalar":
                result = self._combined(args[0], args[1], -1)
        self._integers.update((value.id, result) for value in node.writes)
        return Kind.APART

    def _combined(self, a: Arg, b: Arg, sign: int) -> Sum | None:
        left, right = self._sum(a), self._sum(b)
        if left is None or right is None:
            return None
        return Sum(*(x + sign * y for x, y in zip(left, right, strict=True)))

    def _visit_segmented(self, node: Node, rule: Segmented) -> Kind:
        call = self._call(node)
        for name in rule.rows:
            if call.dim(name) != 1 or call[name].max_shape[0] != 1:
                raise MixesRows(f"`{name}` is not [1, S, ...]")
        call.only(*rule.rows)
        if self._sum(call[rule.at]) != POSITION:
            raise MixesRows(f"`{rule.at}` is not the position of the first token")
        for name in rule.caches:
            shape = call[name].max_shape
            if call[name].id not in self._states or shape[0] != 1 or numel(shape[2:]) % 4:
                raise MixesRows(f"`{name}` {list(shape)} is not a KV cache with rows of whole groups of four")
        reason = rule.refuses(call)
        if reason is not None:
            raise MixesRows(reason)
        for tensor in _tensors(node.writes):
            self._has_rows(tensor, TokenRows(1))
        return Kind.SEGMENTED

    def _visit_row_wise(self, node: Node, rule: RowWise) -> Kind:
        kinds = {self.found.rows[v.id].is_last for v in node.reads if v.id in self.found.rows}
        if len(kinds) != 1:
            raise MixesRows("it combines rows of all tokens with those of the last tokens")
        dim, is_last = rule.dim(self._call(node)), kinds.pop()
        size = 1 if is_last else self.found.length
        for tensor in _tensors(node.writes):
            if not (dim < len(tensor.max_shape) and tensor.max_shape[dim] == size):
                raise MixesRows(f"its output {list(tensor.max_shape)} does not have a row for each token")
            self._has_rows(tensor, TokenRows(dim, is_last))
        return Kind.ROW_WISE

    # -- nodes that need no declaration ---------------------------------------------------------

    def _visit_slice(self, node: Node) -> Kind | None:
        """A part of a table from the position on, or the last row."""
        x, dim, start, end, step, out = node.args
        dim %= max(len(x.max_shape), 1)
        if self._dim(x) == dim:
            is_open = (isinstance(end, int) and end >= OPEN_END) or end is None or self._sum(end) == S
            if not (self._is_last(start) and is_open and step == 1):
                return None
            return self._selects_last(x, out, dim, dim)
        if self._dim(x) is None and self._sum(start) == POSITION and self._sum(end) == END and step == 1:
            self._has_rows(out, TokenRows(dim))
            return Kind.SEGMENTED
        return None

    def _visit_select(self, node: Node) -> Kind | None:
        """The last row. The dimension before it, which has size 1, then has the rows of the sequences."""
        x, dim, index, out = node.args
        dim %= max(len(x.max_shape), 1)
        if self._dim(x) != dim or not self._is_last(index) or dim == 0:
            return None
        return self._selects_last(x, out, dim, dim - 1)

    def _selects_last(self, x: Tensor, out: Tensor, dim: int, kept: int) -> Kind | None:
        if self.found.rows[x.id].is_last or numel(x.max_shape[:dim]) != 1:
            return None
        self._has_rows(out, TokenRows(kept, is_last=True))
        return Kind.LAST

    def _visit_arange(self, node: Node) -> Kind | None:
        """0, 1, .. S - 1: only its sum with the position has a meaning for several sequences."""
        start, end, step = (0, node.args[0], 1) if node.name == "aten.arange.default" else node.args[:3]
        if start != 0 or step != 1 or self._sum(end) != S:
            return None
        self._offsets.update(value.id for value in node.writes)
        return Kind.SEGMENTED

    def _visit_add(self, node: Node) -> Kind | None:
        """0, 1, .. S - 1 plus the position: the position of each row."""
        a, b, alpha, out = node.args
        ids = {a.id, b.id}
        if not (ids & self._offsets and ids & self.found.positions) or alpha != 1 or len(out.max_shape) != 1:
            return None
        self._has_rows(out, TokenRows(0))
        return Kind.SEGMENTED

    # -- facts ----------------------------------------------------------------------------------

    def _call(self, node: Node) -> RowArguments:
        return RowArguments(node, self._dims)

    def _has_rows(self, tensor: Tensor, rows: TokenRows) -> None:
        self.found.rows[tensor.id] = rows
        self._dims[tensor.id] = rows.dim

    def _dim(self, tensor: Tensor) -> int | None:
        return self._dims.get(tensor.id)

    def _sum(self, arg: Arg) -> Sum | None:
        if isinstance(arg, SymInt):
            return self._integers.get(arg.id)
        return Sum(constant=arg) if isinstance(arg, int) else None

    def _is_last(self, index: Arg) -> bool:
        return index == -1 or self._sum(index) == Sum(length=1, constant=-1)

    def _depends(self, value: Value) -> bool:
        """Whether a value depends on the tokens, their number or their position."""
        known = (self.found.rows, self._integers, self._offsets, self.found.positions)
        return any(value.id in facts for facts in known)

    def _touches_states(self, node: Node) -> bool:
        return any(v.id in self._states for v in (*node.reads, *node.writes, *node.mutates))

    def _check_states(self, node: Node) -> None:
        rule = node.op.rows
        caches = rule.caches if isinstance(rule, Segmented) else ()
        for name, arg in node.named.items():
            if name not in caches and any(v.id in self._states for v in values_in(arg)):
                raise MixesRows(f"it uses a state of the program in `{name}`, which is not a KV cache")

    def _check_values(self, node: Node) -> None:
        """Refuse integers and tensors whose value depends on the tokens in a way that rows cannot replace."""
        rule = node.op.rows
        allowed = {"seq_len"}
        if isinstance(rule, Segmented):
            allowed.add(rule.at)
        elif isinstance(rule, RowWise) and rule.sizes is not None:
            allowed.add(rule.sizes)
        for name, arg in zip(node.op.parameters[:-1], node.args[:-1], strict=True):
            for value in values_in(arg):
                if name not in allowed and value.id in self._integers:
                    raise MixesRows(f"`{name}` depends on the number of tokens or on their position")
                if value.id in self._offsets or value.id in self.found.positions:
                    raise MixesRows(f"`{name}` depends on the place of a token among the tokens of the call")


_SPECIAL: dict[str, Callable[[_Analyst, Node], Kind | None]] = {
    "aten.slice_copy.Tensor": _Analyst._visit_slice,
    "aten.select_copy.int": _Analyst._visit_select,
    "aten.arange.default": _Analyst._visit_arange,
    "aten.arange.start_step": _Analyst._visit_arange,
    "aten.add.Tensor": _Analyst._visit_add,
}


def _tensors(values: tuple[Value, ...]) -> list[Tensor]:
    return [value for value in values if isinstance(value, Tensor)]


def _first_dim(tensor: Tensor) -> int | None:
    """The first dimension with more than one element: the rows of an input lie along it."""
    return next((d for d, size in enumerate(tensor.max_shape) if size > 1), None)
