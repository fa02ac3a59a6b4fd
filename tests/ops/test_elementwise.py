"""Every elementwise operator against torch, at several live shapes of one graph."""

# ruff: noqa: E731  a table of lambdas reads best here

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from pteron.engine.devices.opening import Device
from tests.support.programs import check_program
from tests.support.rules import OneNode, check_rule

INF, NAN = math.inf, math.nan


def wide(n: int) -> torch.Tensor:
    """Floats of both signs, from very small to moderately large."""
    return torch.randn(n, 5) * torch.logspace(-6, 1, 5)


def unit(n: int) -> torch.Tensor:
    return torch.rand(n, 5) * 1.998 - 0.999


def positive(n: int) -> torch.Tensor:
    return torch.rand(n, 5) * torch.logspace(-6, 3, 5) + 1e-7


def integers(n: int) -> torch.Tensor:
    return torch.randint(-9, 10, (n, 5), dtype=torch.int32)


def truths(n: int) -> torch.Tensor:
    return torch.rand(n, 5) < 0.5


UNARY: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[int], torch.Tensor]]] = {
    **{
        name: (getattr(torch, name), wide)
        for name in [
            "abs",
            "neg",
            "sign",
            "square",
            "relu",
            "floor",
            "ceil",
            "round",
            "trunc",
            "frac",
            "exp",
            "exp2",
            "expm1",
            "sin",
            "cos",
            "tan",
            "atan",
            "sinh",
            "cosh",
            "tanh",
            "asinh",
            "erf",
            "sigmoid",
            "isnan",
            "isinf",
            "reciprocal",
        ]
    },
    **{name: (getattr(torch, name), positive) for name in ["sqrt", "rsqrt", "log", "log2", "log10", "log1p"]},
    **{name: (getattr(torch, name), unit) for name in ["asin", "acos", "atanh", "erfc"]},
    "acosh": (torch.acosh, lambda n: positive(n) + 1),
    **{
        name: (getattr(functional, name), wide)
        for name in ["relu6", "silu", "mish", "selu", "hardswish", "hardsigmoid"]
    },
    "logical_not": (torch.logical_not, truths),
    "bitwise_not": (torch.bitwise_not, truths),
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(device: Device, name: str) -> None:
    function, values = UNARY[name]
    check_rule(device, f"aten.{name}.default", lambda n: [values(n)], function)


@pytest.mark.parametrize(
    "name", ["abs", "neg", "sign", "square", "relu", "floor", "round", "trunc", "bitwise_not", "isnan"]
)
def test_integers_stay_integers(device: Device, name: str) -> None:
    function = getattr(torch, name)
    check_rule(device, f"aten.{name}.default", lambda n: [integers(n) * 30_000_001], function)


def with_alpha(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return lambda a, b, alpha: function(a, b, alpha=alpha)


PAIRS: list[tuple[str, Callable[..., Any], Callable[[int], list[Any]]]] = [
    ("aten.add.Tensor", with_alpha(torch.add), lambda n: [wide(n), wide(1)[0], 2.5]),
    ("aten.add.Tensor", with_alpha(torch.add), lambda n: [integers(n), integers(1), 3]),
    ("aten.sub.Tensor", with_alpha(torch.sub), lambda n: [wide(n), wide(n)[:, :1], 0.5]),
    ("aten.rsub.Tensor", with_alpha(torch.rsub), lambda n: [wide(n), wide(n), 2]),
    ("aten.mul.Tensor", torch.mul, lambda n: [wide(n), wide(n)[:, None]]),
    ("aten.mul.Tensor", torch.mul, lambda n: [integers(n), wide(n)]),
    # each way to read an operand: lib/broadcast_four.wgsl
    ("aten.mul.Tensor", torch.mul, lambda n: [torch.randn(n, 3, 8), torch.randn(n, 3, 1)]),
    ("aten.mul.Tensor", torch.mul, lambda n: [torch.randn(n, 3, 8), torch.randn(8)]),
    ("aten.mul.Tensor", torch.mul, lambda n: [torch.randn(n, 3, 8), torch.randn(n, 1, 8)]),
    ("aten.mul.Tensor", torch.mul, lambda n: [torch.randn(n, 3, 7), torch.randn(n, 3, 1)]),
    ("aten.mul.Tensor", torch.mul, lambda n: [torch.randn(n, 3, 7), torch.randn(1)]),
    ("aten.mul.Tensor", torch.mul, lambda n: [torch.randn(4, n, 3), torch.randn(4, 1, 1)]),
    ("aten.div.Tensor", torch.div, lambda n: [wide(n), positive(1)]),
    ("aten.div.Tensor", torch.div, lambda n: [integers(n), integers(n) * 2 + 1]),
    ("aten.minimum.default", torch.minimum, lambda n: [wide(n), wide(n)]),
    ("aten.maximum.default", torch.maximum, lambda n: [integers(n), integers(n)]),
    ("aten.pow.Tensor_Tensor", torch.pow, lambda n: [positive(n), unit(n) * 3]),
    ("aten.pow.Tensor_Tensor", torch.pow, lambda n: [wide(n) + 1, torch.randint(-3, 7, (n, 5)).float()]),
    (
        "aten.pow.Tensor_Tensor",
        torch.pow,
        lambda n: [integers(n), torch.randint(0, 6, (n, 5), dtype=torch.int32)],
    ),
    ("aten.fmod.Tensor", torch.fmod, lambda n: [wide(n), positive(n) + 0.5]),
    ("aten.fmod.Tensor", torch.fmod, lambda n: [integers(n), integers(n) * 2 + 1]),
    ("aten.remainder.Tensor", torch.remainder, lambda n: [wide(n), wide(n).sign() * 0.7]),
    ("aten.remainder.Tensor", torch.remainder, lambda n: [integers(n), integers(n) * 2 + 1]),
    ("aten.atan2.default", torch.atan2, lambda n: [wide(n), wide(n)]),
    ("aten.logical_and.default", torch.logical_and, lambda n: [truths(n), truths(1)]),
    ("aten.logical_or.default", torch.logical_or, lambda n: [truths(n), integers(n)]),
    ("aten.logical_xor.default", torch.logical_xor, lambda n: [truths(n), truths(n)]),
    *[
        (
            f"aten.bitwise_{name}.Tensor",
            getattr(torch, f"bitwise_{name}"),
            lambda n, make=make: [make(n), make(n)],
        )
        for name in ("and", "or", "xor")
        for make in (truths, integers)
    ],
    *[
        (f"aten.bitwise_{name}.Scalar", getattr(torch, f"bitwise_{name}"), lambda n: [integers(n), 6])
        for name in ("and", "xor")
    ],
    *[
        (f"aten.{name}.Tensor", getattr(torch, name), lambda n: [integers(n).float(), integers(1).float()])
        for name in ["eq", "ne", "lt", "le", "gt", "ge"]
    ],
    *[
        (f"aten.{name}.Scalar", getattr(torch, name), lambda n: [integers(n), 2.5])
        for name in ["eq", "ne", "lt", "le", "gt", "ge"]
    ],
    *[(f"aten.{name}.Scalar", getattr(torch, name), lambda n: [integers(n), 2]) for name in ["eq", "lt"]],
    ("aten.mul.Scalar", torch.mul, lambda n: [wide(n), 3]),
    ("aten.mul.Scalar", torch.mul, lambda n: [integers(n), 2.5]),
    ("aten.div.Scalar", torch.div, lambda n: [integers(n), 4]),
    ("aten.add.Scalar", with_alpha(torch.add), lambda n: [integers(n), 1.5, 2]),
    ("aten.sub.Scalar", with_alpha(torch.sub), lambda n: [integers(n), 7, 1]),
    ("aten.rsub.Scalar", with_alpha(torch.rsub), lambda n: [wide(n), 1, 2]),
    ("aten.fmod.Scalar", torch.fmod, lambda n: [wide(n), 0.75]),
    ("aten.remainder.Scalar", torch.remainder, lambda n: [integers(n), -4]),
    ("aten.pow.Scalar", torch.pow, lambda n: [2.5, wide(n)]),
    *[
        ("aten.pow.Tensor_Scalar", torch.pow, lambda n, e=e: [positive(n), e])
        for e in (2, 3, 0.5, -0.5, -2, 1.7, 0)
    ],
    ("aten.pow.Tensor_Scalar", torch.pow, lambda n: [wide(n), 3]),
    (
        "aten.div.Tensor_mode",
        lambda a, b, mode: torch.div(a, b, rounding_mode=mode),
        lambda n: [wide(n), unit(n) + 1.5, "floor"],
    ),
    (
        "aten.div.Tensor_mode",
        lambda a, b, mode: torch.div(a, b, rounding_mode=mode),
        lambda n: [integers(n), integers(n) * 2 + 1, "floor"],
    ),
    (
        "aten.div.Tensor_mode",
        lambda a, b, mode: torch.div(a, b, rounding_mode=mode),
        lambda n: [integers(n), integers(n) * 2 + 1, "trunc"],
    ),
    (
        "aten.div.Scalar_mode",
        lambda a, b, mode: torch.div(a, b, rounding_mode=mode),
        lambda n: [integers(n), -4, "floor"],
    ),
    ("aten.clamp.default", torch.clamp, lambda n: [wide(n), -0.5, None]),
    ("aten.clamp.default", torch.clamp, lambda n: [integers(n), None, 3]),
    ("aten.clamp.default", torch.clamp, lambda n: [wide(n), 1.0, -1.0]),
    ("aten.clamp.Tensor", torch.clamp, lambda n: [wide(n), unit(n) - 1, unit(1) + 1]),
    ("aten.clamp.Tensor", torch.clamp, lambda n: [wide(n), None, unit(1)]),
    ("aten.hardtanh.default", functional.hardtanh, lambda n: [wide(n), -0.5, 2.0]),
    ("aten.gelu.default", lambda x, form: functional.gelu(x, approximate=form), lambda n: [wide(n), "none"]),
    ("aten.gelu.default", lambda x, form: functional.gelu(x, approximate=form), lambda n: [wide(n), "tanh"]),
    ("aten.leaky_relu.default", functional.leaky_relu, lambda n: [wide(n), 0.1]),
    ("aten.hardshrink.default", functional.hardshrink, lambda n: [wide(n), 0.5]),
    ("aten.softshrink.default", functional.softshrink, lambda n: [wide(n), 0.5]),
    ("aten.celu.default", functional.celu, lambda n: [wide(n), 1.5]),
    ("aten.softplus.default", functional.softplus, lambda n: [wide(n), 2.0, 5.0]),
    ("aten.threshold.default", functional.threshold, lambda n: [wide(n), 0.1, -7.0]),
    ("aten.elu.default", torch.ops.aten.elu, lambda n: [wide(n), 1.5, 1.1, 0.9]),
    ("aten.logit.default", torch.logit, lambda n: [unit(n) / 2 + 0.5, 0.01]),
    ("aten.logit.default", torch.logit, lambda n: [unit(n) / 2 + 0.5, None]),
    ("aten.where.self", torch.where, lambda n: [truths(n), wide(n), wide(1)[0]]),
    ("aten.where.self", torch.where, lambda n: [truths(n), integers(n) * 30_000_001, integers(n)]),
    ("aten.masked_fill.Scalar", torch.masked_fill, lambda n: [wide(n), truths(1), -INF]),
    ("aten.masked_fill.Scalar", torch.masked_fill, lambda n: [integers(n), truths(n), 7]),
    ("aten.masked_fill.Tensor", torch.masked_fill, lambda n: [wide(n), truths(n), torch.tensor(2.0)]),
    (
        "aten.addcmul.default",
        lambda a, b, c, v: torch.addcmul(a, b, c, value=v),
        lambda n: [wide(n), wide(n), wide(1), 0.5],
    ),
    (
        "aten.addcdiv.default",
        lambda a, b, c, v: torch.addcdiv(a, b, c, value=v),
        lambda n: [wide(n), wide(n), positive(1) + 1, 0.5],
    ),
    ("aten.lerp.Scalar", torch.lerp, lambda n: [wide(n), wide(n), 0.3]),
    ("aten.lerp.Tensor", torch.lerp, lambda n: [wide(n), wide(n), unit(n)]),
]


@pytest.mark.parametrize("case", range(len(PAIRS)), ids=lambda i: f"{PAIRS[i][0].removeprefix('aten.')}-{i}")
def test_operands(device: Device, case: int) -> None:
    name, function, make = PAIRS[case]
    check_rule(device, name, make, function)


def to(dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: x.to(dtype)


@pytest.mark.parametrize(
    "target", [torch.float32, torch.float16, torch.int32, torch.int8, torch.bool], ids=str
)
@pytest.mark.parametrize(
    "source", [torch.float32, torch.float16, torch.int32, torch.int8, torch.uint8, torch.bool], ids=str
)
def test_conversions(device: Device, source: torch.dtype, target: torch.dtype) -> None:
    make: Callable[[int], list[Any]] = lambda n: [(torch.randn(n, 5) * 20).abs().to(source)]
    check_rule(device, "pteron.cast", make, to(target))


def test_small_arguments_keep_their_relative_precision(device: Device) -> None:
    for name in ["log1p", "expm1", "tanh", "sinh", "asinh", "atanh", "asin", "atan", "erf", "sin"]:
        small = lambda n: [torch.logspace(-30, -0.3, 40)[:n]]
        check_rule(device, f"aten.{name}.default", small, getattr(torch, name), (40, 9), rtol=1e-6, atol=0)


def test_log_is_precise_near_one(device: Device) -> None:
    near = lambda n: [torch.linspace(0.5, 2, 301)[:n]]
    check_rule(device, "aten.log.default", near, torch.log, (301, 9), rtol=1e-6, atol=0)


def test_shapes_that_do_not_broadcast_are_refused(device: Device) -> None:
    node = OneNode(device, "aten.mul.Tensor", [wide(4), wide(4)], [wide(4)], False)
    with pytest.raises(Exception, match="do not broadcast"):
        node([wide(3), wide(2)])
    node.close()


def every_delegated_one(x: torch.Tensor, y: torch.Tensor, row: torch.Tensor) -> list[torch.Tensor]:
    a = x.abs() + 0.1
    return [
        *(
            f(x)
            for f in (torch.abs, torch.exp, torch.neg, torch.tanh, torch.round, torch.sigmoid, torch.relu)
        ),
        *(f(x) for f in (torch.sin, torch.cos, functional.hardswish, functional.gelu, functional.hardshrink)),
        *(f(a) for f in (torch.sqrt, torch.rsqrt, torch.log10)),
        *(f(x, row) for f in (torch.add, torch.sub, torch.mul, torch.minimum, torch.eq, torch.lt, torch.ge)),
        functional.leaky_relu(x, 0.2),
        functional.gelu(x, approximate="tanh"),
        torch.clamp(x, -0.5, 0.5),
        functional.hardtanh(x),
        x**2,
        torch.pow(a, y),
        torch.div(x, a),
        torch.div(x, a, rounding_mode="floor"),
        torch.where(x > y, x, row),
        (x > 0.1) & (y < 0.5) | ~(x == y),
        torch.logical_not(x > 0),
        (x * 5).to(torch.int32) + 3,
        (x > 0).float(),
    ]


def test_an_exported_program_with_all_operators(device: Device) -> None:
    make = lambda n: (torch.randn(n, 5), torch.randn(n, 5), torch.randn(5))
    check_program(device, every_delegated_one, make, [{0: "n"}, {0: "n"}, {}])


def every_one_outside(x: torch.Tensor) -> list[torch.Tensor]:
    a = x.abs() + 1.1
    return [
        *(
            f(x)
            for f in (torch.expm1, torch.tan, torch.atan, torch.asinh, torch.sign, torch.trunc, torch.isnan)
        ),
        *(f(a) for f in (torch.log, torch.log2, torch.log1p, torch.acosh, torch.reciprocal)),
        *(f(x / a) for f in (torch.asin, torch.acos, torch.atanh)),
        *(
            f(x)
            for f in (functional.elu, functional.silu, functional.mish, functional.softplus, functional.glu)
        ),
        torch.fmod(x, a),
        torch.remainder(x, 0.7),
        torch.atan2(x, a),
        torch.maximum(x, a),
        torch.masked_fill(x, x > 0, -INF),
        torch.logical_xor(x > 0, a > 2),
        (x * 9).int() ^ 5,
        torch.addcmul(x, a, x, value=0.5),
        torch.lerp(x, a, 0.25),
    ]


def test_a_program_without_a_delegate(device: Device) -> None:
    check_program(device, every_one_outside, lambda n: (torch.randn(n, 6),), [{0: "n"}], partitioner=False)
