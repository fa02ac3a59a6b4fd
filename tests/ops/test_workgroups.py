"""Product kernels with large tiles. Without these tests, only large outputs would use them."""

from __future__ import annotations

from typing import Any

import executorch.backends.vulkan.custom_ops_lib  # noqa: F401  registers the operators
import pytest
import torch
from torch import Tensor

from pteron.compiler.ops import products
from pteron.engine.devices.opening import Device
from tests.ops import test_conv, test_q8ta
from tests.support.rules import check_rule

LIVES = (70, 17, 64, 70)  # rows: more than teams take, a part of a tile, one and more


@pytest.fixture(autouse=True)
def large_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "MANY_ELEMENTS", 1)


pytestmark = pytest.mark.parametrize("routed", ["GPU with all"], indirect=True)


@pytest.mark.parametrize("columns, depth", [(6, 16), (70, 12), (132, 72)])
def test_linear_with_a_scale_per_column(routed: Device, columns: int, depth: int) -> None:
    weight, scales = test_q8ta.bytes_like(columns, depth), torch.rand(columns)

    def product(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
        return (x @ weight.float().T) * scales

    def make(n: int) -> list[Any]:
        return [torch.randn(n, depth), weight, scales]

    name = "aten._weight_int8pack_mm.default"
    check_rule(routed, name, make, product, LIVES, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("columns, depth", [(72, 12), (136, 132), (6, 16)])
def test_linear_of_integers(routed: Device, columns: int, depth: int) -> None:
    weights, scales = test_q8ta.bytes_like(columns, depth), test_q8ta.padded(torch.rand(columns) / 100)
    sums = torch.zeros(columns, dtype=torch.int32)

    def product(x: Tensor, *rest: Any) -> Tensor:
        values, weight = test_q8ta.in_floats(x, weights, scales)
        return (values @ weight.T).float()

    def make(n: int) -> list[Any]:
        head = [test_q8ta.bytes_like(n, depth), test_q8ta.INPUT_SCALE, test_q8ta.INPUT_ZERO]
        return [*head, weights, sums, scales, None]

    name = "et_vk.linear_q8ta_q8csw.default"
    check_rule(routed, name, make, product, LIVES, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", test_conv.MANY_CHANNELS)
def test_convolution(routed: Device, case: str) -> None:
    make = test_conv.MANY_CHANNELS[case]
    check_rule(routed, "aten.convolution.default", make, test_conv.convolution, atol=1e-5)


@pytest.mark.parametrize("case", test_q8ta.MANY_CHANNELS)
def test_convolution_of_integers(routed: Device, case: str) -> None:
    test_q8ta.check_convolution(routed, test_q8ta.MANY_CHANNELS[case], (9, 1, 5, 3, 6, 9))


@pytest.mark.parametrize("rows, columns", [(68, 4), (70, 67)])
def test_gradient_of_a_weight(routed: Device, rows: int, columns: int) -> None:
    def make(n: int) -> list[Any]:
        return [torch.randn(n, rows), torch.randn(n, columns)]

    reference = torch.ops.et_vk.linear_dW.default
    check_rule(routed, "et_vk.linear_dW.default", make, reference, (37, 1, 16), rtol=1e-4, atol=1e-4)


def test_gradient_through_a_4_bit_linear(routed: Device) -> None:
    weights, scales = torch.randint(0, 256, (67, 36)).to(torch.uint8), torch.rand(3, 67)
    reference = torch.ops.et_vk.linear_q4gsw_backward.default

    def make(n: int) -> list[Any]:
        return [torch.randn(n, 67), weights, scales, 24]

    name = "et_vk.linear_q4gsw_backward.default"
    check_rule(routed, name, make, reference, LIVES, rtol=1e-4, atol=1e-3)
