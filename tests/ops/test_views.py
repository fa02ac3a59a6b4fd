"""New tensors, sorting, and programs that move elements, against torch at several live shapes."""

# ruff: noqa: E731  a table of lambdas reads best here

from __future__ import annotations

import pytest
import torch

from pteron.engine.devices.opening import Device
from pteron.errors import InputError
from tests.support.programs import check_program
from tests.support.rules import OneNode, Sym, check_rule

TYPES = [torch.float32, torch.float16, torch.int32, torch.int8, torch.bool]


def values(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.randn(*shape) * 4).to(dtype)


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


def test_a_part_of_live_size(device: Device) -> None:
    make = lambda n: [values(2, n + 3, 5), [1, Sym(n), 2], 1]
    check_rule(device, "aten.split_with_sizes_copy.default", make, lambda *args: torch.split(*args))


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
