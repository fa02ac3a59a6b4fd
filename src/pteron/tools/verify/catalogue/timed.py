"""Operators at shapes of real models: `pteron bench --report` times them.

Every family of operators that has several kernels is here. The depth and width of 2048 is a layer of a
language model with a billion weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Graph
from pteron.tools.verify.catalogue.arguments import C, F, I, N, T
from pteron.tools.verify.catalogue.entry import Contents, one_node

WIDTH, GROUP = 2048, 32
ROWS = (1, 128, 8, 4, 2, 512)  # the most important first: a report with little time measures these


@dataclass(frozen=True, slots=True)
class TimedCase:
    """An operator with its arguments. The output is the last one."""

    family: str
    name: str
    operator: str
    args: tuple[Any, ...]

    def graph(self, contents: Contents | None = None) -> Graph:
        """A program with one node."""
        return one_node(self.operator, self.args, DType.float32, contents)


def _timed(family: str, operator: str, shapes: dict[str, list[Any]]) -> list[TimedCase]:
    return [TimedCase(family, name, operator, tuple(args)) for name, args in shapes.items()]


def _linears(form: str, operator: str, *weights: Any, dtype: DType = DType.float32) -> list[TimedCase]:
    """`weights` are the arguments between x and the output."""
    shapes = {
        f"{rows} × {WIDTH} × {WIDTH}": [T((rows, WIDTH), dtype), *weights, F(rows, WIDTH)] for rows in ROWS
    }
    return _timed(f"Linear, {form}", operator, shapes)


def _cached_attention(queries: int, past: int, dtype: DType = DType.float32) -> list[TimedCase]:
    q, key, cache = F(1, queries, 32, 64), F(1, queries, 8, 64), C(1, 2048, 8, 64, dtype=dtype)
    args = [q, key, key, cache, cache, past, queries, None, 0.0, True, None, q]
    name = f"{queries} after {past}, 32 heads share 8, {dtype} cache"
    return _timed("Attention with a KV cache", "sdpa_with_kv_cache.default", {name: args})


def _convolution(ins: int, outs: int, size: int, window: int, groups: int = 1) -> list[TimedCase]:
    filters, pad = C(ins // groups, window, window, outs), [window // 2] * 2
    image, made = F(1, ins, size, size), F(1, outs, size, size)
    per_channel = ", one filter per channel" if groups > 1 else ""
    name = f"{window}×{window}, {ins} → {outs} channels, {size}×{size}{per_channel}"
    args = [image, filters, C(outs), [1, 1], pad, [1, 1], groups, 0.0, None, made]
    return _timed("Convolution", "pteron.packed_convolution", {name: args})


def in_turns(families: Iterable[list[TimedCase]]) -> list[TimedCase]:
    """The first case of every family, then the second of every family, and so on."""
    return [case for turn in zip_longest(*families) for case in turn if case is not None]


_BYTES, _GROUPS = C(WIDTH, WIDTH, dtype=DType.int8), WIDTH // GROUP
_HEADS, _IMAGE, _MILLION, _RANGE = F(1, 12, 256, 64), F(1, 512, 7, 7), F(1024, 1024), F(1, 32768)
_LAYER = F(128, 768)
# fmt: off
TIMED = in_turns([
    _linears("float32 weights", "aten.linear.default", C(WIDTH, WIDTH), None),
    _linears("float16 weights", "aten.linear.default", C(WIDTH, WIDTH, dtype=DType.float16), None),
    _linears("4-bit symmetric weights", "et_vk.linear_q4gsw.default",
             N(WIDTH, WIDTH // 2), C(_GROUPS, WIDTH), GROUP, None),
    _linears("4-bit with minima weights", "pteron.linear_affine.default",
             C(WIDTH, WIDTH // 8, dtype=DType.int32), C(WIDTH, _GROUPS, 2, dtype=DType.float16), 4, GROUP, 0,
             None, None),
    _linears("int8 in groups weights", "pteron.linear_int8", _BYTES, C(WIDTH, _GROUPS), None, GROUP, None),
    _linears("int8 per channel weights", "aten._weight_int8pack_mm.default", _BYTES, C(WIDTH)),
    _linears("int8 weights and activations", "et_vk.linear_q8ta_q8csw.default",
             0.1, 3, _BYTES, C(WIDTH, dtype=DType.int32), C(WIDTH), None, dtype=DType.int8),
    [
        *_timed("Matrix product", "aten.mm.default", {
            f"{m} × {k} × {n}": [F(m, k), F(k, n), F(m, n)]
            for m, k, n in ((512, 512, 512), (128, WIDTH, WIDTH), (1, WIDTH, WIDTH), (1024, 1024, 1024))}),
        *_timed("Matrix product", "aten.bmm.default", {
            "16 of 128 × 64 × 128": [F(16, 128, 64), F(16, 64, 128), F(16, 128, 128)]}),
    ],
    [
        *_cached_attention(1, 511),
        *_cached_attention(128, 0),
        *_timed("Attention", "et_vk.sdpa.default", {
            "256 × 256, 12 heads": [_HEADS, _HEADS, _HEADS, None, None, _HEADS]}),
        *_cached_attention(1, 2047),
        *_cached_attention(1, 2047, DType.float16),
        *_cached_attention(4, 508),
    ],
    [
        *_timed("RMS norm", "et_vk.rms_norm.default", {
            f"{n} × {WIDTH}": [F(n, WIDTH), C(WIDTH), 1e-5, F(n, WIDTH)] for n in (1, 128)}),
        *_timed("Layer norm", "aten.native_layer_norm.default", {
            "128 × 768": [_LAYER, [768], C(768), C(768), 1e-5, [_LAYER, F(128, 1), F(128, 1)]]}),
        *_timed("Softmax", "aten._softmax.default", {
            f"{n} × {width}": [F(n, width), 1, False, F(n, width)]
            for n, width in ((128, WIDTH), (1, 32768))}),
    ],
    [
        *_convolution(64, 64, 56, 3),
        *_convolution(256, 64, 56, 1),
        *_convolution(96, 96, 56, 3, 96),
        *_convolution(512, 512, 7, 3),
    ],
    [
        TimedCase("Element by element", f"{name}, 1024 × 1024", operator, (_MILLION, *rest, _MILLION))
        for name, operator, rest in (
            ("add", "aten.add.Tensor", [_MILLION, 1]),
            ("mul by a row", "aten.mul.Tensor", [F(1024)]),
            ("silu", "aten.silu.default", []),
            ("permute", "aten.permute_copy.default", [[1, 0]]))
    ],
    [
        *_timed("Reduction", "aten.sum.dim_IntList", {
            f"sum of rows, 128 × {WIDTH}": [F(128, WIDTH), [1], False, None, F(128)],
            "sum of all, 256 × 4096": [F(256, 4096), [0, 1], False, None, F()]}),
        *_timed("Reduction", "aten.argmax.default", {"argmax, 1 × 32768": [_RANGE, 1, False, I(1)]}),
        *_timed("Reduction", "aten.mean.dim", {
            "mean of 512 images, 7 × 7": [_IMAGE, [2, 3], False, None, F(1, 512)]}),
    ],
])
# fmt: on
