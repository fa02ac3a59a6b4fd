"""Copies with strides, writes into parts of tensors, and new tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from pteron.trust.case import NEVER_WRITTEN, Array, case

DTYPES = (np.float32, np.float16)

for given in (np.int32, np.int8, bool):
    case("aten.permute_copy.default",
         lambda d, n, g=given: [d.whole(0, 99, 2, n, 3, dtype=g), [2, 0, 1]], np.transpose)  # fmt: skip
case("aten.permute_copy.default", lambda d, n: [d.x(2, n, 3), [2, 0, 1]], np.transpose, dtypes=DTYPES)
case("aten.permute_copy.default", lambda d, n: [d.x(2, n, 12), [1, 0, 2]], np.transpose, dtypes=DTYPES)
case("aten.permute_copy.default", lambda d, n: [d.x(n, 4, 12), [0, 2, 1]], np.transpose, dtypes=DTYPES)
case("aten.slice_copy.Tensor", lambda d, n: [d.x(n, 9), 1, 1, 8, 2], lambda x, *_: x[:, 1:8:2], dtypes=DTYPES)
case("aten.select_copy.int", lambda d, n: [d.x(n, 5), 1, 2], lambda x, *_: x[:, 2], dtypes=DTYPES)
case("aten.flip.default", lambda d, n: [d.x(n, 5), [0, 1]], lambda x, _: x[::-1, ::-1])
case("aten.expand_copy.default", lambda d, n: [d.x(n, 1), [4, -1, 3], False],
     lambda x, *_: np.broadcast_to(x, (4, *x.shape[:1], 3)))  # fmt: skip
case("aten.repeat.default", lambda d, n: [d.x(n, 3), [2, 1, 2]], lambda x, reps: np.tile(x, reps))
case("aten.unfold_copy.default", lambda d, n: [d.x(n, 9), 1, 3, 2],
     lambda x, *_: np.lib.stride_tricks.sliding_window_view(x, 3, 1)[:, ::2])  # fmt: skip
case("aten.roll.default", lambda d, n: [d.x(n, 7), [1, -2], [0, 1]], lambda x, s, dims: np.roll(x, s, dims))
case("aten.tril.default", lambda d, n: [d.x(n, 5), 1], np.tril)
case("aten.triu.default", lambda d, n: [d.x(n, 5), -1], np.triu)
case("aten.glu.default", lambda d, n: [d.x(n, 10), 1],
     lambda x, _: x[:, :5] / (1 + np.exp(-x[:, 5:])))  # fmt: skip
case("aten.pixel_shuffle.default", lambda d, n: [d.x(n, 8, 3, 2), 2],
     lambda x, r: x.reshape(-1, 2, r, r, 3, 2).transpose(0, 1, 4, 2, 5, 3).reshape(-1, 2, 6, 4))  # fmt: skip

case("aten.cat.default", lambda d, n: [[d.x(n, 3), d.x(n, 4)], 1],
     lambda parts, dim: np.concatenate(parts, dim), dtypes=DTYPES)  # fmt: skip
case(
    "aten.cat.default",
    lambda d, n: [[d.x(3, n, 4), d.x(3, 2, 4), d.x(3, n, 4)], 1],
    lambda xs, dim: np.concatenate(xs, dim),
)
case("aten.stack.default", lambda d, n: [[d.x(n, 3, 4), d.x(n, 3, 4)], 1], np.stack)
case("aten.stack.default", lambda d, n: [[d.x(n, 3), d.x(n, 3)], 1], np.stack)


def with_part(x: Array, part: Array, index: Any) -> Array:
    x[index] = part
    return x


case("aten.select_scatter.default", lambda d, n: [d.x(n, 3), d.x(n), 1, 2],
     lambda x, part, *_: with_part(x, part, np.s_[:, 2]))  # fmt: skip
case("aten.slice_scatter.default", lambda d, n: [d.x(n, 7), d.x(n, 3), 1, 1, 6, 2],
     lambda x, part, *_: with_part(x, part, np.s_[:, 1:6:2]))  # fmt: skip
case("pteron.write_back", lambda d, n: [d.x(n, 3), d.x(n, 3)], lambda x, _: x)
for taken in (0, 1):
    case("pteron.choose", lambda d, n, t=taken: [t, d.x(n, 3), d.x(n, 3)], lambda t, a, b: a if t else b)
case("update_cache.default", lambda d, n: [d.x(1, n, 2, 4), d.x(1, 16, 2, 4), 5],
     lambda x, cache, at: [NEVER_WRITTEN, with_part(cache, x, np.s_[:, at : at + x.shape[1]])])  # fmt: skip

case("aten.full_like.default", lambda d, n: [d.x(n, 7), 2.5, *[None] * 5],
     lambda x, value, *_: np.full_like(x, value))  # fmt: skip
case(
    "aten.arange.start_step",
    lambda d, n: [2, 30, 3, *[None] * 4],
    lambda a, b, step, *_: np.arange(a, b, step),
)

for name, mode in (
    ("constant_pad_nd", "constant"),
    ("reflection_pad1d", "reflect"),
    ("replication_pad1d", "edge"),
):
    value = [0.0] if mode == "constant" else []
    case(
        f"aten.{name}.default",
        lambda d, n, v=value: [d.x(n, 3, 6), [2, 1], *v],
        lambda x, *_, m=mode: np.pad(x, ((0, 0), (0, 0), (2, 1)), m),
    )
case("aten.view_as_real_copy.default", lambda d, n: [(d.f32(n, 3) + 1j * d.f32(n, 3)).astype(np.complex64)],
     lambda x: np.stack([x.real, x.imag], -1))  # fmt: skip
case("aten._conj_physical.default", lambda d, n: [(d.f32(n, 3) + 1j * d.f32(n, 3)).astype(np.complex64)],
     lambda x: np.conj(x))  # fmt: skip
