"""Convolutions against torch, at several live shapes of one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import pteron
from pteron.compiler.ops import conv_tiles
from pteron.engine.devices.opening import Device
from pteron.errors import InputError
from tests.support.export import export
from tests.support.programs import check_export
from tests.support.rules import check_rule

convolution = torch.ops.aten.convolution.default


def conv(
    x: tuple[int, ...],
    weight: tuple[int, ...],
    *,
    bias: int = 0,
    stride: tuple[int, ...] = (1,),
    padding: tuple[int, ...] = (0,),
    dilation: tuple[int, ...] = (1,),
    transposed: bool = False,
    output_padding: tuple[int, ...] = (0,),
    groups: int = 1,
    dtype: torch.dtype = torch.float32,
) -> list[Any]:
    """The operator's arguments. The sum over a window is near 1, so one tolerance fits all cases."""
    spatial = len(weight) - 2
    scale = 1 / max(1, torch.Size(weight[1:]).numel()) ** 0.5
    return [
        torch.randn(x).to(dtype),
        (torch.randn(weight) * scale).to(dtype),
        torch.randn(bias).to(dtype) if bias else None,
        [*stride] * (spatial if len(stride) == 1 else 1),
        [*padding] * (spatial if len(padding) == 1 else 1),
        [*dilation] * (spatial if len(dilation) == 1 else 1),
        transposed,
        [*output_padding] * (spatial if len(output_padding) == 1 else 1),
        groups,
    ]


HALF = torch.float16

CASES: dict[str, Callable[[int], list[Any]]] = {
    "1d": lambda n: conv((2, 3, n + 2), (5, 3, 3), bias=5),
    "1d strided": lambda n: conv((1, 4, 3 * n), (6, 4, 3), stride=(2,), padding=(1,)),
    "1d depthwise": lambda n: conv((2, 5, n + 4), (5, 1, 4), bias=5, groups=5, padding=(2,)),
    "1d channel multiplier": lambda n: conv((1, 3, n), (6, 1, 3), bias=6, groups=3, padding=(1,)),
    "1d grouped": lambda n: conv((1, 6, n + 3), (10, 3, 2), groups=2, dilation=(3,)),
    "1d pointwise": lambda n: conv((3, 7, n), (5, 7, 1), bias=5),
    "1d transposed": lambda n: conv(
        (2, 4, n), (4, 3, 5), bias=3, stride=(3,), padding=(2,), output_padding=(1,), transposed=True
    ),
    "2d": lambda n: conv((n, 3, n + 2, n + 4), (5, 3, 3, 5), bias=5, padding=(0, 1)),
    "2d strided and dilated": lambda n: conv(
        (1, 4, 2 * n + 3, 3 * n), (8, 4, 3, 2), stride=(2, 3), padding=(1, 0), dilation=(2, 1)
    ),
    "2d depthwise": lambda n: conv((n, 6, n, n + 1), (6, 1, 3, 3), bias=6, groups=6, padding=(1,)),
    "2d grouped": lambda n: conv((2, 6, n + 1, n), (12, 2, 3, 3), bias=12, groups=3, padding=(1,)),
    "2d pointwise": lambda n: conv((2, 9, n, n + 2), (6, 9, 1, 1), bias=6),
    "2d pointwise, strided": lambda n: conv((2, 3, n, n + 2), (4, 3, 1, 1), bias=4, stride=(2,)),
    "2d window of padding": lambda n: conv((1, 2, n, n), (4, 2, 3, 3), padding=(3,)),
    "2d transposed": lambda n: conv(
        (n, 4, n, n + 1), (4, 6, 4, 4), stride=(2,), padding=(1,), transposed=True
    ),
    "2d transposed, grouped": lambda n: conv(
        (2, 6, n, 3),
        (6, 2, 3, 2),
        bias=4,
        stride=(2, 3),
        dilation=(1, 2),
        output_padding=(1, 2),
        transposed=True,
        groups=2,
    ),
    "2d transposed, depthwise": lambda n: conv(
        (1, 5, n, n), (5, 1, 2, 2), transposed=True, stride=(2,), groups=5
    ),
    "3d": lambda n: conv((2, 2, n, n + 1, 5), (5, 2, 2, 3, 3), bias=5, padding=(1,), stride=(1, 2, 1)),
    "3d transposed": lambda n: conv(
        (1, 3, n, 2, n), (3, 2, 2, 3, 3), stride=(2,), padding=(1,), output_padding=(1, 0, 1), transposed=True
    ),
    "empty batch at times": lambda n: conv((n - 1, 3, 4, 4), (5, 3, 3, 3), bias=5),
    "float16 2d": lambda n: conv((n, 3, n + 2, 5), (5, 3, 3, 3), bias=5, dtype=HALF),
    "float16 transposed": lambda n: conv(
        (1, 3, n, n), (3, 2, 3, 3), stride=(2,), transposed=True, dtype=HALF
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_convolution(device: Device, case: str) -> None:
    check_rule(device, "aten.convolution.default", CASES[case], convolution)


# With channels enough for tiles, and more than one of them; depths that are not whole quads or steps.
MANY_CHANNELS: dict[str, Callable[[int], list[Any]]] = {
    "1d": lambda n: conv((2, 3, 10 * n), (70, 3, 5), bias=70, stride=(2,), padding=(2,)),
    "2d": lambda n: conv((n, 5, n + 2, n + 4), (17, 5, 3, 5), bias=17, padding=(0, 2), dilation=(1, 2)),
    "grouped": lambda n: conv((2, 6, n + 1, n), (48, 3, 3, 3), groups=2, padding=(1,)),
    "pointwise": lambda n: conv((2, 9, n, n + 2), (66, 9, 1, 1), bias=66),
    "pointwise, strided": lambda n: conv((2, 22, n, n + 2), (16, 22, 1, 1), stride=(2,)),
    "3d": lambda n: conv((2, 2, n, n + 1, 5), (20, 2, 2, 3, 3), bias=20, padding=(1,), stride=(1, 2, 1)),
    "float16": lambda n: conv((n, 3, n + 2, 6), (16, 3, 3, 3), bias=16, dtype=HALF),
    "float16, pointwise": lambda n: conv((2, 8, 2 * n), (24, 8, 1), bias=24, dtype=HALF),
    "empty batch at times": lambda n: conv((n - 1, 3, 4, 4), (16, 3, 3, 3), bias=16),
}


@pytest.mark.parametrize("case", MANY_CHANNELS)
def test_many_channels(routed: Device, case: str) -> None:
    check_rule(routed, "aten.convolution.default", MANY_CHANNELS[case], convolution, atol=1e-5)


def packed(args: list[Any]) -> list[Any]:
    """The arguments of a convolution with a packed weight, for the arguments of a convolution."""
    x, weight, bias, stride, padding, dilation, _, _, groups, *limits = args
    return [
        x,
        weight.movedim(0, -1).contiguous(),
        bias,
        stride,
        padding,
        dilation,
        groups,
        *(limits or [None] * 2),
    ]


def unpacked(*args: Any) -> Tensor:
    """What torch computes for the arguments of a convolution with a packed weight."""
    x, weight, bias, stride, padding, dilation, groups, low, high = args
    zeros = [0] * len(stride)
    y: Tensor = convolution(x, weight.movedim(-1, 0), bias, stride, padding, dilation, False, zeros, groups)
    return y if low is None and high is None else y.clamp(low, high)


# What unfolding has to get right: rows that are not whole quads, strides, dilations, windows wider than the
# image, groups and tiles of channels that are not full.
PACKED: dict[str, Callable[[int], list[Any]]] = {
    "few channels": CASES["2d strided and dilated"],
    "filter per channel": lambda n: conv((n, 6, n, n + 1), (6, 1, 3, 3), bias=6, groups=6, padding=(1,)),
    "filter per channel, strided": lambda n: conv(
        (2, 5, n + 2, 3 * n), (5, 1, 5, 4), bias=5, groups=5, padding=(2, 1), stride=(2, 3)
    ),
    "filter per channel, wide": lambda n: conv((1, 3, 4 * n, n + 1), (3, 1, 7, 7), groups=3, padding=(3,)),
    "filter per channel, step over rows": lambda n: conv(
        (1, 4, 3 * n, n), (4, 1, 2, 1), groups=4, stride=(3, 1)
    ),
    "filter per channel, 1d": CASES["1d depthwise"],
    "filter per channel, dilated": lambda n: conv((1, 4, n + 4, n), (4, 1, 3, 1), groups=4, dilation=(2, 1)),
    **MANY_CHANNELS,
    "patches": lambda n: conv((2, 3, 4 * n, 4 * n + 1), (24, 3, 4, 4), bias=24, stride=(4,)),
    "two tiles of channels": lambda n: conv((1, 5, n + 2, n), (44, 5, 3, 3), bias=44, padding=(1,)),
    "dilated": lambda n: conv(
        (2, 4, 2 * n + 5, n + 7), (12, 4, 3, 3), stride=(2, 1), padding=(2, 3), dilation=(2, 3)
    ),
    "one row of the window": lambda n: conv((1, 4, n, n + 2), (8, 4, 1, 3), stride=(3, 2), padding=(1, 1)),
    "groups of ragged channels": lambda n: conv(
        (2, 6, n, n + 1), (14, 3, 3, 3), bias=14, groups=2, padding=(1,)
    ),
    "window of padding": lambda n: conv((1, 2, n, n), (9, 2, 3, 3), padding=(3,), stride=(2,)),
    "few positions": lambda n: conv((n, 8, 3, 4), (36, 8, 3, 3), bias=36, stride=(2, 1), padding=(1, 2)),
    "few positions, dilated": lambda n: conv(
        (3, 6, n + 3, 4), (68, 6, 2, 2), dilation=(3, 2), padding=(1, 0), stride=(1, 2)
    ),
    "few positions, pointwise": lambda n: conv((3, 8, n, 2), (40, 8, 1, 1), bias=40),
    "one position": lambda n: conv((4 * n, 12, 1, 1), (8, 12, 1, 1), bias=8),
    "one position of 1d": lambda n: conv((n, 12, 3), (8, 12, 3), bias=8),
    "3d in whole quads": lambda n: conv(
        (2, 4, n, n + 4, 5), (20, 4, 2, 3, 3), bias=20, padding=(1, 0, 2), stride=(2, 1, 1), dilation=(2,)
    ),
    "pointwise, whole quads at times": lambda n: conv((3, 5, n, 6), (32, 5, 1, 1), bias=32),
    # Depths that several workgroups divide: slices of one tap that are full, or not, and in groups.
    "deep": lambda n: conv((n, 32, n + 2, n + 1), (40, 32, 3, 3), bias=40, padding=(1,)),
    "deep, ragged": lambda n: conv((2, 30, 2 * n, n), (18, 30, 3, 3), padding=(1,), stride=(2,)),
    "deep, grouped": lambda n: conv((2, 64, n + 1, n), (40, 32, 2, 3), groups=2, padding=(0, 2), bias=40),
    "deep, pointwise": lambda n: conv((3, 130, n, n), (50, 130, 1, 1), bias=50),
}


@pytest.mark.parametrize("case", PACKED)
def test_packed_weights(routed: Device, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv_tiles, "STEP", 8)  # software adapters take long to compile more

    def make(n: int) -> list[Any]:
        return packed(PACKED[case](n))

    check_rule(routed, "pteron.packed_convolution", make, unpacked, atol=1e-5)


@pytest.mark.parametrize("low, high", [(-0.3, 0.4), (0.0, None), (None, 0.25)])
@pytest.mark.parametrize("few", [False, True])
def test_packed_clamp(routed: Device, low: float | None, high: float | None, few: bool) -> None:
    def make(n: int) -> list[Any]:
        image, weight = ((n, 4, 2, 2), (20, 4, 3, 3)) if few else ((1, 3, n, n + 3), (18, 3, 3, 3))
        return packed([*conv(image, weight, bias=weight[0], padding=(1,)), low, high])

    check_rule(routed, "pteron.packed_convolution", make, unpacked)


@pytest.mark.parametrize("transposed", [False, True])
def test_unbatched(device: Device, transposed: bool) -> None:
    def batched(x: Tensor, *rest: Any) -> Tensor:
        return convolution(x[None], *rest)[0]

    check_rule(
        device,
        "aten.convolution.default",
        lambda n: conv((3, n, n + 1), (3, 3, 3, 2), bias=3, padding=(1,), transposed=transposed),
        batched,
    )


@pytest.mark.parametrize("low, high", [(-0.3, 0.4), (0.0, None), (None, 0.25)])
@pytest.mark.parametrize("channels", [5, 18])
def test_clamp(routed: Device, low: float | None, high: float | None, channels: int) -> None:
    check_rule(
        routed,
        "et_vk.conv_with_clamp.default",
        lambda n: [*conv((1, 3, n, n + 3), (channels, 3, 3, 3), bias=channels, padding=(1,)), low, high],
        lambda *args: convolution(*args[:-2]).clamp(low, high),
    )


@pytest.mark.parametrize("channels", [4, 16])
@pytest.mark.parametrize("window", [3, 1])
def test_infinity_is_not_spread_by_padding(routed: Device, channels: int, window: int) -> None:
    """A window element on padding reads nothing. A product of 0 and infinity would be NaN."""

    def make(n: int) -> list[Any]:
        args = conv((1, 1, n, n), (channels, 1, window, window), padding=(window // 2 * 2,))
        args[0][..., 0, 0] = torch.inf
        args[1] = args[1].abs() + 0.1
        return args

    check_rule(routed, "aten.convolution.default", make, convolution)
    check_rule(routed, "pteron.packed_convolution", lambda n: packed(make(n)), unpacked)


# -- exported programs ----------------------------------------------------------------------------


class Convolutions(nn.Module):
    """Every kind of weight as a constant. Each result is an output."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds = nn.ModuleList(
            [
                nn.Conv2d(4, 6, 3, padding=1),
                nn.Conv2d(4, 8, (3, 5), stride=(2, 1), dilation=(1, 2), groups=2, padding=(0, 4), bias=False),
                nn.Conv2d(4, 4, 3, groups=4, padding=1),
                nn.Conv2d(4, 7, 1),
                nn.ConvTranspose2d(4, 5, 3, stride=2, padding=1, output_padding=1),
                nn.ConvTranspose2d(4, 6, (3, 2), stride=(1, 3), groups=2, bias=False),
                nn.Sequential(nn.Conv2d(4, 5, 3), nn.ReLU()),
                nn.Sequential(nn.Conv2d(4, 5, 2), nn.Hardtanh(-0.2, 0.3)),
            ]
        )

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(kind(x) for kind in self.kinds)


def test_images_of_any_size(device: Device) -> None:
    height, width = Dim("height", min=5, max=9), Dim("width", min=5, max=13)
    lives = [(9, 13), (5, 5), (8, 7), (5, 13), (9, 6)]
    shapes = ({2: height, 3: width},)
    check_export(device, Convolutions(), lambda h, w: (torch.randn(1, 4, h, w),), lives, shapes)


def test_batches_of_any_size(device: Device) -> None:
    """The partitioner does not delegate convolutions with a dynamic batch."""
    batch, height, width = Dim("batch", max=3), Dim("height", min=5, max=7), Dim("width", min=5, max=9)
    lives = [(3, 7, 9), (1, 5, 5), (2, 6, 8)]
    shapes = ({0: batch, 2: height, 3: width},)
    check_export(device, Convolutions(), lambda b, h, w: (torch.randn(b, 4, h, w),), lives, shapes)


class Sequences(nn.Module):
    """Consecutive convolutions along time, as in an audio encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(5, 8, 3, padding=1),
            nn.GELU(),
            nn.Conv1d(8, 8, 3, stride=2, padding=1),
            nn.Conv1d(8, 8, 5, padding=2, groups=8),
            nn.Conv1d(8, 6, 1),
            nn.ConvTranspose1d(6, 3, 4, stride=2, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out


def test_sequences_of_any_length(device: Device) -> None:
    length = Dim("length", min=5, max=50)
    lives = [(50,), (7,), (33,), (5,), (50,)]
    check_export(device, Sequences(), lambda n: (torch.randn(1, 5, n),), lives, ({2: length},))


def test_a_network_in_half(device: Device) -> None:
    """float32 inputs and outputs, float16 inside: every kind of layer, one after another."""
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.GroupNorm(2, 8),
        nn.Upsample(scale_factor=2, mode="bilinear"),
    )
    height, width = Dim("height", min=8, max=17), Dim("width", min=8, max=20)
    check_export(
        device,
        network.eval(),
        lambda h, w: (torch.randn(1, 3, h, w),),
        [(17, 20), (8, 9), (13, 20)],
        ({2: height, 3: width},),
        rtol=1e-2,
        atol=1e-2,
        compile_options={"force_fp16": True},
    )


def test_volumes(device: Device) -> None:
    module = nn.Sequential(nn.Conv3d(2, 5, (2, 3, 3), padding=1), nn.ConvTranspose3d(5, 2, 2, stride=2))
    check_export(device, module, lambda d: (torch.randn(2, 2, d, 4, 5),), [(3,)])


def test_an_image_smaller_than_the_window_is_refused(device: Device) -> None:
    width = Dim("width", min=5, max=9)
    program = export(nn.Conv1d(2, 3, 4), (torch.randn(1, 2, 9),), ({2: width},))
    method = pteron.load(program, device=device).method()
    with pytest.raises(InputError, match=r"input of \(3\) is smaller than the window \(4\)"):
        method(torch.randn(1, 2, 3))
    assert method(torch.randn(1, 2, 4)).shape == (1, 3, 1)
