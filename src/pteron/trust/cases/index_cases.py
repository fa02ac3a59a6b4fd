"""Indices, sorting, running sums, distances, and results whose length depends on data."""

from __future__ import annotations

from typing import Any

import numpy as np

from pteron.trust.case import Array, Draw, case

DTYPES = (np.float32, np.float16)

case("aten.embedding.default", lambda d, n: [d.weight(9, 6), d.whole(0, 9, n), -1, False, False],
     lambda table, rows, *_: table[rows], dtypes=DTYPES)  # fmt: skip
case("aten.index_select.default", lambda d, n: [d.x(4, 9), 1, d.whole(0, 9, n)],
     lambda x, dim, rows: np.take(x, rows, dim))  # fmt: skip
case("aten.gather.default", lambda d, n: [d.x(9, 3), 0, d.whole(0, 9, n, 3), False],
     lambda x, dim, rows, _: np.take_along_axis(x, rows, dim))  # fmt: skip
case("aten.index.Tensor", lambda d, n: [d.x(9, 4), [d.whole(0, 9, n), d.whole(0, 4, n)]],
     lambda x, at: x[at])  # fmt: skip
case("aten.index.Tensor", lambda d, n: [d.x(9, 4), [None, d.whole(0, 4, n)]], lambda x, at: x[:, at[1]])


def scattered(x: Array, index: Any, source: Any) -> Array:
    np.add.at(x, index, source)
    return x


case("aten.index_put.default", lambda d, n: [d.x(9, 4), [d.whole(0, 9, n)], d.x(n, 4), True],
     lambda x, at, source, _: scattered(x, at[0], source))  # fmt: skip
case("aten.scatter_add.default", lambda d, n: [d.x(9, 3), 0, d.whole(0, 9, n, 3), d.x(n, 3)],
     lambda x, _, at, source: scattered(x, (at, np.arange(3)), source))  # fmt: skip


def distinct(d: Draw, high: int, count: int) -> Array:
    return np.argsort(d.f32(high))[:count].astype(np.int32)


case("aten.index_put.default", lambda d, n: [d.x(9, 4), [distinct(d, 9, n)], d.x(n, 4), False],
     lambda x, at, source, _: _put(x, at[0], source))  # fmt: skip


def _put(x: Array, rows: Array, source: Array) -> Array:
    x[rows] = source
    return x


case("aten.sort.default", lambda d, n: [d.x(n, 37), 1, False],
     lambda x, *_: [np.sort(x, 1), np.argsort(x, 1)])  # fmt: skip
case("aten.topk.default", lambda d, n: [d.x(n, 37), 5, 1, True, True],
     lambda x, k, *_: [-np.sort(-x, 1)[:, :k], np.argsort(-x, 1)[:, :k]])  # fmt: skip
for width in (7, 300):
    case("aten.cumsum.default", lambda d, n, w=width: [d.x(n, w), 1, None], lambda x, *_: np.cumsum(x, 1))
case("aten.cumsum.default", lambda d, n: [d.x(n, 7), 1, None], lambda x, *_: np.cumsum(x, 1),
     dtypes=(np.float16,))  # fmt: skip
case("aten.repeat_interleave.Tensor", lambda d, n: [np.full(n, 9 // n, np.int32), 9],
     lambda counts, _: np.repeat(np.arange(len(counts)), counts), sizes=(9, 3, 1))  # fmt: skip


def filled(x: Array, mask: Array, source: Array) -> Array:
    mask = np.broadcast_to(mask, x.shape)
    x[mask] = source.ravel()[: int(mask.sum())]
    return x


case("aten.masked_scatter.default", lambda d, n: [d.x(n, 33), d.flags(n, 33), d.x(n, 33)], filled)
# Everything is chosen, so that the results have their largest length.
case("aten.nonzero.default", lambda d, n: [d.positive(n, 33)],
     lambda x: [np.argwhere(x), np.array([x.size])])  # fmt: skip
case("aten.masked_select.default", lambda d, n: [d.x(n, 33), np.ones((n, 33), bool)],
     lambda x, _: [x.ravel(), np.array([x.size])])  # fmt: skip
case("pteron.select_rows", lambda d, n: [d.x(n, 33), np.ones(n, bool)],
     lambda x, _: [x, np.array([len(x)])])  # fmt: skip


def distances(a: Array, b: Array, p: float) -> Array:
    return (np.abs(a[..., :, None, :] - b[..., None, :, :]) ** p).sum(-1) ** (1 / p)


for p in (1.0, 2.0, 3.0):
    case("aten._cdist_forward.default", lambda d, n, p=p: [d.x(2, n, 5), d.x(n, 5), p, None],
         lambda a, b, p, _: distances(a, b, p))  # fmt: skip
case("aten._pdist_forward.default", lambda d, n: [d.x(n, 5), 2.0],
     lambda x, p: distances(x, x, p)[np.triu_indices(len(x), 1)], sizes=(9, 3, 2, 6))  # fmt: skip
for shift in (0.0, 0.1):
    case("aten.allclose.default",
         lambda d, n, s=shift: [x := d.x(n, 70), x + np.float32(s), 1e-5, 1e-8, False, False],
         lambda a, b, *_: np.array(np.allclose(a, b)))  # fmt: skip
