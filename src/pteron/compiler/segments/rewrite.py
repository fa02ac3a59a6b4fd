"""Make a graph for one sequence into a graph for several sequences.

Nodes that are row-wise stay as they are: S is now the number of tokens of all segments together. Nodes that
read the position or a KV cache are replaced by their twins, which read tables of the rows. KV caches get a
slot for each sequence. If only the last row of a segment is needed from some node on, these rows are gathered
there, and the nodes after it run on one row for each segment.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from pteron.compiler import ops
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.row_rules import EXPANDED, RESHAPED, VIEWED, Segmented
from pteron.compiler.ir.unread import without_unread
from pteron.compiler.ir.values import Graph, Joined, Node, Port, Tensor, ValueId
from pteron.compiler.ops.attention_routes import FEW_QUERIES, FLASH_TILE
from pteron.compiler.segments.analysis import Kind, RowAnalysis, TokenRows, analyse
from pteron.compiler.segments.graph import Batching, SegmentedGraph
from pteron.errors import UnsupportedError

VIEW, GATHER, COPY = "aten.view_copy.default", "aten.index_select.default", "pteron.copy"


def with_segments(graph: Graph, batching: Batching) -> Graph:
    """The graph for several sequences. A program without inputs, such as a constant, stays as it is."""
    if not any(isinstance(port.value, Tensor) for port in graph.inputs):
        return graph
    if graph.shared:
        return _alone(graph, batching, "it shares state with other methods")
    found = analyse(graph)
    if found.mixing is None:
        return _Rewriter(found, batching).run()
    return _alone(graph, batching, f"not all of its operators treat the tokens independently. {found.mixing}")


def _alone(graph: Graph, batching: Batching, why: str) -> Graph:
    """The graph as it is, if the caller accepts that it runs one sequence."""
    if not batching.required:
        return graph
    raise UnsupportedError(
        f"method '{graph.name}' cannot run several sequences in one call (segments={batching.most}), because "
        f"{why}. Load it without segments"
    )


class _Rewriter:
    def __init__(self, found: RowAnalysis, batching: Batching) -> None:
        self._found = found
        self._old = found.graph
        self._slot_count = batching.slot_count(sum(state.max_nbytes for state in found.graph.states))
        self._most = min(batching.most, found.length, self._slot_count)
        self._last_rows = batching.last_rows
        own = {f.name: getattr(found.graph, f.name) for f in fields(Graph)}
        self._new = SegmentedGraph(**{**own, "values": list(found.graph.values), "nodes": []})
        self._changed: dict[ValueId, Tensor] = {}  # tensors that get another shape
        self._gathered: dict[ValueId, Tensor] = {}  # tensors with all rows, and those with the last rows
        self._ports: list[Port] = []

    def run(self) -> SegmentedGraph:
        length = self._found.length
        self._slots = self._table("slots", length)
        self._positions = self._table("positions", length)
        self._few = self._table("few", min(length, (FEW_QUERIES - 1) * self._most))
        self._tiles = self._table("tiles", max(1, length // FEW_QUERIES), 2)
        self._last = self._table("last", self._most)
        self._count = self._new.symint("segments")
        self._change_shapes()
        self._add("sym_size.int", (self._last, 0, self._count))
        for node, kind in zip(self._old.nodes, self._found.kinds, strict=True):
            self._rewrite(node, kind)
        self._finish()
        return self._new

    def _table(self, name: str, *shape: int) -> Tensor:
        tensor = self._new.tensor(DType.int32, shape, name)
        self._ports.append(Port(name, tensor, "int32", resizable=True))
        return tensor

    # -- shapes ---------------------------------------------------------------------------------

    def _change_shapes(self) -> None:
        """Slots for the states, and one row for each segment in what follows the choice of the last rows."""
        for state in self._old.states:
            start = None if state.constant is None else Joined((state,) * self._slot_count, axis=0)
            shape = (self._slot_count, *state.max_shape[1:])
            self._changed[state.id] = replace(state, max_shape=shape, constant=start)
        tail = self._tail()
        for node in self._old.nodes:
            for tensor in node.writes:
                rows = self._found.rows.get(tensor.id)
                if isinstance(tensor, Tensor) and rows and (rows.is_last or node.index in tail):
                    self._changed[tensor.id] = replace(tensor, max_shape=self._resized(tensor, self._most))

    def _resized(self, tensor: Tensor, size: Any) -> tuple[Any, ...]:
        dim = self._found.rows[tensor.id].dim
        return (*tensor.max_shape[:dim], size, *tensor.max_shape[dim + 1 :])

    def _tail(self) -> set[int]:
        """The row-wise nodes of which only the last rows are needed."""
        rows = self._found.rows
        needed: set[ValueId] = set()  # tensors that are needed with all rows
        if not self._last_rows:
            needed.update(p.value.id for p in self._old.outputs if isinstance(p.value, Tensor))
        tail: set[int] = set()
        for node, kind in reversed(list(zip(self._old.nodes, self._found.kinds, strict=True))):
            if kind is Kind.ROW_WISE and not any(value.id in needed for value in node.writes):
                tail.add(node.index)
            elif kind in (Kind.ROW_WISE, Kind.SEGMENTED):
                needed.update(value.id for value in node.reads if value.id in rows)
        return tail

    # -- nodes ----------------------------------------------------------------------------------

    def _rewrite(self, node: Node, kind: Kind) -> None:
        if kind is Kind.SEGMENTED:
            self._rewrite_segmented(node)
        elif kind is Kind.LAST:
            self._view(self._last_of(node.args[0], node), node.args[-1], node)
        elif kind is Kind.ROW_WISE and any(value.id in self._changed for value in node.writes):
            self._rewrite_tail(node)
        else:
            self._add(node.name, node.args, node)

    def _rewrite_segmented(self, node: Node) -> None:
        rule, args = node.op.rows, list(node.args)
        if isinstance(rule, Segmented):
            args[node.op.parameters.index(rule.at)] = (self._slots, self._positions, self._few, self._tiles)
            self._add(rule.twin, args, node)
        elif node.name == "aten.slice_copy.Tensor":
            table, dim, *_, out = args
            self._add(GATHER, (table, dim, self._positions, out), node)
        elif node.writes[0].id in self._found.rows:  # the sum of 0, 1, .. S - 1 and the position
            self._add(COPY, (self._positions, args[-1]), node)

    def _rewrite_tail(self, node: Node) -> None:
        """A node that runs on one row for each segment."""
        args = [self._with_last(arg, node) for arg in node.args]
        out = args[-1]
        if node.op.rows in (RESHAPED, VIEWED):
            self._view(args[0], out, node)
            return
        if node.op.rows is EXPANDED:
            args[node.op.parameters.index("size")] = self._resized(out, self._count)
        self._add(node.name, args, node)

    def _view(self, x: Tensor, out: Tensor, node: Node) -> None:
        self._add(VIEW, (x, self._resized(out, self._count), out), node)

    def _with_last(self, arg: Any, node: Node) -> Any:
        if isinstance(arg, tuple):
            return tuple(self._with_last(item, node) for item in arg)
        return self._last_of(arg, node) if isinstance(arg, Tensor) and arg.id in self._found.rows else arg

    def _last_of(self, tensor: Tensor, node: Node) -> Tensor:
        """The last rows of a tensor: itself if it has no others."""
        if tensor.id in self._changed:
            return tensor
        if tensor.id not in self._gathered:
            rows = self._new.tensor(tensor.dtype, self._resized(tensor, self._most), f"{tensor.name}.last")
            self._add(GATHER, (tensor, self._found.rows[tensor.id].dim, self._last, rows), node)
            self._gathered[tensor.id] = rows
        return self._gathered[tensor.id]

    def _add(self, name: str, args: Any, replaced: Node | None = None) -> None:
        spec = ops.known(name)
        bound = spec.bind(self._swapped(tuple(args)))
        origin, when = ("segments", None) if replaced is None else (replaced.origin, replaced.when)
        self._new.nodes.append(spec.node(bound, origin, index=len(self._new.nodes), when=when))

    def _swapped(self, arg: Any) -> Any:
        if isinstance(arg, tuple):
            return tuple(map(self._swapped, arg))
        return self._changed.get(arg.id, arg) if isinstance(arg, Tensor) else arg

    # -- the graph ------------------------------------------------------------------------------

    def _finish(self) -> None:
        new, old = self._new, self._old
        new.values = list(map(self._swapped, new.values))
        new.states = list(map(self._swapped, old.states))
        new.outputs = [replace(port, value=self._swapped(port.value)) for port in old.outputs]
        new.nodes = without_unread(new).nodes  # arithmetic on the position is not used any more
        read = {value.id for node in new.nodes for value in node.reads}
        new.elements = [element for element in old.elements if element.symint.id in read]
        # The rows of several sequences have other sizes than the file says.
        rows = [replace(port, sizes=None) for port in old.inputs if self._rows(port) is not None]
        new.inputs = rows + self._ports
        new.most, new.slot_count = self._most, self._slot_count
        new.capacity = min((state.max_shape[1] for state in old.states), default=0)
        new.few_rows, new.tile_rows = FEW_QUERIES, FLASH_TILE
        new.program_inputs, new.program_outputs = tuple(old.inputs), tuple(old.outputs)
        new.input_dims = tuple(None if r is None else r.dim for r in map(self._rows, old.inputs))
        new.position_input = self._position_input()
        new.output_rows = tuple(self._output_rows(port) for port in old.outputs)

    def _position_input(self) -> int | None:
        """The input that is a position, or else the one with a position for each token."""
        sources = {element.source.id for element in self._old.elements}
        for wanted in (self._found.positions, sources):
            for number, port in enumerate(self._old.inputs):
                if isinstance(port.value, Tensor) and port.value.id in wanted:
                    return number
        return None

    def _rows(self, port: Port) -> TokenRows | None:
        return self._found.rows.get(port.value.id) if isinstance(port.value, Tensor) else None

    def _output_rows(self, port: Port) -> TokenRows | None:
        rows = self._rows(port)
        is_changed = isinstance(port.value, Tensor) and port.value.id in self._changed
        return rows._replace(is_last=True) if rows is not None and is_changed else rows
