"""Quantization, and operators on quantized activations."""

from __future__ import annotations

from typing import Any

import numpy as np

from pteron.trust.case import Array, Draw, Fixed, case
from pteron.trust.cases.image_cases import convolution, transposed_convolution

LOW, HIGH = -128, 127
IN, OUT = (0.04, 9), (0.3, -11)  # scales and zero points


def quantized(x: Array, scale: Any, zero: Any) -> Array:
    return np.clip(np.round(x / scale) + zero, LOW, HIGH).astype(np.int8)


def floats(x: Array, scale: Any, zero: Any) -> Array:
    return (x.astype(np.float64) - zero) * scale


case("quantized_decomposed.quantize_per_tensor.default", lambda d, n: [d.x(n, 6), 0.03, 3, LOW, HIGH, None],
     lambda x, s, z, *_: quantized(x, s, z))  # fmt: skip
case("quantized_decomposed.dequantize_per_tensor.default",
     lambda d, n: [d.whole(LOW, HIGH, n, 6, dtype=np.int8), 0.03, 3, LOW, HIGH, None, None],
     lambda x, s, z, *_: floats(x, s, z))  # fmt: skip
case("quantized_decomposed.quantize_per_channel.default",
     lambda d, n: [d.x(n, 6), d.scales(6), d.codes(-9, 9, 6, dtype=np.int32), 1, LOW, HIGH, None],
     lambda x, s, z, *_: quantized(x, s, z))  # fmt: skip
case("quantized_decomposed.dequantize_per_token.default",
     lambda d, n: [d.whole(LOW, HIGH, n, 6, dtype=np.int8), d.positive(n, 1), d.whole(-9, 9, n, 1), LOW, HIGH,
                   None, None],
     lambda x, s, z, *_: floats(x, s, z))  # fmt: skip


def range_of_rows(x: Array, *_: object) -> list[Array]:
    """Scale and zero point for the range of each row, which includes 0."""
    low, high = np.minimum(x.min(-1, keepdims=True), 0), np.maximum(x.max(-1, keepdims=True), 0)
    scale = np.maximum((high - low) / (HIGH - LOW), np.finfo(np.float32).eps)
    return [scale.astype(np.float32), np.clip(LOW - np.round(low / scale), LOW, HIGH).astype(np.int32)]


for width in (6, 300, 20000):
    case("quantized_decomposed.choose_qparams_per_token_asymmetric.default",
         lambda d, n, w=width: [d.x(n, w), None], range_of_rows, sizes=(5, 1, 3))  # fmt: skip

for name, zeros in (("embedding_4bit", False), ("embedding_byte", True)):

    def looked_up(
        table: Array, scales: Array, zeros: Array | None, _: int, __: int, rows: Array, n: str = name
    ) -> Array:
        codes = table.astype(np.float64)
        if n == "embedding_4bit":
            codes = np.stack([table >> 4, table & 15], -1).reshape(len(table), -1).astype(np.float64) - 8
        made: Array = (codes - (0 if zeros is None else zeros[:, None])) * scales[:, None]
        return made[rows]

    case(f"quantized_decomposed.{name}.default",
         lambda d, n, z=zeros: [
             d.codes(0, 256, 9, 8, dtype=np.uint8), d.scales(9), d.bias(9) if z else None, LOW, HIGH,
             d.whole(0, 9, n)],
         looked_up)  # fmt: skip

# -- int8 activations ----------------------------------------------------------------------------------


def codes(d: Draw, *shape: int) -> Array:
    return d.whole(LOW, HIGH, *shape, dtype=np.int8)


def channel_weights(d: Draw, columns: int, depth: int) -> list[Fixed]:
    """Weights, their sums and their scales. The scales keep the outputs within the range of int8."""
    return [d.codes(LOW, HIGH, columns, depth), d.codes(0, 1, columns, dtype=np.int32),
            Fixed(d.scales(columns).array / 20)]  # fmt: skip


def products(x: Array, w: Array, s: Array, bias: Array | None) -> Array:
    return floats(x, *IN) @ (w * s[:, None]).T + (0 if bias is None else bias)


for depth, columns, rows in ((64, 132, (67, 1, 8, 19)), (7, 9, (9, 1, 3)), (16, 520, (1030, 1014))):
    case("et_vk.q8ta_linear.default",
         lambda d, n, k=depth, m=columns: [
             codes(d, n, k), *IN, *channel_weights(d, m, k), *OUT, d.bias(m), "relu"],
         lambda x, s, z, w, _, ws, os, oz, b, a: quantized(np.maximum(products(x, w, ws, b), 0), os, oz),
         sizes=rows)  # fmt: skip
case("et_vk.linear_q8ta_q8csw.default",
     lambda d, n: [codes(d, n, 64), *IN, *channel_weights(d, 132, 64), None],
     lambda x, s, z, w, _, ws, b: products(x, w, ws, b), sizes=(67, 1, 8, 19))  # fmt: skip
case("et_vk.q8ta_add.default", lambda d, n: [codes(d, n, 7), codes(d, n, 7), 0.05, 1, 0.07, 2, 0.11, 3, 1.0],
     lambda a, b, s, z, t, y, u, x, alpha: quantized(
         floats(a, s, z) + alpha * floats(b, t, y), u, x))  # fmt: skip
case("et_vk.q8ta_relu.default", lambda d, n: [codes(d, n, 7), 0.03, -3, 0.08, 5],
     lambda x, s, z, t, y: quantized(np.maximum(floats(x, s, z), 0), t, y))  # fmt: skip


def windows(w: Array, s: Array, ins: int) -> Array:
    """Weights [outs, window * ins] as [outs, ins, 3, 3]."""
    return (w * s[:, None]).reshape(len(w), 3, 3, ins).transpose(0, 3, 1, 2)


for outs, sizes, place in ((6, (3, 1), 6), (20, (3, 1), 6), (40, (4, 2), 60)):
    case("et_vk.q8ta_conv2d.default",
         lambda d, n, o=outs, p=place: [
             codes(d, n, 4, p, p), *IN, *channel_weights(d, o, 36), *OUT, d.bias(o), [3, 3], [1, 1], [1, 1],
             [1, 1], 1, "none"],
         lambda x, s, z, w, _, ws, os, oz, b, *rest: quantized(
             convolution(floats(x, s, z), windows(w, ws, 4), b, [1, 1], [1, 1], [1, 1], 1), os, oz),
         sizes=sizes)  # fmt: skip
case("et_vk.q8ta_conv2d_transposed.default",
     lambda d, n: [
         codes(d, n, 4, 5, 5), *IN, *channel_weights(d, 6, 36), *OUT, None, [3, 3], [2, 2], [1, 1], [1, 1],
         [1, 1], 1, "none"],
     lambda x, s, z, w, _, ws, os, oz, *rest: quantized(
         transposed_convolution(
             floats(x, s, z), windows(w, ws, 4).transpose(1, 0, 2, 3), None, [2, 2], [1, 1], [1, 1]), os, oz),
     sizes=(3, 1))  # fmt: skip
