"""Attention on GPUs reads and writes the layout of the products around it."""

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


class SelfAttention(nn.Module):
    """Self-attention, with a mask if there is one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v = (nn.Linear(HEADS * WIDTH, HEADS * WIDTH) for _ in range(3))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (f(x).view(1, -1, HEADS, WIDTH).transpose(1, 2) for f in (self.q, self.k, self.v))
        return (
            functional.scaled_dot_product_attention(q, k, v, mask)
            .transpose(1, 2)
            .reshape(1, -1, HEADS * WIDTH)
        )


@pytest.mark.slow  # the kernels of GPUs take long to compile here
@pytest.mark.parametrize("routed", ["GPU"], indirect=True)
@pytest.mark.parametrize("masked", [False, True])
def test_heads_stay_where_products_left_them(routed: Device, tmp_path: Path, masked: bool) -> None:
    module, n = SelfAttention(), torch.export.Dim("n", min=2, max=MOST)

    def inputs(size: int) -> tuple[Tensor, ...]:
        mask = (torch.randn(1, 1, size, size),) if masked else ()
        return (torch.randn(1, size, HEADS * WIDTH), *mask)

    dynamic = ({1: n}, {2: n, 3: n})[: 1 + masked]
    pteron.export(module, inputs(MOST), tmp_path / "model.pte", dynamic_shapes=dynamic)
    calls = eager(module, [inputs(size) for size in (MOST, 3, 17, MOST)])
    graph = check_file(routed, (tmp_path / "model.pte").read_bytes(), calls, 1e-4, 1e-5)
    names = Counter(node.name for node in graph.nodes)
    assert names["pteron.attention"] == 1
    # With a mask, rows without visible keys become zeros between the attention and the permutation.
    assert names["aten.permute_copy.default"] == 0 and names["aten.mul.Tensor"] == masked


@pytest.mark.parametrize("read_twice", ["", "q", "k", "result", "mask"])
def test_a_copy_that_others_read_stays(read_twice: str) -> None:
    s = Sketch()
    rows, heads = (1, MOST, HEADS, WIDTH), (1, HEADS, MOST, WIDTH)
    swapped = {
        name: s.add("aten.permute_copy.default", s.input(*rows), (0, 2, 1, 3), shape=heads) for name in "qkv"
    }
    square = (1, HEADS, MOST, MOST)
    mask = s.add("aten.expand_copy.default", s.input(1, 1, MOST, MOST), square, False, shape=square)
    found = s.add("et_vk.sdpa.default", *swapped.values(), mask, None, shape=heads)
    out = s.add("aten.permute_copy.default", found, (0, 2, 1, 3), shape=rows)
    others = {**swapped, "result": found, "mask": mask}
    graph = s.finish(out, others[read_twice]) if read_twice else s.finish(out)
    names = Counter(node.name for node in fuse_for((GPU,), graph).nodes)
    assert names["aten.permute_copy.default"] == (2 if read_twice in ("q", "k", "result") else 0)
    assert names["aten.expand_copy.default"] == (read_twice == "mask")
    assert names["pteron.attention"] == 1


@pytest.mark.parametrize(
    "shape", [(1, 1, MOST, 1), (1, HEADS, MOST, 1), (1, 1, MOST, WIDTH), (MOST, 1)], ids=str
)
def test_a_factor_for_each_query_moves_behind_the_permutation(shape: tuple[int, ...]) -> None:
    s = Sketch()
    rows, heads = (1, MOST, HEADS, WIDTH), (1, HEADS, MOST, WIDTH)
    q = s.add("aten.permute_copy.default", s.input(*rows), (0, 2, 1, 3), shape=heads)
    found = s.add("et_vk.sdpa.default", q, s.input(*heads), s.input(*heads), None, None, shape=heads)
    scaled = s.add("aten.mul.Tensor", s.input(*shape), found, shape=heads)
    graph = s.finish(s.add("aten.permute_copy.default", scaled, (0, 2, 1, 3), shape=rows))
    names = Counter(node.name for node in fuse_for((GPU,), graph).nodes)
    moves = shape == (1, 1, MOST, 1)
    assert names["aten.permute_copy.default"] == (0 if moves else 2)
    assert names["pteron.attention"] == moves
