"""Winograd's algorithm on GPUs, with the filters of real programs."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from pteron.compiler.ir.dispatch import GPU
from pteron.compiler.ir.values import WinogradFilters
from pteron.compiler.ops import conv_tiles
from pteron.compiler.ops.winograd import LAYOUT
from pteron.compiler.passes import fuse_for
from pteron.engine.arrays import numpy_arrays, plain_arrays
from pteron.engine.devices.opening import Device
from tests.support.calls import check_file, eager
from tests.support.export import export
from tests.support.sketch import Sketch


class Network(nn.Module):
    """Convolutions with a batch norm, a clamp and a bias, and those that have to stay as they are."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(3, 36, 3, padding=1)
        self.normed = nn.Sequential(
            nn.Conv2d(36, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU()
        )
        self.wide = nn.Conv2d(32, 34, 3, padding=(0, 2))
        self.strided = nn.Conv2d(34, 32, 3, stride=2)
        self.normed[1].running_mean.normal_()  # type: ignore[operator,union-attr]
        self.normed[1].running_var.uniform_(0.5, 2)  # type: ignore[operator,union-attr]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.wide(self.normed(torch.tanh(self.first(x))))
        return y, self.strided(y)


@pytest.mark.parametrize("routed", ["GPU"], indirect=True)
def test_images_of_any_size(routed: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv_tiles, "STEP", 8)  # software adapters take long to compile more
    module = Network().eval()
    shapes = ({2: Dim("height", min=7, max=22), 3: Dim("width", min=3, max=19)},)
    program = export(module, (torch.randn(2, 3, 22, 19),), shapes)
    lives = [(22, 19), (8, 3), (13, 16), (7, 18), (22, 19)]
    calls = eager(module, [(torch.randn(2, 3, h, w),) for h, w in lives])
    nodes = check_file(routed, program, calls, 1e-4, 2e-5).nodes
    weights = [node.args[1].layout for node in nodes if "convolution" in node.name]  # type: ignore[union-attr]
    assert Counter(weights) == {LAYOUT: 2, "": 2}


def test_filters_are_transformed_with_and_without_numpy() -> None:
    s = Sketch()
    taps = np.random.default_rng(0).standard_normal((3, 3, 3, 5)).astype(np.float32)
    source = s.constant(3, 3, 3, 5, data=taps.tobytes())
    made = s.graph.tensor(source.dtype, (3, 6, 6, 5), "filters", WinogradFilters(source), LAYOUT)
    plain = np.frombuffer(plain_arrays.convert_constant(made), np.float32)
    fast = np.frombuffer(numpy_arrays.convert_constant(made), np.float32)
    np.testing.assert_allclose(plain, fast, rtol=1e-6, atol=1e-7)
    # The last factor of a row and of a column is the last tap.
    np.testing.assert_array_equal(fast.reshape(3, 6, 6, 5)[:, 5, 5], taps[:, 2, 2])


@pytest.mark.parametrize(
    "size, groups, stride, found", [(28, 1, 1, True), (20, 1, 1, False), (28, 1, 2, False)]
)
def test_which_convolutions_change(size: int, groups: int, stride: int, found: bool) -> None:
    s = Sketch()
    x, weight = s.input(1, 64, size, size), s.constant(64 // groups, 3, 3, 64)
    made = -(-size // stride)
    args = (x, weight, None, (stride, stride), (1, 1), (1, 1), groups, None, None)
    y = s.add("pteron.packed_convolution", *args, shape=(1, 64, made, made))
    graph = s.finish(y)
    for features, changed in (((GPU,), found), ((), False)):
        (node,) = fuse_for(features, graph).nodes
        assert (node.args[1].layout == LAYOUT) is changed  # type: ignore[union-attr]
