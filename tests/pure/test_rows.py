"""Row analysis: which nodes treat the tokens of a sequence independently, and along which dimension."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.row_rules import RowWise, Segmented
from pteron.compiler.ir.values import Arg, Element, SymInt, Tensor
from pteron.compiler.ops import registered
from pteron.compiler.segments.analysis import Kind, RowAnalysis, analyse
from tests.support.sketch import Sketch

S, WIDTH, CAPACITY = 6, 8, 12
REST: tuple[Arg, ...] = (None, None, None, None)


class Sequence(Sketch):
    """A graph for tokens [1, S] and a position, with embeddings x [1, S, WIDTH]."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = self.input(1, S, dtype=DType.int32)
        self.input_pos = self.input(1, dtype=DType.int32)
        self.position = self.graph.symint("position")
        self.graph.elements.append(Element(self.position, self.input_pos, 0, 0))
        self.length = self.computed("sym_size.int", self.tokens, 1)
        self.x = self.call("aten.embedding.default", self.constant(20, WIDTH), self.tokens, -1, False, False)

    def call(self, name: str, *args: Arg, shape: tuple[int, ...] = (1, S, WIDTH)) -> Tensor:
        out = self.value(*shape)
        self.node(name, [*args, out])
        return out

    def computed(self, name: str, *args: Arg) -> SymInt:
        out = self.graph.symint(f"n{len(self.graph.values)}")
        self.node(name, [*args, out])
        return out

    def cache(self) -> Tensor:
        cache = self.value(1, CAPACITY, 2, 4)
        self.graph.states.append(cache)
        return cache


def row_dim(found: RowAnalysis, tensor: Tensor) -> int | None:
    assert found.mixing is None, found.mixing
    return found.rows[tensor.id].dim if tensor.id in found.rows else None


def test_rows_are_followed_through_views_and_permutations() -> None:
    g = Sequence()
    flat = g.call("aten.view_copy.default", g.x, (g.length, WIDTH), shape=(S, WIDTH))
    heads = g.call("aten.view_copy.default", flat, (1, g.length, 2, 4), shape=(1, S, 2, 4))
    turned = g.call("aten.permute_copy.default", heads, (0, 2, 1, 3), shape=(1, 2, S, 4))
    wide = g.call("aten.unsqueeze_copy.default", turned, 0, shape=(1, 1, 2, S, 4))
    swapped = g.call("aten.transpose_copy.int", wide, -1, -2, shape=(1, 1, 2, 4, S))
    summed = g.call("aten.sum.dim_IntList", swapped, (2,), False, None, shape=(1, 1, 4, S))
    found = analyse(g.graph)
    assert [row_dim(found, t) for t in (flat, heads, turned, wide, swapped, summed)] == [0, 1, 2, 3, 4, 3]
    assert set(found.kinds) == {Kind.APART, Kind.ROW_WISE}


def test_operands_are_aligned_as_they_broadcast() -> None:
    g = Sequence()
    flat = g.call("aten.view_copy.default", g.x, (g.length, WIDTH), shape=(S, WIDTH))
    both = g.call("aten.add.Tensor", g.x, flat, 1)
    scaled = g.call("aten.mul.Tensor", both, g.constant(WIDTH))
    assert row_dim(analyse(g.graph), scaled) == 1


def test_a_table_is_read_from_the_position_on() -> None:
    g = Sequence()
    end = g.computed("add", g.position, g.length)
    rows = g.call(
        "aten.slice_copy.Tensor", g.constant(CAPACITY, WIDTH), 0, g.position, end, 1, shape=(S, WIDTH)
    )
    found = analyse(g.graph)
    assert row_dim(found, rows) == 0
    assert found.kinds[-1] is Kind.SEGMENTED


def test_positions_of_rows_are_recognised() -> None:
    g = Sequence()
    offsets = g.value(S, dtype=DType.int32)
    g.node("aten.arange.start_step", [0, g.length, 1, *REST, offsets])
    places = g.value(S, dtype=DType.int32)
    g.node("aten.add.Tensor", [offsets, g.input_pos, 1, places])
    table = g.constant(CAPACITY, WIDTH)
    rows = g.call("aten.embedding.default", table, places, -1, False, False, shape=(S, WIDTH))
    assert row_dim(analyse(g.graph), rows) == 0


@pytest.mark.parametrize("spelled", ["select -1", "select S - 1", "slice"])
def test_the_last_row_stands_for_its_sequence(spelled: str) -> None:
    g = Sequence()
    if spelled == "slice":
        row = g.call("aten.slice_copy.Tensor", g.x, 1, -1, 2**63 - 1, 1, shape=(1, 1, WIDTH))
    else:
        index: Arg = -1 if spelled == "select -1" else g.computed("sub", g.length, 1)
        row = g.call("aten.select_copy.int", g.x, 1, index, shape=(1, WIDTH))
    logits = g.call("aten.linear.default", row, g.constant(20, WIDTH), None, shape=(*row.max_shape[:-1], 20))
    found = analyse(g.graph)
    assert found.kinds[-2:] == [Kind.LAST, Kind.ROW_WISE]
    assert found.rows[logits.id] == (1 if spelled == "slice" else 0, True)


def test_attention_with_a_cache_is_segmented() -> None:
    g = Sequence()
    heads = g.call("aten.view_copy.default", g.x, (1, g.length, 2, 4), shape=(1, S, 2, 4))
    args = (g.cache(), g.cache(), g.position, g.length, None, 0.0, True, None)
    y = g.call("sdpa_with_kv_cache.default", heads, heads, heads, *args, shape=(1, S, 2, 4))
    found = analyse(g.graph)
    assert row_dim(found, y) == 1
    assert found.kinds[-1] is Kind.SEGMENTED


def mix_by_flip(g: Sequence) -> None:
    g.call("aten.flip.default", g.x, (1,))


def mix_by_softmax(g: Sequence) -> None:
    g.call("aten._softmax.default", g.x, 1, False)


def mix_by_product(g: Sequence) -> None:
    turned = g.call("aten.permute_copy.default", g.x, (0, 2, 1), shape=(1, WIDTH, S))
    g.call("aten.bmm.default", g.x, turned, shape=(1, S, S))


def mix_by_sum(g: Sequence) -> None:
    g.call("aten.add.Tensor", g.x, g.call("aten.transpose_copy.int", g.x, 1, 2, shape=(1, WIDTH, S)), 1)


def mix_by_places(g: Sequence) -> None:
    g.call("aten.add.Tensor", g.x, g.constant(S, WIDTH), 1)


def mix_by_view(g: Sequence) -> None:
    turned = g.call("aten.permute_copy.default", g.x, (0, 2, 1), shape=(1, WIDTH, S))
    g.call("aten.view_copy.default", turned, (-1,), shape=(S * WIDTH,))


def mix_by_first_row(g: Sequence) -> None:
    g.call("aten.select_copy.int", g.x, 1, 0, shape=(1, WIDTH))


def mix_by_table_from_the_start(g: Sequence) -> None:
    g.call("aten.slice_copy.Tensor", g.constant(CAPACITY, WIDTH), 0, 0, g.length, 1, shape=(S, WIDTH))


def mix_by_mask(g: Sequence) -> None:
    heads = g.call("aten.view_copy.default", g.x, (1, g.length, 2, 4), shape=(1, S, 2, 4))
    mask = g.constant(S, CAPACITY)
    args = (g.cache(), g.cache(), g.position, g.length, mask, 0.0, False, None)
    g.call("sdpa_with_kv_cache.default", heads, heads, heads, *args, shape=(1, S, 2, 4))


def mix_by_state(g: Sequence) -> None:
    g.call("aten.add.Tensor", g.constant(1, CAPACITY, 2, 4), g.cache(), 1, shape=(1, CAPACITY, 2, 4))


@pytest.mark.parametrize(
    ("mix", "reason"),
    [
        (mix_by_flip, r"aten.flip.default \(node \d+\): it combines or selects along dimension 1"),
        (mix_by_softmax, "along dimension 1"),
        (mix_by_product, "not known to treat rows independently"),
        (mix_by_sum, "rows in different dimensions"),
        (mix_by_places, "`b` has an element for each place in the call, not for each token"),
        (mix_by_view, "joins the dimension of the rows"),
        (mix_by_first_row, "selects along dimension 1"),
        (mix_by_table_from_the_start, "`end` depends on the number of tokens"),
        (mix_by_mask, "mask"),
        (mix_by_state, "uses a state of the program in `b`"),
    ],
)
def test_a_node_that_mixes_rows_is_named(mix: Callable[[Sequence], None], reason: str) -> None:
    g = Sequence()
    mix(g)
    found = analyse(g.graph)
    assert not found.is_batchable
    assert re.search(reason, str(found.mixing)), found.mixing


def test_declarations_name_arguments_that_exist() -> None:
    for name, spec in registered().items():
        if isinstance(spec.rows, Segmented):
            named = {spec.rows.at, *spec.rows.rows, *spec.rows.caches}
        else:
            named = {spec.rows.sizes} - {None} if isinstance(spec.rows, RowWise) else set()
        assert named <= set(spec.parameters), name
