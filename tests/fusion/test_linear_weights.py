"""A product with copies of a constant matrix becomes a linear layer."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from pteron.engine.devices.opening import Device
from tests.support.calls import check_file, eager
from tests.support.export import export


class Projections(torch.nn.Module):
    """Products with a weight that is transposed, and one that is not, repeated for every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 60).view(5, 12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        narrow = torch.bmm(x, self.weight.t().expand(x.shape[0], -1, -1))
        return torch.bmm(narrow, self.weight.expand(x.shape[0], -1, -1))


@pytest.mark.parametrize("partitioner", [True, False], ids=["delegated", "outside"])
def test_a_weight_that_is_repeated_for_every_batch(device: Device, partitioner: bool) -> None:
    torch.manual_seed(0)
    module, live = Projections(), torch.export.Dim("n", min=1, max=9)
    program = export(module, (torch.randn(3, 9, 12),), ({1: live},), partitioner=partitioner)
    calls = eager(module, [(torch.randn(3, n, 12),) for n in (9, 2, 1, 9)])
    names = Counter(node.name for node in check_file(device, program, calls, 1e-4, 1e-5).nodes)
    assert names["aten.linear.default"] == 2
    assert not names.keys() & {"aten.bmm.default", "aten.expand_copy.default", "aten.permute_copy.default"}
