"""Norms and softmax: rows that are short, long, and no whole quads."""

from __future__ import annotations

from typing import Any

import numpy as np

from pteron.tools.verify.catalogue.arguments import Array, F, P, W, X
from pteron.tools.verify.catalogue.entry import case, sample
from pteron.tools.verify.catalogue.types import F32, HALVES

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


def layer_norm(x: Array, _: Any, weight: Array, bias: Array | None, eps: float) -> list[Array]:
    made, mean, rstd = normalized(x, (-1,), eps)
    return [made * weight + (0 if bias is None else bias), mean, rstd]


def group_norm(
    x: Array, weight: Array, bias: Array, batch: int, channels: int, inner: int, groups: int, eps: float
) -> list[Array]:
    made, mean, rstd = normalized(x.reshape(batch, groups, -1), (-1,), eps)
    made = made.reshape(x.shape) * weight[:, None] + bias[:, None]
    return [made, mean[..., 0], rstd[..., 0]]


for width in WIDTHS:
    tried = HALVES if width == 36 else F32
    case("_softmax", lambda n, w=width: [X(n, w), 1, False], softmax, tried=tried)
    case("et_vk.rms_norm", lambda n, w=width: [X(n, w), W(w), 1e-5], rms_norm, tried=tried)
    case("native_layer_norm", lambda n, w=width: [X(n, w), [w], W(w), W(w), 1e-5], layer_norm, tried=tried)
    case("pteron.layer_norm", lambda n, w=width: [X(n, w), [w], W(w), W(w), 1e-5],
         lambda *args: layer_norm(*args)[0])  # fmt: skip
sample("native_layer_norm", lambda n: [X(n, 36), [36], W(36), None, 1e-5, [X(n, 36), X(n, 1), X(n, 1)]])
sample("pteron.layer_norm", lambda n: [X(n, 36), [36], W(36), None, 1e-5, X(n, 36)])
for width in (36, 1100):
    case("pteron.add_rms_norm", lambda n, w=width: [X(n, w), X(n, w), W(w), 1e-5],
         lambda a, b, weight, eps: [a + b, rms_norm(a + b, weight, eps)], F32)  # fmt: skip
for dim, shape in ((1, (8, 3)), (1, (40, 5)), (0, (6,))):
    case("_softmax", lambda n, i=dim, s=shape: [X(n, *s), i, False], softmax)
case("_log_softmax", lambda n: [X(n, 40), 1, False], lambda x, dim, _: np.log(softmax(x, dim)))
sample("_log_softmax", lambda n: [X(n, 8, 3), 1, False, X(n, 8, 3)])
for inner in (5, 40):
    case("native_group_norm", lambda n, i=inner: [X(n, 4, i), W(4), W(4), n, 4, i, 2, 1e-5], group_norm)
    case("pteron.group_norm", lambda n, i=inner: [X(n, 4, i), W(4), W(4), n, 4, i, 2, 1e-5],
         lambda *args: group_norm(*args)[0])  # fmt: skip

# -- batch norms -------------------------------------------------------------------------------------


def by_channel(x: Array) -> Array:
    return x.reshape(-1, 1)


def given_statistics(x: Array, w: Array, b: Array, mean: Array, var: Array, *rest: Any) -> list[Array]:
    made = (x - by_channel(mean)) / np.sqrt(by_channel(var) + rest[-1]) * by_channel(w) + by_channel(b)
    return [made, np.zeros(0), np.zeros(0)]


def own_statistics(x: Array, w: Array, b: Array, *rest: Any) -> list[Array]:
    made, mean, rstd = normalized(x, (0, 2), rest[-1])
    return [made * by_channel(w) + by_channel(b), mean.ravel(), rstd.ravel()]


def trained(
    x: Array, w: Array, b: Array, mean: Array, var: Array, _: bool, share: float, eps: float
) -> list[Array]:
    """The running statistics are updated, too."""
    count = x.size // x.shape[1]
    mean = (1 - share) * mean + share * x.mean((0, 2))
    var = (1 - share) * var + share * x.var((0, 2)) * count / (count - 1)
    return [*own_statistics(x, w, b, eps), mean, var]


case("_native_batch_norm_legit_no_training",
     lambda n: [X(n, 4, 5), W(4), W(4), X(4), P(4), 0.1, 1e-5], given_statistics)  # fmt: skip
for inner in (5, 600):
    case("_native_batch_norm_legit.no_stats", lambda n, i=inner: [X(n, 4, i), W(4), W(4), True, 0.1, 1e-5],
         own_statistics)  # fmt: skip
    case("_native_batch_norm_legit.default",
         lambda n, i=inner: [X(n, 4, i), W(4), W(4), X(4), P(4), True, 0.1, 1e-5], trained)  # fmt: skip
case("_native_batch_norm_legit.default", lambda n: [X(n, 4, 5), W(4), W(4), X(4), P(4), False, 0.1, 1e-5],
     lambda *args: [*given_statistics(*args), *args[3:5]])  # fmt: skip


# -- transforms and recurrences ----------------------------------------------------------------------


def hadamard(x: Array) -> Array:
    """The transform of a power of two, one bit of the place after the other."""
    for bit in range(x.shape[-1].bit_length() - 1):
        pairs = x.reshape(len(x), -1, 2, 2**bit)
        first, second = pairs[:, :, 0], pairs[:, :, 1]
        x = np.stack([first + second, first - second], 2).reshape(x.shape) / np.sqrt(2)
    return x


for width in (8, 256, 512):
    case("fast_hadamard_transform", lambda n, w=width: [X(n, w)], hadamard)
sample("fast_hadamard_transform", lambda n: [X(n, 56), X(n, 56)])


def delta_rule(q: Array, k: Array, v: Array, decay: Array, beta: Array, state: Array) -> list[Array]:
    made = np.zeros((*q.shape[:-1], v.shape[-1]))
    share = q.shape[1] // k.shape[1]
    for t in range(k.shape[2]):
        state = state * decay[:, :, t, None, None]
        change = beta[:, :, t, None] * (v[:, :, t] - np.einsum("bhkv,bhk->bhv", state, k[:, :, t]))
        state = state + k[:, :, t, :, None] * change[:, :, None]
        made[:, :, t] = np.einsum("bhkv,bhk->bhv", np.repeat(state, share, 1), q[:, :, t])
    return [made, state]


def below_one(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return random.uniform(0.25, 1, shape)


RULES = "gated_delta_rule channelwise_gated_delta_rule"
case(RULES,
     lambda n: [
         F(1, 4, n, 4), F(1, 2, n, 4, draw=below_one), F(1, 2, n, 3), F(1, 2, n, draw=below_one),
         F(1, 2, n, draw=below_one), F(1, 2, 4, 3)],
     delta_rule, F32)  # fmt: skip
sample(RULES, lambda n: [
    F(1, 4, n, 4), F(1, 2, n, 4), F(1, 2, n, 3), F(1, 2, n, 4), F(1, 2, n), F(1, 2, 4, 3),
    [F(1, 4, n, 3), F(1, 2, 4, 3)]], F32)  # fmt: skip
