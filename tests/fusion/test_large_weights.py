"""A linear layer or a convolution whose weight is too large for one binding is computed in parts."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from pteron.devices import Device
from pteron.fusion import large_weights
from tests.support.calls import check_file, eager
from tests.support.export import export


@pytest.mark.parametrize("partitioner", [True, False], ids=["delegated", "outside"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_parts_of_a_large_weight(
    device: Device, monkeypatch: pytest.MonkeyPatch, partitioner: bool, bias: bool
) -> None:
    monkeypatch.setattr(large_weights, "LARGEST_NBYTES", 12 * 4 * 12)  # 12 columns
    torch.manual_seed(0)
    module, live = torch.nn.Linear(12, 30, bias=bias), torch.export.Dim("n", min=1, max=9)
    program = export(module, (torch.randn(2, 9, 12),), ({1: live},), partitioner=partitioner)
    calls = eager(module, [(torch.randn(2, n, 12),) for n in (9, 2, 1, 9)])
    names = Counter(node.name for node in check_file(device, program, calls, 1e-4, 1e-5).nodes)
    assert names["aten.linear.default"] == 3
    assert names["aten.cat.default"] == 1


@pytest.mark.parametrize("partitioner", [True, False], ids=["delegated", "outside"])
def test_parts_of_a_large_convolution(
    device: Device, monkeypatch: pytest.MonkeyPatch, partitioner: bool
) -> None:
    monkeypatch.setattr(large_weights, "LARGEST_NBYTES", 5 * 9 * 4 * 12)  # 12 channels
    torch.manual_seed(0)
    grouped = torch.nn.Conv2d(30, 60, 3, groups=2)  # too large, but not split
    module = torch.nn.Sequential(torch.nn.Conv2d(5, 30, 3), torch.nn.ReLU(), grouped).eval()
    live = torch.export.Dim("n", min=1, max=3)
    program = export(module, (torch.randn(3, 5, 8, 7),), ({0: live},), partitioner=partitioner)
    calls = eager(module, [(torch.randn(n, 5, 8, 7),) for n in (3, 1, 2, 3)])
    names = Counter(node.name for node in check_file(device, program, calls, 1e-4, 1e-5).nodes)
    assert names["pteron.packed_convolution"] == 3 + 1
    assert names["aten.cat.default"] == 1
