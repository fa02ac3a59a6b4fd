"""Matrix products against torch: every live size of every dimension, every dtype."""

# ruff: noqa: E731  a table of lambdas reads best here

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pteron.engine.devices.opening import Device
from pteron.errors import InputError
from tests.support.programs import check_program
from tests.support.rules import Fixed, OneNode, check_rule

# One, few and many, multiples of four and not, so that every kernel takes its turn.
LIVES = (36, 5, 8, 1, 33, 16, 3)


def floats(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


WEIGHT, BIAS = floats(70, 36), floats(70)
PRODUCTS: dict[str, tuple[str, Callable[..., Any], Callable[[int], list[Any]]]] = {
    "rows": ("mm.default", torch.mm, lambda n: [floats(n, 8), floats(8, 12)]),
    "columns": ("mm.default", torch.mm, lambda n: [floats(5, 8), floats(8, n)]),
    "depth": ("mm.default", torch.mm, lambda n: [floats(5, n), floats(n, 12)]),
    "all": ("mm.default", torch.mm, lambda n: [floats(n, n), floats(n, n)]),
    "batch": ("bmm.default", torch.bmm, lambda n: [floats(n, 3, 8), floats(n, 8, 4)]),
    "batched depth": ("bmm.default", torch.bmm, lambda n: [floats(2, 7, n), floats(2, n, 4)]),
    "linear rows": (
        "linear.default",
        torch.nn.functional.linear,
        lambda n: [floats(2, n, 8), floats(12, 8), floats(12)],
    ),
    "linear ragged": (
        "linear.default",
        torch.nn.functional.linear,
        lambda n: [floats(n, 7), floats(5, 7), None],
    ),
    "linear depth": (
        "linear.default",
        torch.nn.functional.linear,
        lambda n: [floats(3, n), floats(8, n), floats(8)],
    ),
    "linear of a file": (
        "linear.default",
        torch.nn.functional.linear,
        lambda n: [floats(n, 36), Fixed(WEIGHT), Fixed(BIAS)],
    ),
    "ragged linear of a file": (
        "linear.default",
        torch.nn.functional.linear,
        lambda n: [floats(n, 35), Fixed(WEIGHT[:, :35]), Fixed(BIAS)],
    ),
    "linear of float16 weights": (
        "linear.default",
        lambda x, weight, bias: torch.nn.functional.linear(x, weight.to(x.dtype), bias),
        lambda n: [floats(n, 36), Fixed(WEIGHT.half()), Fixed(BIAS)],
    ),
    "linear of bfloat16 weights": (
        "linear.default",
        lambda x, weight, bias: torch.nn.functional.linear(x, weight.to(x.dtype), bias),
        lambda n: [floats(n, 36), Fixed(WEIGHT.bfloat16()), Fixed(BIAS)],
    ),
    "matrix of a file": ("mm.default", torch.mm, lambda n: [floats(n, 70), Fixed(WEIGHT)]),
}
ADDED: dict[str, tuple[str, Callable[[int], list[Any]]]] = {
    "a row": ("addmm", lambda n: [floats(8), floats(n, 8), floats(8, 8), 1.0, 1.0]),
    "a matrix": ("addmm", lambda n: [floats(n, 5), floats(n, 8), floats(8, 5), 0.5, 2.0]),
    "a column": ("addmm", lambda n: [floats(n, 1), floats(n, 8), floats(8, 12), 2.0, -1.0]),
    "columns": ("addmm", lambda n: [floats(n), floats(6, 8), floats(8, n), 1.0, 1.0]),
    "nothing": ("addmm", lambda n: [floats(n, 8) * torch.nan, floats(n, 8), floats(8, 8), 0.0, 1.5]),
    "a batch": ("baddbmm", lambda n: [floats(2, n, 8), floats(2, n, 4), floats(2, 4, 8), 0.5, 2.0]),
    "one for all": ("baddbmm", lambda n: [floats(1, 8), floats(n, 3, 4), floats(n, 4, 8), 1.0, 1.0]),
}


@pytest.mark.parametrize("case", PRODUCTS)
def test_products(routed: Device, case: str) -> None:
    name, function, make = PRODUCTS[case]
    check_rule(routed, f"aten.{name}", make, function, LIVES, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", ADDED)
def test_products_and_sums(routed: Device, case: str) -> None:
    name, make = ADDED[case]
    function = lambda c, a, b, beta, alpha: getattr(torch, name)(c, a, b, beta=beta, alpha=alpha)
    check_rule(routed, f"aten.{name}.default", make, function, LIVES, rtol=1e-4, atol=1e-5)


def half(arg: Any) -> Any:
    if isinstance(arg, Fixed):
        return Fixed(arg.tensor.half())
    return arg.half() if isinstance(arg, torch.Tensor) else arg


@pytest.mark.parametrize("case", PRODUCTS)
def test_half_precision(routed: Device, case: str) -> None:
    name, function, make = PRODUCTS[case]
    check_rule(
        routed, f"aten.{name}", lambda n: list(map(half, make(n))), function, LIVES, rtol=5e-3, atol=1e-2
    )


@pytest.mark.parametrize("case", ADDED)
def test_half_precision_with_a_sum(routed: Device, case: str) -> None:
    name, make = ADDED[case]
    function = lambda c, a, b, beta, alpha: getattr(torch, name)(c, a, b, beta=beta, alpha=alpha)
    check_rule(
        routed,
        f"aten.{name}.default",
        lambda n: list(map(half, make(n))),
        function,
        LIVES,
        rtol=5e-3,
        atol=1e-2,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("depth", [36, 21])
def test_outputs_of_many_tiles(routed: Device, depth: int, dtype: torch.dtype) -> None:
    """Enough outputs for the large tiles of GPUs, with smaller outputs in between."""
    weight = floats(1030, depth).to(dtype)
    make = lambda n: [floats(n, depth).to(dtype), Fixed(weight), None]
    check_rule(
        routed,
        "aten.linear.default",
        make,
        torch.nn.functional.linear,
        (515, 20, 515),
        rtol=2e-3,
        atol=1e-2 if dtype is torch.float16 else 1e-4,
    )
    make = lambda n: [floats(2, n, depth).to(dtype), floats(2, depth, 1028).to(dtype)]
    check_rule(
        routed,
        "aten.bmm.default",
        make,
        torch.bmm,
        (260, 20, 260),
        rtol=2e-3,
        atol=1e-2 if dtype is torch.float16 else 1e-4,
    )


@pytest.mark.parametrize("columns", [260, 257])
@pytest.mark.parametrize("with_bias", [True, False])
def test_rows_that_are_left_after_tall_tiles(routed: Device, columns: int, with_bias: bool) -> None:
    weight, bias = Fixed(floats(columns, 128)), Fixed(floats(columns)) if with_bias else None
    check_rule(
        routed,
        "aten.linear.default",
        lambda n: [floats(n, 128), weight, bias],
        torch.nn.functional.linear,
        (77, 33, 72, 40, 73, 1, 48, 41, 32, 77),
        rtol=1e-4,
        atol=1e-4,
    )


def test_integers_are_exact(device: Device) -> None:
    whole = lambda *shape: torch.randint(-4000, 4000, shape, dtype=torch.int32)
    check_rule(
        device, "aten.mm.default", lambda n: [whole(n, 8), whole(8, n)], torch.mm, LIVES, rtol=0, atol=0
    )


def test_a_product_of_depth_0_is_zero(device: Device) -> None:
    make = lambda n: [floats(3, n), floats(n, 8)]
    check_rule(device, "aten.mm.default", make, torch.mm, (4, 0, 2, 0), rtol=1e-4, atol=1e-5)
    check_rule(
        device, "aten.mm.default", lambda n: [floats(n, 4), floats(4, 8)], torch.mm, (4, 0, 3), rtol=1e-4
    )


def test_sizes_that_do_not_match_are_refused(device: Device) -> None:
    node = OneNode(device, "aten.mm.default", [floats(4, 8), floats(8, 4)], [floats(4, 4)], False)
    with pytest.raises(InputError, match=r"inner dimensions differ: \(4, 7\) @ \(8, 4\)"):
        node([floats(4, 7), floats(8, 4)])
    node.close()


class Products(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.aligned = torch.nn.Linear(8, 12)
        self.ragged = torch.nn.Linear(12, 7, bias=False)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [
            self.ragged(self.aligned(x)),
            x @ x.transpose(1, 2),
            x.transpose(1, 2) @ x,
            torch.addmm(y, x[0], self.aligned.weight[:8], beta=0.5, alpha=2.0),
            torch.mm(y.t(), y),
            torch.baddbmm(x, x, x.transpose(1, 2) @ x),
        ]


@pytest.mark.parametrize("partitioner", [True, False], ids=["delegated", "outside"])
def test_an_exported_program_with_all_operators(device: Device, partitioner: bool) -> None:
    make = lambda n: (floats(2, n, 8), floats(n, 8))
    check_program(device, Products(), make, [{1: "n"}, {0: "n"}], partitioner=partitioner)
