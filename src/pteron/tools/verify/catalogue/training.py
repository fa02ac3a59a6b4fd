"""Operators of training: a loss with its gradient, an optimizer, and gradients of layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from pteron.tools.verify.catalogue.arguments import Array, I, P, X, whole
from pteron.tools.verify.catalogue.entry import case, sample
from pteron.tools.verify.catalogue.images import taps
from pteron.tools.verify.catalogue.norms import softmax
from pteron.tools.verify.catalogue.types import HALVES


def cross_entropy(logits: Array, labels: Array, count: float) -> list[Array]:
    shares = softmax(logits, -1)
    valid = labels >= 0
    rows = np.arange(len(labels))
    loss = -np.log(shares[rows, labels])[valid].sum() / count
    shares[rows, labels] -= 1
    return [np.float32(loss), shares * valid[:, None] / count]


case("et_vk.fused_ce", lambda n: [X(n, 70), I(n, draw=whole(-1, 70)), 3.0], cross_entropy)


def adamw(
    x: Array, mean: Array, square: Array, grad: Array, lr: float, beta1: float, beta2: float, eps: float,
    decay: float, correction1: float, correction2: float,
) -> list[Array]:  # fmt: skip
    mean = beta1 * mean + (1 - beta1) * grad
    square = beta2 * square + (1 - beta2) * grad**2
    step = mean / correction1 / (np.sqrt(square / correction2) + eps)
    made = [x * (1 - lr * decay) - lr * step, mean, square]
    return [*made, *made]  # the outputs, and the tensors that are updated


case("et_vk.adamw_step",
     lambda n: [X(n, 7), X(n, 7), P(n, 7), X(n, 7), 0.1, 0.9, 0.999, 1e-8, 0.01, 0.1, 0.001],
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


case("convolution_backward",
     lambda n: [
         X(n, 4, 5, 4), X(n, 4, 5, 4), X(4, 4, 3, 3), [4], [1, 1], [1, 1], [1, 1], False, [0, 0], 1,
     [True] * 3], convolution_gradients, tried=HALVES, sizes=(3, 1, 2))  # fmt: skip
sample("convolution_backward", lambda n: [
    X(n, 4, 4, 4), X(n, 4, 4, 4), X(4, 4, 3, 3), [4], [1, 1], [1, 1], [1, 1], True, [0, 0], 1, [True] * 3,
    [X(n, 4, 4, 4), X(4, 4, 3, 3), X(4)]])  # fmt: skip


def pool_gradient(grad: Array, x: Array, *rest: Any) -> Array:
    made, places = np.zeros(x.shape), rest[-1]
    for channel in range(len(x)):
        np.add.at(made[channel].reshape(-1), places[channel].ravel(), grad[channel].ravel())
    return made


def in_windows(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """For each of 3x3 windows of 2x2 elements, the place of one in the image of 6x6."""
    corners = np.arange(3)[:, None] * 12 + np.arange(3) * 2
    return corners + random.integers(0, 2, shape) + 6 * random.integers(0, 2, shape)


case("max_pool2d_with_indices_backward",
     lambda n: [X(n, 3, 3), X(n, 6, 6), [2, 2], [2, 2], [0, 0], [1, 1], False, I(n, 3, 3, draw=in_windows)],
     pool_gradient)  # fmt: skip
