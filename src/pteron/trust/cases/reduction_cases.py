"""Reductions: short and long, along each dimension, and over all."""

from __future__ import annotations

import numpy as np

from pteron.trust.case import Array, case

DTYPES = (np.float32, np.float16)
LONG = 9000  # more than one workgroup sums up


def logsumexp(x: Array, dims: tuple[int, ...], *_: object) -> Array:
    return np.log(np.exp(x).sum(dims))


for width in (7, 300, LONG):
    dtypes = DTYPES if width == 300 else DTYPES[:1]
    case("aten.sum.dim_IntList", lambda d, n, w=width: [d.x(n, w), [1], False, None],
         lambda x, dims, *_: x.sum(dims), dtypes=dtypes)  # fmt: skip
    case("aten.mean.dim", lambda d, n, w=width: [d.x(n, w, 3), [1], False, None],
         lambda x, dims, *_: x.mean(dims), sizes=(5, 1, 3))  # fmt: skip
    case("aten.amax.default", lambda d, n, w=width: [d.x(n, w), [1], True],
         lambda x, dims, _: x.max(dims, keepdims=True), dtypes=dtypes)  # fmt: skip
    case("aten.argmax.default", lambda d, n, w=width: [d.x(n, w), 1, False],
         lambda x, dim, _: x.argmax(dim))  # fmt: skip
    case("aten.var.correction", lambda d, n, w=width: [d.x(n, w), [1], 1.0, False],
         lambda x, dims, ddof, _: x.var(dims, ddof=ddof))  # fmt: skip
for width in (7, 300):
    case("aten.amin.default", lambda d, n, w=width: [d.whole(-99, 99, n, w), [0], False],
         lambda x, dims, _: x.min(dims))  # fmt: skip
    case("aten.sum.dim_IntList", lambda d, n, w=width: [d.whole(-99, 99, n, w), [1], False, None],
         lambda x, dims, *_: x.sum(dims))  # fmt: skip
    case("aten.any.dim", lambda d, n, w=width: [d.whole(0, w, n, w) == 0, 1, False],
         lambda x, dim, _: x.any(dim))  # fmt: skip
    case("aten.logsumexp.default", lambda d, n, w=width: [d.x(n, w), [1], False], logsumexp)
    case("aten.max.dim", lambda d, n, w=width: [d.x(n, w), 1, False],
         lambda x, dim, _: [x.max(dim), x.argmax(dim)])  # fmt: skip
case("aten.prod.dim_int", lambda d, n: [d.positive(n, 70), 1, False, None], lambda x, dim, *_: x.prod(dim))
case("aten.sum.default", lambda d, n: [d.x(n, 700), None], lambda x, _: x.sum())
