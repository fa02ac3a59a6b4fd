"""Reductions: short and long, along each dimension, and over all; running sums, and sorting."""

from __future__ import annotations

from typing import Any

import numpy as np

from pteron.compiler.ir.dtypes import DType
from pteron.tools.verify.catalogue.arguments import Array, B, F, I, P, X
from pteron.tools.verify.catalogue.entry import case, sample
from pteron.tools.verify.catalogue.types import ANY, F16, F32, FLOATS, HALVES, NUMBERS, SUMMED

SHORT, MIDDLE, LONG = 7, 300, 9000  # the work of one invocation, of one workgroup, and of several
INT32 = (DType.int32,)


def places(found: Array) -> Array:
    return found.astype(np.int32)


def logsumexp(x: Array, dims: tuple[int, ...], _: bool) -> Array:
    return np.log(np.exp(x).sum(dims))


def rarely(width: int) -> Any:
    """True for one element in `width`."""
    return lambda random, shape: random.integers(0, width, shape) == 0


for width in (SHORT, MIDDLE, LONG):
    dtypes = NUMBERS if width == SHORT else FLOATS
    tried = HALVES if width == MIDDLE else F32
    case("sum.dim_IntList", lambda n, w=width: [X(n, w), [1], False, None], lambda x, dims, *_: x.sum(dims),
         SUMMED, tried if width == LONG else (*tried, DType.int32))  # fmt: skip
    case("mean.dim", lambda n, w=width: [X(n, w, 3), [1], False, None], lambda x, dims, *_: x.mean(dims),
         sizes=(5, 1, 3))  # fmt: skip
    case("amax", lambda n, w=width: [X(n, w), [1], True], lambda x, dims, _: x.max(dims, keepdims=True),
         dtypes, tried)  # fmt: skip
    case("argmax", lambda n, w=width: [X(n, w), 1, False], lambda x, dim, _: places(x.argmax(dim)), dtypes)
    case("var.correction", lambda n, w=width: [X(n, w), [1], 1.0, False],
         lambda x, dims, ddof, _: x.var(dims, ddof=ddof))  # fmt: skip
for width in (SHORT, MIDDLE):
    case("amin", lambda n, w=width: [X(n, w), [0], False], lambda x, dims, _: x.min(dims), NUMBERS, INT32)
    case("any.dim", lambda n, w=width: [X(n, w, draw=rarely(w)), 1, False], lambda x, dim, _: x.any(dim), ANY,
         (DType.bool,))  # fmt: skip
    case("logsumexp", lambda n, w=width: [X(n, w), [1], False], logsumexp)
    case("max.dim", lambda n, w=width: [X(n, w), 1, False],
         lambda x, dim, _: [x.max(dim), places(x.argmax(dim))], NUMBERS)  # fmt: skip
    tried = (*F32, *F16) if width == SHORT else F32
    case("cumsum", lambda n, w=width: [X(n, w), 1, None], lambda x, dim, _: np.cumsum(x, dim), SUMMED, tried)
case("prod.dim_int", lambda n: [P(n, 70), 1, False, None], lambda x, dim, *_: x.prod(dim), SUMMED)
case("sum.default", lambda n: [X(n, 700), None], lambda x, _: x.sum(), SUMMED)
sample("cumprod", lambda n: [X(n, 7), 1, None, X(n, 7)], SUMMED)
sample("argmin", lambda n: [X(n, 7), 1, False, I(n)], NUMBERS)
sample("min.dim", lambda n: [X(n, 7), 1, False, [X(n), I(n)]], NUMBERS)
sample("std.correction", lambda n: [X(n, 7), [1], 1.0, False, X(n)])
sample("var_mean.correction", lambda n: [X(n, 7), [1], 1.0, False, [X(n), X(n)]])
sample("var.dim", lambda n: [X(n, 7), [1], True, False, X(n)])
sample("sum.dim_IntList mean.dim", lambda n: [X(n, 4096), [0, 1], False, None, X()])
sample("all.dims any.dims", lambda n: [X(n, 7), [1], False, B(n)], ANY)
sample("all.dim", lambda n: [X(n, 7), 1, False, B(n)], ANY)
sample("mean.default", lambda n: [X(n, 7), None, X()])
sample("prod.default", lambda n: [X(n, 7), None, X()], SUMMED)
sample("all.default any.default", lambda n: [X(n, 7), B()], ANY)
sample("max.default min.default", lambda n: [X(n, 7), X()], NUMBERS)

case("sort.default", lambda n: [X(n, 37), 1, False],
     lambda x, *_: [np.sort(x, 1), places(np.argsort(x, 1))], NUMBERS)  # fmt: skip
sample("sort.stable", lambda n: [X(n, 7), True, 1, True, [X(n, 7), I(n, 7)]], NUMBERS)
case("topk", lambda n: [X(n, 37), 5, 1, True, True],
     lambda x, k, *_: [-np.sort(-x, 1)[:, :k], places(np.argsort(-x, 1)[:, :k])], NUMBERS)  # fmt: skip


def ordered(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.sort(random.standard_normal(shape))


for right in (False, True):
    case("bucketize.Tensor", lambda n, r=right: [X(n, 7), F(20, draw=ordered), False, r],
         lambda x, edges, _, right: places(np.searchsorted(edges, x, "right" if right else "left")),
         (*FLOATS, DType.int32, DType.int8, DType.uint8))  # fmt: skip
sample("bucketize.Tensor", lambda n: [X(n, 7), X(20), True, False, I(n, 7)], (*FLOATS, DType.int32))
