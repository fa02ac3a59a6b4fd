"""RMS norm and softmax against torch, on every kind of device that kernels are written for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pteron.engine.devices.opening import Device
from tests.support.rules import Fixed, check_rule


@pytest.mark.parametrize("width", [2048, 36, 20, 45])
@pytest.mark.parametrize("given", [Fixed, lambda weight: weight], ids=["fixed", "input"])
def test_rms_norm(routed: Device, width: int, given: Any) -> None:
    weight = given(torch.randn(width))

    def norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return torch.nn.functional.rms_norm(x, (width,), weight, eps)

    def make(n: int) -> list[Any]:
        return [torch.randn(n, width), weight, 1e-5]

    check_rule(routed, "et_vk.rms_norm.default", make, norm, (19, 1, 0, 8, 3, 19), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("width", [1028, 64])
@pytest.mark.parametrize("alike", [True, False])
def test_a_sum_and_its_norm(routed: Device, width: int, alike: bool) -> None:
    weight = torch.randn(width)

    def both(a: torch.Tensor, b: torch.Tensor, *rest: Any) -> list[torch.Tensor]:
        return [a + b, torch.nn.functional.rms_norm(a + b, (width,), weight, 1e-5)]

    def make(n: int) -> list[Any]:
        return [torch.randn(n, width), torch.randn(n if alike else 1, width), Fixed(weight), 1e-5]

    check_rule(routed, "pteron.add_rms_norm", make, both, (9, 1, 4, 9), rtol=1e-4, atol=1e-5)


# Widths that change, that are not whole quads, and that come near the ends of a workgroup's lanes.
@pytest.mark.parametrize("width", [lambda n: n, lambda n: 64 * n, lambda n: 253 + n])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(routed: Device, name: str, dtype: torch.dtype, width: Any) -> None:
    function = getattr(torch, name)

    def make(n: int) -> list[Any]:
        x = torch.randn(3, width(n)) * 4
        x[1, 1:] = -torch.inf  # as attention masks have it
        return [x.to(dtype), 1, False]

    def over(x: torch.Tensor, dim: int, half_to_float: bool) -> Any:
        return function(x, dim)

    check_rule(routed, f"aten._{name}.default", make, over, (50, 33, 32, 7, 50), rtol=1e-4, atol=1e-5)


def test_softmax_over_other_dimensions(routed: Device) -> None:
    for dim in (0, 1):
        check_rule(
            routed,
            "aten._softmax.default",
            lambda n, d=dim: [torch.randn(40, n, 3), d, False],
            lambda x, d, h: torch.softmax(x, d),
            (37, 1, 32, 37),
        )
