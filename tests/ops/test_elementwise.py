"""Broadcasting, conversions and precision of elementwise operators against torch, and programs with them.

`test_catalogue.py` compares each function at changing live sizes, and `test_edges.py` with all types.
"""

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


def integers(n: int) -> torch.Tensor:
    return torch.randint(-9, 10, (n, 5), dtype=torch.int32)


def truths(n: int) -> torch.Tensor:
    return torch.rand(n, 5) < 0.5


def with_alpha(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return lambda a, b, alpha: function(a, b, alpha=alpha)


# Each way to read an operand: see lib/broadcast_four.wgsl.
BROADCAST: list[tuple[str, Callable[..., Any], Callable[[int], list[Any]]]] = [
    ("aten.add.Tensor", with_alpha(torch.add), lambda n: [wide(n), wide(1)[0], 2.5]),
    ("aten.add.Tensor", with_alpha(torch.add), lambda n: [integers(n), integers(1), 3]),
    ("aten.sub.Tensor", with_alpha(torch.sub), lambda n: [wide(n), wide(n)[:, :1], 0.5]),
    ("aten.mul.Tensor", torch.mul, lambda n: [wide(n), wide(n)[:, None]]),
    ("aten.mul.Tensor", torch.mul, lambda n: [integers(n), wide(n)]),
    ("aten.mul.Tensor", torch.mul, lambda n: [torch.randn(n, 3, 8), torch.randn(n, 3, 1)]),
    ("aten.mul.Tensor", torch.mul, lambda n: [torch.randn(n, 3, 8), torch.randn(8)]),
    ("aten.mul.Tensor", torch.mul, lambda n: [torch.randn(n, 3, 8), torch.randn(n, 1, 8)]),
    ("aten.mul.Tensor", torch.mul, lambda n: [torch.randn(n, 3, 7), torch.randn(n, 3, 1)]),
    ("aten.mul.Tensor", torch.mul, lambda n: [torch.randn(n, 3, 7), torch.randn(1)]),
    ("aten.mul.Tensor", torch.mul, lambda n: [torch.randn(4, n, 3), torch.randn(4, 1, 1)]),
    ("aten.logical_or.default", torch.logical_or, lambda n: [truths(n), integers(n)]),
    ("aten.clamp.Tensor", torch.clamp, lambda n: [wide(n), None, unit(1)]),
    ("aten.where.self", torch.where, lambda n: [truths(n), wide(n), wide(1)[0]]),
    ("aten.masked_fill.Tensor", torch.masked_fill, lambda n: [wide(n), truths(n), torch.tensor(2.0)]),
]


@pytest.mark.parametrize("case", range(len(BROADCAST)), ids=lambda i: f"{BROADCAST[i][0]}-{i}")
def test_broadcasting(device: Device, case: int) -> None:
    name, function, make = BROADCAST[case]
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
