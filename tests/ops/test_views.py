"""Operators that move elements against torch, at several live shapes of one graph and for every dtype."""

# ruff: noqa: E731  a table of lambdas reads best here

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pteron.engine.devices.opening import Device
from pteron.errors import InputError
from tests.support.programs import check_program
from tests.support.rules import OneNode, Sym, check_rule

TYPES = [torch.float32, torch.float16, torch.int32, torch.int8, torch.bool]
aten = torch.ops.aten


def values(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.randn(*shape) * 4).to(dtype)


T = torch.dtype
CASES: dict[str, tuple[str, Callable[..., Any], Callable[[int, T], list[Any]]]] = {
    "permute": ("permute_copy.default", torch.permute, lambda n, t: [values(n, 3, 5, dtype=t), [2, 0, 1]]),
    "permute quads": (
        "permute_copy.default",
        torch.permute,
        lambda n, t: [values(2, n, 3, 16, dtype=t), [0, 2, 1, 3]],
    ),
    "permute short quads": (
        "permute_copy.default",
        torch.permute,
        lambda n, t: [values(n, 3, 4, dtype=t), [1, 0, 2]],
    ),
    "permute blocks": (
        "permute_copy.default",
        torch.permute,
        lambda n, t: [values(3, n, 4, 8, dtype=t), [0, 3, 1, 2]],
    ),
    "transpose blocks": (
        "transpose_copy.int",
        torch.transpose,
        lambda n, t: [values(3, n, 12, dtype=t), 1, 2],
    ),
    "slice quads": ("slice_copy.Tensor", aten.slice, lambda n, t: [values(3, n, 8, dtype=t), 1, 1, None, 1]),
    "select quads": ("select_copy.int", torch.select, lambda n, t: [values(n, 3, 8, dtype=t), 1, 1]),
    "transpose": ("transpose_copy.int", torch.transpose, lambda n, t: [values(3, n, 5, dtype=t), 1, -1]),
    "t": ("t_copy.default", torch.t, lambda n, t: [values(n, 5, dtype=t)]),
    "slice": ("slice_copy.Tensor", aten.slice, lambda n, t: [values(3, n, 5, dtype=t), 1, 1, None, 2]),
    "slice from the end": (
        "slice_copy.Tensor",
        aten.slice,
        lambda n, t: [values(n, 5, dtype=t), 0, -3, -1, 1],
    ),
    "slice live": (
        "slice_copy.Tensor",
        aten.slice,
        lambda n, t: [values(9, 5, dtype=t), 0, Sym(n // 2), Sym(n), 1],
    ),
    "select": ("select_copy.int", torch.select, lambda n, t: [values(n, 3, 5, dtype=t), 0, -1]),
    "select live": ("select_copy.int", torch.select, lambda n, t: [values(9, 5, dtype=t), 0, Sym(n)]),
    "expand": (
        "expand_copy.default",
        lambda x, size, implicit: x.expand(size).clone(),
        lambda n, t: [values(3, 1, 5, dtype=t), [2, -1, Sym(n), 5], False],
    ),
    "repeat": ("repeat.default", lambda x, r: x.repeat(r), lambda n, t: [values(n, 3, dtype=t), [2, 3, 2]]),
    "repeat live": (
        "repeat.default",
        lambda x, r: x.repeat(r),
        lambda n, t: [values(3, dtype=t), [Sym(n), 2]],
    ),
    "flip": ("flip.default", torch.flip, lambda n, t: [values(n, 3, 5, dtype=t), [0, -1]]),
    "unfold": (
        "unfold_copy.default",
        lambda x, d, size, step: x.unfold(d, size, step).clone(),
        lambda n, t: [values(3, n + 2, 5, dtype=t), 1, 2, 2],
    ),
    "split": (
        "split_with_sizes_copy.default",
        lambda x, sizes, d: tuple(torch.split(x, sizes, d)),
        lambda n, t: [values(2, n + 3, 5, dtype=t), [1, Sym(n), 2], 1],
    ),
    "unbind": (
        "unbind_copy.int",
        lambda x, d: tuple(torch.unbind(x, d)),
        lambda n, t: [values(n, 3, 5, dtype=t), 1],
    ),
    "cat": (
        "cat.default",
        torch.cat,
        lambda n, t: [[values(n, 3, dtype=t), values(2, 3, dtype=t), values(n, 3, dtype=t)], 0],
    ),
    "cat inside": (
        "cat.default",
        torch.cat,
        lambda n, t: [[values(3, n, 3, dtype=t), values(3, 1, 3, dtype=t)], 1],
    ),
    "cat of whole quads": (
        "cat.default",
        torch.cat,
        lambda n, t: [[values(3, n, 8, dtype=t), values(3, 1, 8, dtype=t), values(3, n, 8, dtype=t)], 1],
    ),
    "cat of whole quads at times": (
        "cat.default",
        torch.cat,
        lambda n, t: [[values(2, 4, n, dtype=t), values(2, 3, n, dtype=t)], 1],
    ),
    "cat of the last": (
        "cat.default",
        torch.cat,
        lambda n, t: [[values(n, 3, dtype=t), values(n, 2, dtype=t), values(n, 1, dtype=t)], -1],
    ),
    "stack of whole quads": (
        "stack.default",
        torch.stack,
        lambda n, t: [[values(n, 4, dtype=t), values(n, 4, dtype=t)], 1],
    ),
    "stack": (
        "stack.default",
        torch.stack,
        lambda n, t: [[values(n, 3, dtype=t), values(n, 3, dtype=t), values(n, 3, dtype=t)], 1],
    ),
    "slice_scatter": (
        "slice_scatter.default",
        aten.slice_scatter,
        lambda n, t: [values(3, n + 2, 3, dtype=t), values(3, (n + 1) // 2, 3, dtype=t), 1, 1, Sym(n + 1), 2],
    ),
    "slice_scatter live": (
        "slice_scatter.default",
        aten.slice_scatter,
        lambda n, t: [values(16, 3, dtype=t), values(2, 3, dtype=t), 0, Sym(n), Sym(n + 2), 1],
    ),
    "select_scatter": (
        "select_scatter.default",
        aten.select_scatter,
        lambda n, t: [values(3, n, 3, dtype=t), values(3, 3, dtype=t), 1, -1],
    ),
    "tril": ("tril.default", torch.tril, lambda n, t: [values(2, n, 5, dtype=t), 1]),
    "triu": ("triu.default", torch.triu, lambda n, t: [values(2, 5, n, dtype=t), -1]),
    "copy": (
        "copy.default",
        lambda x, source, blocking: aten.copy(x, source),
        lambda n, t: [values(n, 3), values(3, dtype=t), False],
    ),
}


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_views_and_copies(device: Device, case: str, dtype: torch.dtype) -> None:
    name, function, make = CASES[case]
    check_rule(device, f"aten.{name}", lambda n: make(n, dtype), function, (7, 3, 1, 7, 4))


FULL = lambda kind: lambda size, value, *rest: torch.full(size, value, dtype=kind)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_creation_of_tensors(device: Device, dtype: torch.dtype) -> None:
    none = [None] * 4
    check_rule(device, "aten.full.default", lambda n: [[Sym(n), 3], 1, *none], FULL(dtype))
    zeros = lambda size, *rest: torch.zeros(size, dtype=dtype)
    check_rule(device, "aten.zeros.default", lambda n: [[2, Sym(n)], *none], zeros)
    like = lambda x, value: torch.full_like(x, value)
    check_rule(device, "aten.fill.Scalar", lambda n: [values(n, 3, dtype=dtype), 1], like)
    if dtype is not torch.bool:
        count = lambda start, end, step, *rest: torch.arange(start, end, step, dtype=dtype)
        check_rule(device, "aten.arange.start_step", lambda n: [1, Sym(n + 1), 1, *none], count)
        check_rule(device, "aten.arange.start_step", lambda n: [Sym(n), 0, -2, *none], count)


def test_full_with_infinity(device: Device) -> None:
    check_rule(
        device, "aten.full.default", lambda n: [[Sym(n)], -torch.inf, *[None] * 4], FULL(torch.float32)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.int8], ids=str)
def test_sorting(device: Device, dtype: torch.dtype) -> None:
    few = lambda *shape: torch.randint(-3, 4, shape).to(dtype)  # many are equal: the earlier comes first
    for dim, descending in ((0, False), (1, True), (-1, False)):
        stable = lambda x, s, d, down: tuple(torch.sort(x, dim=d, descending=down, stable=True))
        make = lambda n, d=dim, down=descending: [few(n, 3, 5), True, d, down]
        check_rule(device, "aten.sort.stable", make, stable)
    spread = lambda n: torch.randperm(7 * n).reshape(7, n).to(dtype)
    for largest in (True, False):
        top = lambda x, k, d, big, *rest: tuple(torch.topk(x, k, d, big))
        check_rule(device, "aten.topk.default", lambda n, big=largest: [spread(n), 3, 0, big, True], top)


def test_nan_sorts_as_the_largest(device: Device) -> None:
    x = torch.tensor([[1.0, torch.nan, -torch.inf, 3.0, torch.nan, torch.inf]])
    for descending in (True, False):
        stable = lambda x, s, d, down: tuple(torch.sort(x, dim=d, descending=down, stable=True))
        make = lambda n, down=descending: [x[:, :n], True, 1, down]
        check_rule(device, "aten.sort.stable", make, stable, (6, 4), nan=True)


def test_split_must_cover_the_dimension(device: Device) -> None:
    args = [values(5, 3), [2, 3], 0]
    node = OneNode(device, "aten.split_with_sizes_copy.default", args, [values(2, 3), values(3, 3)], True)
    with pytest.raises(InputError, match="do not split dimension 0 of live size 4"):
        node([values(4, 3), [2, 3], 0])
    node.close()


def every_one(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    return [
        x.permute(2, 0, 1),
        x[:, 1:-1],
        x[:, ::2],
        x[:, -1],
        x.flip(1),
        x.repeat(2, 1, 1),
        x.unsqueeze(1).expand(3, 2, -1, 5),
        torch.cat([x, y, x], 1),
        torch.cat([x > 0, y > 0], 2),
        torch.stack([x, y], 1),
        *torch.split(x, [2, 3], 2),
        x.reshape(3, -1),
        x.squeeze(),
        torch.tril(x.transpose(0, 1)),
        *torch.unbind(x, 0),
        torch.zeros_like(x, dtype=torch.bool),
        torch.full_like(x, 2, dtype=torch.int32),
        torch.arange(x.shape[1]),
        torch.full((x.shape[1], 2), -torch.inf),
        torch.slice_scatter(x, y[:, :1], 1, 1, 2),
        torch.select_scatter(x, y[0], 0, -1),
    ]


@pytest.mark.parametrize("partitioner", [True, False], ids=["delegated", "outside"])
def test_an_exported_program_with_all_operators(device: Device, partitioner: bool) -> None:
    make = lambda n: (torch.randn(3, n, 5), torch.randn(3, n, 5))
    check_program(device, every_one, make, [{1: "n"}, {1: "n"}], (9, 4, 6, 9, 5), partitioner=partitioner)
