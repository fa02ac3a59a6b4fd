"""Operators on int8 activations, compared with torch: results must be exactly equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import executorch.backends.vulkan.custom_ops_lib  # noqa: F401  registers the operators
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from pteron.engine.devices.opening import Device
from pteron.errors import UnsupportedError
from tests.support.programs import check_export
from tests.support.rules import OneNode, check_rule

et_vk = torch.ops.et_vk
qd = torch.ops.quantized_decomposed


def check(
    device: Device,
    name: str,
    make: Callable[[int], list[Any]],
    reference: Callable[..., Any],
    lives: tuple[int, ...] = (7, 3, 1, 7, 4),
) -> None:
    check_rule(device, name, make, reference, lives, rtol=1e-6, atol=1e-6)


def bytes_like(*shape: int) -> Tensor:
    return torch.randint(-128, 128, shape).to(torch.int8)


# -- element by element -----------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1.0, 2.0, -0.5])
@pytest.mark.parametrize("scales", [(0.05, 0.05, 0.1), (0.07, 0.02, 0.06)])
@pytest.mark.parametrize("zeros", [(0, 0, 0), (5, -4, 7)])
def test_add(
    device: Device, alpha: float, scales: tuple[float, float, float], zeros: tuple[int, int, int]
) -> None:
    """With 0.05 + 0.05 = 0.1 every second sum is a tie."""
    parameters = [scales[0], zeros[0], scales[1], zeros[1], scales[2], zeros[2], alpha]
    make = lambda n: [bytes_like(n, 3, 5), bytes_like(n, 3, 5), *parameters]  # noqa: E731
    check(device, "et_vk.q8ta_add.default", make, et_vk.q8ta_add.default)


def test_add_broadcasts(device: Device) -> None:
    make = lambda n: [bytes_like(n, 3, 5), bytes_like(3, 1), 0.05, 1, 0.05, 2, 0.1, 3, 1.0]  # noqa: E731
    check(device, "et_vk.q8ta_add.default", make, et_vk.q8ta_add.default)


@pytest.mark.parametrize("parameters", [(0.05, 0, 0.05, 0), (0.05, 10, 0.1, -20), (0.03, -3, 0.08, 5)])
def test_relu(device: Device, parameters: tuple[float, int, float, int]) -> None:
    make = lambda n: [bytes_like(n, 7), *parameters]  # noqa: E731
    check(device, "et_vk.q8ta_relu.default", make, et_vk.q8ta_relu.default)


@pytest.mark.parametrize("factor", [1, 2, 3])
@pytest.mark.parametrize("parameters", [(0.05, 0, 20.0, 0), (0.05, 10, 1 / 0.08, -20)])
def test_pixel_shuffle(device: Device, factor: int, parameters: tuple[float, int, float, int]) -> None:
    make = lambda n: [bytes_like(2, 3 * factor**2, n, n + 2), *parameters, factor]  # noqa: E731
    check(device, "et_vk.q8ta_pixel_shuffle.default", make, et_vk.q8ta_pixel_shuffle.default)


# -- linear -----------------------------------------------------------------------------------------

INPUT_SCALE, INPUT_ZERO, OUTPUT_SCALE, OUTPUT_ZERO = 0.04, 9, 0.3, -11


def padded(x: Tensor) -> Tensor:
    """Pad a per-channel tensor to a multiple of four. Results must not depend on the padding."""
    return torch.cat([x, torch.full((-len(x) % 4,), 77, dtype=x.dtype)])


def in_floats(x: Tensor, weight: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    """The dequantized values in double precision, in which all sums are exact."""
    view = [-1] + [1] * (weight.dim() - 1)
    return (x.double() - INPUT_ZERO) * INPUT_SCALE, weight.double() * scales[: len(weight)].double().view(
        view
    )


def to_int8(x: Tensor, activation: str) -> Tensor:
    x = x.relu() if activation == "relu" else x
    return (torch.round(x * (1.0 / OUTPUT_SCALE)) + OUTPUT_ZERO).clamp(-128, 127).to(torch.int8)


@pytest.mark.parametrize("columns, depth", [(8, 16), (72, 12), (136, 132), (6, 16), (8, 10), (5, 7)])
@pytest.mark.parametrize("bias, activation", [(True, "none"), (False, "relu")])
def test_linear(routed: Device, columns: int, depth: int, bias: bool, activation: str) -> None:
    torch.manual_seed(1)
    weights, scales = bytes_like(columns, depth), padded(torch.rand(columns) / 100)
    sums = padded(weights.sum(1).to(torch.int32))
    added = padded(torch.randn(columns)) if bias else None

    def floats(x: Tensor, *rest: Any) -> Tensor:
        values, weight = in_floats(x, weights, scales)
        return nn.functional.linear(values, weight, None if added is None else added[:columns].double())

    def make(n: int) -> list[Any]:
        head = [bytes_like(1, n, depth), INPUT_SCALE, INPUT_ZERO, weights, sums, scales]
        return [*head, OUTPUT_SCALE, OUTPUT_ZERO, added, activation]

    for name in ("et_vk.q8ta_linear.default", "et_vk.q8ta_linear_gemv.default"):
        check(routed, name, make, lambda *args: to_int8(floats(*args), activation), (70, 1, 4, 20, 70))
    if activation == "none":
        check_rule(
            routed,
            "et_vk.linear_q8ta_q8csw.default",
            lambda n: [bytes_like(n, depth), INPUT_SCALE, INPUT_ZERO, weights, sums, scales, added],
            lambda *args: floats(*args).float(),
            lives=(33, 1, 4, 33),
            rtol=1e-5,
            atol=1e-5,
        )


def test_a_float_linear_that_should_be_int8_is_refused(device: Device) -> None:
    """The exporter writes this for a last linear layer without bias. The file has no scale for the output."""
    sums, scales = torch.zeros(4, dtype=torch.int32), torch.rand(4)
    args = [bytes_like(3, 8), INPUT_SCALE, INPUT_ZERO, bytes_like(4, 8), sums, scales, None]
    with pytest.raises(UnsupportedError, match="output must be float"):
        OneNode(device, "et_vk.linear_q8ta_q8csw.default", args, [bytes_like(3, 4)], False)


# -- convolution ------------------------------------------------------------------------------------


def conv_case(
    channels: tuple[int, int],
    kernel: tuple[int, int] = (3, 3),
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
    output_padding: tuple[int, int] | None = None,
    bias: bool = True,
    activation: str = "none",
) -> dict[str, Any]:
    return locals()


CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "3x3": conv_case((5, 6)),
    "3 channels, padded rows": conv_case((3, 8), bias=False),
    "strided": conv_case((4, 5), stride=(2, 3), activation="relu"),
    "dilated": conv_case((4, 8), dilation=(2, 1), padding=(2, 0)),
    "oblong": conv_case((2, 8), kernel=(3, 5), padding=(1, 2)),
    "grouped": conv_case((6, 8), groups=2),
    "pointwise": conv_case((7, 5), kernel=(1, 1), padding=(0, 0), activation="relu"),
    "pointwise grouped": conv_case((8, 8), kernel=(1, 1), padding=(0, 0), groups=2),
    "depthwise": conv_case((8, 8), groups=8),
    "depthwise strided": conv_case((4, 4), groups=4, stride=(2, 2), dilation=(1, 2), bias=False),
    "transposed": conv_case((5, 6), kernel=(2, 2), stride=(2, 2), padding=(0, 0), output_padding=(0, 0)),
    "transposed overlapping": conv_case((3, 8), stride=(2, 2), output_padding=(1, 1), activation="relu"),
    "transposed oblong": conv_case(
        (4, 5), kernel=(3, 2), stride=(2, 3), padding=(1, 0), output_padding=(0, 2)
    ),
    "transposed grouped": conv_case((6, 8), stride=(2, 1), output_padding=(1, 0), groups=2),
}


# With channels enough for tiles; positions come in whole quads at some of the sizes.
MANY_CHANNELS: dict[str, dict[str, Any]] = {
    "3x3": conv_case((5, 70)),
    "strided, dilated": conv_case((6, 16), stride=(2, 1), dilation=(1, 2), activation="relu"),
    "grouped": conv_case((6, 36), groups=2, bias=False),
    "pointwise": conv_case((71, 17), kernel=(1, 1), padding=(0, 0)),
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolution(device: Device, case: str) -> None:
    check_convolution(device, CONVOLUTIONS[case], (7, 3, 1, 7, 4))


@pytest.mark.parametrize("case", MANY_CHANNELS)
def test_many_channels(routed: Device, case: str) -> None:
    check_convolution(routed, MANY_CHANNELS[case], (9, 1, 5, 3, 6, 9))


def check_convolution(device: Device, c: dict[str, Any], lives: tuple[int, ...]) -> None:
    """The weight is stored as [out, (kernel height, kernel width, in)]. Depthwise: the channel is last."""
    (ins, outs), groups, transposed = c["channels"], c["groups"], c["output_padding"] is not None
    torch.manual_seed(2)
    weight = bytes_like(outs, ins // groups, *c["kernel"])
    depthwise = groups == ins == outs and not transposed
    # The outputs of each group share their scales if the convolution is transposed.
    scales = torch.rand(outs // groups if transposed else outs) / 100
    full_scales = scales.repeat(groups) if transposed else scales
    bias = torch.randn(outs) if c["bias"] else None
    if depthwise:
        stored = weight.permute(2, 3, 1, 0).reshape(*c["kernel"], outs).contiguous()
    else:
        matrix = weight.permute(0, 2, 3, 1).reshape(outs, -1)
        stored = nn.functional.pad(matrix, (0, -matrix.shape[1] % 4), value=55)
    window = [c["stride"], c["padding"], *([c["output_padding"]] if transposed else []), c["dilation"]]

    def make(n: int) -> list[Any]:
        x, sums = bytes_like(2, ins, n + 2, n + 3), torch.zeros(outs, dtype=torch.int32)
        head = [x, INPUT_SCALE, INPUT_ZERO, stored, sums, padded(scales), OUTPUT_SCALE, OUTPUT_ZERO]
        return [*head, None if bias is None else padded(bias), c["kernel"], *window, groups, c["activation"]]

    def reference(x: Tensor, *rest: Any) -> Tensor:
        values, floats = in_floats(x, weight, full_scales)
        added = None if bias is None else bias.double()
        if transposed:
            split = floats.view(groups, outs // groups, ins // groups, *c["kernel"])
            floats = split.transpose(1, 2).reshape(ins, outs // groups, *c["kernel"])
            out = nn.functional.conv_transpose2d(
                values, floats, added, c["stride"], c["padding"], c["output_padding"], groups, c["dilation"]
            )
        else:
            out = nn.functional.conv2d(
                values, floats, added, c["stride"], c["padding"], c["dilation"], groups
            )
        return to_int8(out, c["activation"])

    kind = "_transposed" if transposed else "_dw" if depthwise else "_pw" if c["kernel"] == (1, 1) else ""
    check(device, f"et_vk.q8ta_conv2d{kind}.default", make, reference, lives)


# -- exported programs ------------------------------------------------------------------------------


def quantized(module: nn.Module, example: Tensor, shapes: Any) -> nn.Module:
    """The module with int8 activations and weights, calibrated on the example."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    captured = torch.export.export(module.eval(), (example,), dynamic_shapes=shapes).module()
    prepared = prepare_pt2e(captured, quantizer)
    prepared(example)
    converted: nn.Module = convert_pt2e(prepared)
    converted.eval = lambda: converted  # type: ignore[method-assign, misc, assignment]
    return converted


class Images(nn.Module):
    """Every kind of int8 convolution, an addition and a linear."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.pointwise = nn.Conv2d(8, 8, 1)
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.last = nn.Conv2d(8, 6, 3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        x = self.pointwise(self.depthwise(x)) + x
        out: Tensor = self.last(self.up(x))
        return out


def test_images_of_any_size_exported(device: Device) -> None:
    torch.manual_seed(0)
    shapes = ({2: Dim("h", min=4, max=9), 3: Dim("w", min=4, max=11)},)
    module = quantized(Images(), torch.randn(1, 3, 9, 11), shapes)
    lives = [(9, 11), (4, 5), (7, 9), (9, 4), (6, 11)]
    # A step of the output is far more than the tolerance: none may be off.
    make = lambda h, w: (torch.randn(1, 3, h, w),)  # noqa: E731
    check_export(device, module, make, lives, shapes, rtol=1e-4, atol=1e-4)


def test_linears_of_any_length_exported(device: Device) -> None:
    torch.manual_seed(0)
    shapes = ({0: Dim("m", min=2, max=9)},)
    layers = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 8, bias=False))
    module = quantized(layers, torch.randn(9, 12), shapes)
    lives = [(9,), (2,), (5,), (9,), (4,)]
    check_export(device, module, lambda n: (torch.randn(n, 12),), lives, shapes, rtol=1e-4, atol=1e-4)
