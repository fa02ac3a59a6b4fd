"""In which interval every integer of a graph lies, and which of its bits are needed.

Intervals follow the nodes forward from dtypes, constants, sizes and indices. Needs follow them backward from
the outputs. State is read in a later call than it is written in, so both are repeated until they are stable.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf

from pteron.compiler.ir.checks import OpError
from pteron.compiler.ir.dtypes import DType, host_itemsize
from pteron.compiler.ir.integer_rules import IntegerCall, IntegerRule
from pteron.compiler.ir.integers import (
    ALL,
    EXACT,
    INDEX,
    INT32,
    INT64,
    LOW,
    WORD,
    Demand,
    Interval,
    both,
    fits,
    hull,
    within,
)
from pteron.compiler.ir.values import Arg, Constant, Graph, Node, SymInt, Tensor, ValueId, numel, values_in
from pteron.compiler.ops.elementwise import Elementwise, ElementwiseRule, operand_names
from pteron.compiler.ops.integer_expressions import demands, interval

# The intervals of types that always have one word.
_OF_DTYPE = {
    DType.bool: (0, 1),
    DType.int8: (-128, 127),
    DType.uint8: (0, 255),
    DType.int32: INT32,
}
_HOST_INTERVALS = {"uint32": (0, 2**32 - 1), "uint64": (0, INT64[1])}
_FORMATS = {"int64": "q", "uint32": "I", "uint64": "Q", "int32": "i"}
FEW = 4096
STEPS = 3  # after so many rounds, a state that still grows may be any integer


@dataclass(frozen=True, slots=True)
class ElementwiseCall:
    """An elementwise node: its function, its operands by their names in it, and the intervals of scalars."""

    function: Elementwise | None  # None: the result is the operand
    operands: dict[str, Tensor]
    scalars: dict[str, Interval]
    has_large_symints: bool = False  # a scalar that is known only in a call may not fit in one word

    @property
    def from_float(self) -> bool:
        """Whether its result is converted from floats."""
        return self.function is not None and not self.function.integer


class IntegerAnalysis:
    """The intervals and the needs of all integers of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.states = {t.id for t in graph.states}
        self.intervals: dict[ValueId, Interval] = {}
        self.demands: dict[ValueId, Demand] = {}
        self.from_floats: set[ValueId] = set()  # integers that were converted from floats
        self._elementwise: dict[int, ElementwiseCall | None] = {}
        self._required = self._find_required()
        self._follow_intervals()
        self._follow_demands()

    def is_wide(self, tensor: Tensor) -> bool:
        """Whether a 64-bit integer needs two words."""
        if tensor.id in self.graph.shared:  # another method may need it
            return True
        needed = self.demands.get(tensor.id, Demand(0))
        if fits(self.interval(tensor)):
            return False
        if tensor.constant is not None:
            return True
        if tensor.id in self.graph.input_ids or tensor.id in self.from_floats:
            return bool(needed & (LOW | ALL))
        return bool(needed & EXACT)

    def interval(self, value: Arg) -> Interval:
        """The interval of an integer, or the hull of several."""
        if isinstance(value, Tensor):
            return self.intervals.get(value.id) or _OF_DTYPE.get(value.dtype, INT64)
        if isinstance(value, SymInt):
            return self.intervals.get(value.id, INT64)
        if isinstance(value, tuple):
            known = [self.interval(item) for item in value if item is not None]
            return hull(*known) if known else (0, 0)
        if isinstance(value, int):
            return within(value, value)
        return INT64

    # -- what a call requires ---------------------------------------------------------------------

    def _find_required(self) -> dict[ValueId, Interval]:
        """Values that are used as an index or as a size: for others, the call would be refused."""
        changing = self.states | {t.id for node in self.graph.nodes for t in node.mutates}
        required: dict[ValueId, Interval] = {}
        for node in reversed(self.graph.nodes):
            if node.when is not None:
                continue
            rule = node.op.integers
            for name, arg in zip(node.op.parameters[:-1], node.args, strict=False):
                for value in values_in(arg):
                    found = INT64
                    if name in node.op.uniforms:
                        found = _index_interval(node, node.op.parameters)
                    elif isinstance(value, SymInt) and not _is_scalar(node, name):
                        found = INT32
                    elif name in rule.indices and value.id not in changing:
                        found = _index_interval(node, rule.moves[:1])
                    required[value.id] = both(found, required.get(value.id, INT64))
            if _keeps_all_elements(node):
                source, out = node.reads[0], node.writes[0]
                if source.id not in changing:
                    required[source.id] = both(required.get(out.id, INT64), required.get(source.id, INT64))
        return required

    # -- forward ------------------------------------------------------------------------------------

    def _follow_intervals(self) -> None:
        for tensor in self.graph.tensors():
            if tensor.constant is not None and tensor.dtype is DType.int64:
                self._set(tensor, _constant_interval(tensor))
        for port in self.graph.inputs:
            if isinstance(port.value, Tensor) and port.value.dtype is DType.int64:
                self._set(port.value, _HOST_INTERVALS.get(port.host_type, INT64))
        for tensor in self.graph.states:
            if tensor.dtype is DType.int64 and (tensor.constant is None or tensor.id in self.graph.shared):
                self._set(tensor, INT64 if tensor.id in self.graph.shared else (0, 0))
        for element in self.graph.elements:
            self.intervals[element.symint.id] = self.interval(element.source)
        for step in range(STEPS + 1):
            before = {id: self.intervals.get(id) for id in self.states}
            for node in self.graph.nodes:
                self._follow_node(node)
            grown = [id for id in self.states if self.intervals.get(id) != before[id]]
            if not grown:
                return
            if step == STEPS - 1:
                self.intervals.update(dict.fromkeys(grown, INT64))

    def _set(self, value: Tensor | SymInt, found: Interval) -> None:
        self.intervals[value.id] = both(found, self._required.get(value.id, INT64))

    def _follow_node(self, node: Node) -> None:
        found = self._of_node(node)
        rule = node.op.integers
        for number, out in enumerate(node.writes):
            if isinstance(out, SymInt):
                self._set(out, found)
            elif not out.dtype.is_float:
                is_place = number > 0 and rule.places
                self._set(out, _stored(INT32 if is_place else found, out.dtype))
                if not is_place and self._converts_floats(node, rule):
                    self.from_floats.add(out.id)
        for tensor in node.mutates:
            if not tensor.dtype.is_float:
                self.intervals[tensor.id] = hull(self.interval(tensor), found)

    def _of_node(self, node: Node) -> Interval:
        if node.writes and isinstance(node.writes[0], SymInt):
            return self._of_integers(node)
        call = self.elementwise(node)
        if call is not None:
            return self._of_elementwise(call)
        return self._of_rule(node, node.op.integers)

    def _converts_floats(self, node: Node, rule: IntegerRule) -> bool:
        """Whether integers of the result are converted from floats."""
        call = self.elementwise(node)
        if call is not None:
            return call.from_float
        return any(_is_float(value) for name in rule.moves for value in values_in(node.named[name]))

    def _of_elementwise(self, call: ElementwiseCall) -> Interval:
        if call.function is None:
            return self.interval(call.operands["x"])
        if call.from_float:
            return INT64
        known = {name: self.interval(tensor) for name, tensor in call.operands.items()}
        return interval(call.function.expression, known | call.scalars)

    def _of_rule(self, node: Node, rule: IntegerRule) -> Interval:
        args = node.named
        if rule.interval is None:
            moved = [self.interval(args[name]) for name in rule.moves]
            return hull(*moved) if moved else INT32
        known = {name: self.interval(arg) for name, arg in args.items() if arg is not None}
        out = next(value for value in node.writes if isinstance(value, Tensor))
        return rule.interval(IntegerCall(args, known, out))

    def _of_integers(self, node: Node) -> Interval:
        """A SymInt: a size, or arithmetic on SymInts."""
        name = node.name.removeprefix("executorch_prim::").partition(".")[0]
        if name in ("sym_size", "aten::sym_size", "sym_numel", "aten::sym_numel"):
            source = node.reads[0]
            assert isinstance(source, Tensor)
            return 0, max(1, numel(source.max_shape) if "numel" in name else max(source.max_shape, default=1))
        expression = _OF_INTEGERS.get(name)
        if expression is None:
            return (0, 1) if name in _TRUTHS else INT64
        known = dict(zip("ab", (self.interval(arg) for arg in node.args[:-1]), strict=False))
        return interval(expression, known)

    # -- backward -----------------------------------------------------------------------------------

    def _follow_demands(self) -> None:
        for port in self.graph.outputs:
            if isinstance(port.value, Tensor):
                self._need(port.value, ALL)
        for tensor in self.graph.states:
            if tensor.id in self.graph.shared:
                self._need(tensor, ALL)
        for _ in range(len(self.states) + 2):
            before = [self.demands.get(id) for id in self.states]
            for node in reversed(self.graph.nodes):
                self._follow_back(node)
            if before == [self.demands.get(id) for id in self.states]:
                return

    def _need(self, value: Arg, demand: Demand) -> None:
        for each in values_in(value):
            if isinstance(each, Tensor) and each.dtype is DType.int64:
                self.demands[each.id] = self.demands.get(each.id, Demand(0)) | demand

    def _follow_back(self, node: Node) -> None:
        if not any(isinstance(value, Tensor) and value.dtype is DType.int64 for value in node.reads):
            return
        written = [*node.writes, *node.mutates]
        wanted = Demand(0)
        for out in written:
            wanted |= self._wanted(out)
        call = self.elementwise(node)
        if call is not None:
            self._need_of_elementwise(call, node.writes[0], wanted)
            return
        rule = node.op.integers
        moved = ALL if rule.compares else wanted
        for name, arg in zip(node.op.parameters[:-1], node.args, strict=False):
            if name in rule.moves:
                self._need(arg, moved)
            elif name in rule.accumulates:
                self._need(arg, self._need_of_terms(node.writes[0], wanted))
            elif name in rule.indices:
                self._need(arg, INDEX)
            elif name in (*rule.floats, *rule.decides):
                self._need(arg, ALL)
            elif name not in rule.shapes:
                self._need(arg, WORD)

    def _need_of_terms(self, total: Tensor | SymInt, wanted: Demand) -> Demand:
        """Of the terms of a sum, or of the factors of a product."""
        if _is_float(total) or (wanted & EXACT and not fits(self.interval(total))):
            return ALL
        return LOW if wanted else wanted

    def _wanted(self, out: Tensor | SymInt) -> Demand:
        if isinstance(out, Tensor) and out.dtype is DType.int64:
            return self.demands.get(out.id, Demand(0))
        return ALL if isinstance(out, SymInt) or out.dtype.is_float or out.dtype is DType.bool else LOW

    def _need_of_elementwise(self, call: ElementwiseCall, out: Tensor | SymInt, wanted: Demand) -> None:
        if call.function is None:
            self._need(call.operands["x"], wanted)
            return
        if call.from_float:
            needs = dict.fromkeys(call.operands, ALL)
        else:
            known = {name: self.interval(tensor) for name, tensor in call.operands.items()}
            needs = demands(call.function.expression, known | call.scalars, wanted)
        for name, tensor in call.operands.items():
            self._need(tensor, needs[name])

    # -- elementwise nodes -----------------------------------------------------------------------------

    def elementwise(self, node: Node) -> ElementwiseCall | None:
        """The function of an elementwise node; None for other nodes."""
        if node.index not in self._elementwise:
            self._elementwise[node.index] = self._read_elementwise(node)
        return self._elementwise[node.index]

    def _read_elementwise(self, node: Node) -> ElementwiseCall | None:
        rule = node.op.rule
        if not isinstance(rule, ElementwiseRule):
            return None
        operands = rule.operands(node.args)
        named = dict(zip(operand_names(len(operands)), operands, strict=True))
        try:
            # A scalar may be computed from SymInts. At their limits it has its own limits.
            ends = [rule.describe(*self._at_end(node.args, end)) for end in (0, 1)]
        except (OpError, ArithmeticError, TypeError, ValueError):
            return ElementwiseCall(Elementwise("x", integer=False), named, {})
        function = ends[0]
        if function is None or ends[1] is None:
            return ElementwiseCall(None, named, {})
        pairs = zip(function.scalars, ends[1].scalars, strict=True)
        scalars = {f"s{i}": _between(low, high) for i, (low, high) in enumerate(pairs)}
        large = any(low != high and not fits((low, high)) for low, high in scalars.values())
        return ElementwiseCall(function, named, scalars, large)

    def _at_end(self, args: Iterable[Arg], end: int) -> Iterator[Arg]:
        for arg in args:
            yield self.interval(arg)[end] if isinstance(arg, SymInt) else arg


def _stored(interval: Interval, dtype: DType) -> Interval:
    """The interval of integers after they are stored as a dtype."""
    low, high = _OF_DTYPE.get(dtype, INT64)
    return interval if low <= interval[0] and interval[1] <= high else (low, high)


def _between(a: float, b: float) -> Interval:
    """The interval of a scalar that is between two numbers."""
    ends = [max(INT64[0], min(INT64[1], int(x))) if abs(x) < inf else INT64[x > 0] for x in (a, b)]
    return min(ends), max(ends)


def _is_float(value: Tensor | SymInt) -> bool:
    return isinstance(value, Tensor) and value.dtype.is_float


def _is_scalar(node: Node, name: str) -> bool:
    """Whether an argument is a number to compute with, and not a size or a position."""
    return "a number" in node.op.kinds[node.op.parameters.index(name)].expected


def _keeps_all_elements(node: Node) -> bool:
    """Whether all elements of the only operand, 64-bit integers, are elements of the output."""
    return (
        (node.op.alias is not None or node.name in _WHOLE)
        and all(isinstance(v, Tensor) and v.dtype is DType.int64 for v in (*node.reads[:1], *node.writes))
        and bool(node.reads)
    )


_WHOLE = frozenset(
    {
        "aten.permute_copy.default",
        "aten.permute.default",
        "aten.t_copy.default",
        "aten.transpose_copy.int",
        "aten.expand_copy.default",
    }
)


def _index_interval(node: Node, names: Iterable[str]) -> Interval:
    """An index into a dimension of one of these arguments."""
    given = [arg for name, arg in node.named.items() if name in names]
    sizes = [max(t.max_shape, default=1) for t in given if isinstance(t, Tensor)]
    return (-max(sizes), max(sizes)) if sizes else INT32


def _constant_interval(tensor: Tensor) -> Interval:
    """The smallest and the largest element of a constant in the file."""
    constant = tensor.constant
    code = _FORMATS.get(constant.host_type) if isinstance(constant, Constant) else None
    if code is None or not isinstance(constant, Constant):
        return INT64
    if code == "i" and numel(tensor.max_shape) > FEW:  # coded weights, for example
        return INT32
    itemsize = host_itemsize(constant.host_type)
    count = min(numel(tensor.max_shape), len(constant.data) // itemsize)
    numbers = array(code, bytes(constant.data[: count * itemsize].view))
    return (min(numbers), max(numbers)) if numbers else (0, 0)


# Arithmetic on SymInts, as expressions of their operands.
_OF_INTEGERS = {
    "add": "a + b",
    "sub": "a - b",
    "mul": "a * b",
    "floordiv": "ifloordiv4(a, b)",
    "mod": "iremainder4(a, b)",
    "sym_max": "max(a, b)",
    "max": "max(a, b)",
    "sym_min": "min(a, b)",
    "min": "min(a, b)",
    "neg": "-a",
    "sym_int": "a",
}
_TRUTHS = frozenset({"sym_and", "sym_not", "eq", "ne", "lt", "le", "gt", "ge"})
