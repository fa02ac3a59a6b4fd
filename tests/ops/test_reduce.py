"""Reductions over any dimensions against torch, at several live shapes of one graph."""

# ruff: noqa: E731  a table of lambdas reads best here

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pteron.engine.devices.opening import Device
from tests.support.programs import check_program
from tests.support.rules import check_rule

Make = Callable[[int], list[Any]]


def floats(n: int) -> torch.Tensor:
    return torch.randn(n, 3, 5, 4) + 2


def integers(n: int) -> torch.Tensor:
    return torch.randint(-9, 10, (n, 3, 5, 4), dtype=torch.int32)


def truths(n: int) -> torch.Tensor:
    return torch.rand(n, 3, 5, 4) < 0.2


DIMS: list[Any] = [[0], [-1], [1], [1, 2], [0, 2], [1, 3], [0, 3], [0, 1, 2, 3], [0, 2, 3]]


def over(function: Callable[..., Any], **fixed: Any) -> Callable[..., Any]:
    return lambda x, dim, keepdim, *rest: function(x, dim=dim, keepdim=keepdim, **fixed)


FLOAT_REDUCTIONS = {
    "sum.dim_IntList": (over(torch.sum), [None]),
    "mean.dim": (over(torch.mean), [None]),
    "amax.default": (over(torch.amax), []),
    "amin.default": (over(torch.amin), []),
    "logsumexp.default": (over(torch.logsumexp), []),
}


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("name", FLOAT_REDUCTIONS)
def test_any_dimensions(device: Device, name: str, keepdim: bool) -> None:
    function, rest = FLOAT_REDUCTIONS[name]
    for dims in DIMS:
        check_rule(
            device,
            f"aten.{name}",
            lambda n, d=dims: [floats(n), d, keepdim, *rest],
            function,
            (5, 2, 5, 1, 3),
        )


@pytest.mark.parametrize("dims", [None, [], [0], [1, 3]], ids=str)
def test_no_dimensions_are_all_of_them(device: Device, dims: Any) -> None:
    total = lambda x, dim, keepdim, dtype: torch.sum(x, dim=dim, keepdim=keepdim)
    check_rule(device, "aten.sum.dim_IntList", lambda n: [floats(n), dims, False, None], total)
    check_rule(device, "aten.sum.dim_IntList", lambda n: [floats(n), dims, True, None], total)


@pytest.mark.parametrize("dims", [None, [1], [0, 2]], ids=str)
def test_variance(device: Device, dims: Any) -> None:
    far = lambda n: torch.randn(n, 3, 5) + 100  # a variance by squares would be wrong here
    for correction in (None, 0, 1, 2.0):
        for name, function in (("var", torch.var), ("std", torch.std), ("var_mean", torch.var_mean)):
            wanted = lambda x, d, c, k, f=function: f(x, d, correction=1 if c is None else c, keepdim=k)
            make: Make = lambda n, c=correction: [far(n), dims, c, True]
            check_rule(device, f"aten.{name}.correction", make, wanted, (6, 3, 4), rtol=1e-4)


def test_integers_are_summed_as_integers(device: Device) -> None:
    large = lambda n: [integers(n) * 1_000_003, [0, 2], False, None]
    check_rule(device, "aten.sum.dim_IntList", large, over(torch.sum))
    check_rule(device, "aten.sum.dim_IntList", lambda n: [truths(n), [1], True, None], over(torch.sum))
    as_float = lambda x, d, k, t: torch.sum(x, d, k, dtype=torch.float32)
    check_rule(device, "aten.sum.dim_IntList", lambda n: [integers(n), [1], False, 6], as_float)
    check_rule(
        device, "aten.amax.default", lambda n: [integers(n) * 200_000_001, [0, 3], False], over(torch.amax)
    )
    check_rule(
        device,
        "aten.prod.dim_int",
        lambda n: [integers(n), 2, False, None],
        lambda x, d, k, t: torch.prod(x, d, k),
    )


def test_products(device: Device) -> None:
    check_rule(
        device, "aten.prod.default", lambda n: [torch.rand(n, 3) + 0.5, None], lambda x, t: torch.prod(x)
    )
    check_rule(
        device,
        "aten.prod.dim_int",
        lambda n: [floats(n), 0, True, None],
        lambda x, d, k, t: torch.prod(x, d, k),
    )


@pytest.mark.parametrize("name", ["any", "all"])
def test_any_and_all(device: Device, name: str) -> None:
    function = getattr(torch, name)
    for make in (truths, integers, lambda n: torch.randint(0, 2, (n, 3, 5, 4)).float()):
        check_rule(device, f"aten.{name}.default", lambda n, m=make: [m(n)], function)
        check_rule(device, f"aten.{name}.dim", lambda n, m=make: [m(n), 2, False], function)
        check_rule(device, f"aten.{name}.dims", lambda n, m=make: [m(n), [0, 3], True], function)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_argmax_and_argmin(device: Device, name: str) -> None:
    function = getattr(torch, name)
    few = lambda n: torch.randint(0, 3, (n, 3, 5, 4)).float()  # many are equal: the first one counts
    for dim in (None, 0, 1, -1):
        for keepdim in (False, True):
            if dim is None and keepdim:
                continue
            check_rule(device, f"aten.{name}.default", lambda n, d=dim, k=keepdim: [few(n), d, k], function)


@pytest.mark.parametrize("name", ["max", "min"])
def test_max_and_min_with_indices(device: Device, name: str) -> None:
    function = lambda x, d, k: tuple(getattr(torch, name)(x, d, k))
    check_rule(device, f"aten.{name}.dim", lambda n: [floats(n), 0, False], function)
    check_rule(device, f"aten.{name}.dim", lambda n: [integers(n)[..., 0], 1, True], function)
    check_rule(device, f"aten.{name}.default", lambda n: [floats(n)], getattr(torch, name))


def test_nan_is_the_maximum_and_the_minimum(device: Device) -> None:
    x = torch.randn(4, 6)
    x[1, 2] = x[1, 4] = x[3, 0] = math.nan
    x[2, 5] = -math.inf
    for name in ("amax", "amin"):
        function = getattr(torch, name)
        check_rule(device, f"aten.{name}.default", lambda n: [x[:n], [1], False], function, (4, 2), nan=True)
    for name in ("argmax", "argmin"):
        check_rule(device, f"aten.{name}.default", lambda n: [x[:n], 1, False], getattr(torch, name), (4, 2))
    y = torch.tensor([[-math.inf, -math.inf], [0.0, -math.inf], [math.inf, 1.0]])
    check_rule(device, "aten.logsumexp.default", lambda n: [y[:n], [1], False], torch.logsumexp, (3, 1, 2))


def test_long_reductions_go_in_parts(device: Device) -> None:
    """Live sizes below and above the threshold between two routes."""
    lives = (5000, 100, 255, 256, 4096, 1)
    check_rule(
        device,
        "aten.sum.dim_IntList",
        lambda n: [torch.randn(3, n), [1], False, None],
        over(torch.sum),
        lives,
        atol=1e-4,
    )
    check_rule(
        device, "aten.mean.dim", lambda n: [torch.randn(n, 3), None, False, None], over(torch.mean), lives
    )
    check_rule(
        device,
        "aten.var.correction",
        lambda n: [torch.randn(3, n + 1), [1], 1, False],
        lambda x, d, c, k: torch.var(x, d, correction=c),
        lives,
    )
    few = lambda n: [torch.randint(0, 50, (2, n)).float(), None, False]
    check_rule(device, "aten.argmax.default", few, torch.argmax, lives)
    check_rule(
        device,
        "aten.max.dim",
        lambda n: [torch.randint(0, 50, (n, 2)), 0, False],
        lambda x, d, k: tuple(torch.max(x, d, k)),
        lives,
    )


def test_reductions_of_no_elements(device: Device) -> None:
    check_rule(
        device,
        "aten.sum.dim_IntList",
        lambda n: [torch.randn(3, n), [1], False, None],
        over(torch.sum),
        (4, 0, 2),
    )
    mean = lambda n: [torch.randn(3, n), [1], False, None]
    check_rule(device, "aten.mean.dim", mean, over(torch.mean), (4, 0), nan=True)  # the mean of nothing
    check_rule(device, "aten.all.default", lambda n: [torch.rand(n, 3) < 0.5], torch.all, (4, 0, 2))
    check_rule(
        device, "aten.amax.default", lambda n: [torch.randn(n, 3), [1], False], over(torch.amax), (4, 0, 2)
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.int8, torch.uint8, torch.bool], ids=str)
def test_narrow_types(device: Device, dtype: torch.dtype) -> None:
    x = lambda n: (torch.randn(n, 3, 5) * 3).abs().to(dtype)
    check_rule(device, "aten.amax.default", lambda n: [x(n), [1], False], over(torch.amax))
    check_rule(device, "aten.amin.default", lambda n: [x(n), [0, 2], False], over(torch.amin))
    if dtype is not torch.bool:
        check_rule(device, "aten.argmax.default", lambda n: [x(n), 1, False], torch.argmax)
    check_rule(device, "aten.sum.dim_IntList", lambda n: [x(n), [2], False, None], over(torch.sum))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_running_sums(device: Device, dim: int) -> None:
    running = lambda x, d, t: torch.cumsum(x, d)
    check_rule(device, "aten.cumsum.default", lambda n: [floats(n), dim, None], running)
    check_rule(device, "aten.cumsum.default", lambda n: [truths(n), dim, None], running)
    check_rule(device, "aten.cumsum.default", lambda n: [torch.rand(n, 3, 5).half(), dim, None], running)
    check_rule(
        device, "aten.cumprod.default", lambda n: [floats(n), dim, None], lambda x, d, t: torch.cumprod(x, d)
    )


def delegated(x: torch.Tensor) -> list[torch.Tensor]:
    return [
        x.sum(1),
        x.sum((0, 2), keepdim=True),
        x.mean((1, 2)),
        x.mean(0, keepdim=True),
        x.amax(-1),
        x.amin(0),
        x.amax((0, 2)),
        x.argmax(-1),
        x.argmin(1, keepdim=True),
        x.softmax(0),
        x.log_softmax(1),
    ]


def test_an_exported_program_with_all_operators(device: Device) -> None:
    check_program(device, delegated, lambda n: (torch.randn(3, n, 5),), [{1: "n"}])


def outside(x: torch.Tensor) -> list[torch.Tensor]:
    return [
        x.sum(),
        x.mean(),
        x.argmax(),
        x.var(1),
        x.std((0, 2), correction=0),
        *x.max(1),
        *x.min(0),
        (x > 1).any(1),
        (x > -1).all(),
        x.prod(1),
        x.cumsum(1),
        torch.logsumexp(x, (1, 2)),
        (x > 0).sum(1),
        *torch.sort(x, dim=1),
        *torch.topk(x, 2, dim=1),
    ]


def test_a_program_without_a_delegate(device: Device) -> None:
    check_program(device, outside, lambda n: (torch.randn(3, n, 5),), [{1: "n"}], partitioner=False)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.uint8])
def test_bucketize(device: Device, dtype: torch.dtype, right: bool) -> None:
    """Elements that equal a boundary, and those outside of all boundaries."""
    boundaries = torch.tensor([1, 3, 3, 4, 9]).to(dtype)

    def make(n: int) -> list[Any]:
        return [torch.randint(0, 12, (n, 5)).to(dtype), boundaries, True, right]

    def places(x: torch.Tensor, edges: torch.Tensor, out_int32: bool, right: bool) -> torch.Tensor:
        return torch.bucketize(x, edges, out_int32=out_int32, right=right)

    check_rule(device, "aten.bucketize.Tensor", make, places)


def test_bucketize_of_special_numbers(device: Device) -> None:
    x = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -0.0])
    boundaries = torch.tensor([-1.0, 0.0, 2.0])
    wanted = torch.bucketize(x, boundaries, out_int32=True)
    make = lambda n: [x[:n], boundaries, True, False]
    check_rule(device, "aten.bucketize.Tensor", make, lambda x, *_: wanted[: len(x)], (5, 1, 3))


# -- on every kind of device ----------------------------------------------------------------------

# Rows, columns, both ends at once, and all there is; long enough for several workgroups, too.
REDUCED = {
    "rows": (lambda n: (n, 70 + n), [1]),
    "columns": (lambda n: (131, n), [0]),
    "two of three": (lambda n: (7, n, 37), [0, 2]),
    "all": (lambda n: (n, 1001), None),
    "long rows": (lambda n: (2, n, 333), [1, 2]),
}
# The operator's other arguments, the elements, and torch's own.
REDUCTIONS: dict[str, tuple[list[Any], Any, Any]] = {
    "sum.dim_IntList": ([False, None], torch.randn, lambda x, d, k, _: torch.sum(x, d, k)),
    "amax.default": ([True], torch.randn, lambda x, d, k: torch.amax(x, d or [*range(x.ndim)], k)),
    "var.correction": ([1, False], lambda shape: torch.randn(shape) + 9, lambda x, d, c, k: torch.var(
        x, d, correction=c, keepdim=k)),
    "any.dims": ([False], lambda shape: torch.rand(shape) < 0.01, torch.any),
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("which", REDUCED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_reductions(routed: Device, name: str, which: str, dtype: torch.dtype) -> None:
    shape, dims = REDUCED[which]
    rest, elements, function = REDUCTIONS[name]

    def make(n: int) -> list[Any]:
        return [elements(shape(n)).to(dtype), dims, *rest]

    tolerance = 1e-3 if dtype == torch.float16 else 1e-4
    check_rule(routed, f"aten.{name}", make, function, (41, 5, 17, 2, 41), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("which", REDUCED)
def test_the_index_of_the_first_of_equal_extremes(routed: Device, which: str) -> None:
    shape, dims = REDUCED[which]
    if dims is not None and len(dims) > 1:
        dims = [1]
    dim = None if dims is None else dims[0]

    def make(n: int) -> list[Any]:
        return [torch.randint(0, 9, shape(n)).float(), dim, False]

    check_rule(routed, "aten.argmax.default", make, torch.argmax, (41, 5, 17, 1, 41))
    if dim is not None:
        check_rule(
            routed, "aten.min.dim", make, lambda x, d, k: (x.amin(d, k), torch.argmin(x, d, k)), (41, 5, 17)
        )
