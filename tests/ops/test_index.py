"""Lookups and stores by index against torch, at several live shapes of one graph."""

# ruff: noqa: E731  a table of lambdas reads best here

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pteron.engine.devices.opening import Device
from pteron.errors import InputError
from tests.support.programs import check_program
from tests.support.rules import OneNode, check_rule

TYPES = [torch.float32, torch.float16, torch.int32, torch.int8, torch.bool]


def values(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.randn(*shape) * 4).to(dtype)


def indices(size: int, *shape: int, low: int = 0) -> torch.Tensor:
    return torch.randint(low, size, shape)


def distinct(size: int, *shape: int) -> torch.Tensor:
    """Indices below `size`, distinct along dimension 0: two stores to one index would be undefined."""
    return torch.stack([torch.randperm(size) for _ in range(int(torch.tensor(shape[1:]).prod()))], 1)[
        : shape[0]
    ].reshape(shape)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_index_select(device: Device, dtype: torch.dtype) -> None:
    for dim in (0, 1, -1):
        make = lambda n, d=dim: [values(6, 5, 7, dtype=dtype), d, indices(5, n)]
        check_rule(device, "aten.index_select.default", make, torch.index_select)
    # The indexed tensor is the one that changes.
    check_rule(
        device, "aten.index_select.default", lambda n: [values(n, 3), 0, indices(n, 4)], torch.index_select
    )


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_gather(device: Device, dtype: torch.dtype) -> None:
    pick = lambda x, dim, index, sparse: torch.gather(x, dim, index)
    for dim, shape in ((0, (5, 2, 3)), (1, (4, 9, 3)), (2, (4, 3, 5))):
        make = lambda n, d=dim, s=shape: [
            values(n, 3, 4, dtype=dtype),
            d,
            indices(min(n, 3), min(n, s[0]), min(3, s[1]), s[2] - 2),
            False,
        ]
        check_rule(device, "aten.gather.default", make, pick)


INDEXED: dict[str, Callable[[int], list[Any]]] = {
    "one": lambda n: [values(n, 4), [indices(n, 5, low=-n)]],
    "one of rank 2": lambda n: [values(6, n), [indices(6, n, 3)]],
    "last": lambda n: [values(n, 4), [None, indices(4, 3, low=-4)]],
    "middle": lambda n: [values(3, n, 4), [None, indices(n, 2, 3)]],
    "two": lambda n: [values(n, 4, 3), [indices(n, 5), indices(4, 5, low=-4)]],
    "two, broadcast": lambda n: [values(5, 4, 3), [indices(5, n, 1), indices(4, 2)]],
    "two apart": lambda n: [values(n, 4, 3), [indices(n, 5), None, indices(3, 5)]],
    "two after a slice": lambda n: [values(n, 4, 3, 2), [None, indices(4, 5), indices(3, 5)]],
    "three": lambda n: [values(n, 4, 3), [indices(n, 2, 3), indices(4, 3), indices(3, 1)]],
}


@pytest.mark.parametrize("name", INDEXED)
def test_index(device: Device, name: str) -> None:
    look_up = lambda x, places: x[tuple(slice(None) if p is None else p for p in places)]
    check_rule(device, "aten.index.Tensor", INDEXED[name], look_up)


def test_index_of_narrow_types(device: Device) -> None:
    look_up = lambda x, places: x[tuple(places)]
    for dtype in TYPES:
        make = lambda n, t=dtype: [values(n, 3, 5, dtype=t), [indices(n, 4), indices(3, 4)]]
        check_rule(device, "aten.index.Tensor", make, look_up)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_scatter(device: Device, dtype: torch.dtype) -> None:
    make = lambda n: [values(8, 5, dtype=dtype), 0, distinct(8, n, 5), values(n, 6, dtype=dtype)]
    for name in ("aten.scatter.src", "et_vk.scatter_src_unique.default"):
        check_rule(device, name, make, torch.scatter)
    make = lambda n: [values(8, n, dtype=dtype), 0, indices(8, 3, n), 1]
    check_rule(device, "aten.scatter.value", make, torch.scatter)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32], ids=str)
def test_scatter_adds_up_equal_indices(device: Device, dtype: torch.dtype) -> None:
    make = lambda n: [values(n, 5, dtype=dtype), 1, indices(2, n, 30), values(n, 30, dtype=dtype)]
    check_rule(device, "aten.scatter_add.default", make, torch.scatter_add, rtol=1e-4, atol=1e-4)
    for reduce in ("sum", "amax", "amin"):
        check_rule(
            device,
            "aten.scatter_reduce.two",
            lambda n, r=reduce: [*make(n), r, True],
            lambda x, d, i, s, r, _: torch.scatter_reduce(x, d, i, s, r),
            rtol=1e-4,
            atol=1e-4,
        )


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_index_put(device: Device, dtype: torch.dtype) -> None:
    store = lambda x, places, v, accumulate: torch.ops.aten.index_put(x, places, v, accumulate)
    make = lambda n: [values(9, 5, dtype=dtype), [distinct(9, n)], values(n, 5, dtype=dtype), False]
    check_rule(device, "aten.index_put.default", make, store)
    one = lambda n: [
        values(9, n, 3, dtype=dtype),
        [None, indices(n, 1, low=-n)],
        values(1, dtype=dtype),
        False,
    ]
    check_rule(device, "aten.index_put.default", one, store)
    two = lambda n: [
        values(9, 4, 3, dtype=dtype),
        [distinct(9, n), indices(4, n)],
        values(n, 3, dtype=dtype),
        False,
    ]
    check_rule(device, "aten.index_put.default", two, store)


def test_index_put_accumulates(device: Device) -> None:
    store = lambda x, places, v, accumulate: torch.ops.aten.index_put(x, places, v, accumulate)
    make = lambda n: [values(3, 4), [indices(3, 5 * n)], values(5 * n, 4), True]
    check_rule(device, "aten.index_put.default", make, store, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_embedding(device: Device, dtype: torch.dtype) -> None:
    look_up = lambda weight, at, *rest: torch.nn.functional.embedding(at, weight)
    for width in (8, 5):
        make = lambda n, w=width: [values(11, w, dtype=dtype), indices(11, 2, n), -1, False, False]
        check_rule(device, "aten.embedding.default", make, look_up, (7, 3, 0, 1, 7))


def test_indices_out_of_range_are_refused(device: Device) -> None:
    args = [values(5, 3), 0, indices(5, 4)]
    node = OneNode(device, "aten.index_select.default", args, [values(4, 3)], False)
    with pytest.raises(InputError, match=r"v1: element \[2\] is 5, but an index into dimension 0 of size 5"):
        node([args[0], 0, torch.tensor([0, 1, 5, 2])])
    node([args[0], 0, torch.tensor([0, 1, 4, 2])])
    node.close()


def every_one(x: torch.Tensor, rows: torch.Tensor, places: torch.Tensor) -> list[torch.Tensor]:
    return [
        torch.index_select(x, 0, rows),
        torch.index_select(x, 1, places[0] % 4),
        torch.gather(x, 1, places % 4),
        x[rows],
        x[rows, places[:, 0] % 4],
        torch.nn.functional.embedding(places, x),
        x.scatter(1, places % 4, 1.5),
        x.scatter_add(0, places, x),
        x.index_put((rows,), x[0]),
    ]


@pytest.mark.parametrize("partitioner", [True, False], ids=["delegated", "outside"])
def test_an_exported_program_with_all_operators(device: Device, partitioner: bool) -> None:
    make = lambda n: (torch.randn(n, 4), torch.arange(n).flip(0), torch.randint(0, n, (n, 4)))
    check_program(device, every_one, make, [{0: "n"}, {0: "n"}, {0: "n"}], partitioner=partitioner)
