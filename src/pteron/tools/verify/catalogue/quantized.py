"""Quantization, and operators on quantized activations."""

from __future__ import annotations

from typing import Any

import numpy as np

from pteron.compiler.ir.dtypes import DType
from pteron.tools.verify.catalogue.arguments import Array, At, C, F, I, N, P, Q, S, T, X, whole
from pteron.tools.verify.catalogue.entry import case, sample
from pteron.tools.verify.catalogue.images import convolution, transposed_convolution
from pteron.tools.verify.catalogue.types import BYTES, INT8

LOW, HIGH = RANGE = (-128, 127)
IN, OUT = (0.04, 9), (0.3, -11)  # scales and zero points


def quantized(x: Array, scale: Any, zero: Any) -> Array:
    return np.clip(np.round(x / scale) + zero, LOW, HIGH).astype(np.int8)


def floats(x: Array, scale: Any, zero: Any) -> Array:
    return (x.astype(np.float64) - zero) * scale


def range_of_rows(x: Array, *_: object) -> list[Array]:
    """Scale and zero point for the range of each row, which includes 0."""
    low, high = np.minimum(x.min(-1, keepdims=True), 0), np.maximum(x.max(-1, keepdims=True), 0)
    scale = np.maximum((high - low) / (HIGH - LOW), np.finfo(np.float32).eps)
    return [scale.astype(np.float32), np.clip(LOW - np.round(low / scale), LOW, HIGH).astype(np.int32)]


near_0 = whole(-9, 9)
case("quantized_decomposed.quantize_per_tensor", lambda n: [X(n, 6), 0.03, 3, *RANGE, None],
     lambda x, s, z, *_: quantized(x, s, z))  # fmt: skip
case("quantized_decomposed.dequantize_per_tensor", lambda n: [Q(n, 6), 0.03, 3, *RANGE, None, None],
     lambda x, s, z, *_: floats(x, s, z))  # fmt: skip
case("quantized_decomposed.quantize_per_channel",
     lambda n: [X(n, 6), S(6), C(6, dtype=DType.int32, draw=near_0), 1, *RANGE, None],
     lambda x, s, z, *_: quantized(x, s, z))  # fmt: skip
case("quantized_decomposed.dequantize_per_token",
     lambda n: [Q(n, 6), P(n, 1), I(n, 1, draw=near_0), *RANGE, None, None],
     lambda x, s, z, *_: floats(x, s, z), (DType.float32,))  # fmt: skip
for width in (6, 300, 20000):
    case("quantized_decomposed.choose_qparams_per_token_asymmetric", lambda n, w=width: [X(n, w), None],
         range_of_rows, sizes=(5, 1, 3))  # fmt: skip
for stored in BYTES:
    q = lambda *shape, d=stored: T(shape, d)  # noqa: E731
    per = "quantized_decomposed.quantize_per_"
    back = "quantized_decomposed.dequantize_per_"
    sample(f"{per}tensor.default", lambda n, q=q: [X(n, 4), 0.1, 3, *RANGE, None, q(n, 4)])
    sample(f"{back}tensor.default", lambda n, q=q: [q(n, 4), 0.1, 3, *RANGE, None, None, X(n, 4)])
    sample(f"{per}tensor.tensor", lambda n, q=q: [X(n, 4), F(1), I(1), *RANGE, None, q(n, 4)])
    sample(f"{back}tensor.tensor", lambda n, q=q: [q(n, 4), F(1), I(1), *RANGE, None, None, X(n, 4)])
    sample(f"{per}channel", lambda n, q=q: [X(n, 4), F(4), I(4), 1, *RANGE, None, q(n, 4)])
    sample(f"{back}channel", lambda n, q=q: [q(n, 4), F(4), I(4), 1, *RANGE, None, None, X(n, 4)])
    sample(f"{per}token", lambda n, q=q: [X(n, 4), F(n, 1), I(n, 1), *RANGE, None, q(n, 4)])
    sample(f"{back}token", lambda n, q=q: [q(n, 4), F(n, 1), I(n, 1), *RANGE, None, None, X(n, 4)])
    sample("torchao.quantize_affine",
           lambda n, q=q: [X(n, 4), [1, 2], F(n, 2), I(n, 2), None, *RANGE, q(n, 4)])  # fmt: skip
    sample("torchao.dequantize_affine",
           lambda n, q=q: [q(n, 4), [1, 2], F(n, 2), None, None, *RANGE, None, X(n, 4)])  # fmt: skip
for mapping in ("ASYMMETRIC", "SYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR"):
    sample("torchao.choose_qparams_affine", lambda n, m=mapping: [
        X(n, 4), m, [1, 4], None, *RANGE, 1e-6, None, None, True, [F(n, 1), I(n, 1)]])  # fmt: skip
sample("quantized_decomposed.choose_qparams.tensor",
       lambda n: [X(n, 4), *RANGE, 1e-6, None, [F(1), I(1)]])  # fmt: skip

# -- tables ------------------------------------------------------------------------------------------


def rows_of_pairs(table: Array, *rest: Any) -> Array:
    """Two bits for each code, the lowest first."""
    codes = np.stack([table >> shift & 3 for shift in (0, 2, 4, 6)], -1)
    return rows_of_bytes(codes.reshape(len(table), -1).astype(np.float64) - 2, *rest)


def rows_of_nibbles(table: Array, *rest: Any) -> Array:
    codes = np.stack([table >> 4, table & 15], -1).reshape(len(table), -1).astype(np.float64) - 8
    return rows_of_bytes(codes, *rest)


def rows_of_bytes(table: Array, scales: Array, zeros: Array | None, _: int, __: int, rows: Array) -> Array:
    codes = table.astype(np.float64) - (0 if zeros is None else zeros[:, None])
    return (codes * scales[:, None])[rows]


for bits, packed, reference in (
    ("2bit", 2, rows_of_pairs), ("4bit", 4, rows_of_nibbles), ("byte", 8, rows_of_bytes),
):  # fmt: skip
    for zeros in (None, C(9)):
        case(f"quantized_decomposed.embedding_{bits}.default",
             lambda n, p=packed, z=zeros: [N(9, p), S(9), z, *RANGE, At(9, n)], reference,
             tried=(DType.float32,) if (zeros is None) == (bits == "4bit") else ())  # fmt: skip
        sample(f"quantized_decomposed.embedding_{bits}.dtype", lambda n, p=packed, z=zeros: [
            N(9, p), S(9), z, *RANGE, I(n), None, X(n, 8)])  # fmt: skip

# -- int8 activations --------------------------------------------------------------------------------


def codes(*shape: int) -> T:
    return X(*shape, draw=whole(*RANGE))


def channel_weights(columns: int, depth: int) -> list[T]:
    """Weights, their sums and their scales. The scales keep the outputs within the range of int8."""
    small = lambda random, shape: random.uniform(0.0025, 0.01, shape)  # noqa: E731
    return [C(columns, depth, dtype=DType.int8), C(columns, dtype=DType.int32, draw=whole(0, 1)),
            C(columns, draw=small)]  # fmt: skip


def products(x: Array, w: Array, s: Array, bias: Array | None) -> Array:
    return floats(x, *IN) @ (w * s[:, None]).T + (0 if bias is None else bias)


def q8ta_linear(
    x: Array, s: Any, z: Any, w: Array, _: Array, ws: Array, os: Any, oz: Any, b: Array, act: str
) -> Array:
    made = products(x, w, ws, b)
    return quantized(np.maximum(made, 0) if act == "relu" else made, os, oz)


for depth, columns, rows in ((64, 132, (67, 1, 8, 19)), (7, 9, (9, 1, 3)), (16, 520, (1030, 1014))):
    case("et_vk.q8ta_linear",
         lambda n, k=depth, m=columns: [codes(n, k), *IN, *channel_weights(m, k), *OUT, C(m), "relu"],
         q8ta_linear, INT8, INT8, rows)  # fmt: skip
case("et_vk.linear_q8ta_q8csw", lambda n: [codes(n, 64), *IN, *channel_weights(132, 64), None],
     lambda x, s, z, w, _, ws, b: products(x, w, ws, b), INT8, INT8, (67, 1, 8, 19))  # fmt: skip
for depth, columns in ((8, 12), (7, 9)):
    sample("et_vk.q8ta_linear et_vk.q8ta_linear_gemv", lambda n, m=columns, k=depth: [
        X(n, k), *IN, *channel_weights(m, k), *OUT, C(m), "none", X(n, m)], INT8)  # fmt: skip
    sample("et_vk.q8ta_linear_gemv", lambda n, m=columns, k=depth: [
        X(n, k), *IN, *channel_weights(m, k), *OUT, C(m), "relu", X(n, m)], INT8)  # fmt: skip
    sample("et_vk.linear_q8ta_q8csw", lambda n, m=columns, k=depth: [
        X(n, k), *IN, *channel_weights(m, k), None, F(n, m)], INT8)  # fmt: skip
case("et_vk.q8ta_add", lambda n: [codes(n, 7), codes(n, 7), 0.05, 1, 0.07, 2, 0.11, 3, 1.0],
     lambda a, b, s, z, t, y, u, x, alpha: quantized(floats(a, s, z) + alpha * floats(b, t, y), u, x), INT8,
     INT8)  # fmt: skip


def add_codes(a: Array, b: Array, s: float, z: int, t: float, y: int, u: float, x: int) -> Array:
    """Fixed point with 21 bits for the larger factor; a sum between two codes becomes the upper one."""
    ratios = np.array([s / u, t / u], np.float32)
    shift = 20 - int(np.floor(np.log2(np.abs(ratios).max())))
    first, second = np.rint(ratios.astype(float) * 2.0**shift).astype(int)
    total = (a.astype(int) - z) * first + (b.astype(int) - y) * second + (1 << shift - 1)
    return np.clip((total >> shift) + x, -128, 127)


for scales in ((0.05, 0.05, 0.1), (0.05, -0.07, 0.11)):
    case("pteron.add_codes", lambda n, r=scales: [codes(n, 7), codes(n, 7), r[0], 1, r[1], -2, r[2], 3],
         add_codes, INT8, INT8)  # fmt: skip
case("et_vk.q8ta_relu", lambda n: [codes(n, 7), 0.03, -3, 0.08, 5],
     lambda x, s, z, t, y: quantized(np.maximum(floats(x, s, z), 0), t, y), INT8, INT8)  # fmt: skip
sample("et_vk.q8ta_pixel_shuffle", lambda n: [X(n, 8, 3, 3), *IN, *OUT, 2, X(n, 2, 6, 6)], INT8)


def windows(w: Array, s: Array, ins: int) -> Array:
    """Weights [outs, window * ins] as [outs, ins, 3, 3]."""
    return (w * s[:, None]).reshape(len(w), 3, 3, ins).transpose(0, 3, 1, 2)


def q8ta_convolution(
    x: Array, s: Any, z: Any, w: Array, _: Array, ws: Array, os: Any, oz: Any, b: Array, *rest: Any
) -> Array:
    ones = [1, 1]
    return quantized(convolution(floats(x, s, z), windows(w, ws, 4), b, ones, ones, ones, 1), os, oz)


def q8ta_transposed(
    x: Array, s: Any, z: Any, w: Array, _: Array, ws: Array, os: Any, oz: Any, *rest: Any
) -> Array:
    turned = windows(w, ws, 4).transpose(1, 0, 2, 3)
    return quantized(transposed_convolution(floats(x, s, z), turned, None, [2, 2], [1, 1], [1, 1]), os, oz)


for outs, sizes, place in ((6, (3, 1), 6), (20, (3, 1), 6), (40, (4, 2), 60)):
    case("et_vk.q8ta_conv2d",
         lambda n, o=outs, p=place: [
             codes(n, 4, p, p), *IN, *channel_weights(o, 36), *OUT, C(o), [3, 3], [1, 1], [1, 1], [1, 1],
         1, "none"], q8ta_convolution, INT8, INT8, sizes)  # fmt: skip
for outs in (8, 16):
    sample("et_vk.q8ta_conv2d et_vk.q8ta_conv2d_pw", lambda n, o=outs: [
        X(n, 4, 6, 6), *IN, *channel_weights(o, 36), *OUT, C(o), [3, 3], [1, 1], [1, 1], [1, 1], 1, "relu",
        X(n, o, 6, 6)], INT8)  # fmt: skip
sample("et_vk.q8ta_conv2d_dw", lambda n: [
    X(n, 4, 6, 6), *IN, C(3, 3, 4, dtype=DType.int8), C(4, dtype=DType.int32), C(4), *OUT, None, [3, 3],
    [1, 1], [1, 1], [1, 1], 4, "none", X(n, 4, 6, 6)], INT8)  # fmt: skip
case("et_vk.q8ta_conv2d_transposed",
     lambda n: [
         codes(n, 4, 5, 5), *IN, *channel_weights(6, 36), *OUT, None, [3, 3], [2, 2], [1, 1], [1, 1], [1,
         1], 1, "none"],
     q8ta_transposed, INT8, INT8, (3, 1))  # fmt: skip
