"""One linear layer for queries, keys and values has three outputs on GPUs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import pteron
from pteron.compiler.ir.dispatch import GPU
from pteron.compiler.passes import fuse_for
from pteron.engine.devices.opening import Device
from tests.support.calls import check_file, eager
from tests.support.sketch import Sketch

HEADS, WIDTH, MOST = 2, 8, 24


class VisionAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.qkv = nn.Linear(HEADS * WIDTH, 3 * HEADS * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        b, s, c = x.shape
        q, k, v = self.qkv(x).reshape(b, s, 3, HEADS, WIDTH).permute(2, 0, 3, 1, 4).unbind(0)
        return functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, s, c)


@pytest.mark.slow  # the kernels of GPUs take long to compile here
@pytest.mark.parametrize("routed", ["GPU"], indirect=True)
def test_vision_attention_copies_nothing(routed: Device, tmp_path: Path) -> None:
    module, n = VisionAttention(), torch.export.Dim("n", min=2, max=MOST)
    pteron.export(
        module, (torch.randn(2, MOST, HEADS * WIDTH),), tmp_path / "m.pte", dynamic_shapes=({1: n},)
    )
    calls = eager(module, [(torch.randn(2, size, HEADS * WIDTH),) for size in (MOST, 3, 17, MOST)])
    graph = check_file(routed, (tmp_path / "m.pte").read_bytes(), calls, 1e-4, 1e-5)
    names = Counter(node.name for node in graph.nodes)
    assert names["pteron.linears"] == names["pteron.attention"] == 1
    assert not names.keys() & {"aten.permute_copy.default", "aten.slice_copy.Tensor"}


@pytest.mark.parametrize("change", ["", "order", "parts", "read twice", "swapped"])
def test_other_divisions_stay(change: str) -> None:
    s = Sketch()
    parts = 4 if change == "parts" else 3
    order = (2, 0, 1, 3, 4) if change == "order" else (2, 0, 3, 1, 4)
    x, weight = s.input(MOST, 16), s.constant(16 * parts, 16)
    y = s.add("aten.linear.default", x, weight, None, shape=(MOST, 16 * parts))
    viewed = s.add(
        "aten.view_copy.default", y, (1, MOST, parts, HEADS, WIDTH), shape=(1, MOST, parts, HEADS, WIDTH)
    )
    full = (1, MOST, parts, HEADS, WIDTH)
    permuted = tuple(full[d] for d in order)
    all_parts = s.add("aten.permute_copy.default", viewed, order, shape=permuted)
    numbers = (1, 0, 2) if change == "swapped" else (0, 1, 2)
    slices = [
        s.add("aten.slice_copy.Tensor", all_parts, 0, n, n + 1, 1, shape=(1, *permuted[1:])) for n in numbers
    ]
    found = [s.add("aten.squeeze_copy.dims", each, (0,), shape=permuted[1:]) for each in slices]
    graph = s.finish(*found, all_parts) if change == "read twice" else s.finish(*found)
    names = Counter(node.name for node in fuse_for((GPU,), graph).nodes)
    assert ("pteron.linears" in names) == (change == "")
