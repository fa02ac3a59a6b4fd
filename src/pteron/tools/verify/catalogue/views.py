"""Copies with strides, writes into parts of tensors, new tensors, and results of branches."""

from __future__ import annotations

from typing import Any

import numpy as np

from pteron.compiler.ir.dtypes import DType
from pteron.tools.verify.catalogue.arguments import Array, B, I, Position, X, exactly
from pteron.tools.verify.catalogue.entry import NEVER_WRITTEN, case, sample
from pteron.tools.verify.catalogue.types import ANY, HALVES, NUMBERS

# -- copies ------------------------------------------------------------------------------------------

case("permute_copy", lambda n: [X(2, n, 3), [2, 0, 1]], np.transpose, ANY,
     (*HALVES, DType.int32, DType.int8, DType.bool))  # fmt: skip
case("permute_copy", lambda n: [X(2, n, 12), [1, 0, 2]], np.transpose, tried=HALVES)
case("permute_copy", lambda n: [X(n, 4, 12), [0, 2, 1]], np.transpose, tried=HALVES)
sample("permute_copy", lambda n: [X(2, n, 3, 16), [0, 2, 1, 3], X(2, 3, n, 16)], ANY)
sample("permute_copy", lambda n: [X(3, n, 4, 8), [0, 3, 1, 2], X(3, 8, n, 4)], ANY)
sample("permute", lambda n: [X(2, n, 3), [2, 0, 1], X(3, 2, n)], ANY)
sample("transpose_copy.int", lambda n: [X(3, n, 5), 1, -1, X(3, 5, n)], ANY)
sample("transpose_copy.int", lambda n: [X(3, n, 12), 1, 2, X(3, 12, n)], ANY)
sample("t_copy", lambda n: [X(n, 3), X(3, n)], ANY)
case("slice_copy.Tensor", lambda n: [X(n, 9), 1, 1, 8, 2], lambda x, *_: x[:, 1:8:2], ANY, HALVES)
sample("slice_copy.Tensor", lambda n: [X(3, n, 8), 1, 1, None, 1, X(3, n - 1, 8)], ANY)
sample("slice_copy.Tensor", lambda n: [X(3, n, 5), 1, 1, None, 2, X(3, n // 2, 5)], ANY)
sample("slice_copy.Tensor", lambda n: [X(n, 5), 0, -3, -1, 1, X(min(2, n - 1), 5)], ANY)
sample("slice_copy.Tensor", lambda n: [X(9, 5), 0, Position(n // 2), Position(n), 1, X(n - n // 2, 5)], ANY)
sample("select_copy.int", lambda n: [X(n, 3, 8), 1, 1, X(n, 8)], ANY)
sample("select_copy.int", lambda n: [X(9, 5), 0, Position(n - 1), X(5)], ANY)
case("select_copy.int", lambda n: [X(n, 5), 1, 2], lambda x, *_: x[:, 2], ANY, HALVES)
case("flip", lambda n: [X(n, 5), [0, 1]], lambda x, _: x[::-1, ::-1])
sample("flip", lambda n: [X(n, 3, 5), [0, -1], X(n, 3, 5)], ANY)
case("expand_copy", lambda n: [X(n, 1), [4, -1, 3], False],
     lambda x, *_: np.broadcast_to(x, (4, len(x), 3)), ANY)  # fmt: skip
sample("expand_copy", lambda n: [X(3, 1, 5), [2, -1, Position(n), 5], False, X(2, 3, n, 5)], ANY)
sample("repeat", lambda n: [X(3), [Position(n), 2], X(n, 6)], ANY)
case("repeat", lambda n: [X(n, 3), [2, 1, 2]], np.tile, ANY)
case("unfold_copy", lambda n: [X(n, 9), 1, 3, 2],
     lambda x, *_: np.lib.stride_tricks.sliding_window_view(x, 3, 1)[:, ::2], ANY)  # fmt: skip
sample("unfold_copy", lambda n: [X(3, n + 2, 5), 1, 2, 2, X(3, n // 2 + 1, 5, 2)], ANY)
case("roll", lambda n: [X(n, 7), [1, -2], [0, 1]], np.roll, ANY)
case("tril", lambda n: [X(2, n, 5), 1], np.tril, ANY)
case("triu", lambda n: [X(2, 5, n), -1], np.triu, ANY)
case("glu", lambda n: [X(n, 10), 1], lambda x, _: x[:, :5] / (1 + np.exp(-x[:, 5:])))
case("pixel_shuffle", lambda n: [X(n, 8, 3, 2), 2],
     lambda x, r: x.reshape(-1, 2, r, r, 3, 2).transpose(0, 1, 4, 2, 5, 3).reshape(-1, 2, 6, 4),
     ANY)  # fmt: skip
sample("pixel_unshuffle", lambda n: [X(n, 2, 6, 6), 2, X(n, 8, 3, 3)], ANY)
case("preprocess.tile_crop", lambda n: [X(2, 3 * n, 6), 3],
     lambda x, t: x.reshape(2, -1, t, 2, t).transpose(1, 3, 0, 2, 4).reshape(-1, 2, t, t), ANY)  # fmt: skip
sample("unsqueeze_copy", lambda n: [X(n, 3), 1, X(n, 1, 3)], ANY)
sample("unbind_copy.int", lambda n: [X(n, 3, 5), 1, [X(n, 5), X(n, 5), X(n, 5)]], ANY)
sample("squeeze_copy.dim", lambda n: [X(n, 1, 3), 1, X(n, 3)], ANY)
sample("squeeze_copy.dims", lambda n: [X(n, 1, 3), [1], X(n, 3)], ANY)
sample("clone", lambda n: [X(n, 3), None, X(n, 3)], ANY)
sample("dim_order_ops._clone_dim_order", lambda n: [X(n, 3), False, None, X(n, 3)], ANY)
sample("alias_copy detach_copy lift_fresh_copy squeeze_copy pteron.copy et_copy._h2d_copy et_copy._d2h_copy",
       lambda n: [X(n, 3), X(n, 3)], ANY)  # fmt: skip
sample("_unsafe_view view_copy", lambda n: [X(n, 6), [-1, 3], X(2 * n, 3)], ANY)
sample("_unsafe_view view_copy", lambda n: [X(n, 6), [-1, 2, 3], X(n, 2, 3)], ANY)
sample("split_with_sizes_copy", lambda n: [X(n, 5), [2, 3], 1, [X(n, 2), X(n, 3)]], ANY)
sample("split_copy.Tensor", lambda n: [X(n, 5), 3, 1, [X(n, 3), X(n, 2)]], ANY)
sample("copy", lambda n: [X(n, 3), X(3), False, X(n, 3)], ANY)
sample("as_strided_copy", lambda n: [X(n, 6), [1, 2, 2], [6, 3, 1], 1, X(1, 2, 2)], ANY)
sample("diagonal_copy", lambda n: [X(n, 3, 4), 1, 1, 2, X(n, 3)], ANY)
sample("narrow_copy", lambda n: [X(n, 7), 1, 2, 3, X(n, 3)], ANY)

# -- writes ------------------------------------------------------------------------------------------


def with_part(x: Array, part: Array, index: Any) -> Array:
    x[index] = part
    return x


case("cat", lambda n: [[X(n, 3), X(n, 4)], 1], np.concatenate, ANY, HALVES)
case("cat", lambda n: [[X(3, n, 4), X(3, 2, 4), X(3, n, 4)], 1], np.concatenate, ANY)
sample("cat", lambda n: [[X(n, 3), X(2, 3), X(n, 3)], 0, X(2 * n + 2, 3)], ANY)
sample("cat", lambda n: [[X(3, n, 3), X(3, 1, 3)], 1, X(3, n + 1, 3)], ANY)
sample("cat", lambda n: [[X(2, 4, n), X(2, 3, n)], 1, X(2, 7, n)], ANY)
sample("cat", lambda n: [[X(n, 3), X(n, 2), X(n, 1)], -1, X(n, 6)], ANY)
case("stack", lambda n: [[X(n, 3, 4), X(n, 3, 4)], 1], np.stack)
case("stack", lambda n: [[X(n, 3), X(n, 3)], 1], np.stack, ANY)
case("select_scatter", lambda n: [X(n, 3), X(n), 1, 2],
     lambda x, part, *_: with_part(x, part, np.s_[:, 2]), ANY)  # fmt: skip
case("slice_scatter", lambda n: [X(n, 7), X(n, 3), 1, 1, 6, 2],
     lambda x, part, *_: with_part(x, part, np.s_[:, 1:6:2]), ANY)  # fmt: skip
sample("select_scatter", lambda n: [X(3, n, 3), X(3, 3), 1, -1, X(3, n, 3)], ANY)
sample(
    "slice_scatter", lambda n: [X(3, n + 2), X(3, (n + 1) // 2), 1, 1, Position(n + 1), 2, X(3, n + 2)], ANY
)
sample("slice_scatter", lambda n: [X(16, 3), X(2, 3), 0, Position(n), Position(n + 2), 1, X(16, 3)], ANY)
case("pteron.write_back", lambda n: [X(n, 3), X(n, 3)], lambda x, _: x, ANY)
case("update_cache", lambda n: [X(1, n, 2, 4), X(1, 16, 2, 4), Position(5)],
     lambda x, cache, at: [NEVER_WRITTEN, with_part(cache, x, np.s_[:, at : at + x.shape[1]])])  # fmt: skip
for width in (4, 3):
    case("update_cache_with_indices",
         lambda n, w=width: [
             X(1, n, 2, w), X(1, 16, 2, w), 0, I(1, n, draw=exactly(np.arange(9, 9 + n)[None] % 16))],
         lambda x, cache, _, at: [NEVER_WRITTEN, with_part(cache, x, np.s_[:, at[0]])])  # fmt: skip
for taken in (0, 1):
    case("pteron.choose", lambda n, t=taken: [t, X(n, 3), X(n, 3)], lambda t, a, b: a if t else b, ANY)
sample("pteron.choose", lambda n: [1, X(n, 3), X(2, 3), X(n, 3)], ANY)
sample("pteron.first_row", lambda n: [X(n, 3), 4, X(4, n, 3)], ANY)
sample("pteron.write_row", lambda n: [X(n, 3), X(4, n, 3), 2, None], ANY)

# -- new tensors -------------------------------------------------------------------------------------

case("full_like", lambda n: [X(n, 7), 2.5, *[None] * 5], lambda x, value, *_: np.full_like(x, value))
sample("full_like", lambda n: [X(n, 3), 2, *[None] * 5, X(n, 3)], ANY)
case("arange.start_step", lambda n: [2, 30, 3, *[None] * 4],
     lambda first, end, step, *_: np.arange(first, end, step), (DType.int32,), (DType.int32,))  # fmt: skip
sample("arange.start_step", lambda n: [2, 8, 2, *[None] * 4, X(3)], NUMBERS)
sample("arange.default", lambda n: [8, *[None] * 4, X(8)], NUMBERS)
sample("empty.memory_format dim_order_ops._empty_dim_order", lambda n: [[4, 3], *[None] * 5, X(4, 3)], ANY)
sample("rand randn", lambda n: [[4, 3], I(2), X(4, 3)])
sample("native_dropout", lambda n: [X(n, 3), 0.5, False, [X(n, 3), B(n, 3)]])
sample("ones zeros", lambda n: [[4, 3], *[None] * 4, X(4, 3)], ANY)
sample("full", lambda n: [[4, 3], 2, *[None] * 4, X(4, 3)], ANY)
sample("scalar_tensor", lambda n: [2, *[None] * 4, X()], ANY)
sample("ones_like zeros_like", lambda n: [X(n, 3), *[None] * 5, X(n, 3)], ANY)
sample("fill.Scalar", lambda n: [X(n, 3), 2, X(n, 3)], ANY)
sample("fill.Tensor", lambda n: [X(n, 3), X(), X(n, 3)], ANY)

# -- margins -----------------------------------------------------------------------------------------

for name, mode, dtypes in (
    ("constant_pad_nd", "constant", NUMBERS), ("reflection_pad1d", "reflect", ANY),
    ("replication_pad1d", "edge", ANY),
):  # fmt: skip
    value = [0] if mode == "constant" else []
    case(name, lambda n, v=value: [X(n, 3, 6), [2, 1], *v],
         lambda x, *_, m=mode: np.pad(x, ((0, 0), (0, 0), (2, 1)), m), dtypes)  # fmt: skip
for d in (2, 3):
    for kind in ("reflection", "replication"):
        sample(f"{kind}_pad{d}d", lambda n, d=d: [X(n, 3, *[6] * d), [1] * (2 * d), X(n, 3, *[8] * d)], ANY)
