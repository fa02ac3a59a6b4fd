"""The work of operators, in FLOPs and bytes, from their declarations."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.live import Live
from pteron.compiler.ir.values import SymInt, Tensor
from pteron.compiler.ir.work import Cost, cost
from pteron.tools.verify.catalogue import CATALOGUE
from tests.support.operators.graphs import LiveEntry
from tests.support.sketch import Sketch

HALF, BYTE, INT = DType.float16, DType.int8, DType.int32


class Hand:
    """A node made by hand, and its live shapes."""

    def __init__(self) -> None:
        self.sketch = Sketch()
        self.live: list[Live] = []

    def __call__(self, *shape: int, dtype: DType = DType.float32) -> Tensor:
        """A tensor whose live shape is smaller than its largest."""
        self.live.append(shape)
        return self.sketch.value(*(2 * n for n in shape), dtype=dtype)

    def integer(self, value: int) -> SymInt:
        self.live.append(value)
        return self.sketch.integer()

    def cost(self, name: str, *args: Any) -> Cost:
        return cost(self.sketch.node(name, args), self.live)


@pytest.fixture
def t() -> Hand:
    return Hand()


# -- products --------------------------------------------------------------------------------------


def test_a_linear_multiplies_and_adds(t: Hand) -> None:
    found = t.cost("aten.linear.default", t(3, 8), t(5, 8), None, t(3, 5))
    assert found == Cost(2 * 3 * 5 * 8, 4 * (24 + 40 + 15))


def test_sibling_linears_count_all_their_outputs(t: Hand) -> None:
    found = t.cost("pteron.linears", t(3, 8), t(12, 8), None, (t(3, 8), t(3, 4)))
    assert found == Cost(2 * 3 * 12 * 8, 4 * (24 + 96 + 36))


def test_packed_weights_count_their_packed_bytes(t: Hand) -> None:
    weights = t(64, 16, dtype=DType.uint8)
    found = t.cost("et_vk.linear_q4gsw.default", t(3, 32), weights, t(1, 64), 32, None, t(3, 64))
    assert found == Cost(2 * 3 * 64 * 32, 4 * 96 + 64 * 16 + 4 * 64 + 4 * 192)
    both = (t(3, 48), t(3, 16))
    assert t.cost("pteron.linears_q4gsw", t(3, 32), weights, t(1, 64), 32, None, both) == found


def test_the_added_tensor_of_addmm_is_not_a_factor(t: Hand) -> None:
    assert t.cost("aten.addmm.default", t(5), t(3, 8), t(8, 5), 1, 1, t(3, 5)).flops == 2 * 3 * 5 * 8
    assert t.cost("aten.bmm.default", t(2, 3, 8), t(2, 8, 5), t(2, 3, 5)).flops == 2 * 2 * 3 * 5 * 8


def test_gradients_are_products(t: Hand) -> None:
    assert t.cost("et_vk.linear_dW.default", t(2, 3, 5), t(2, 3, 8), t(5, 8)).flops == 2 * 5 * 8 * 6
    packed = t(5, 4, dtype=DType.uint8)
    found = t.cost("et_vk.linear_q4gsw_backward.default", t(3, 5), packed, t(1, 5), 8, t(3, 8))
    assert found.flops == 2 * 3 * 8 * 5


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_convolutions(t: Hand, groups: int) -> None:
    """Each output is a product with one filter. If transposed, each input is."""
    plain = (1, 1), (1, 1), (1, 1), False, (0, 0), groups
    found = t.cost(
        "aten.convolution.default", t(2, 4, 6, 6), t(8, 4 // groups, 3, 3), None, *plain, t(2, 8, 6, 6)
    )
    assert found.flops == 2 * (2 * 8 * 36) * 9 * (4 // groups)
    across = (2, 2), (0, 0), (1, 1), True, (0, 0), groups
    found = t.cost(
        "aten.convolution.default", t(2, 4, 6, 6), t(4, 8 // groups, 2, 2), None, *across, t(2, 8, 12, 12)
    )
    assert found.flops == 2 * (2 * 4 * 36) * 4 * (8 // groups)


def test_convolutions_of_integers_do_not_count_padding_of_their_weights(t: Hand) -> None:
    def flops(name: str, weights: Tensor, window: tuple[Any, ...], size: int) -> int | None:
        x, y = t(1, 4, 6, 6, dtype=BYTE), t(1, 4, size, size, dtype=BYTE)
        per_channel = weights, t(4, dtype=INT), t(4)
        return t.cost(name, x, 0.1, 0, *per_channel, 0.1, 0, None, *window, "none", y).flops

    window = (3, 3), (1, 1), (1, 1), (1, 1)
    assert flops("et_vk.q8ta_conv2d.default", t(4, 40, dtype=BYTE), (*window, 1), 6) == 2 * 4 * 36 * 9 * 4
    assert flops("et_vk.q8ta_conv2d_dw.default", t(3, 3, 8, dtype=BYTE), (*window, 4), 6) == 2 * 4 * 36 * 9
    spread = (2, 2), (2, 2), (0, 0), (0, 0), (1, 1), 1
    assert (
        flops("et_vk.q8ta_conv2d_transposed.default", t(4, 16, dtype=BYTE), spread, 12) == 2 * 4 * 36 * 4 * 4
    )


def test_only_the_requested_gradients_of_a_convolution_count(t: Hand) -> None:
    grad, x, weight = t(2, 8, 6, 6), t(2, 4, 6, 6), t(8, 4, 3, 3)
    plain = (8,), (1, 1), (1, 1), (1, 1), False, (0, 0), 1
    outs = t(2, 4, 6, 6), t(8, 4, 3, 3), t(8)
    once = 2 * (2 * 8 * 36) * 9 * 4
    for mask, times in (((True, True, True), 2), ((False, True, False), 1), ((False, False, True), 0)):
        found = t.cost("aten.convolution_backward.default", grad, x, weight, *plain, mask, outs)
        assert found.flops == times * once


def test_a_resize_with_linear_in_its_name_is_not_a_product(t: Hand) -> None:
    """The name contains `linear`."""
    found = t.cost("aten.upsample_bilinear2d.vec", t(1, 3, 4, 4), None, False, (2.0, 2.0), t(1, 3, 8, 8))
    assert found == Cost(None, 4 * (48 + 192))


# -- attention -------------------------------------------------------------------------------------


def test_attention_counts_the_visible_keys(t: Hand) -> None:
    q, k, v, y = t(1, 2, 8, 16), t(1, 2, 2, 16), t(1, 2, 2, 16), t(1, 2, 8, 16)
    caches, position = (t(1, 64, 2, 16), t(1, 64, 2, 16)), t.integer(10)
    name, rest = "sdpa_with_kv_cache.default", (0.0, True, None, y)
    found = t.cost(name, q, k, v, *caches, position, 2, None, *rest)
    visible = 4 * (2 * 256 + 2 * 64 + 2 * 12 * 32)  # 12 of the 64 rows of each cache
    assert found == Cost(4 * 8 * 16 * (11 + 12), visible)
    custom = t.cost("custom_sdpa.default", q, *caches, position, None, *rest)
    assert custom == Cost(found.flops, visible - 4 * 2 * 64)


def test_a_window_hides_the_keys_before_it(t: Hand) -> None:
    q, k, v, y = t(1, 2, 8, 16), t(1, 2, 2, 16), t(1, 2, 2, 16), t(1, 2, 8, 16)
    caches, position = (t(1, 64, 2, 16), t(1, 64, 2, 16)), t.integer(10)
    name, how = "pteron.sdpa_with_kv_cache.default", (None, 0.0, True, None)
    found = t.cost(name, q, k, v, *caches, position, 2, *how, 5, None, y)
    assert found == Cost(4 * 8 * 16 * (5 + 5), 4 * (2 * 256 + 2 * 64 + 2 * 6 * 32))
    wide = t.cost(name, q, k, v, *caches, position, 2, *how, 12, None, y)
    assert wide.flops == 4 * 8 * 16 * (11 + 12)


def test_with_a_mask_every_query_reads_every_key(t: Hand) -> None:
    q, caches = t(1, 2, 8, 16), (t(1, 64, 2, 16), t(1, 64, 2, 16))
    mask = t(2, 64)
    found = t.cost("custom_sdpa.default", q, *caches, 10, mask, 0.0, False, None, t(1, 2, 8, 16))
    assert found == Cost(4 * 8 * 16 * (64 + 64), 4 * (2 * 256 + 2 * 64 * 32 + 2 * 64))


def test_one_decoding_step_of_a_small_language_model(t: Hand) -> None:
    """9 query heads, 3 key heads, head size 64, position 1000: nearly all bytes are read from the caches."""
    q, k, v = t(1, 1, 9, 64), t(1, 1, 3, 64), t(1, 1, 3, 64)
    caches, position = (t(1, 2048, 3, 64), t(1, 2048, 3, 64)), t.integer(999)
    cos, sin = t(2048, 64), t(2048, 64)
    outs = t(1, 1, 9, 64), t(1, 1, 9, 64)
    name = "pteron.rotary_sdpa_with_kv_cache"
    found = t.cost(
        name, q, k, v, cos, sin, position, *caches, position, *(None, 0.0, True, None, None, None), outs
    )
    assert found == Cost(4 * 9 * 64 * 1000, 4 * (2 * 1000 * 3 * 64 + 3 * 9 * 64 + 2 * 3 * 64 + 2 * 64))
    assert found.nbytes > 1.5e6


def test_only_new_rows_of_a_cache_are_written(t: Hand) -> None:
    found = t.cost("update_cache.default", t(1, 2, 2, 16), t(1, 64, 2, 16), t.integer(3), None)
    assert found == Cost(None, 4 * 2 * 64)


# -- lookups ---------------------------------------------------------------------------------------


def test_a_lookup_reads_only_its_rows(t: Hand) -> None:
    indices = t(3, dtype=INT)
    found = t.cost("aten.embedding.default", t(1000, 16), indices, -1, False, False, t(3, 16))
    assert found == Cost(None, 4 * (48 + 3 + 48))
    table, scales, zeros = t(1000, 8, dtype=DType.uint8), t(1000, 2), t(1000, 2, dtype=BYTE)
    name = "quantized_decomposed.embedding_4bit.default"
    assert t.cost(name, table, scales, zeros, 0, 15, indices, t(3, 16)).nbytes == 3 * (8 + 8 + 2) + 12 + 192
    assert t.cost(name, table, scales, None, 0, 15, indices, t(3, 16)).nbytes == 3 * (8 + 8) + 12 + 192


def test_bytes_read_never_exceed_the_tensor(t: Hand) -> None:
    found = t.cost("aten.embedding.default", t(2, 16), t(30, dtype=INT), -1, False, False, t(30, 16))
    assert found.nbytes == 4 * (32 + 30 + 480)


def test_a_slice_reads_only_its_elements(t: Hand) -> None:
    assert t.cost("aten.select_copy.int", t(100, 16), 0, 99, t(16)).nbytes == 4 * (16 + 16)
    assert (
        t.cost("aten.slice_copy.Tensor", t(100, 16, dtype=HALF), 0, 0, 3, 1, t(3, 16, dtype=HALF)).nbytes
        == 192
    )
    assert t.cost("aten.gather.default", t(100, 16), 0, t(2, 16, dtype=INT), False, t(2, 16)).nbytes == 4 * 96


def test_an_argument_used_only_for_its_shape_is_not_read(t: Hand) -> None:
    assert t.cost("aten.fill.Scalar", t(100), 1.0, t(100)).nbytes == 400


# -- every operator ---------------------------------------------------------------------------------


def test_a_tensor_passed_twice_is_read_once(t: Hand) -> None:
    x = t(3, 4)
    assert t.cost("aten.mul.Tensor", x, x, t(3, 4)) == Cost(None, 4 * (12 + 12))


@pytest.mark.parametrize("name", CATALOGUE)
def test_declared_work_holds_at_any_live_shape(name: str) -> None:
    """The declared work of an operator never exceeds the bytes of its tensors."""
    for entry in CATALOGUE[name]:
        one = LiveEntry(entry, entry.dtypes[0])
        one.resize(entry.sizes[1])
        (node,) = one.graph.nodes
        tensors = {v for v in (*node.reads, *node.writes) if isinstance(v, Tensor)}
        most = sum(prod(one.live.current[v.id]) * v.dtype.itemsize for v in tensors)  # type: ignore[arg-type]
        found = cost(node, one.live.current)
        assert sum(v.dtype.itemsize for v in node.writes if isinstance(v, Tensor)) <= found.nbytes <= most
        assert found.flops is None or found.flops > 0
