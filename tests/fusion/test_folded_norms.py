"""Batch norms become a part of convolutions or of chains, clamps a part of convolutions."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import Tensor, nn

from pteron.compiler.passes import PASSES, fuse
from pteron.engine.devices.opening import Device
from tests.support.calls import check_file, eager
from tests.support.export import export
from tests.support.sketch import Sketch

NORM = "aten._native_batch_norm_legit_no_training.default"


def norm(channels: int, affine: bool = True) -> nn.BatchNorm2d:
    made = nn.BatchNorm2d(channels, affine=affine, eps=1e-3)
    assert made.running_mean is not None and made.running_var is not None
    made.running_mean.normal_()
    made.running_var.uniform_(0.1, 3)
    if affine:
        nn.init.normal_(made.weight)
        nn.init.normal_(made.bias)
    return made


class Norms(nn.Module):
    """Norms after convolutions, in groups, too; one before a ReLU; one of a value that is read twice."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.one = nn.Conv2d(3, 12, 3, padding=1, bias=False), norm(12)
        self.second, self.two = nn.Conv2d(12, 12, 3, groups=4, stride=2), norm(12, affine=False)
        self.third, self.three = nn.Conv2d(12, 12, 3, groups=12, padding=1), norm(12)
        self.alone = norm(12)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.one(self.first(x)))
        y = torch.clamp(self.two(self.second(y)), -0.5, 0.7)
        z = torch.relu(self.alone(y))
        third = self.third(z)
        return self.three(third) + third + nn.functional.relu6(z)


@pytest.mark.parametrize("passes", [None, ("batch_norms",), ("clamped_convolutions",)], ids=str)
@pytest.mark.parametrize("images", [(5, 9), (1, 17)], ids=["small", "large"])
def test_norms_are_folded(device: Device, passes: tuple[str, ...] | None, images: tuple[int, int]) -> None:
    most, size = images
    module = Norms().eval()
    sizes = {1: (1, 1)}.get(most, (most, 2, 1, most))
    shapes = ({0: torch.export.Dim("n", min=1, max=most)},) if most > 1 else None
    program = export(module, (torch.randn(most, 3, size, size),), shapes, partitioner=False)
    calls = eager(module, [(torch.randn(n, 3, size, size),) for n in sizes])
    graph = check_file(device, program, calls, 1e-4, 1e-5, fuse=passes)
    names = Counter(node.name for node in graph.nodes)
    if passes != ("clamped_convolutions",):
        assert NORM not in names
    if passes is None:
        assert names == {"pteron.packed_convolution": 3, "pteron.chain": 2}


def test_a_relu_keeps_not_a_number(device: Device) -> None:
    module = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU())
    x = torch.randn(1, 3, 6, 6)
    x[0, 1, 2, 3], x[0, 0, 5, 5] = torch.nan, torch.inf
    program = export(module, (x,), None, partitioner=False)
    graph = check_file(device, program, eager(module, [(x,)]), 1e-4, 1e-5, nan=True)
    assert [node.name for node in graph.nodes] == ["pteron.packed_convolution"]


def test_a_convolution_that_others_read_is_not_clamped() -> None:
    s = Sketch()
    x, weight = s.input(1, 4, 6, 6), s.constant(8, 4, 3, 3)
    arguments = (x, weight, None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    y = s.add("aten.convolution.default", *arguments, shape=(1, 8, 6, 6))
    z = s.add("aten.relu.default", y, shape=(1, 8, 6, 6))
    names = [node.name for node in fuse(s.finish(y, z)).nodes]
    assert names == ["pteron.packed_convolution", "aten.relu.default"]


class Statistics(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.group = nn.LayerNorm(20), nn.GroupNorm(2, 6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        grouped = self.group(self.layer(x))
        made, mean, _ = torch.native_layer_norm(grouped, (20,), None, None, 1e-5)
        return grouped, made, mean


def test_norms_without_their_statistics(device: Device) -> None:
    module, n = Statistics(), torch.export.Dim("n", min=1, max=5)
    program = export(module, (torch.randn(5, 6, 20),), ({0: n},), partitioner=False)
    calls = eager(module, [(torch.randn(size, 6, 20),) for size in (5, 1, 3, 5)])
    passes = set(PASSES) - {"chains"}
    names = Counter(node.name for node in check_file(device, program, calls, 1e-4, 1e-5, fuse=passes).nodes)
    assert names["pteron.layer_norm"] == names["pteron.group_norm"] == 1
    assert names["aten.native_layer_norm.default"] == 1  # its mean is read
