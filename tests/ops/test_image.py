"""Resizing, sampling, padding and shuffling of images against torch, at several live shapes of one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import executorch.backends.vulkan.custom_ops_lib  # noqa: F401  registers et_vk
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional

import pteron
from pteron.engine.devices.opening import Device
from pteron.errors import InputError
from tests.support.export import export
from tests.support.programs import check_export
from tests.support.rules import check_rule

aten = torch.ops.aten
HALF, INT, BYTE = torch.float16, torch.int32, torch.int8


def whole_numbers(*shape: int, dtype: torch.dtype) -> Tensor:
    return (
        torch.randint(0, 2, shape).bool() if dtype is torch.bool else torch.randint(-99, 99, shape).to(dtype)
    )


# -- resizing -------------------------------------------------------------------------------------

TARGETS: dict[str, Callable[[int], tuple[Any, Any]]] = {
    "twice": lambda n: (None, [2.0, 2.0]),
    "by 1.5 and 2.7": lambda n: (None, [1.5, 2.7]),
    "smaller": lambda n: (None, [0.8, 0.5]),
    "to 5 x 9": lambda n: ([5, 9], None),
    "to 1 x 1": lambda n: ([1, 1], None),
}


@pytest.mark.parametrize("target", TARGETS)
def test_upsample_nearest(device: Device, target: str) -> None:
    check_rule(
        device,
        "aten.upsample_nearest2d.vec",
        lambda n: [torch.randn(n, 3, n + 1, 2 * n + 1), *TARGETS[target](n)],
        aten.upsample_nearest2d.vec,
    )


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("target", TARGETS)
def test_upsample_bilinear(device: Device, target: str, align_corners: bool) -> None:
    def make(n: int) -> list[Any]:
        size, factors = TARGETS[target](n)
        return [torch.randn(2, 3, n + 1, 2 * n + 1), size, align_corners, factors]

    check_rule(
        device, "aten.upsample_bilinear2d.vec", make, aten.upsample_bilinear2d.vec, rtol=1e-4, atol=1e-5
    )


def test_upsample_other_types(device: Device) -> None:
    check_rule(
        device,
        "aten.upsample_bilinear2d.vec",
        lambda n: [torch.randn(1, 3, n, 5).to(HALF), None, False, [2.0, 1.5]],
        aten.upsample_bilinear2d.vec,
    )
    check_rule(
        device,
        "aten.upsample_nearest2d.vec",
        lambda n: [torch.randint(0, 255, (1, 3, n, 5)).to(torch.uint8), [7, 9], None],
        aten.upsample_nearest2d.vec,
    )


# -- sampling -------------------------------------------------------------------------------------


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding", [0, 1, 2], ids=["zeros", "border", "reflection"])
@pytest.mark.parametrize("interpolation", [0, 1, 2], ids=["bilinear", "nearest", "bicubic"])
def test_grid_sampler(device: Device, interpolation: int, padding: int, align_corners: bool) -> None:
    def make(n: int) -> list[Any]:
        grid = torch.rand(2, n, 5, 2) * 5 - 2.5  # beyond the image on all sides
        return [torch.randn(2, 3, n + 1, 4), grid, interpolation, padding, align_corners]

    check_rule(
        device, "aten.grid_sampler_2d.default", make, aten.grid_sampler_2d.default, rtol=1e-4, atol=1e-4
    )


def test_grid_sampler_of_one_pixel(device: Device) -> None:
    for padding in (0, 1, 2):
        check_rule(
            device,
            "aten.grid_sampler_2d.default",
            lambda n, mode=padding: [torch.randn(1, 2, 1, 1), torch.rand(1, n, n, 2) * 4 - 2, 0, mode, True],
            aten.grid_sampler_2d.default,
            rtol=1e-4,
            atol=1e-5,
        )


def test_grid_priors(device: Device) -> None:
    def priors(x: Tensor, stride: int, offset: float) -> Tensor:
        y, x = torch.meshgrid(torch.arange(x.shape[-2]), torch.arange(x.shape[-1]), indexing="ij")
        return (torch.stack([x, y], -1).reshape(-1, 2) + offset) * stride

    check_rule(device, "et_vk.grid_priors.default", lambda n: [torch.randn(1, 2, n, 5), 8, 0.5], priors)


# -- padding --------------------------------------------------------------------------------------

PADS: dict[str, Callable[[int], list[Any]]] = {
    "last": lambda n: [torch.randn(2, n), [1, 2], 0.5],
    "image": lambda n: [torch.randn(2, 3, n, 5), [1, 2, 0, 3], -1.25],
    "cut": lambda n: [torch.randn(3, n + 3, 6), [-1, 2, -2, -1], 3],
    "inner": lambda n: [torch.randn(n, 4, 5), [0, 0, 1, 1], 0],
    "first": lambda n: [torch.randn(n, 3, 5), [0, 0, 0, 0, 2, 1], 7],
    "nothing": lambda n: [torch.randn(n, 3), [0, 0], 7],
    "infinity": lambda n: [torch.randn(n, 3), [1, 1], -torch.inf],
    "rank 6": lambda n: [torch.randn(2, n, 2, 3, 2, 3), [1, 0, 0, 1, 0, 0, 0, 0, 1, 1], 2.0],
    "integers": lambda n: [whole_numbers(n, 3, dtype=INT), [1, 2, 3, 0], 16777217],
    "bytes": lambda n: [whole_numbers(n, 3, dtype=BYTE), [1, 2], -7],
    "truths": lambda n: [whole_numbers(n, 5, dtype=torch.bool), [2, 1], True],
    "float16": lambda n: [torch.randn(n, 3).to(HALF), [1, 2], 0.5],
    "empty at times": lambda n: [torch.randn(n - 1, 3), [1, 1], 0.5],
}


@pytest.mark.parametrize("case", PADS)
def test_constant_pad(device: Device, case: str) -> None:
    check_rule(device, "aten.constant_pad_nd.default", PADS[case], aten.constant_pad_nd.default)


@pytest.mark.parametrize("kind", ["reflection", "replication"])
@pytest.mark.parametrize(
    "rank, pad", [(1, [2, 1]), (2, [1, 2, 0, 1]), (3, [1, 0, 2, 1, 0, 1]), (2, [-1, 2, 1, 0])]
)
def test_replication_and_reflection_pad(device: Device, kind: str, rank: int, pad: list[int]) -> None:
    def make(n: int) -> list[Any]:
        return [torch.randn(2, n, *[n + 2] * rank), pad]

    name = f"{kind}_pad{rank}d"
    check_rule(device, f"aten.{name}.default", make, getattr(aten, name).default)


# -- pixels that change places --------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, HALF, INT, BYTE])
def test_pixel_shuffle_and_back(device: Device, dtype: torch.dtype) -> None:
    def image(*shape: int) -> Tensor:
        return torch.randn(shape).to(dtype) if dtype.is_floating_point else whole_numbers(*shape, dtype=dtype)

    for r in (1, 2, 3):
        check_rule(
            device,
            "aten.pixel_shuffle.default",
            lambda n, r=r: [image(2, 2 * r * r, n, 3), r],
            aten.pixel_shuffle.default,
        )
        check_rule(
            device,
            "aten.pixel_unshuffle.default",
            lambda n, r=r: [image(2, n * r, 3 * r), r],
            aten.pixel_unshuffle.default,
        )


def test_im2col(device: Device) -> None:
    check_rule(
        device,
        "aten.im2col.default",
        lambda n: [torch.randn(2, 3, n + 2, 6), [3, 2], [1, 2], [1, 0], [2, 1]],
        aten.im2col.default,
    )


# -- exported programs ----------------------------------------------------------------------------


class Images(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return (
            functional.interpolate(x, scale_factor=2.0, mode="nearest"),
            functional.interpolate(x, scale_factor=2.0, mode="bilinear"),
            functional.interpolate(x, scale_factor=3.0, mode="bilinear", align_corners=True),
            functional.pad(x, (1, 2, 0, 1), value=-0.5),
            functional.pixel_shuffle(x, 2),
            torch.ops.et_vk.grid_priors(x, 4, 0.5),
        )


def test_images_of_any_size(device: Device) -> None:
    height, width = Dim("height", min=2, max=7), Dim("width", min=2, max=9)
    lives = [(7, 9), (2, 5), (7, 3), (4, 9)]
    shapes = ({2: height, 3: width},)
    check_export(device, Images(), lambda h, w: (torch.randn(1, 4, h, w),), lives, shapes)


class Warp(nn.Module):
    def forward(self, x: Tensor, grid: Tensor) -> tuple[Tensor, ...]:
        return (
            functional.grid_sample(x, grid, padding_mode="border", align_corners=True),
            functional.grid_sample(x, grid, padding_mode="zeros", align_corners=False),
        )


def test_grids_of_any_size(device: Device) -> None:
    height, width = Dim("height", min=2, max=7), Dim("width", min=2, max=9)

    def make(h: int, w: int) -> tuple[Tensor, Tensor]:
        return torch.randn(1, 3, 5, 6), torch.rand(1, h, w, 2) * 3 - 1.5

    shapes = (None, {1: height, 2: width})
    check_export(device, Warp(), make, [(7, 9), (2, 5), (7, 3)], shapes)


class Edges(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return (
            functional.pad(x, (1, 2, 2, 1), mode="reflect"),
            functional.pad(x, (1, 2, 2, 1), mode="replicate"),
            functional.pad(x, (-1, 2, 1, -2)),
            functional.pixel_unshuffle(x, 2),
            functional.interpolate(x, size=(5, 3), mode="bilinear"),
            functional.unfold(x, (2, 3), padding=1),
        )


def test_a_batch_of_fixed_size(device: Device) -> None:
    check_export(device, Edges(), lambda b: (torch.randn(b, 4, 6, 8),), [(2,)])


def test_negative_padding_beyond_the_size_is_refused(device: Device) -> None:
    class Cut(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return functional.pad(x, (-3, 0))

    width = Dim("width", min=5, max=9)
    method = pteron.load(export(Cut(), (torch.randn(2, 9),), ({1: width},)), device=device).method()
    with pytest.raises(InputError, match=r"output would be \(2, -1\)"):
        method(torch.randn(2, 2))
    assert method(torch.randn(2, 5)).shape == (2, 2)
