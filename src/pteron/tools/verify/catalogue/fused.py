"""Linear layers with coded weights, together with what comes before and after them."""

from __future__ import annotations

from typing import Any

import numpy as np

from pteron.compiler.ir.dtypes import DType
from pteron.tools.verify.catalogue.arguments import Array, C, Position, S, T, X, exactly
from pteron.tools.verify.catalogue.attention import START, rotated, stored
from pteron.tools.verify.catalogue.entry import case, sample
from pteron.tools.verify.catalogue.products import MANY_ROWS, ROWS, linear_affine, words
from pteron.tools.verify.catalogue.types import F32

SUM = (("a + b", (), False, ("a", "b"), "float32"),)
TANH = (("tanh4(x)", (), False, ("a",), "float32"),)
GATE = (("a * b", (), False, ("a", "b"), "float32"),)
EPSILON = 1e-5


def form(rows: int, depth: int = 64) -> list[Any]:
    """Weights of 4 bits, and their minima."""
    return [words(rows, depth // 8), S(rows, depth // 32, 2), 4, 32, 0, None]


def normed(x: Array, factors: Array | None) -> Array:
    if factors is None:
        return x
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + EPSILON) * factors


def fused(x: Array, norm: Array | None, _: float, *rest: Any) -> list[Array]:
    *weight, steps, added, halves = rest
    y = linear_affine(normed(x, norm), *weight)
    if halves:
        first, second = np.split(y, 2, -1)
        return [first * second]
    return [np.tanh(y) if steps == TANH else y if added is None else y + added]


def layer(*rest: Any, depth: int = 64, rows: int, norm: bool = True) -> Any:
    """The arguments of a layer for a number of rows of x."""
    return lambda n: [
        X(n, depth),
        C(depth) if norm else None,
        EPSILON,
        *form(rows, depth),
        *[each(n) if callable(each) else each for each in rest],
    ]


for made, sizes in (
    (layer(C(264), GATE, None, True, rows=264), ROWS),
    (layer(None, SUM, lambda n: X(n, 132), False, rows=132, norm=False), ROWS),
    (layer(None, TANH, None, False, rows=520), MANY_ROWS),
):
    case("pteron.fused_affine", made, fused, F32, sizes=sizes)
sample(
    "pteron.fused_affine", layer(C(12), (), None, False, lambda n: [X(n, 4), X(n, 4), X(n, 4)], rows=12), F32
)

HEAD = 8  # elements of a head


def tables(rows: int) -> list[T]:
    """Cosines, sines, and both side by side."""
    made = np.random.default_rng(0).uniform(-1, 1, (2, rows, HEAD)).astype(np.float32)
    return [C(*x.shape, draw=exactly(x)) for x in (*made, np.concatenate(list(made), 1))]


def qkv(x: Array, norm: Array | None, _: float, *rest: Any) -> list[Array]:
    *weight, cos, sin, _, row, keys, values, start = rest
    made = linear_affine(normed(x, norm), *weight).reshape(1, len(x), -1, HEAD)
    shared = keys.shape[2]
    q, k, v = np.split(made, [made.shape[2] - 2 * shared, made.shape[2] - shared], 2)
    at = slice(row, row + len(x))
    q, k = (rotated(part, cos[at], sin[at], True) for part in (q, k))
    return [q, stored(keys, k, start), stored(values, v, start)]


def attending(
    heads: int, shared: int, capacity: int, norm: bool, bias: bool, dtype: DType | None = None
) -> Any:
    columns = (heads + 2 * shared) * HEAD
    caches = [T((1, capacity, shared, HEAD), dtype)] * 2
    places = Position(START), *caches, Position(START)
    return layer(C(columns) if bias else None, *tables(capacity), *places, rows=columns, norm=norm)


for made, rows in (
    (attending(4, 2, 64, norm=True, bias=False), (40, 1, 8, 3, 19)),
    (attending(4, 2, 64, norm=False, bias=True), (40, 1, 8)),
    (attending(28, 2, 1100, norm=True, bias=False), (1030, 1025)),
    (attending(28, 2, 1100, norm=False, bias=True), (1030, 1025)),
):
    case("pteron.fused_qkv", made, qkv, F32, sizes=rows)
in_halves = attending(4, 2, 64, norm=True, bias=False, dtype=DType.float16)
sample("pteron.fused_qkv", lambda n: [*in_halves(n), X(1, n, 4, HEAD)], F32)
