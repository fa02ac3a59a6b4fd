"""Pooling against torch, at several live shapes of one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional

from pteron.engine.devices.opening import Device
from pteron.errors import UnsupportedError
from tests.support.programs import check_export
from tests.support.rules import check_rule

aten = torch.ops.aten
HALF, INT = torch.float16, torch.int32


def image(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape).mul(20).to(dtype) if dtype is INT else torch.randn(shape).to(dtype)


AVERAGES: dict[str, Callable[[int], list[Any]]] = {
    "plain": lambda n: [image(2, 3, n + 2, 5), [3, 2], [], [0, 0], False, True, None],
    "strided": lambda n: [image(n, 3, 7, n + 3), [3, 3], [2, 1], [1, 0], False, True, None],
    "padding not counted": lambda n: [image(1, 2, n + 1, n), [3, 3], [2, 2], [1, 1], False, False, None],
    "ceil": lambda n: [image(1, 3, n + 3, 2 * n + 2), [3, 2], [2, 3], [1, 0], True, True, None],
    "ceil, padding not counted": lambda n: [
        image(2, n + 4, n + 2),
        [4, 2],
        [3, 3],
        [2, 1],
        True,
        False,
        None,
    ],
    "divisor": lambda n: [image(1, 3, n + 1, n + 2), [2, 3], [1, 2], [1, 1], False, True, 7],
    "negative divisor": lambda n: [image(1, 3, n + 1, 4), [2, 2], [2, 2], [0, 0], False, True, -3],
    "one number for both": lambda n: [image(1, 3, n + 1, n + 1), [2], [2], [1], False, True, None],
    "float16": lambda n: [image(1, 3, n + 1, n + 2, dtype=HALF), [2, 3], [1, 2], [1, 1], False, True, None],
}

MAXIMA: dict[str, Callable[[int], list[Any]]] = {
    "plain": lambda n: [image(2, 3, n + 2, 5), [3, 2], [], [0, 0], [1, 1], False],
    "padded": lambda n: [image(n, 3, n + 1, n), [3, 3], [2, 1], [1, 1], [1, 1], False],
    "dilated": lambda n: [image(1, 2, n + 4, n + 3), [3, 2], [1, 2], [1, 0], [2, 3], False],
    "ceil": lambda n: [image(3, n + 2, 2 * n + 1), [3, 2], [2, 3], [0, 1], [1, 1], True],
    "integers": lambda n: [image(1, 3, n + 1, n + 2, dtype=INT), [2, 3], [1, 2], [1, 1], [1, 1], False],
    "float16": lambda n: [image(1, 3, n + 1, n + 2, dtype=HALF), [2, 3], [1, 2], [1, 1], [1, 1], False],
}


@pytest.mark.parametrize("case", AVERAGES)
def test_avg_pool2d(device: Device, case: str) -> None:
    check_rule(device, "aten.avg_pool2d.default", AVERAGES[case], aten.avg_pool2d.default)


@pytest.mark.parametrize("case", MAXIMA)
def test_max_pool2d_with_indices(device: Device, case: str) -> None:
    check_rule(
        device, "aten.max_pool2d_with_indices.default", MAXIMA[case], aten.max_pool2d_with_indices.default
    )


@pytest.mark.parametrize("case", MAXIMA)
def test_max_pool2d(device: Device, case: str) -> None:
    def values(*args: Any) -> Tensor:
        result: Tensor = aten.max_pool2d_with_indices.default(*args)[0]
        return result

    check_rule(device, "aten.max_pool2d.default", MAXIMA[case], values)


def test_the_index_of_equal_elements_and_of_nan(device: Device) -> None:
    def make(n: int) -> list[Any]:
        x = torch.randint(0, 2, (1, 1, n + 2, n + 2)).float()
        x[..., 1, 1] = torch.nan
        x[..., 0, 0] = -torch.inf
        return [x, [2, 2], [1, 1], [0, 0], [1, 1], False]

    name = "aten.max_pool2d_with_indices.default"
    check_rule(device, name, make, aten.max_pool2d_with_indices.default, nan=True)


def test_other_ranks(device: Device) -> None:
    check_rule(
        device,
        "aten.avg_pool1d.default",
        lambda n: [image(2, 3, n + 2), [3], [2], [1], True, False],
        aten.avg_pool1d.default,
    )
    check_rule(
        device,
        "aten.avg_pool3d.default",
        lambda n: [image(2, 3, 4, n + 1, 5), [2, 2, 3], [1, 2, 2], [1, 1, 0], False, True, None],
        aten.avg_pool3d.default,
    )
    check_rule(
        device,
        "aten.max_pool3d_with_indices.default",
        lambda n: [image(2, 3, 4, n + 1, 5), [2, 2, 3], [1, 2, 2], [1, 1, 0], [1, 1, 2], False],
        aten.max_pool3d_with_indices.default,
    )


@pytest.mark.parametrize("size", [[1, 1], [3, 2], [7, 5]])
def test_adaptive(device: Device, size: list[int]) -> None:
    def make(n: int) -> list[Any]:
        return [image(n, 3, n + 4, 2 * n + 1), size]

    check_rule(device, "aten._adaptive_avg_pool2d.default", make, aten._adaptive_avg_pool2d.default)
    check_rule(device, "aten.adaptive_max_pool2d.default", make, aten.adaptive_max_pool2d.default)


def test_padding_beyond_half_a_window_is_refused(device: Device) -> None:
    with pytest.raises(UnsupportedError, match=r"padding \(2, 0\) is more than half of the window \(3, 1\)"):
        check_rule(
            device,
            "aten.max_pool2d.default",
            lambda n: [image(1, 1, 5, 5), [3, 1], [], [2, 0], [1, 1], False],
            lambda *args: torch.zeros(1, 1, 3, 5),
        )


class Pools(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return (
            functional.avg_pool2d(x, 3, stride=2, padding=1),
            functional.avg_pool2d(x, (2, 3), count_include_pad=False, padding=1),
            functional.max_pool2d(x, 3, stride=2, padding=1),
            *functional.max_pool2d(x, 2, return_indices=True),
            functional.adaptive_avg_pool2d(x, 1),
            functional.avg_pool1d(x[0], 2),
        )


def test_images_of_any_size(device: Device) -> None:
    height, width = Dim("height", min=4, max=10), Dim("width", min=4, max=9)
    lives = [(10, 9), (4, 7), (5, 9), (10, 4)]
    shapes = ({2: height, 3: width},)
    check_export(device, Pools(), lambda h, w: (torch.randn(1, 3, h, w),), lives, shapes)


class FixedPools(nn.Module):
    """Pooling operators that can be exported only with a fixed size."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return (
            functional.adaptive_avg_pool2d(x, (4, 2)),
            functional.avg_pool2d(x, 2, ceil_mode=True),
            *functional.max_pool2d(x, 3, stride=2, ceil_mode=True, return_indices=True),
        )


def test_a_batch_of_fixed_size(device: Device) -> None:
    check_export(device, FixedPools(), lambda b: (torch.randn(b, 3, 8, 11),), [(2,)])
