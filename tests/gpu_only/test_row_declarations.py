"""What operators declare about rows (`rows=`) is true of their kernels.

A declaration says: row i of the outputs depends only on row i of the inputs. So for each entry of an
operator, and for each choice of dimensions that the declaration accepts, the kernels run with the rows as
they are, in another order, and in two parts. The results must be the same rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.op import _REGISTRY
from pteron.compiler.ir.row_rules import ELEMENTWISE, MixesRows, RowArguments, RowWise
from pteron.compiler.ir.values import Node, Tensor
from pteron.compiler.ops import find, registered
from pteron.compiler.plan.sweep import plan
from pteron.compiler.sketch import found, replaced
from pteron.errors import PteronError
from pteron.tools.verify.catalogue import CATALOGUE
from pteron.tools.verify.catalogue.arguments import LEAVES, Position, T
from pteron.tools.verify.catalogue.entry import one_node
from pteron.tools.verify.comparison import Tolerance, difference
from pteron.tools.verify.single_node import open_graph

ROW_WISE = sorted(name for name in registered() if isinstance(find(name).rows, RowWise))
LARGEST = 8  # rows

Array = np.ndarray[Any, Any]
Dims = dict[int, int]  # the dimension of the rows, by the number of the leaf


class NodeOfEntry:
    """A graph with one node, for arguments with these leaves."""

    def __init__(
        self, name: str, args: Sequence[Any], dtype: DType, data: dict[int, Array] | None = None
    ) -> None:
        fixed = (data[place] for place, leaf in enumerate(found(args, LEAVES)) if data and is_fixed(leaf))
        self.graph = one_node(name, args, dtype, (lambda leaf: next(fixed)) if data else None)
        self.node: Node = self.graph.nodes[0]
        outputs = found(args[-1], LEAVES)
        self.inputs: list[Any] = self.graph.values[: len(self.graph.values) - len(outputs)]

    def run(self, device: Any, data: dict[int, Array]) -> list[Array]:
        with open_graph(self.graph, device, device.route_features) as method:
            given = [
                data[place] if isinstance(value, Tensor) else 1
                for place, value in enumerate(self.inputs)
                if not (isinstance(value, Tensor) and value.constant)
            ]
            return method.execute(given)[: len(self.node.writes)]


def is_fixed(leaf: T | Position) -> bool:
    return isinstance(leaf, T) and leaf.fixed


def drawn(node: NodeOfEntry, device: Any) -> dict[int, Array]:
    """Random contents for all tensors. Indices are in range."""
    random = np.random.default_rng(1)
    rules = {r.tensor.id: r for r in plan(node.graph, device.route_features).content_rules}
    data: dict[int, Array] = {}
    for place, value in enumerate(node.inputs):
        if not isinstance(value, Tensor):
            continue
        rule = rules.get(value.id)
        if value.dtype.is_float:
            array: Array = random.standard_normal(value.max_shape)
        elif rule is not None:
            array = random.integers(max(rule.low, 0), rule.high + 1, value.max_shape)
        else:
            array = random.integers(0, 2 if value.dtype is DType.bool else 5, value.max_shape)
        data[place] = array.astype(value.dtype.label)
    return data


def choices(args: Sequence[Any]) -> Iterator[tuple[int, Dims]]:
    """The ways in which inputs may have rows: the number of rows, and the dimension in each that has some."""
    *given, _ = args
    leaves = found(given, LEAVES)
    sizes = {n for leaf in leaves if isinstance(leaf, T) for n in leaf.shape if n > 1}
    for rows in sorted(sizes):
        options = [
            [None, *(d for d, n in enumerate(leaf.shape) if n == rows)]
            if isinstance(leaf, T) and not leaf.fixed
            else [None]
            for leaf in leaves
        ]
        for dims in itertools.product(*options):
            chosen = {place: d for place, d in enumerate(dims) if d is not None}
            if chosen:
                yield rows, chosen


def out_dim(node: NodeOfEntry, rows: int, dims: Dims) -> int | None:
    """The dimension of the rows in the outputs, as declared. None: the declaration refuses the choice."""
    spec = node.node.op
    try:
        found = spec.rows.dim(RowArguments(node.node, {node.inputs[p].id: d for p, d in dims.items()}))
    except MixesRows:
        return None
    shapes = [v.max_shape for v in node.node.writes]
    return found if all(found < len(s) and s[found] == rows for s in shapes) else None


def with_count(args: Sequence[Any], sizes: int | None, dims: Dims, out: int, count: int) -> list[Any]:
    """The arguments with another number of rows."""
    places = itertools.count()

    def resized(leaf: Any, dim: int | None) -> Any:
        if dim is None or not isinstance(leaf, T):
            return leaf
        return replace(leaf, shape=(*leaf.shape[:dim], count, *leaf.shape[dim + 1 :]))

    *given, results = args
    changed = [replaced(arg, LEAVES, lambda leaf: resized(leaf, dims.get(next(places)))) for arg in given]
    if sizes is not None:
        changed[sizes] = tuple(count if d == out else n for d, n in enumerate(changed[sizes]))
    return [*changed, replaced(results, (T,), lambda leaf: resized(leaf, out))]


def taken(data: dict[int, Array], dims: Dims, rows: Any) -> dict[int, Array]:
    return {
        place: np.ascontiguousarray(np.take(array, rows, dims[place])) if place in dims else array
        for place, array in data.items()
    }


def check(device: Any, name: str, args: Sequence[Any], dtype: DType, rows: int, dims: Dims, out: int) -> bool:
    """Compare. False if the rule refuses another number of rows: then nobody can divide them."""
    whole = NodeOfEntry(name, args, dtype)
    data = drawn(whole, device)
    spec = whole.node.op
    sizes = spec.parameters.index(spec.rows.sizes) if spec.rows.sizes in spec.parameters else None

    def run(order: Sequence[int]) -> list[Array]:
        node = NodeOfEntry(name, with_count(args, sizes, dims, out, len(order)), dtype, data)
        return node.run(device, taken(data, dims, list(order)))

    def agree(got: list[Array], order: Sequence[int], how: str) -> None:
        for number, (one, want) in enumerate(zip(got, expected, strict=True)):
            where = f"{name}: rows in {dims}, result {number} with rows in {out}, {how}"
            found = difference(one, np.take(want, order, out), Tolerance(1e-5, 1e-6, absolute=1e-6))
            assert not found.is_bad, f"{where}: {found}"

    expected = run(range(rows))
    order = list(np.random.default_rng(2).permutation(rows))
    agree(run(order), order, "in another order")
    first = rows // 3 or 1
    try:
        parts = run(order[:first]), run(order[first:])
    except PteronError:
        return False
    agree([np.concatenate(pair, out) for pair in zip(*parts, strict=True)], order, "in two parts")
    return True


def verified(device: Any, name: str) -> int:
    """How many choices of dimensions were compared."""
    count = 0
    for entry in CATALOGUE[name]:
        dtype = DType.float32 if DType.float32 in entry.dtypes else entry.dtypes[0]
        args = entry.arguments(min(LARGEST, entry.sizes[0]), dtype)
        node = NodeOfEntry(name, args, dtype)
        for rows, dims in choices(args):
            out = out_dim(node, rows, dims)
            if out is not None:
                count += check(device, name, args, dtype, rows, dims, out)
    return count


@pytest.mark.parametrize("name", ROW_WISE)
def test_rows_are_independent(device: Any, name: str) -> None:
    assert verified(device, name) > 0, "no entry has rows that the declaration accepts"


def test_a_wrong_declaration_is_found(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("aten.cumsum.default", "aten.flip.default", "aten._softmax.default"):
        monkeypatch.setitem(_REGISTRY, name, replace(_REGISTRY[name], rows=ELEMENTWISE))
        with pytest.raises(AssertionError, match=f"{name}: rows in"):
            verified(device, name)
