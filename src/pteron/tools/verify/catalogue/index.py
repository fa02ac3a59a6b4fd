"""Indices, results whose length depends on data, distances, and comparisons of whole tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Shape
from pteron.tools.verify.catalogue.arguments import Array, At, B, C, F, I, W, X, exactly, whole
from pteron.tools.verify.catalogue.entry import case, sample
from pteron.tools.verify.catalogue.types import ANY, BYTES, F32, FLOATS, HALVES, INT64, NUMBERS, SUMMED

case("embedding", lambda n: [W(9, 6), At(9, n), -1, False, False], lambda table, rows, *_: table[rows],
     tried=HALVES)  # fmt: skip
sample("embedding", lambda n: [C(9, 6, dtype=DType.float16), At(9, n), -1, False, False, F(n, 6)])
case("pteron.part_index", lambda n: [At(12, n), 4, 5, 12],
     lambda rows, first, count, _: np.clip(rows - first, 0, count - 1))  # fmt: skip
case("index_select", lambda n: [X(4, 9), 1, At(9, n)], lambda x, dim, rows: np.take(x, rows, dim), ANY)
sample("index_select", lambda n: [X(9, 3), 0, At(9, n), X(n, 3)], ANY)
case("gather", lambda n: [X(9, 3), 0, At(9, n, 3), False],
     lambda x, dim, rows, _: np.take_along_axis(x, rows, dim), ANY)  # fmt: skip
case("index.Tensor", lambda n: [X(9, 4), [At(9, n), At(4, n)]], lambda x, at: x[at], ANY)
case("index.Tensor", lambda n: [X(9, 4), [None, At(4, n)]], lambda x, at: x[:, at[1]], ANY)

# -- writes by index ---------------------------------------------------------------------------------


def added(x: Array, index: Any, source: Any) -> Array:
    np.add.at(x, index, source)
    return x


def put(x: Array, index: Any, source: Array) -> Array:
    x[index] = source
    return x


def distinct(random: np.random.Generator, shape: Shape) -> Array:
    """Indices below 9. Along the first dimension, no two are equal."""
    places = np.broadcast_to(np.arange(9).reshape(9, *[1] * (len(shape) - 1)), (9, *shape[1:]))
    return random.permuted(places, axis=0)[: shape[0]]


case("index_put", lambda n: [X(9, 4), [At(9, n)], X(n, 4), True],
     lambda x, at, source, _: added(x, at[0], source), SUMMED, (*F32, *INT64))  # fmt: skip
case("index_put", lambda n: [X(9, 4), [I(n, draw=distinct)], X(n, 4), False],
     lambda x, at, source, _: put(x, at[0], source), SUMMED)  # fmt: skip
case("scatter_add", lambda n: [X(9, 3), 0, At(9, n, 3), X(n, 3)],
     lambda x, _, at, source: added(x, (at, np.arange(3)), source), SUMMED)  # fmt: skip
sample("scatter.src et_vk.scatter_src_unique",
       lambda n: [X(9, 3), 0, I(n, 3, draw=distinct), X(n, 3), X(9, 3)], NUMBERS)  # fmt: skip
sample("scatter.value", lambda n: [X(9, 3), 0, I(n, 3, draw=distinct), 2, X(9, 3)], NUMBERS)
for reduce in ("sum", "prod", "amax", "amin"):
    sample("scatter_reduce.two",
           lambda n, r=reduce: [X(9, 3), 0, At(9, n, 3), X(n, 3), r, True, X(9, 3)], SUMMED)  # fmt: skip

# -- results whose length depends on data: everything is chosen, so they have their largest length ---------


def filled(x: Array, mask: Array, source: Array) -> Array:
    x[mask] = source.ravel()[: int(mask.sum())]
    return x


def count(number: int) -> Array:
    return np.array([number], np.int32)


def all_true(*shape: int) -> Any:
    return B(*shape, draw=exactly(np.ones(shape, bool)))


case("masked_scatter", lambda n: [X(n, 33), B(n, 33), X(n, 33)], filled, ANY)
sample("masked_scatter", lambda n: [X(n, 3), B(3), X(n, 3), X(n, 3)], ANY)
case("nonzero", lambda n: [X(n, 33, draw=whole(1, 99))],
     lambda x: [np.argwhere(x).astype(np.int32), count(x.size)], ANY)  # fmt: skip
case("masked_select", lambda n: [X(n, 33), all_true(n, 33)], lambda x, _: [x.ravel(), count(x.size)], ANY)
sample("masked_select", lambda n: [X(n, 3), B(3), [X(3 * n), I(1)]], ANY)
case("pteron.select_rows", lambda n: [X(n, 33), all_true(n)], lambda x, _: [x, count(len(x))], ANY)
case("repeat_interleave.Tensor", lambda n: [I(n, draw=exactly(np.full(n, 9 // n))), 9],
     lambda counts, _: np.repeat(np.arange(len(counts)), counts), (DType.int32,), (DType.int32,),
     sizes=(9, 3, 1))  # fmt: skip

# -- distances ---------------------------------------------------------------------------------------


def distances(a: Array, b: Array, p: float) -> Array:
    return (np.abs(a[..., :, None, :] - b[..., None, :, :]) ** p).sum(-1) ** (1 / p)


for p in (1.0, 2.0, 3.0):
    case(
        "_cdist_forward", lambda n, p=p: [X(2, n, 5), X(n, 5), p, None], lambda a, b, p, _: distances(a, b, p)
    )
for p in (0.0, float("inf")):
    sample("_cdist_forward", lambda n, p=p: [X(2, n, 5), X(n, 5), p, None, X(2, n, n)])
case("_pdist_forward", lambda n: [X(n, 5), 2.0],
     lambda x, p: distances(x, x, p)[np.triu_indices(len(x), 1)], sizes=(9, 3, 2, 6))  # fmt: skip
for p in (0.0, 1.0, 3.0, float("inf")):
    sample("_pdist_forward", lambda n, p=p: [X(n, 5), p, X(n * (n - 1) // 2)])


def steps(shift: float, *shape: int) -> Any:
    """The same elements in every tensor, shifted."""
    return X(*shape, draw=exactly(np.linspace(-2, 2, int(np.prod(shape))).reshape(shape) + shift))


for shift in (0.0, 0.1):
    case("allclose", lambda n, s=shift: [steps(0, n, 70), steps(s, n, 70), 1e-5, 1e-8, False, False],
         lambda a, b, *_: np.array(np.allclose(a, b)), F32)  # fmt: skip
sample("allclose allclose.Tensor", lambda n: [X(2, n, 5), X(n, 5), 1e-5, 1e-8, False, False, B()],
       (*FLOATS, DType.int32, *BYTES, DType.bool))  # fmt: skip
