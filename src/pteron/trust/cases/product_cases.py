"""Matrix products: floats, and weights of 2 to 8 bits. The sizes reach every kind of kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from pteron.trust.case import Array, Draw, Fixed, case

DTYPES = (np.float32, np.float16)
ROWS = (67, 1, 8, 2, 4, 19)  # for one row, for few rows, and for tiles that are not full
MANY_ROWS = (1030, 1014)  # enough for large tiles, if there are MANY columns
MANY = 518

# -- floats ------------------------------------------------------------------------------------------


def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    return x @ weight.T + (0 if bias is None else bias)


for depth, columns, rows in ((64, 132, ROWS), (72, 130, ROWS), (13, 9, ROWS), (16, MANY, MANY_ROWS)):
    dtypes = DTYPES if depth == 64 else DTYPES[:1]
    case("aten.mm.default", lambda d, n, k=depth, m=columns: [d.x(n, k), d.x(k, m)], np.matmul,
         sizes=rows, dtypes=dtypes)  # fmt: skip
    case("aten.linear.default",
         lambda d, n, k=depth, m=columns: [d.x(n, k), d.weight(m, k), d.weight(m)], linear,
         sizes=rows, dtypes=dtypes)  # fmt: skip
    case("et_vk.linear_dW.default", lambda d, n, k=depth, m=columns: [d.x(n, m), d.x(n, k)],
         lambda grad, x: grad.T @ x, sizes=rows[:4])  # fmt: skip
case("aten.linear.default", lambda d, n: [d.x(n, 128), d.weight(256, 128), d.weight(256)], linear,
     sizes=(45, 33, 3))  # fmt: skip
for depth, columns in ((64, 132), (72, 130), (13, 9)):
    case("pteron.linear_with_ending",
         lambda d, n, k=depth, m=columns: [d.x(n, k), d.weight(m, k), d.weight(m), "tanh(x)"],
         lambda *args: np.tanh(linear(*args[:-1])), sizes=ROWS)  # fmt: skip
case("pteron.linear_with_ending", lambda d, n: [d.x(n, 16), d.weight(MANY, 16), None, "tanh(x)"],
     lambda *args: np.tanh(linear(*args[:-1])), sizes=MANY_ROWS)  # fmt: skip
case("pteron.linear_with_ending", lambda d, n: [d.x(n, 128), d.weight(256, 128), None, "tanh(x)"],
     lambda *args: np.tanh(linear(*args[:-1])), sizes=(45, 33, 3))  # fmt: skip
case("et_vk.linear_dW.default", lambda d, n: [d.x(n, MANY), d.x(n, 1030)], lambda grad, x: grad.T @ x,
     sizes=(9, 3))  # fmt: skip
case("aten.bmm.default", lambda d, n: [d.x(3, n, 24), d.x(3, 24, 12)], np.matmul, sizes=ROWS)
case("aten.addmm.default", lambda d, n: [d.x(12), d.x(n, 24), d.x(24, 12), 2.0, 0.5],
     lambda bias, a, b, beta, alpha: beta * bias + alpha * (a @ b), sizes=ROWS)  # fmt: skip
case("pteron.linears", lambda d, n: [d.x(n, 64), d.weight(12, 64), None],
     lambda x, w, _: np.split(linear(x, w), [4], -1), sizes=ROWS)  # fmt: skip


def chosen_products(x: Array, chosen: Array, matrices: Array) -> Array:
    rows = np.broadcast_to(x[:, None], (*chosen.shape, x.shape[-1])) if x.ndim == 2 else x
    return np.einsum("snk,snck->snc", rows, matrices[chosen])


for depth in (24, 7):
    case("pteron.experts.default",
         lambda d, n, k=depth: [d.x(n, 2, k), d.whole(0, 3, n, 2), d.weight(3, 10, k)],
         chosen_products)  # fmt: skip

# -- weights of 4 bits, two in a byte -----------------------------------------------------------------


def packed_nibbles(d: Draw, rows: int, depth: int) -> Fixed:
    return d.codes(0, 256, rows, depth // 2, dtype=np.uint8)


def unpacked(packed: Array, scales: Array, group: int, low_first: bool = True) -> Array:
    """The weights: (nibble - 8) * scale. Scales are [groups, rows]."""
    nibbles = np.stack([packed & 15, packed >> 4] if low_first else [packed >> 4, packed & 15], -1)
    codes = nibbles.reshape(len(packed), -1).astype(np.float64) - 8
    return codes * np.repeat(scales.T, group, 1)[:, : codes.shape[1]]


def quantized_rows(x: Array, scales: Array, zeros: Array) -> Array:
    codes = np.clip(np.round(x / scales) + zeros, -128, 127)
    return (codes - zeros) * scales


for group, columns, rows in ((32, 132, ROWS), (6, 12, ROWS), (8, MANY, MANY_ROWS)):
    depth = 2 * group if columns == MANY else 4 * group
    case("et_vk.linear_q4gsw.default",
         lambda d, n, g=group, k=depth, m=columns: [
             d.x(n, k), packed_nibbles(d, m, k), d.scales(k // g, m), g, d.bias(m)],
         lambda x, w, s, g, b: linear(x, unpacked(w, s, g), b), sizes=rows)  # fmt: skip
    case("et_vk.linear_q4gsw_backward.default",
         lambda d, n, g=group, k=depth, m=columns: [
             d.x(n, m), packed_nibbles(d, m, k), d.scales(k // g, m), g],
         lambda x, w, s, g: x @ unpacked(w, s, g), sizes=rows if depth > 16 else ROWS)  # fmt: skip
case("et_vk.linear_q4gsw_backward.default",
     lambda d, n: [d.x(n, 8), packed_nibbles(d, 8, 520), d.scales(65, 8), 8],
     lambda x, w, s, g: x @ unpacked(w, s, g), sizes=MANY_ROWS)  # fmt: skip
for group, columns, rows in ((32, 132, ROWS), (16, 12, ROWS), (6, 12, ROWS), (8, MANY, MANY_ROWS)):
    case("et_vk.linear_dq8ca_q4gsw.default",
         lambda d, n, g=group, m=columns: [
             d.x(n, 2 * g), np.full((n, 1), 0.037, np.float32), d.whole(-9, 9, n, 1, dtype=np.int8),
             packed_nibbles(d, m, 2 * g), d.codes(0, 2, 2, m, dtype=np.int32), d.scales(2, m), g, None],
         lambda x, xs, xz, w, _, s, g, bias: linear(quantized_rows(x, xs, xz), unpacked(w, s, g)),
         sizes=rows)  # fmt: skip
case("pteron.linears_q4gsw",
     lambda d, n: [d.x(n, 64), packed_nibbles(d, 12, 64), d.scales(2, 12), 32, None],
     lambda x, w, s, g, _: np.split(linear(x, unpacked(w, s, g)), [4], -1), sizes=ROWS)  # fmt: skip


def requantized(latent: Array, scales: Array, group: int) -> Array:
    steps = np.repeat(scales.T, group, 1)
    codes = (np.clip(np.round(latent / steps), -8, 7) + 8).astype(np.uint8)
    return codes[:, ::2] | (codes[:, 1::2] << 4)


def between_codes(d: Draw, n: int) -> list[Any]:
    """Weights that are not near the middle of two codes."""
    codes = d.whole(-8, 8, n, 16) + np.clip(d.f32(n, 16), -1, 1) * 0.25
    return [(codes * 0.25).astype(np.float32), np.full((4, n), 0.25, np.float32), 4]


case("et_vk.q4gsw_requant.default", between_codes, requantized)
case("et_vk.embedding_q4gsw.default",
     lambda d, n: [packed_nibbles(d, 9, 16), d.scales(9, 2), 8, d.whole(0, 9, n), False],
     lambda w, s, g, rows, _: unpacked(w, s.T, g, low_first=False)[rows])  # fmt: skip

# -- one scale per output ------------------------------------------------------------------------------

for depth, columns, rows in ((64, 132, ROWS), (14, 9, ROWS), (16, MANY + 2, MANY_ROWS)):
    case("aten._weight_int8pack_mm.default",
         lambda d, n, k=depth, m=columns: [d.x(n, k), d.codes(-128, 128, m, k), d.scales(m)],
         lambda x, w, s: linear(x, w.astype(np.float64)) * s, sizes=rows)  # fmt: skip
    case("et_vk.linear_qcs4w.default",
         lambda d, n, k=depth, m=columns: [d.x(n, k), packed_nibbles(d, m, k), d.scales(m)],
         lambda x, w, s: linear(x, unpacked(w, np.ones((1, len(w))), 2 * w.shape[1], False)) * s,
         sizes=rows[:4])  # fmt: skip

# -- codes of 2 to 8 bits in words ---------------------------------------------------------------------


def coded_words(d: Draw, rows: int, depth: int) -> Fixed:
    """Codes of 4 bits: eight in a word, the first in the lowest bits."""
    return d.codes(-(2**31), 2**31, rows, depth // 8, dtype=np.int32)


def decoded(words: Array, scales: Array, group: int, zero: int, table: Array | None) -> Array:
    shifts = np.arange(0, 32, 4, dtype=np.uint32)
    codes = ((words.view(np.uint32)[..., None] >> shifts) & 15).reshape(len(words), -1)
    if scales.ndim == 3:  # with minima
        steps, minima = (np.repeat(scales[..., i], group, 1) for i in (0, 1))
        return codes * steps + minima
    values = codes.astype(np.float64) - zero if table is None else table[codes]
    return values * np.repeat(scales, group, 1)


for shape, table in (((2,), False), ((2, 2), False), ((2,), True)):

    def form(d: Draw, rows: int, s: tuple[int, ...] = shape, t: bool = table) -> list[Any]:
        zero = 0 if t or len(s) > 1 else 8
        return [coded_words(d, rows, 64), d.scales(rows, *s), 4, 32, zero, d.bias(16) if t else None]

    case("pteron.linear_affine.default", lambda d, n, f=form: [d.x(n, 64), *f(d, 132), d.bias(132)],
         lambda x, w, s, _, g, z, t, b: linear(x, decoded(w, s, g, z, t), b), sizes=ROWS)  # fmt: skip
    case("pteron.embedding_affine.default", lambda d, n, f=form: [*f(d, 9), d.whole(0, 9, n)],
         lambda w, s, _, g, z, t, rows: decoded(w, s, g, z, t)[rows])  # fmt: skip
    case("pteron.experts_affine.default",
         lambda d, n, f=form: [d.x(n, 64), d.whole(0, 3, n, 2), *f(d, 30)],
         lambda x, chosen, w, s, _, g, z, t: chosen_products(
             x, chosen, decoded(w, s, g, z, t).reshape(3, 10, -1)))  # fmt: skip
case("pteron.linear_affine.default",
     lambda d, n: [d.x(n, 64), coded_words(d, 520, 64), d.scales(520, 2), 4, 32, 8, None, None],
     lambda x, w, s, _, g, z, t, b: linear(x, decoded(w, s, g, z, t)), sizes=MANY_ROWS)  # fmt: skip
case("pteron.linear_affine.default",
     lambda d, n: [d.x(n, 40), coded_words(d, 12, 40), d.scales(12, 2), 4, 20, 8, None, None],
     lambda x, w, s, _, g, z, t, b: linear(x, decoded(w, s, g, z, t)))  # fmt: skip
case("pteron.experts_affine.default",
     lambda d, n: [d.x(n, 40), d.whole(0, 3, n, 2), coded_words(d, 30, 40), d.scales(30, 2), 4, 20, 8, None],
     lambda x, chosen, w, s, _, g, z, t: chosen_products(
         x, chosen, decoded(w, s, g, z, t).reshape(3, 10, -1)))  # fmt: skip
case("pteron.linear_int8",
     lambda d, n: [d.x(n, 64), d.codes(-128, 128, 12, 64), d.scales(12, 2), d.codes(-9, 9, 12, 2), 32, None],
     lambda x, w, s, z, g, _: linear(x, (w - np.repeat(z, g, 1).astype(np.float64)) * np.repeat(s, g, 1)),
     sizes=ROWS)  # fmt: skip
