"""Layer, group and batch norm against torch, at several live shapes of one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import pteron
from pteron.engine.devices.opening import Device
from pteron.errors import InputError
from tests.support.export import export
from tests.support.programs import check_export
from tests.support.rules import Fixed, Sym, check_rule

aten = torch.ops.aten
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


def affine(*shape: int) -> Tensor:
    return torch.randn(shape) + 1


LAYER_NORMS: dict[str, Callable[[int], list[Any]]] = {
    "vector": lambda n: [torch.randn(6), [6], affine(6), affine(6), 1e-5],
    "odd width": lambda n: [torch.randn(2, n, 7), [7], affine(7), affine(7), 1e-5],
    "several dimensions": lambda n: [torch.randn(n, 3, 5), [3, 5], affine(3, 5), affine(3, 5), 1e-6],
    "all dimensions": lambda n: [torch.randn(n, 3), [Sym(n), 3], None, None, 1e-5],
    "no weight": lambda n: [torch.randn(n, 2, 8), [8], None, None, 1e-5],
    "no bias": lambda n: [torch.randn(n, 8), [8], affine(8), None, 1e-5],
    "wider than a part": lambda n: [torch.randn(n, 3, 411), [3, 411], affine(3, 411), affine(3, 411), 1e-5],
    "width that changes": lambda n: [torch.randn(3, 100 * n), [Sym(100 * n)], None, None, 1e-5],
    "no rows at times": lambda n: [torch.randn(n - 1, 4), [4], affine(4), affine(4), 1e-5],
}


@pytest.mark.parametrize("case", LAYER_NORMS)
def test_layer_norm(device: Device, case: str) -> None:
    layer_norm = "aten.native_layer_norm.default", LAYER_NORMS[case], aten.native_layer_norm.default
    check_rule(device, *layer_norm, **TOLERANCE)


def test_layer_norm_far_from_zero(routed: Device) -> None:
    """A mean of 1000 leaves a float32 only 4 digits of what is around it, however a device sums."""

    def make(n: int) -> list[Any]:
        return [torch.randn(n, 700) + 1000, [700], affine(700), affine(700), 1e-5]

    layer_norm = "aten.native_layer_norm.default", make, aten.native_layer_norm.default
    check_rule(routed, *layer_norm, rtol=1e-3, atol=1e-3)


def test_layer_norm_in_float16(device: Device) -> None:
    def make(n: int) -> list[Any]:
        return [torch.randn(n, 9).half(), [9], affine(9).half(), affine(9).half(), 1e-5]

    check_rule(
        device, "aten.native_layer_norm.default", make, aten.native_layer_norm.default, rtol=1e-2, atol=5e-3
    )


def group_norm(shape: tuple[int, ...], groups: int, with_affine: bool = True) -> list[Any]:
    batch, channels, *spatial = shape
    weight, bias = (affine(channels), affine(channels)) if with_affine else (None, None)
    return [torch.randn(shape), weight, bias, batch, channels, torch.Size(spatial).numel(), groups, 1e-5]


GROUP_NORMS: dict[str, Callable[[int], list[Any]]] = {
    "image": lambda n: group_norm((2, 6, n, n + 1), 3),
    "batch": lambda n: group_norm((n, 4, 3, 5), 2),
    "no affine": lambda n: group_norm((2, 6, n, 3), 2, with_affine=False),
    "rank 2": lambda n: group_norm((n, 6), 3),
    "sequence": lambda n: group_norm((n, 6, n), 6),
    "volume": lambda n: group_norm((1, 4, 2, n, 3), 1),
    "large": lambda n: group_norm((1, 4, 10 * n, 31), 2),
}


@pytest.mark.parametrize("case", GROUP_NORMS)
def test_group_norm(device: Device, case: str) -> None:
    check_rule(
        device,
        "aten.native_group_norm.default",
        GROUP_NORMS[case],
        aten.native_group_norm.default,
        (7, 3, 7, 2, 4),  # torch refuses to normalise a single element
        **TOLERANCE,
    )


def test_statistics_of_rows_without_elements(device: Device) -> None:
    """The mean of nothing is 0 here, and its reciprocal standard deviation NaN."""

    def layer(n: int) -> list[Any]:
        return [torch.randn(3, n), [Sym(n)], None, None, 1e-5]

    lives, how = (4, 0, 3, 0), {"nan": True, **TOLERANCE}
    check_rule(device, "aten.native_layer_norm.default", layer, aten.native_layer_norm.default, lives, **how)
    for group in (lambda n: group_norm((2, 6, n, 2), 3), lambda n: group_norm((2, 6, 2, 400 * n), 3)):
        check_rule(
            device, "aten.native_group_norm.default", group, aten.native_group_norm.default, lives, **how
        )


@pytest.mark.parametrize("shape", [(3, 5), (3, 5, 2), (2, 5, 3, 3), (1, 5, 2, 3, 4)])
@pytest.mark.parametrize("weighted", [True, False])
def test_batch_norm(device: Device, shape: tuple[int, ...], weighted: bool) -> None:
    def make(n: int) -> list[Any]:
        x = torch.randn(*shape[:-1], shape[-1] * n) if len(shape) > 2 else torch.randn(n, 5)
        weight, bias = (affine(5), affine(5)) if weighted else (None, None)
        return [x, weight, bias, torch.randn(5), torch.rand(5) + 0.1, 0.1, 1e-5]

    name = "_native_batch_norm_legit_no_training"
    check_rule(device, f"aten.{name}.default", make, getattr(aten, name).default, **TOLERANCE)


# -- on every kind of device ----------------------------------------------------------------------


@pytest.mark.parametrize("width", [lambda n: 32 * n, lambda n: 61 + n, lambda n: 256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_layer_norm_by_any_route(routed: Device, dtype: torch.dtype, width: Callable[[int], int]) -> None:
    def make(n: int) -> list[Any]:
        weight, bias = (affine(width(n)).to(dtype) for _ in range(2))
        x = torch.randn(n, width(n)) + 3
        return [x.to(dtype), [Sym(width(n))], weight, bias, 1e-5]

    name = "aten.native_layer_norm.default"
    loose = {"rtol": 1e-2, "atol": 2e-2} if dtype == torch.float16 else TOLERANCE
    check_rule(routed, name, make, aten.native_layer_norm.default, (9, 1, 8, 3, 9), **loose)


@pytest.mark.parametrize("width", [1028, 20, 16400])
def test_layer_norm_with_fixed_weights_by_any_route(routed: Device, width: int) -> None:
    weight, bias = Fixed(affine(width)), Fixed(affine(width))

    def make(n: int) -> list[Any]:
        return [torch.randn(n, width), [width], weight, bias, 1e-5]

    name = "aten.native_layer_norm.default"
    check_rule(routed, name, make, aten.native_layer_norm.default, (9, 1, 9), **TOLERANCE)


@pytest.mark.parametrize("size", [(6, 5), (7, 7), (100, 150)])
def test_group_norm_by_any_route(routed: Device, size: tuple[int, int]) -> None:
    name = "aten.native_group_norm.default"
    make = lambda n: group_norm((n, 6, *size), 3)  # noqa: E731
    check_rule(routed, name, make, aten.native_group_norm.default, (3, 1, 3), **TOLERANCE)


# -- exported programs ----------------------------------------------------------------------------


def trained_batch_norm(module: nn.BatchNorm2d) -> nn.BatchNorm2d:
    """A batch norm with statistics other than 0 and 1."""
    assert module.running_mean is not None and module.running_var is not None
    module.running_mean.uniform_(-1, 1)
    module.running_var.uniform_(0.5, 2)
    return module.eval()


class ImageNorms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.group = nn.GroupNorm(2, 6)
        self.batch = trained_batch_norm(nn.BatchNorm2d(6))
        self.plain = trained_batch_norm(nn.BatchNorm2d(6, affine=False))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.group(x), self.batch(x), self.plain(x + 1)


def test_images_of_any_size(device: Device) -> None:
    height, width = Dim("height", min=2, max=8), Dim("width", min=2, max=9)
    lives = [(8, 9), (3, 5), (8, 2), (2, 9)]
    shapes = ({2: height, 3: width},)
    check_export(device, ImageNorms(), lambda h, w: (torch.randn(1, 6, h, w),), lives, shapes)


class RowNorms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.odd = nn.LayerNorm(7)
        self.plain = nn.LayerNorm(7, elementwise_affine=False)
        self.weight = nn.Parameter(torch.randn(7))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        out, mean, rstd = torch.native_layer_norm(x, [7], self.weight, None, 1e-5)
        return self.odd(x), self.plain(x), out, mean, rstd


def test_any_number_of_rows(device: Device) -> None:
    rows = Dim("rows", min=2, max=11)
    lives = [(11,), (2,), (6,), (11,)]
    check_export(device, RowNorms(), lambda n: (torch.randn(1, n, 7),), lives, ({1: rows},))


def test_a_wrong_width_is_refused(device: Device) -> None:
    rows = Dim("rows", min=2, max=5)
    program = export(nn.LayerNorm(8), (torch.randn(5, 8),), ({0: rows},))
    method = pteron.load(program, device=device).method()
    with pytest.raises(InputError, match=r"live shape \(5, 6\), which does not end in \(8\)"):
        method(torch.randn(5, 6))
    assert method(torch.randn(2, 8)).shape == (2, 8)
