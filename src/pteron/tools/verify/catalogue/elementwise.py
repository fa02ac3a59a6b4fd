"""Operators that compute element by element: each function, broadcasting, conversions, and chains."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ops import find
from pteron.compiler.ops.chain import ChainStep
from pteron.compiler.ops.elementwise import ElementwiseRule
from pteron.tools.verify.catalogue.arguments import Array, B, F, I, P, T, X, large, whole
from pteron.tools.verify.catalogue.entry import case, sample, variants
from pteron.tools.verify.catalogue.types import (
    ANY,
    F32,
    FLOATS,
    HALVES,
    INT8,
    INT64,
    INTEGERS,
    NUMBERS,
    WHOLE,
)

Function = Callable[..., Array]

# -- one operand -------------------------------------------------------------------------------------


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def gelu(x: Array, _: str) -> Array:
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def erfinv(y: Array) -> Array:
    """The x whose erf is y, by bisection."""
    low, high = np.full(y.shape, -6.0), np.full(y.shape, 6.0)
    for _ in range(60):
        x = (low + high) / 2
        below = np.vectorize(math.erf)(x) < y
        low, high = np.where(below, x, low), np.where(below, high, x)
    return low


def rounded(function: Function) -> Function:
    """Whole numbers stay what they are."""
    return lambda x: function(x).astype(x.dtype)


OF_NUMBERS: dict[str, Function] = {
    "abs": np.abs, "ceil": rounded(np.ceil), "floor": rounded(np.floor), "neg": np.negative,
    "round": rounded(np.round), "sign": np.sign, "trunc": rounded(np.trunc), "square": np.square,
    "relu": lambda x: np.maximum(x, 0),
}  # fmt: skip
OF_FLOATS: dict[str, Function] = {
    "exp": np.exp, "expm1": np.expm1, "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "sinh": np.sinh,
    "cosh": np.cosh, "atan": np.arctan, "asinh": np.arcsinh, "sigmoid": sigmoid,
    "erf": np.vectorize(math.erf), "silu": lambda x: x * sigmoid(x),
"hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6, }  # fmt: skip
OF_POSITIVE: dict[str, Function] = {
    "log": np.log, "log2": np.log2, "log1p": np.log1p, "sqrt": np.sqrt, "rsqrt": lambda x: x**-0.5,
    "reciprocal": lambda x: 1 / x,
}  # fmt: skip
OTHERS = "acos acosh asin atanh erfc exp2 frac hardsigmoid log10 log_sigmoid mish selu tan"
TRIED = {
    "abs": (*F32, DType.int32), "neg": (*HALVES, DType.int64), "exp": HALVES, "sigmoid": HALVES,
"tanh": HALVES, }  # fmt: skip
for name, function in OF_NUMBERS.items():
    case(name, lambda n: [X(n, 7)], function, NUMBERS, TRIED.get(name, F32))
for name, function in OF_FLOATS.items():
    case(name, lambda n: [X(n, 7)], function, tried=TRIED.get(name, F32))
for name, function in OF_POSITIVE.items():
    case(name, lambda n: [P(n, 7)], function)
case("erfinv", lambda n: [X(n, 7, draw=lambda random, shape: random.uniform(-1, 1, shape))], erfinv)
sample("relu6", lambda n: [X(n, 3), X(n, 3)], NUMBERS)
sample(OTHERS, lambda n: [X(n, 3), X(n, 3)])
sample("isinf isnan signbit", lambda n: [X(n, 3), B(n, 3)])
case("logical_not", lambda n: [X(n, 7)], np.logical_not, ANY, (DType.bool,))
case("bitwise_not", lambda n: [X(n, 7)], np.invert, WHOLE, INT8)

case("gelu", lambda n: [X(n, 7), "none"], gelu)
sample("gelu", lambda n: [X(n, 3), "tanh", X(n, 3)])
case("leaky_relu", lambda n: [X(n, 7), 0.1], lambda x, slope: np.where(x > 0, x, slope * x))
sample("hardshrink softshrink", lambda n: [X(n, 3), 0.5, X(n, 3)])
sample("celu", lambda n: [X(n, 3), 1.0, X(n, 3)])
sample("elu", lambda n: [X(n, 3), 1.0, 1.0, 1.0, X(n, 3)])
sample("softplus", lambda n: [X(n, 3), 1.0, 20.0, X(n, 3)])
sample("logit", lambda n: [X(n, 3), 1e-6, X(n, 3)])
sample("hardtanh", lambda n: [X(n, 3), -1.0, 1.0, X(n, 3)])
sample("threshold", lambda n: [X(n, 3), 0.5, 2.0, X(n, 3)])
case("clamp.default", lambda n: [X(n, 7), -0.5, 0.75], np.clip)
sample("clamp.default", lambda n: [X(n, 3), 0, 6, X(n, 3)], NUMBERS)

# -- conversions -------------------------------------------------------------------------------------

GIVEN = (DType.float32, DType.float16, DType.int32, DType.uint8)
for target in ANY:
    sample("_to_copy dim_order_ops._to_dim_order_copy",
           lambda n, t=target: [X(n, 3), *[None] * 6, T((n, 3), t)], ANY)  # fmt: skip
    if target in (DType.bfloat16, DType.int64):
        sample("pteron.cast", lambda n, t=target: [X(n, 3), T((n, 3), t)], ANY)
        continue
    tried = tuple(dtype for dtype in GIVEN if dtype is not target)
    case("pteron.cast", lambda n: [X(n, 7, draw=whole(0, 100))], lambda x, t=target: x.astype(t.label), ANY,
         tried)  # fmt: skip
case("pteron.cast", lambda n: [X(n, 7)], lambda x: x.astype(np.float32), INT64, INT64)
case("pteron.cast", lambda n: [F(n, 7, draw=lambda random, shape: random.standard_normal(shape) * 2.0**40)],
     lambda x: x.astype(np.int64), INT64, INT64)  # fmt: skip

# -- two operands ------------------------------------------------------------------------------------


def power(base: Array, exponent: Array) -> Array:
    return np.power(base, exponent if base.dtype.kind == "f" else np.abs(exponent) % 3)


BINARY: dict[str, Function] = {
    "mul.Tensor": np.multiply, "maximum.default": np.maximum, "minimum.default": np.minimum,
    "fmod.Tensor": np.fmod, "remainder.Tensor": np.mod, "div.Tensor": np.divide, "atan2.default": np.arctan2,
}  # fmt: skip
for name, function in BINARY.items():
    dtypes = FLOATS if name in ("div.Tensor", "atan2.default") else NUMBERS
    tried = HALVES if name == "mul.Tensor" else F32
    case(name, lambda n: [X(n, 1, 5), P(3, 5)], function, dtypes, tried)
    case(name, lambda n: [X(n, 5), P(n, 5)], function)
sample("copysign.Tensor hypot", lambda n: [X(n, 1, 3), X(2, 3), X(n, 2, 3)])
case("pow.Tensor_Tensor", lambda n: [P(n, 7), X(n, 7)], power)
sample("pow.Tensor_Tensor", lambda n: [X(n, 1, 3), X(2, 3), X(n, 2, 3)], NUMBERS)
for name, function in {"add": np.add, "sub": np.subtract}.items():
    for shape in ((6,), (1,)):
        case(f"{name}.Tensor", lambda n, s=shape: [X(n, 6), X(*s), 2],
             lambda a, b, alpha, f=function: f(a, alpha * b), NUMBERS, HALVES)  # fmt: skip
sample("rsub.Tensor", lambda n: [X(n, 3), X(n, 3), 2, X(n, 3)], NUMBERS)
case("add.Scalar", lambda n: [X(n, 7), 2.5, 1], lambda a, b, _: a + b)
sample("add.Scalar sub.Scalar rsub.Scalar", lambda n: [X(n, 3), 2, 1, X(n, 3)], NUMBERS)
case("pow.Tensor_Scalar", lambda n: [P(n, 7), 3], np.power)
sample("mul.Scalar fmod.Scalar pow.Tensor_Scalar remainder.Scalar", lambda n: [X(n, 3), 2, X(n, 3)], NUMBERS)
sample("copysign.Scalar div.Scalar", lambda n: [X(n, 3), 2.5, X(n, 3)])
sample("pow.Scalar", lambda n: [2, X(n, 3), X(n, 3)], NUMBERS)
for rounding, function in {"floor": np.floor, "trunc": np.trunc}.items():
    case("div.Tensor_mode", lambda n, r=rounding: [X(n, 7), P(n, 7), r],
         lambda a, b, _, f=function: f(a / b).astype(a.dtype), NUMBERS)  # fmt: skip
    sample("div.Scalar_mode", lambda n, r=rounding: [X(n, 3), 3, r, X(n, 3)], NUMBERS)
sample("floor_divide", lambda n: [X(n, 3), X(3), X(n, 3)], NUMBERS)

few = whole(0, 3)
for name, function in {"eq": np.equal, "lt": np.less, "ge": np.greater_equal}.items():
    case(f"{name}.Tensor", lambda n: [X(n, 7, draw=few), X(7, draw=few)], function, ANY, (DType.int32,))
    case(f"{name}.Scalar", lambda n: [X(n, 7), 0.5], function)
sample(variants("ne le gt", "Tensor"), lambda n: [X(n, 3), X(n, 3), B(n, 3)], ANY)
sample(variants("eq ne lt le gt ge", "Scalar"), lambda n: [X(n, 3), 2, B(n, 3)], ANY)
case("logical_and", lambda n: [X(n, 7), X(n, 7)], np.logical_and, ANY, (DType.bool,))
sample("logical_or logical_xor", lambda n: [X(n, 3), X(n, 3), B(n, 3)], ANY)
case("bitwise_or.Tensor", lambda n: [X(n, 7), X(7)], np.bitwise_or, WHOLE, (DType.bool,))
for name, function in {"bitwise_and": np.bitwise_and, "bitwise_xor": np.bitwise_xor}.items():
    case(f"{name}.Tensor", lambda n: [X(n, 7), X(7)], function, WHOLE, (DType.int32,))
for name, function in {"bitwise_left_shift": np.left_shift, "bitwise_right_shift": np.right_shift}.items():
    case(f"{name}.Tensor", lambda n: [X(n, 7, draw=whole(0, 99)), X(7, draw=whole(0, 5))], function, INTEGERS,
         (DType.int32,))  # fmt: skip
    case(f"{name}.Tensor", lambda n: [X(n, 7), X(n, 7, draw=whole(0, 64))], function, INT64, INT64)
sample("__lshift__.Tensor __rshift__.Tensor", lambda n: [X(n, 3), X(3, draw=whole(0, 7)), X(n, 3)], INTEGERS)
sample(variants("bitwise_and bitwise_or bitwise_xor", "Scalar"), lambda n: [X(n, 3), 2, X(n, 3)], WHOLE)
sample(variants("bitwise_left_shift bitwise_right_shift",
       "Tensor_Scalar") + " __lshift__.Scalar __rshift__.Scalar", lambda n: [X(n, 3), 2, X(n, 3)],
       INTEGERS)  # fmt: skip

# 64-bit integers of all lengths.
for name, function in {
    "mul.Tensor": np.multiply, "maximum.default": np.maximum, "bitwise_xor.Tensor": np.bitwise_xor,
    "lt.Tensor": np.less, "eq.Tensor": np.equal,
}.items():  # fmt: skip
    case(name, lambda n: [X(n, 1, 5), X(3, 5)], function, INT64, INT64)
for name, function in {
    "remainder.Tensor": np.mod, "fmod.Tensor": np.fmod, "floor_divide": np.floor_divide,
}.items():  # fmt: skip
    case(name, lambda n: [X(n, 5), X(5, draw=lambda random, shape: large(random, shape) | 2)], function,
         INT64, INT64)  # fmt: skip

# -- three operands ----------------------------------------------------------------------------------

case("where.self", lambda n: [B(n, 1), X(n, 7), X(7)], np.where, ANY, (*HALVES, DType.int64))
case("addcmul", lambda n: [X(n, 7), X(n, 7), X(7), 2.0], lambda x, a, b, scale: x + scale * a * b)
sample("addcdiv", lambda n: [X(n, 3), X(n, 3), X(3), 2.0, X(n, 3)])
case("lerp.Tensor", lambda n: [X(n, 7), X(n, 7), X(n, 7)], lambda a, b, weight: a + weight * (b - a))
sample("lerp.Scalar", lambda n: [X(n, 3), X(n, 3), 0.5, X(n, 3)])
case("clamp.Tensor", lambda n: [X(n, 7), X(7), X(7)], np.clip, NUMBERS)
sample("masked_fill.Scalar", lambda n: [X(n, 3), B(n, 1), 2, X(n, 3)], NUMBERS)
sample("masked_fill.Tensor", lambda n: [X(n, 3), B(n, 1), X(), X(n, 3)], NUMBERS)

# -- chains ------------------------------------------------------------------------------------------


def step(name: str, *operands: str) -> ChainStep:
    """A float operator without attributes, as a step of a chain."""
    spec = find(f"aten.{name}")
    assert spec is not None and isinstance(spec.rule, ElementwiseRule)
    found = spec.rule.describe(*[F()] * len(operands), F())
    assert found is not None
    return ChainStep(found.expression, found.scalars, found.integer, operands, "float32")


FEW_STEPS = [
    ChainStep("a + s0 * b", (2.0,), False, ("a", "b"), "float32"),
    step("mul.Tensor", "t0", "c"),
    step("tanh.default", "t1"),
]
ALL_FUNCTIONS = [
    *FEW_STEPS[:2],
    *(
        step(f"{name}.default", f"t{i}")
        for i, name in enumerate([*OF_FLOATS, *OF_POSITIVE, *OTHERS.split()], 1)
    ),
]
CASTS = [
    ChainStep("x + s0", (7,), True, ("b",), "int8"),
    ChainStep("x", (), True, ("t0",), "uint8"),
    ChainStep("x", (), True, ("t1",), "bool"),
    ChainStep("select(c, s0 + b, a != zero)", (-math.inf,), False, ("t2", "a", "c"), "float16"),
    ChainStep("x", (), False, ("t3",), "bfloat16"),
    ChainStep("x", (), False, ("t4",), "int32"),
]
case("pteron.chain", lambda n: [[X(n, 6), X(6), X(n, 1)], FEW_STEPS],
     lambda given, _: np.tanh((given[0] + 2 * given[1]) * given[2]), F32)  # fmt: skip
sample("pteron.chain", lambda n: [[F(n, 3), F(3), F(n, 1)], ALL_FUNCTIONS, F(n, 3)], F32)
sample("pteron.chain", lambda n: [[X(n, 3), I(3), X(n, 1)], CASTS, I(n, 3)])
