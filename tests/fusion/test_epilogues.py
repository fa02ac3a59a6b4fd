"""Linear layers and convolutions apply the activation that follows them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from pteron.compiler.ir.dispatch import GPU, SOFTWARE, SUBGROUP
from pteron.compiler.passes import DEVICE_PASSES, fuse_for
from pteron.engine.devices.opening import Device
from tests.support.calls import check_file, eager
from tests.support.export import export
from tests.support.rules import Fixed, check_rule
from tests.support.sketch import Sketch


class Activations(nn.Module):
    """A linear layer between views, and convolutions: plain, one filter per channel, of few positions."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.plain = nn.Conv2d(3, 12, 3, padding=1)
        self.each = nn.Conv2d(12, 12, 3, groups=12, stride=2)
        self.few = nn.Conv2d(12, 136, 3, stride=2)
        self.linear = nn.Linear(136, 260)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.sigmoid(self.plain(x))
        y = functional.gelu(self.few(torch.tanh(self.each(y))), approximate="tanh")
        rows = self.linear(y.flatten(2).transpose(1, 2).reshape(-1, 136))
        return functional.gelu(rows.view(-1, 4, 260))


@pytest.mark.parametrize("partitioner", [True, False], ids=["delegated", "outside"])
def test_activations_are_epilogues(device: Device, partitioner: bool) -> None:
    module, n = Activations(), torch.export.Dim("n", min=1, max=5)
    program = export(module, (torch.randn(5, 3, 13, 13),), ({0: n},), partitioner=partitioner)
    calls = eager(module, [(torch.randn(size, 3, 13, 13),) for size in (5, 1, 3, 5)])
    names = Counter(node.name for node in check_file(device, program, calls, 1e-4, 1e-5).nodes)
    if GPU in device.route_features:
        assert names["pteron.convolution_with_epilogue"] == 3
    if not set(DEVICE_PASSES["epilogues"][1]) <= set(device.route_features):
        return
    assert names["pteron.convolution_with_epilogue"] == 3
    assert names["pteron.linear_with_epilogue"] == 1
    assert not names.keys() & {"aten.gelu.default", "aten.sigmoid.default", "aten.tanh.default"}


@pytest.mark.parametrize("columns", [260, 9])
def test_every_route_of_a_linear_layer(routed: Device, columns: int) -> None:
    weight, bias = Fixed(torch.randn(columns, 128)), Fixed(torch.randn(columns))

    def wanted(x: Any, weight: Any, bias: Any, _: str) -> Tensor:
        return torch.exp(functional.linear(x, weight, bias).clamp(max=2))

    check_rule(
        routed,
        "pteron.linear_with_epilogue",
        lambda n: [torch.randn(n, 128) / 8, weight, bias, "exp(min(x, zero + 2.0))"],
        wanted,
        (45, 3, 1, 37, 20, 45),
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("columns", [68, 9])
def test_every_route_of_a_linear_layer_with_a_sum(routed: Device, columns: int) -> None:
    weight, bias = Fixed(torch.randn(columns, 64)), Fixed(torch.randn(columns))
    check_rule(
        routed,
        "pteron.linear_with_sum",
        lambda n: [torch.randn(n, 64) / 8, weight, bias, torch.randn(n, columns)],
        lambda x, weight, bias, added: functional.linear(x, weight, bias) + added,
        (45, 3, 1, 37, 20, 45),
        rtol=1e-4,
        atol=1e-4,
    )


class Residual(nn.Module):
    """A sum with the input, and one of the results of two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.third = (nn.Linear(64, 64) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x.tanh()) + x
        return self.second(y) + self.third(x)


@pytest.mark.parametrize("routed", ["GPU"], indirect=True)
@pytest.mark.parametrize("partitioner", [True, False], ids=["delegated", "outside"])
def test_residual_sums_are_in_the_store(routed: Device, partitioner: bool) -> None:
    module, n = Residual(), torch.export.Dim("n", min=1, max=40)
    program = export(module, (torch.randn(1, 40, 64),), ({1: n},), partitioner=partitioner)
    calls = eager(module, [(torch.randn(1, size, 64),) for size in (40, 1, 33, 40)])
    names = Counter(node.name for node in check_file(routed, program, calls, 1e-4, 1e-5).nodes)
    assert names["pteron.linear_with_sum"] == 2
    assert names["aten.add.Tensor"] == 0


@pytest.mark.parametrize("shape", [(8, 6, 3, 1), (16, 2, 3, 1), (6, 7, 5, 6)], ids=str)
def test_every_route_of_a_convolution(routed: Device, shape: tuple[int, ...]) -> None:
    channels, size, window, groups = shape
    weight = torch.randn(channels // groups, window, window, channels)

    def wanted(x: Any, weight: Any, *_: Any) -> Tensor:
        return torch.cos(functional.conv2d(x, weight.movedim(-1, 0), padding=window // 2, groups=groups))

    half = (window // 2,) * 2
    rest = (Fixed(weight), None, (1, 1), half, (1, 1), groups, None, None, "cos(x)")
    check_rule(
        routed,
        "pteron.convolution_with_epilogue",
        lambda n: [torch.randn(n, channels, size, size), *rest],
        wanted,
        (3, 1, 2, 3),
        rtol=1e-3,
        atol=1e-4,
    )


@pytest.mark.parametrize("read_twice", [False, True])
def test_a_result_that_others_read_stays(read_twice: bool) -> None:
    s = Sketch()
    x, weight = s.input(5, 8), s.constant(12, 8)
    y = s.add("aten.linear.default", x, weight, None, shape=(5, 12))
    z = s.add("aten.tanh.default", y, shape=(5, 12))
    graph = s.finish(y, z) if read_twice else s.finish(z)
    names = [node.name for node in fuse_for((SOFTWARE, SUBGROUP), graph).nodes]
    apart = ["aten.linear.default", "aten.tanh.default"]
    assert names == (apart if read_twice else ["pteron.linear_with_epilogue"])


@pytest.mark.parametrize("change", ["factor", "broadcast", "itself", "written later", ""])
def test_sums_that_a_store_cannot_add_stay(change: str) -> None:
    s = Sketch()
    x, weight = s.input(5, 8), s.constant(8, 8)
    early = s.add("aten.view_copy.default", x, (1, 5, 8), shape=(1, 5, 8))
    y = s.add("aten.linear.default", x, weight, None, shape=(5, 8))
    rows = s.add("aten.view_copy.default", y, (1, 5, 8), shape=(1, 5, 8))
    late = s.add("aten.tanh.default", early, shape=(1, 5, 8))
    others = {"itself": rows, "broadcast": s.input(1, 1, 8), "written later": late}
    factor = 2 if change == "factor" else 1
    out = s.add("aten.add.Tensor", rows, others.get(change, early), factor, shape=(1, 5, 8))
    names = [node.name for node in fuse_for((GPU,), s.finish(out, late)).nodes]
    assert ("pteron.linear_with_sum" in names) == (change == "")
