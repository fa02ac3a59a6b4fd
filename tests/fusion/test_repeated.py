"""On GPUs, a node that computes what another one has computed is left out."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pteron.compiler.ir.dispatch import GPU
from pteron.compiler.passes import fuse_for
from pteron.engine.devices.opening import Device
from tests.support.calls import check_file, eager
from tests.support.export import export
from tests.support.sketch import Sketch


class Layers(nn.Module):
    """Every layer computes the same factors again."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for _ in range(3):
            x = torch.tanh(x) * torch.amax((1.0 - mask) * 2.5, dim=-1, keepdim=True)
        return x


@pytest.mark.parametrize("routed", ["GPU"], indirect=True)
@pytest.mark.parametrize("partitioner", [True, False], ids=["delegated", "outside"])
def test_what_layers_have_in_common_is_computed_once(routed: Device, partitioner: bool) -> None:
    n = torch.export.Dim("n", min=1, max=9)
    inputs = [(torch.randn(size, 12), torch.randn(size, 7)) for size in (9, 1, 4, 9)]
    program = export(Layers(), inputs[0], ({0: n}, {0: n}), partitioner=partitioner)
    graph = check_file(routed, program, eager(Layers(), inputs), 1e-5, 1e-6)
    assert Counter(node.name for node in graph.nodes)["aten.amax.default"] == 1


@pytest.mark.parametrize("change", ["", "argument", "constant", "large", "result"])
def test_nodes_that_differ_stay(change: str) -> None:
    s = Sketch()
    rows = 1 << 19 if change == "large" else 5
    x = s.input(rows, 4)
    values = (2, 3 if change == "constant" else 2)
    numbers = [s.constant(1, data=np.float32(n).tobytes()) for n in values]
    factors = (1, 2 if change == "argument" else 1)
    sums = [
        s.add("aten.add.Tensor", x, number, factor, shape=(rows, 4))
        for number, factor in zip(numbers, factors, strict=True)
    ]
    graph = s.finish(s.add("aten.mul.Tensor", *sums, shape=(rows, 4)), *sums[1 : 1 + (change == "result")])
    names = Counter(node.name for node in fuse_for((GPU,), graph).nodes)
    assert names["aten.add.Tensor"] == (1 if change == "" else 2)
