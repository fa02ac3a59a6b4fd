"""Norms and softmax: rows that are short, long, and no whole quads."""

from __future__ import annotations

from typing import Any

import numpy as np

from pteron.trust.case import Array, case

DTYPES = (np.float32, np.float16)
WIDTHS = (7, 36, 37, 1100)


def softmax(x: Array, dim: int, _: bool = False) -> Array:
    raised = np.exp(x - x.max(dim, keepdims=True))
    return raised / raised.sum(dim, keepdims=True)


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def normalized(x: Array, axes: tuple[int, ...], eps: float) -> tuple[Array, Array, Array]:
    mean = x.mean(axes, keepdims=True)
    rstd = 1 / np.sqrt(x.var(axes, keepdims=True) + eps)
    return (x - mean) * rstd, mean, rstd


def layer_norm(x: Array, _: Any, weight: Array, bias: Array, eps: float) -> list[Array]:
    made, mean, rstd = normalized(x, (-1,), eps)
    return [made * weight + bias, mean, rstd]


def group_norm(
    x: Array, weight: Array, bias: Array, batch: int, channels: int, inner: int, groups: int, eps: float
) -> list[Array]:
    made, mean, rstd = normalized(x.reshape(batch, groups, -1), (-1,), eps)
    made = made.reshape(x.shape) * weight[:, None] + bias[:, None]
    return [made, mean[..., 0], rstd[..., 0]]


for width in WIDTHS:
    dtypes = DTYPES if width == 36 else DTYPES[:1]
    case("aten._softmax.default", lambda d, n, w=width: [d.x(n, w), 1, False], softmax, dtypes=dtypes)
    case("et_vk.rms_norm.default", lambda d, n, w=width: [d.x(n, w), d.weight(w), 1e-5], rms_norm,
         dtypes=dtypes)  # fmt: skip
    case("aten.native_layer_norm.default",
         lambda d, n, w=width: [d.x(n, w), [w], d.weight(w), d.weight(w), 1e-5], layer_norm,
         dtypes=dtypes)  # fmt: skip
    case("pteron.layer_norm",
         lambda d, n, w=width: [d.x(n, w), [w], d.weight(w), d.weight(w), 1e-5],
         lambda *args: layer_norm(*args)[0])  # fmt: skip
for width in (36, 1100):
    case("pteron.add_rms_norm", lambda d, n, w=width: [d.x(n, w), d.x(n, w), d.weight(w), 1e-5],
         lambda a, b, weight, eps: [a + b, rms_norm(a + b, weight, eps)])  # fmt: skip
for dim, shape in ((1, (8, 3)), (1, (40, 5)), (0, (6,))):
    case("aten._softmax.default", lambda d, n, i=dim, s=shape: [d.x(n, *s), i, False], softmax)
case("aten._log_softmax.default", lambda d, n: [d.x(n, 40), 1, False],
     lambda x, dim, _: np.log(softmax(x, dim)))  # fmt: skip
for inner in (5, 40):
    case("aten.native_group_norm.default",
         lambda d, n, i=inner: [d.x(n, 4, i), d.weight(4), d.weight(4), n, 4, i, 2, 1e-5],
         group_norm)  # fmt: skip
    case("pteron.group_norm",
         lambda d, n, i=inner: [d.x(n, 4, i), d.weight(4), d.weight(4), n, 4, i, 2, 1e-5],
         lambda *args: group_norm(*args)[0])  # fmt: skip


def channels(x: Array) -> Array:
    return x.reshape(-1, 1)


case(
    "aten._native_batch_norm_legit_no_training.default",
    lambda d, n: [d.x(n, 4, 5), d.weight(4), d.weight(4), d.f32(4), d.positive(4), 0.1, 1e-5],
    lambda x, w, b, mean, var, _, eps: [
        (x - channels(mean)) / np.sqrt(channels(var) + eps) * channels(w) + channels(b),
        np.zeros(0),
        np.zeros(0),
    ],
)


def batch_norm(x: Array, w: Array, b: Array, eps: float) -> list[Array]:
    made, mean, rstd = normalized(x, (0, 2), eps)
    return [made * channels(w) + channels(b), mean.ravel(), rstd.ravel()]


def trained(
    x: Array, w: Array, b: Array, mean: Array, var: Array, _: bool, share: float, eps: float
) -> list[Array]:
    """The running statistics are updated, too."""
    count = x.size // x.shape[1]
    mean = (1 - share) * mean + share * x.mean((0, 2))
    var = (1 - share) * var + share * x.var((0, 2)) * count / (count - 1)
    return [*batch_norm(x, w, b, eps), mean, var]


for inner in (5, 600):
    case("aten._native_batch_norm_legit.no_stats",
         lambda d, n, i=inner: [d.x(n, 4, i), d.weight(4), d.weight(4), True, 0.1, 1e-5],
         lambda x, w, b, *rest: batch_norm(x, w, b, rest[-1]))  # fmt: skip
    case("aten._native_batch_norm_legit.default",
         lambda d, n, i=inner: [
             d.x(n, 4, i), d.weight(4), d.weight(4), d.f32(4), d.positive(4), True, 0.1, 1e-5],
         trained)  # fmt: skip
case(
    "aten._native_batch_norm_legit.default",
    lambda d, n: [d.x(n, 4, 5), d.weight(4), d.weight(4), d.f32(4), d.positive(4), False, 0.1, 1e-5],
    lambda x, w, b, mean, var, _, share, eps: [
        (x - channels(mean)) / np.sqrt(channels(var) + eps) * channels(w) + channels(b),
        np.zeros(0),
        np.zeros(0),
        mean,
        var,
    ],
)
