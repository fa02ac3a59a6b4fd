"""Operators of training: a loss with its gradient, an optimizer, and gradients of layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from pteron.trust.case import Array, case
from pteron.trust.cases.image_cases import taps
from pteron.trust.cases.norm_cases import softmax


def cross_entropy(logits: Array, labels: Array, count: float) -> list[Array]:
    shares = softmax(logits, -1)
    valid = labels >= 0
    rows = np.arange(len(labels))
    loss = -np.log(shares[rows, labels])[valid].sum() / count
    shares[rows, labels] -= 1
    return [np.asarray(loss), shares * valid[:, None] / count]


case("et_vk.fused_ce.default", lambda d, n: [d.x(n, 70), d.whole(-1, 70, n), 3.0], cross_entropy)


def adamw(
    x: Array, mean: Array, square: Array, grad: Array, lr: float, beta1: float, beta2: float, eps: float,
    decay: float, correction1: float, correction2: float,
) -> list[Array]:  # fmt: skip
    mean = beta1 * mean + (1 - beta1) * grad
    square = beta2 * square + (1 - beta2) * grad**2
    step = mean / correction1 / (np.sqrt(square / correction2) + eps)
    made = [x * (1 - lr * decay) - lr * step, mean, square]
    return [*made, *made]  # the outputs, and the tensors that are updated


case("et_vk.adamw_step.default",
     lambda d, n: [
         d.x(n, 7), d.x(n, 7), d.positive(n, 7), d.x(n, 7), 0.1, 0.9, 0.999, 1e-8, 0.01, 0.1, 0.001],
     adamw)  # fmt: skip


def convolution_gradients(grad: Array, x: Array, w: Array, *_: Any) -> list[Array]:
    """Of a 3x3 window with padding 1 and stride 1."""
    ones = [1, 1]
    to_weight = np.zeros(w.shape)
    padded = np.zeros((*x.shape[:2], x.shape[2] + 2, x.shape[3] + 2))
    for (r, c), cut in taps(x, [3, 3], ones, ones, ones):
        to_weight[:, :, r, c] = np.einsum("bohw,bihw->oi", grad, cut)
        part = np.einsum("bohw,oi->bihw", grad, w[:, :, r, c])
        padded[:, :, r : r + part.shape[2], c : c + part.shape[3]] += part
    return [padded[:, :, 1:-1, 1:-1], to_weight, grad.sum((0, 2, 3))]


case("aten.convolution_backward.default",
     lambda d, n: [
         d.x(n, 4, 5, 4), d.x(n, 4, 5, 4), d.x(4, 4, 3, 3), [4], [1, 1], [1, 1], [1, 1], False, [0, 0], 1,
         [True, True, True]],
     convolution_gradients, sizes=(3, 1, 2), dtypes=(np.float32, np.float16))  # fmt: skip


def pool_gradient(grad: Array, x: Array, *rest: Any) -> Array:
    made, places = np.zeros(x.shape), rest[-1]
    for channel in range(len(x)):
        np.add.at(made[channel].reshape(-1), places[channel].ravel(), grad[channel].ravel())
    return made


case("aten.max_pool2d_with_indices_backward.default",
     lambda d, n: [
         d.x(n, 3, 3), d.x(n, 6, 6), [2, 2], [2, 2], [0, 0], [1, 1], False,
         (np.arange(3)[:, None] * 12 + np.arange(3) * 2).astype(np.int32)[None]
         + d.whole(0, 2, n, 3, 3) + 6 * d.whole(0, 2, n, 3, 3)],
     pool_gradient)  # fmt: skip
