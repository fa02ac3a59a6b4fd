"""Affine quantisation and quantised weights against torch, to the bit where the result is an integer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import executorch.exir.passes._quant_patterns_and_replacements  # noqa: F401  registers the embeddings
import pytest
import torch
import torchao.quantization.quant_primitives  # noqa: F401  registers torchao's operators
from torch import Tensor, nn
from torch.export import Dim

from pteron.engine.devices.opening import Device
from tests.support.programs import check_export
from tests.support.rules import check_rule

qd = torch.ops.quantized_decomposed
ao = torch.ops.torchao

RANGES = {torch.int8: (-128, 127), torch.uint8: (0, 255), torch.int16: (-32768, 32767)}


def ties(*shape: int, step: float) -> Tensor:
    """Numbers; many of them are halfway between two quantized values."""
    return torch.randint(-40, 40, shape) * (step / 2)


def mixed(*shape: int, step: float) -> Tensor:
    """Ties, other numbers, and some numbers outside of all ranges."""
    return torch.where(torch.rand(shape) < 0.5, ties(*shape, step=step), 60 * torch.randn(shape))


def check(device: Device, name: str, make: Callable[[int], list[Any]], reference: Callable[..., Any]) -> None:
    check_rule(device, name, make, reference, rtol=1e-6, atol=1e-7)


# -- quantize and dequantize ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", RANGES)
@pytest.mark.parametrize("scale, zero", [(0.05, 3), (0.125, 0), (0.3, 100)])
def test_quantize_per_tensor(device: Device, dtype: torch.dtype, scale: float, zero: int) -> None:
    low, high = RANGES[dtype]
    check(
        device,
        "quantized_decomposed.quantize_per_tensor.default",
        lambda n: [
            torch.cat([ties(n, 5, step=scale), 60 * torch.randn(n, 2)], 1),
            scale,
            zero,
            low,
            high,
            dtype,
        ],
        qd.quantize_per_tensor.default,
    )


def test_the_range_may_be_narrower_than_the_dtype(device: Device) -> None:
    check(
        device,
        "quantized_decomposed.quantize_per_tensor.default",
        lambda n: [torch.randn(n, 3), 0.02, 1, -8, 7, torch.int8],
        qd.quantize_per_tensor.default,
    )


@pytest.mark.parametrize("dtype", RANGES)
def test_dequantize_per_tensor(device: Device, dtype: torch.dtype) -> None:
    low, high = RANGES[dtype]
    check(
        device,
        "quantized_decomposed.dequantize_per_tensor.default",
        lambda n: [torch.randint(low, high + 1, (n, 3)).to(dtype), 0.07, -5, low, high, dtype, None],
        lambda *args: qd.dequantize_per_tensor.default(*args[:-1]),
    )


def test_scale_and_zero_point_in_tensors(device: Device) -> None:
    scale, zero = torch.tensor([0.05]), torch.tensor([7])
    check(
        device,
        "quantized_decomposed.quantize_per_tensor.tensor",
        lambda n: [
            torch.cat([ties(n, 3, step=0.05), torch.randn(n, 2)], 1),
            scale,
            zero,
            -128,
            127,
            torch.int8,
        ],
        qd.quantize_per_tensor.tensor,
    )
    check(
        device,
        "quantized_decomposed.dequantize_per_tensor.tensor",
        lambda n: [bytes_like(n, 5), scale, zero, -128, 127, torch.int8, None],
        lambda *args: qd.dequantize_per_tensor.tensor(*args[:-1]),
    )


def bytes_like(*shape: int) -> Tensor:
    return torch.randint(-128, 128, shape).to(torch.int8)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_per_channel(device: Device, axis: int) -> None:
    shape = {0: (3, 5, 7), 1: (5, 3, 7), 2: (5, 7, 3)}[axis % 3]
    moving = 0 if axis % 3 else 1
    scales, zeros = torch.tensor([0.1, 0.25, 0.03]), torch.tensor([1, -2, 30])

    def sized(n: int) -> tuple[int, ...]:
        return tuple(n if d == moving else size for d, size in enumerate(shape))

    check(
        device,
        "quantized_decomposed.quantize_per_channel.default",
        lambda n: [ties(*sized(n), step=0.25), scales, zeros, axis % 3, -128, 127, torch.int8],
        qd.quantize_per_channel.default,
    )
    for given in (zeros, None):
        check(
            device,
            "quantized_decomposed.dequantize_per_channel.default",
            lambda n, given=given: [
                bytes_like(*sized(n)),
                scales,
                given,
                axis % 3,
                -128,
                127,
                torch.int8,
                None,
            ],
            lambda *args: qd.dequantize_per_channel.default(*args[:-1]),
        )


def test_per_token(device: Device) -> None:
    """torch adds the zero point before it rounds, so ties are rounded to an even sum."""

    def scales(n: int) -> tuple[Tensor, Tensor]:
        return torch.full((2, n, 1), 0.25), torch.randint(-9, 9, (2, n, 1))

    check(
        device,
        "quantized_decomposed.quantize_per_token.default",
        lambda n: [ties(2, n, 5, step=0.25), *scales(n), -128, 127, torch.int8],
        qd.quantize_per_token.default,
    )
    check(
        device,
        "quantized_decomposed.dequantize_per_token.default",
        lambda n: [bytes_like(2, n, 5), *scales(n), -128, 127, torch.int8, torch.float32],
        qd.dequantize_per_token.default,
    )


@pytest.mark.parametrize("block", [(1, 6), (1, 2), (1, 1), (1, 3)])
def test_blocks(device: Device, block: tuple[int, int]) -> None:
    def parameters(n: int) -> tuple[Tensor, Tensor]:
        shape = (n, 6 // block[1])
        return torch.rand(shape) + 0.1, torch.randint(-20, 20, shape).to(torch.int8)

    def quantize(n: int) -> list[Any]:
        return [torch.randn(n, 6) * 9, list(block), *parameters(n), torch.int8, -128, 127]

    def dequantize(n: int) -> list[Any]:
        scale, zero = parameters(n)
        return [bytes_like(n, 6), list(block), scale, zero, torch.int8, -128, 127, torch.float32]

    check(device, "torchao.quantize_affine.default", quantize, ao.quantize_affine.default)
    check(device, "torchao.dequantize_affine.default", dequantize, ao.dequantize_affine.default)


# -- choosing the parameters ------------------------------------------------------------------------


@pytest.mark.parametrize("mapping", ["ASYMMETRIC", "SYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR"])
@pytest.mark.parametrize("block, keepdim", [((1, 1, 75), False), ((1, 1, 5), False), ((1, 2, 25), True)])
def test_choose_affine(routed: Device, mapping: str, block: tuple[int, ...], keepdim: bool) -> None:
    def make(n: int) -> list[Any]:
        x = torch.randn(n, 4, 75) * torch.tensor([0.01, 1.0, 30.0, 1.0])[:, None]
        x[0, 0] = 0.0  # a block without a range
        x[-1, 1] = x[-1, 1].abs() + 1  # one that does not reach 0
        return [x, mapping, list(block), torch.int8, -128, 127, None, None, torch.int8, keepdim]

    check(routed, "torchao.choose_qparams_affine.default", make, ao.choose_qparams_affine.default)


def test_choose_for_the_whole_tensor(routed: Device) -> None:
    check(
        routed,
        "quantized_decomposed.choose_qparams.tensor",
        lambda n: [torch.randn(n, 3, 1001) - 0.5, -128, 127, 1e-5, torch.int8],
        qd.choose_qparams.tensor,
    )


def test_choose_per_token(routed: Device) -> None:
    check(
        routed,
        "quantized_decomposed.choose_qparams_per_token_asymmetric.default",
        lambda n: [torch.randn(2, n, 141) + torch.randn(2, n, 1), torch.int8],
        qd.choose_qparams_per_token_asymmetric.default,
    )


def asymmetric(x: Tensor, block: list[int]) -> tuple[Tensor, Tensor]:
    chosen: tuple[Tensor, Tensor] = ao.choose_qparams_affine(
        x, "ASYMMETRIC", block, torch.int8, -128, 127, None, None, torch.int8
    )
    return chosen


# -- quantised weights ------------------------------------------------------------------------------


def nibbles(packed: Tensor, even_is_high: bool) -> Tensor:
    high, low = (packed >> 4).to(torch.int32) - 8, (packed & 15).to(torch.int32) - 8
    order = (high, low) if even_is_high else (low, high)
    return torch.stack(order, dim=-1).reshape(packed.shape[0], -1)


def random_bytes(*shape: int) -> Tensor:
    return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(1)).to(torch.uint8)


@pytest.mark.parametrize("columns, depth", [(6, 16), (70, 12), (132, 72), (5, 10), (3, 7)])
def test_linear_with_a_scale_per_column(routed: Device, columns: int, depth: int) -> None:
    packed, scales = random_bytes(columns, (depth + 1) // 2), torch.rand(columns)
    whole = bytes_like(columns, depth)

    def four_bits(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
        return (x @ nibbles(weight, even_is_high=True)[:, :depth].float().T) * scales

    def eight_bits(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
        return (x @ weight.float().T) * scales

    def near(name: str, weight: Tensor, reference: Callable[..., Any]) -> None:
        make = lambda n: [torch.randn(n, depth), weight, scales]  # noqa: E731
        check_rule(routed, name, make, reference, lives=(70, 1, 0, 4, 19, 64), rtol=1e-4, atol=1e-3)

    near("et_vk.linear_qcs4w.default", packed, four_bits)
    near("aten._weight_int8pack_mm.default", whole, eight_bits)


@pytest.mark.parametrize("depth, group", [(64, 32), (24, 8), (12, 4), (10, 5)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_with_quantised_activations(device: Device, depth: int, group: int, bias: bool) -> None:
    columns = 6
    packed, scales = random_bytes(columns, depth // 2), torch.rand(depth // group, 8)
    sums, added = torch.zeros(depth // group, 8, dtype=torch.int32), torch.randn(8) if bias else None

    def make(n: int) -> list[Any]:
        x = torch.randn(1, n, depth)
        scale, zero = ao.choose_qparams_affine(
            x, "ASYMMETRIC", [1, 1, depth], torch.int8, -128, 127, None, None, torch.int8
        )
        return [x, scale, zero, packed, sums, scales, group, added]

    def reference(x: Tensor, scale: Tensor, zero: Tensor, *rest: Any) -> Tensor:
        block = [1, 1, depth]
        coarse = ao.quantize_affine(x, block, scale, zero, torch.int8, -128, 127)
        coarse = ao.dequantize_affine(coarse, block, scale, zero, torch.int8, -128, 127)
        weight = nibbles(packed, even_is_high=False) * scales[:, :columns].T.repeat_interleave(group, 1)
        return nn.functional.linear(coarse, weight, None if added is None else added[:columns])

    name = "et_vk.linear_dq8ca_q4gsw.default"
    check_rule(device, name, make, reference, lives=(9, 1, 4, 9, 6), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("zero", [True, False])
def test_embeddings(device: Device, groups: int, zero: bool) -> None:
    scales = torch.rand(11, groups)
    zeros = torch.randint(-3, 3, (11, groups)).float() if zero else None
    indices = lambda n: torch.randint(0, 11, (2, n))  # noqa: E731
    packed = random_bytes(11, 6)
    check(
        device,
        "quantized_decomposed.embedding_4bit.dtype",
        lambda n: [packed, scales, zeros, -8, 7, indices(n), torch.float32],
        lambda *args: qd.embedding_4bit.dtype(*args[:-1], dtype=torch.float32),
    )
    small = random_bytes(11, 3)
    check(
        device,
        "quantized_decomposed.embedding_2bit.default",
        lambda n: [small, scales, zeros, -2, 1, indices(n)],
        qd.embedding_2bit.default,
    )
    whole = bytes_like(11, 12)
    check(
        device,
        "quantized_decomposed.embedding_byte.default",
        lambda n: [whole, scales, zeros, -128, 127, indices(n)],
        qd.embedding_byte.default,
    )


# -- exported programs ------------------------------------------------------------------------------


class Quantizers(nn.Module):
    """Every way to quantise, on odd sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = nn.Buffer(torch.tensor([0.1, 0.2, 0.3]))
        self.zeros = nn.Buffer(torch.tensor([1, -2, 3]))
        self.table = nn.Buffer(random_bytes(10, 6))
        self.table_scales = nn.Buffer(torch.rand(10, 3))

    def forward(self, x: Tensor, indices: Tensor) -> tuple[Tensor, ...]:
        token_scale, token_zero = qd.choose_qparams_per_token_asymmetric(x, torch.int8)
        scale, zero = qd.choose_qparams.tensor(x, -128, 127, 1e-5, torch.int8)
        block = [1, 1, 5]
        affine = ao.choose_qparams_affine(
            x, "ASYMMETRIC", block, torch.int8, -128, 127, None, None, torch.int8
        )
        return (
            qd.quantize_per_tensor(x, 0.05, 3, -128, 127, torch.int8),
            qd.quantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8),
            qd.quantize_per_channel(x, self.scales, self.zeros, 1, -128, 127, torch.int8),
            qd.quantize_per_token(x, token_scale, token_zero, -128, 127, torch.int8),
            ao.quantize_affine(x, block, *affine, torch.int8, -128, 127),
            qd.embedding_4bit.dtype(self.table, self.table_scales, None, -8, 7, indices, dtype=torch.float32),
        )


def test_quantizers_exported(device: Device) -> None:
    n = Dim("n", min=1, max=7)
    check_export(
        device,
        Quantizers(),
        lambda n: (torch.randn(n, 3, 5), torch.randint(0, 10, (n,))),
        [(7,), (2,), (5,), (1,), (7,)],
        ({0: n}, {0: n}),
    )


class Dequantizers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scales = nn.Buffer(torch.tensor([0.1, 0.2, 0.3]))
        self.zeros = nn.Buffer(torch.tensor([1, -2, 3]))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return (
            qd.dequantize_per_tensor(x, 0.05, 3, -128, 127, torch.int8),
            qd.dequantize_per_channel(x, self.scales, self.zeros, 1, -128, 127, torch.int8),
        )


def test_dequantizers_exported(device: Device) -> None:
    shapes = ({0: Dim("n", min=1, max=7)},)
    lives = [(7,), (3,), (1,), (6,)]
    check_export(device, Dequantizers(), lambda n: (bytes_like(n, 3, 5),), lives, shapes)


def eight_bit_activations(depth: int, columns: int, bias: bool) -> nn.Linear:
    """A linear layer with 4-bit groups whose activations are quantised at run time."""
    from torchao.quantization.granularity import PerGroup
    from torchao.quantization.quant_api import Int8DynamicActivationIntxWeightConfig, quantize_

    linear = nn.Linear(depth, columns, bias=bias).eval()
    granularity = PerGroup(32)
    quantize_(
        linear, Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=granularity)
    )
    return linear


def test_linears_with_quantised_activations_exported(device: Device) -> None:
    module = nn.Sequential(
        eight_bit_activations(64, 96, True), nn.GELU(), eight_bit_activations(96, 24, False)
    )
    shapes = ({1: Dim("s", min=1, max=9)},)
    lives = [(9,), (1,), (4,), (9,), (2,)]
    check_export(device, module, lambda n: (torch.randn(1, n, 64),), lives, shapes, rtol=1e-3, atol=1e-3)


def test_four_bit_channels_exported(device: Device) -> None:
    from executorch.backends.vulkan.quantizer.vulkan_quantizer import (
        VulkanQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    torch.manual_seed(0)
    example, shapes = (torch.randn(9, 32),), ({0: Dim("m", min=1, max=9)},)
    config = get_symmetric_quantization_config(is_dynamic=False, weight_bits=4)
    linear = torch.export.export(nn.Linear(32, 10, bias=False), example, dynamic_shapes=shapes).module()
    prepared = prepare_pt2e(linear, VulkanQuantizer().set_global(config))
    prepared(*example)
    module = convert_pt2e(prepared)
    module.eval = lambda: module
    lives = [(9,), (1,), (4,), (9,)]
    check_export(device, module, lambda n: (torch.randn(n, 32),), lives, shapes, rtol=1e-3, atol=1e-3)
