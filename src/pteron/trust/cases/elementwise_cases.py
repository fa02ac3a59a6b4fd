"""Elementwise operators: each function, broadcasting, integers, and a chain."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from pteron.fusion.chains import ChainStep
from pteron.trust.case import Array, case

FLOATS = (np.float32, np.float16)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


UNARY: dict[str, Callable[..., Array]] = {
    "abs": np.abs, "ceil": np.ceil, "floor": np.floor, "neg": np.negative, "round": np.round,
    "sign": np.sign, "trunc": np.trunc, "square": np.square, "exp": np.exp, "expm1": np.expm1, "sin": np.sin,
    "cos": np.cos, "tanh": np.tanh, "sinh": np.sinh, "cosh": np.cosh, "atan": np.arctan, "asinh": np.arcsinh,
    "sigmoid": sigmoid, "relu": lambda x: np.maximum(x, 0), "erf": np.vectorize(math.erf),
    "silu": lambda x: x * sigmoid(x), "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
}  # fmt: skip
for name, function in UNARY.items():
    dtypes = FLOATS if name in ("exp", "neg", "sigmoid", "tanh") else FLOATS[:1]
    case(f"aten.{name}.default", lambda d, n: [d.x(n, 7)], function, dtypes=dtypes)
OF_POSITIVE: dict[str, Callable[..., Array]] = {
    "log": np.log, "log2": np.log2, "log1p": np.log1p, "sqrt": np.sqrt, "rsqrt": lambda x: x**-0.5,
    "reciprocal": lambda x: 1 / x,
}  # fmt: skip
for name, function in OF_POSITIVE.items():
    case(f"aten.{name}.default", lambda d, n: [d.positive(n, 7)], function)
case("aten.gelu.default", lambda d, n: [d.x(n, 7), "none"], lambda x, _: gelu(x))
case("aten.clamp.default", lambda d, n: [d.x(n, 7), -0.5, 0.75], np.clip)
case("aten.leaky_relu.default", lambda d, n: [d.x(n, 7), 0.1], lambda x, s: np.where(x > 0, x, s * x))
case("aten.abs.default", lambda d, n: [d.whole(-99, 99, n, 7)], np.abs)
case("aten.bitwise_not.default", lambda d, n: [d.whole(-99, 99, n, 7, dtype=np.int8)], np.invert)
case("aten.logical_not.default", lambda d, n: [d.flags(n, 7)], np.logical_not)
for target in (np.float32, np.float16, np.int32, np.int8, np.uint8, bool):
    for given in {np.float32, np.float16, np.int32, np.uint8} - {target}:
        case(
            "pteron.cast",
            lambda d, n, g=given: [d.whole(0, 100, n, 7, dtype=g)],
            lambda x, t=target: x.astype(t),
        )

for name, function in {
    "mul.Tensor": np.multiply, "maximum.default": np.maximum, "minimum.default": np.minimum,
    "div.Tensor": np.divide, "atan2.default": np.arctan2, "fmod.Tensor": np.fmod,
    "remainder.Tensor": np.mod,
}.items():  # fmt: skip
    dtypes = FLOATS if name == "mul.Tensor" else FLOATS[:1]
    case(f"aten.{name}", lambda d, n: [d.x(n, 1, 5), d.positive(3, 5)], function, dtypes=dtypes)
    case(f"aten.{name}", lambda d, n: [d.x(n, 5), d.positive(n, 5)], function)
for name, sign in (("add", 1), ("sub", -1)):
    for shape in ((6,), (1,)):
        case(
            f"aten.{name}.Tensor",
            lambda d, n, s=shape: [d.x(n, 6), d.x(*s), 2],
            lambda a, b, alpha, s=sign: a + s * alpha * b,
            dtypes=FLOATS,
        )
case("aten.add.Scalar", lambda d, n: [d.x(n, 7), 2.5, 1], lambda a, b, _: a + b)
case("aten.pow.Tensor_Tensor", lambda d, n: [d.positive(n, 7), d.x(n, 7)], np.power)
case("aten.pow.Tensor_Scalar", lambda d, n: [d.positive(n, 7), 3], np.power)
for name, function in (("eq", np.equal), ("lt", np.less), ("ge", np.greater_equal)):
    case(f"aten.{name}.Tensor", lambda d, n: [d.whole(0, 3, n, 7), d.whole(0, 3, 7)], function)
    case(f"aten.{name}.Scalar", lambda d, n: [d.x(n, 7), 0.5], function)
for name, function in (("logical_and.default", np.logical_and), ("bitwise_or.Tensor", np.bitwise_or)):
    case(f"aten.{name}", lambda d, n: [d.flags(n, 7), d.flags(n, 7)], function)
for name, function in (
    ("bitwise_and", np.bitwise_and),
    ("bitwise_xor", np.bitwise_xor),
    ("bitwise_left_shift", np.left_shift),
    ("bitwise_right_shift", np.right_shift),
):
    case(f"aten.{name}.Tensor", lambda d, n: [d.whole(0, 99, n, 7), d.whole(0, 5, 7)], function)
for rounding, function in (("floor", np.floor), ("trunc", np.trunc)):
    case(
        "aten.div.Tensor_mode",
        lambda d, n, r=rounding: [d.x(n, 7), d.positive(n, 7), r],
        lambda a, b, _, f=function: f(a / b),
    )

case("aten.where.self", lambda d, n: [d.flags(n, 1), d.x(n, 7), d.x(7)], np.where, dtypes=FLOATS)
case("aten.addcmul.default", lambda d, n: [d.x(n, 7), d.x(n, 7), d.x(7), 2.0],
     lambda x, a, b, s: x + s * a * b)  # fmt: skip
case("aten.lerp.Tensor", lambda d, n: [d.x(n, 7), d.x(n, 7), d.x(n, 7)], lambda a, b, w: a + w * (b - a))
case("aten.clamp.Tensor", lambda d, n: [d.x(n, 7), -d.positive(7), d.positive(7)], np.clip)
STEPS = (
    ChainStep("a + s0 * b", (2.0,), False, ("a", "b"), "float32"),
    ChainStep("a * b", (), False, ("t0", "c"), "float32"),
    ChainStep("tanh(x)", (), False, ("t1",), "float32"),
)
case(
    "pteron.chain",
    lambda d, n: [[d.x(n, 6), d.x(6), d.x(n, 1)], STEPS],
    lambda given, _: np.tanh((given[0] + 2 * given[1]) * given[2]),
)
