"""Matrix products: floats, and weights of 2 to 8 bits. The sizes reach every kind of kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ops.affine import INTERLEAVED
from pteron.tools.verify.catalogue.arguments import Array, At, C, F, I, N, Q, S, T, W, X, exactly, whole
from pteron.tools.verify.catalogue.entry import GENERAL, case, sample
from pteron.tools.verify.catalogue.types import F32, HALVES

ROWS = (67, 1, 8, 2, 4, 19)  # for one row, for few rows, and for tiles that are not full
MANY_ROWS = (1030, 1014)  # enough for large tiles, if there are MANY columns
MANY = 518
SPLITS = ((4, 8), (4, 4, 4))  # the columns of sibling products

# -- floats ------------------------------------------------------------------------------------------


def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    return x @ weight.T + (0 if bias is None else bias)


def with_tanh(*args: Any) -> Array:
    return np.tanh(linear(*args[:-1]))


for depth, columns, rows in ((64, 132, ROWS), (72, 130, ROWS), (13, 9, ROWS), (16, MANY, MANY_ROWS)):
    tried = HALVES if depth == 64 else F32
    case("mm", lambda n, k=depth, m=columns: [X(n, k), X(k, m)], np.matmul, tried=tried, sizes=rows)
    case("linear", lambda n, k=depth, m=columns: [X(n, k), W(m, k), W(m)], linear, tried=tried, sizes=rows)
    case("et_vk.linear_dW", lambda n, k=depth, m=columns: [X(n, m), X(n, k)], lambda grad, x: grad.T @ x,
         sizes=rows[:4])  # fmt: skip
    case("pteron.linear_with_epilogue", lambda n, k=depth, m=columns: [X(n, k), W(m, k), W(m), "tanh(x)"],
         with_tanh, F32, sizes=rows)  # fmt: skip
    case("pteron.linear_with_sum", lambda n, k=depth, m=columns: [X(n, k), W(m, k), W(m), X(n, m)],
         lambda x, weight, bias, added: linear(x, weight, bias) + added, F32, sizes=rows)  # fmt: skip
case("linear", lambda n: [X(n, 128), W(256, 128), W(256)], linear, sizes=(45, 33, 3))
case("pteron.linear_with_epilogue", lambda n: [X(n, 128), W(256, 128), None, "tanh(x)"], with_tanh, F32,
     sizes=(45, 33, 3))  # fmt: skip
case("et_vk.linear_dW", lambda n: [X(n, MANY), X(n, 1030)], lambda grad, x: grad.T @ x, sizes=(9, 3))
case("bmm", lambda n: [X(3, n, 24), X(3, 24, 12)], np.matmul, sizes=ROWS)
case("addmm", lambda n: [X(12), X(n, 24), X(24, 12), 2.0, 0.5],
     lambda bias, a, b, beta, alpha: beta * bias + alpha * (a @ b), sizes=ROWS)  # fmt: skip
for k, m in ((8, 12), (7, 9)):
    sample("baddbmm", lambda n, k=k, m=m: [X(2, n, m), X(2, n, k), X(2, k, m), 2.0, 0.5, X(2, n, m)])
    sample("linear", lambda n, k=k, m=m: [X(n, k), W(m, k), None, X(n, m)])
    sample("linear", lambda n, k=k, m=m: [X(n, k), C(m, k, dtype=DType.float16), None, X(n, m)])
    for widths in SPLITS:
        sample("pteron.linears", lambda n, k=k, w=widths: [X(n, k), W(12, k), None, [X(n, m) for m in w]])
case("pteron.linears", lambda n: [X(n, 64), W(12, 64), None],
     lambda x, w, _: np.split(linear(x, w), [4], -1), sizes=ROWS)  # fmt: skip


def chosen_products(x: Array, chosen: Array, matrices: Array) -> Array:
    rows = np.broadcast_to(x[:, None], (*chosen.shape, x.shape[-1])) if x.ndim == 2 else x
    return np.einsum("snk,snck->snc", rows, matrices[chosen])


for depth in (24, 7):
    case("pteron.experts", lambda n, k=depth: [X(n, 2, k), At(3, n, 2), C(3, 10, k)], chosen_products)

# -- weights of 4 bits, two in a byte ----------------------------------------------------------------


def unpacked(packed: Array, scales: Array, group: int, low_first: bool = True) -> Array:
    """The weights: (nibble - 8) * scale. Scales are [groups, rows]."""
    packed = packed.view(np.uint8)
    nibbles = np.stack([packed & 15, packed >> 4] if low_first else [packed >> 4, packed & 15], -1)
    codes = nibbles.reshape(len(packed), -1).astype(np.float64) - 8
    return codes * np.repeat(scales.T, group, 1)[:, : codes.shape[1]]


def quantized_rows(x: Array, scales: Array, zeros: Array) -> Array:
    codes = np.clip(np.round(x / scales) + zeros, -128, 127)
    return (codes - zeros) * scales


def row_form(n: int) -> list[T]:
    """Scales and zero points of activations that a kernel quantizes."""
    return [F(n, 1, draw=exactly(np.full((n, 1), 0.037))), T((n, 1), DType.int8, draw=whole(-9, 9))]


def q4gsw(x: Array, w: Array, s: Array, g: int, b: Array | None = None) -> Array:
    return linear(x, unpacked(w, s, g), b)


def dq8ca_q4gsw(x: Array, xs: Array, xz: Array, w: Array, _: Array, s: Array, g: int, b: None) -> Array:
    return q4gsw(quantized_rows(x, xs, xz), w, s, g)


def q4gsw_backward(x: Array, w: Array, s: Array, g: int) -> Array:
    return x @ unpacked(w, s, g)


few = whole(0, 2)
for group, columns, rows in ((32, 132, ROWS), (6, 12, ROWS), (8, MANY, MANY_ROWS)):
    depth = 2 * group if columns == MANY else 4 * group
    case("et_vk.linear_q4gsw", lambda n, g=group, k=depth, m=columns: [X(n, k), N(m, k // 2), S(k // g, m),
         g, C(m)], q4gsw, sizes=rows)  # fmt: skip
    case("et_vk.linear_q4gsw_backward",
         lambda n, g=group, k=depth, m=columns: [X(n, m), N(m, k // 2), S(k // g, m), g], q4gsw_backward,
         sizes=rows if depth > 16 else ROWS)  # fmt: skip
case("et_vk.linear_q4gsw_backward", lambda n: [X(n, 8), N(8, 260), S(65, 8), 8], q4gsw_backward,
     sizes=MANY_ROWS)  # fmt: skip
for group, columns, rows in ((32, 132, ROWS), (16, 12, ROWS), (6, 12, ROWS), (8, MANY, MANY_ROWS)):
    case("et_vk.linear_dq8ca_q4gsw",
         lambda n, g=group, m=columns: [
             X(n, 2 * g), *row_form(n), N(m, g), C(2, m, dtype=DType.int32, draw=few), S(2, m), g, None],
         dq8ca_q4gsw, sizes=rows)  # fmt: skip
case("pteron.linears_q4gsw", lambda n: [X(n, 64), N(12, 32), S(2, 12), 32, None],
     lambda *args: np.split(q4gsw(*args), [4], -1), sizes=ROWS)  # fmt: skip


def interleaved(weight: T) -> T:
    return replace(weight, layout=INTERLEAVED)


for group, dtype in ((32, DType.uint8), (8, DType.uint8), (8, DType.int8), (6, DType.uint8)):
    weight = [C(12, 2 * group, dtype=dtype), S(4, 12), group]
    sample("et_vk.linear_q4gsw", lambda n, g=group, w=weight: [X(n, 4 * g), *w, C(12), X(n, 12)])
    sample("et_vk.linear_q4gsw_backward", lambda n, g=group, w=weight: [X(n, 12), *w, X(n, 4 * g)])
    sample("et_vk.linear_dq8ca_q4gsw", lambda n, g=group, d=dtype: [
        X(n, 4 * g), F(n, 1), Q(n, 1), C(12, 2 * g, dtype=d), C(4, 12, dtype=DType.int32), S(4, 12), g, None,
        X(n, 12)])  # fmt: skip
    for widths in SPLITS:
        sample("pteron.linears_q4gsw", lambda n, g=group, w=weight, widths=widths: [
            X(n, 4 * g), *w, None, [X(n, m) for m in widths]])  # fmt: skip
sample("et_vk.linear_q4gsw", lambda n: [
    X(n, 64), interleaved(N(3, 4, 4, 8)), S(2, 12), 32, None, X(n, 12)])  # fmt: skip


def requantized(latent: Array, scales: Array, group: int) -> Array:
    steps = np.repeat(scales.T, group, 1)
    codes = (np.clip(np.round(latent / steps), -8, 7) + 8).astype(np.uint8)
    return codes[:, ::2] | (codes[:, 1::2] << 4)


def between_codes(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Weights that are not near the middle of two codes."""
    return (random.integers(-8, 8, shape) + np.clip(random.standard_normal(shape), -1, 1) * 0.25) * 0.25


case("et_vk.q4gsw_requant",
     lambda n: [X(n, 16, draw=between_codes), F(4, n, draw=exactly(np.full((4, n), 0.25))), 4],
     requantized)  # fmt: skip
case("et_vk.embedding_q4gsw", lambda n: [N(9, 8), S(9, 2), 8, At(9, n), False],
     lambda w, s, g, rows, _: unpacked(w, s.T, g, low_first=False)[rows])  # fmt: skip

# -- one scale per output ----------------------------------------------------------------------------

for depth, columns, rows in ((64, 132, ROWS), (14, 9, ROWS), (16, MANY + 2, MANY_ROWS)):
    case("_weight_int8pack_mm", lambda n, k=depth, m=columns: [X(n, k), C(m, k, dtype=DType.int8), S(m)],
         lambda x, w, s: linear(x, w.astype(np.float64)) * s, sizes=rows)  # fmt: skip
    case("et_vk.linear_qcs4w", lambda n, k=depth, m=columns: [X(n, k), N(m, k // 2), S(m)],
         lambda x, w, s: linear(x, unpacked(w, np.ones((1, len(w))), 2 * w.shape[1], False)) * s,
         sizes=rows[:4])  # fmt: skip

# -- codes of 2 to 8 bits in words -------------------------------------------------------------------


def decoded(
    depth: int, words: Array, scales: Array, bits: int, group: int, zero: int, table: Array | None
) -> Array:
    """The weights [rows, depth]. `compiler.ops.affine` describes the codes and their scales."""
    codes = unpacked_codes(words.view(np.uint32), depth, bits)
    steps, minima = (np.repeat(part, group, 1)[:, :depth] for part in lines(scales, -(-depth // group)))
    if minima.size:
        return codes * steps + minima
    return (codes.astype(np.float64) - zero if table is None else table[codes]) * steps


def unpacked_codes(words: Array, depth: int, bits: int) -> Array:
    """Codes are stored in planes of 8, 4, 2 and 1 bits: the first code in the lowest bits of a word."""
    codes = np.zeros((len(words), depth), np.int64)
    place = below = 0
    for width in (8, 4, 2, 1):
        if bits & width:
            count = -(-depth * width // 32)
            parts = words[:, place : place + count, None] >> np.arange(0, 32, width, dtype=np.uint32)
            plane = (parts & ((1 << width) - 1)).reshape(len(words), -1)[:, :depth]
            codes |= plane.astype(np.int64) << below
            place, below = place + count, below + width
    return codes


def lines(scales: Array, groups: int) -> tuple[Array, Array]:
    """The scale and the minimum of each group. Empty: without minima."""
    if scales.dtype.kind == "f":
        scales = scales[:, :groups]
        return (scales[..., 0], scales[..., 1]) if scales.ndim == 3 else (scales, scales[:, :0])
    per_block = groups // scales.shape[1]
    if scales.shape[2] == 1 + per_block // 4:
        return by_factor(scales[..., :1], levels_of(scales[..., 1:])), np.zeros((len(scales), 0))
    levels = levels_of(scales[..., 2:])
    return by_factor(scales[..., :1], levels[..., ::2]), by_factor(scales[..., 1:2], levels[..., 1::2])


def levels_of(words: Array) -> Array:
    return np.ascontiguousarray(words).view(np.int8)


def by_factor(factor: Array, levels: Array) -> Array:
    """Levels [rows, blocks, groups of a block] times the factor of their block, as [rows, groups]."""
    factors = np.ascontiguousarray(factor).view(np.float32).astype(np.float64)
    return (factors * levels).reshape(len(levels), -1)


def linear_affine(x: Array, *rest: Any) -> Array:
    return linear(x, decoded(x.shape[-1], *rest[:-1]), rest[-1])


def embedding_affine(*args: Any, width: int = 64) -> Array:
    words, scales, *form, rows = args
    chosen = rows.ravel()
    return decoded(width, words[chosen], scales[chosen], *form).reshape(*rows.shape, width)


def experts_affine(x: Array, chosen: Array, *form: Any) -> Array:
    return chosen_products(x, chosen, decoded(x.shape[-1], *form).reshape(3, 10, -1))


GENERAL.update(
    {"pteron.linear_affine.default": linear_affine, "pteron.embedding_affine.default": embedding_affine}
)


def words(rows: int, *shape: int) -> T:
    return C(rows, *shape, dtype=DType.int32)


for shape, table in (((2,), False), ((2, 2), False), ((2,), True)):

    def form(rows: int, s: tuple[int, ...] = shape, t: bool = table) -> list[Any]:
        return [words(rows, 8), S(rows, *s), 4, 32, 0 if t or len(s) > 1 else 8, C(16) if t else None]

    case("pteron.linear_affine", lambda n, f=form: [X(n, 64), *f(132), C(132)], linear_affine, sizes=ROWS)
    case("pteron.embedding_affine", lambda n, f=form: [*f(9), At(9, n)], embedding_affine)
    case("pteron.experts_affine", lambda n, f=form: [X(n, 64), At(3, n, 2), *f(30)], experts_affine)
case("pteron.linear_affine", lambda n: [X(n, 64), words(520, 8), S(520, 2), 4, 32, 8, None, None],
     linear_affine, sizes=MANY_ROWS)  # fmt: skip
case(
    "pteron.linear_affine", lambda n: [X(n, 40), words(12, 5), S(12, 2), 4, 20, 8, None, None], linear_affine
)
case("pteron.experts_affine", lambda n: [X(n, 40), At(3, n, 2), words(30, 5), S(30, 2), 4, 20, 8, None],
     experts_affine)  # fmt: skip
# Bits, words of a row of 64, group, whether there are minima.
FORMS = [(4, 8, 32, True), (8, 16, 32, False), (7, 16, 16, True), (3, 8, 16, False), (6, 12, 20, False)]
for bits, length, group, minima in FORMS:
    forms = [C(12, -(-64 // group), *[2] * minima, dtype=dtype) for dtype in HALVES]
    if group == 16:  # one super-block
        forms.append(words(12, 1, 4 if minima else 2))
    for scales in forms:
        weight = [words(12, length), scales, bits, group, 4, C(16) if bits == 4 else None]
        sample("pteron.linear_affine", lambda n, w=weight: [X(n, 64), *w, C(12), X(n, 12)])
        sample("pteron.embedding_affine", lambda n, w=weight: [*w, I(n), X(n, 64)])
        sample("pteron.experts_affine", lambda n, w=weight: [X(n, 64), I(n, 2), *w, X(n, 2, 6)])
        for widths in SPLITS:
            sample("pteron.linears_affine", lambda n, w=weight, widths=widths: [
                X(n, 64), *w, None, [X(n, m) for m in widths]])  # fmt: skip
for bits in (4, 8):
    weight = [interleaved(words(3, 4, 4, bits // 2)), S(12, 2), bits, 32, 4, None]
    sample("pteron.linear_affine", lambda n, w=weight: [X(n, 64), *w, None, X(n, 12)])
    sample("pteron.linears_affine", lambda n, w=weight: [X(n, 64), *w, None, [X(n, 4), X(n, 8)]])
    sample("pteron.embedding_affine", lambda n, w=weight: [*w, I(n), X(n, 64)])

# -- int8 in groups ----------------------------------------------------------------------------------

case("pteron.linear_int8",
     lambda n: [X(n, 64), C(12, 64, dtype=DType.int8), S(12, 2), C(12, 2, dtype=DType.int8, draw=whole(-9,
                9)), 32, None],
     lambda x, w, s, z, g, _: linear(x, (w - np.repeat(z, g, 1).astype(np.float64)) * np.repeat(s, g, 1)),
     sizes=ROWS)  # fmt: skip
case("quantized_decomposed.mixed_linear",
     lambda n: [X(n, 64), C(12, 64, dtype=DType.int8), C(12, 2), None, None],
     lambda x, w, s, *_: linear(x, w * np.repeat(s, 32, 1)), sizes=ROWS)  # fmt: skip
for group, dtype, zeros in (
    (32, DType.float32, None), (16, DType.float16, DType.int8), (20, DType.float32, DType.int32),
):  # fmt: skip
    groups = -(-64 // group)
    weight = [
        C(12, 64, dtype=DType.int8),
        C(12, groups, dtype=dtype),
        zeros and C(12, groups, dtype=zeros),
        group,
    ]
    sample("pteron.linear_int8", lambda n, w=weight: [X(n, 64), *w, C(12), X(n, 12)])
    sample("pteron.embedding_int8", lambda n, w=weight: [*w, I(n), X(n, 64)])
    sample("pteron.linears_int8", lambda n, w=weight: [X(n, 64), *w, C(12), [X(n, 4) for _ in range(3)]])
