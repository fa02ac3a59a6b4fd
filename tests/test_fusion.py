"""Fused graphs: fewer dispatches, the same numbers, at every live shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import pteron
from pteron.fusion import PASSES, fuse
from pteron.fusion.chains import compose
from pteron.gpu.device import Device
from pteron.graph.dtypes import DType
from tests.dynamic_shape.replay import poison
from tests.graph.sketch import Sketch, live, shape_of

WIDTH = 24


class Block(nn.Module):
    """A residual sum that is normed and used again, a gated unit, and a chain with broadcasting."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, WIDTH))
        self.scale = nn.Parameter(torch.linspace(-1, 1, WIDTH))

    def forward(
        self, x: torch.Tensor, y: torch.Tensor, row: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        total = x + y
        normed = total * torch.rsqrt((total * total).mean(-1, keepdim=True) + 1e-5) * self.weight
        gated = torch.sigmoid(normed) * normed * y
        return total + gated, torch.tanh(gated * self.scale + row).abs() / 2.0


def inputs(length: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(length)
    x, y = (torch.randn(2, length, WIDTH, generator=generator) for _ in range(2))
    return x, y, torch.randn(1, WIDTH, generator=generator)


@pytest.fixture
def program(exported: Callable[..., bytes]) -> bytes:
    def arguments() -> tuple[Any, ...]:
        length = torch.export.Dim("length", min=1, max=16)
        return Block(), inputs(16), ({1: length}, {1: length}, None)

    return exported("fusion", arguments)


@pytest.mark.parametrize("passes", [None, (), *((name,) for name in PASSES)], ids=str)
def test_any_choice_of_passes_gives_torchs_numbers(program: bytes, device: Device, passes: Any) -> None:
    model = Block()
    with pteron.load(program, device=device, fuse=passes) as loaded:
        method = loaded.method()
        for length in (16, 3, 1, 16, 7):
            poison(method)
            got = method(*inputs(length))
            with torch.no_grad():
                want = model(*inputs(length))
            for g, w in zip(got, want, strict=True):
                assert g.shape == tuple(w.shape)
                np.testing.assert_allclose(g, w.numpy(), atol=1e-5, rtol=1e-4)


def test_fusing_leaves_fewer_nodes(program: bytes, device: Device) -> None:
    def names(passes: Any) -> Counter[str]:
        with pteron.load(program, device=device, fuse=passes) as loaded:
            return Counter(node.name for node in loaded.method().graph.nodes)

    apart, together = names(()), names(None)
    assert together["pteron.chain"] == 2
    assert together["pteron.add_rms_norm"] == 1
    assert "et_vk.rms_norm.default" not in together
    assert together.total() < apart.total() - 4


def test_a_chain_is_as_long_as_its_inputs_allow() -> None:
    s = Sketch()
    xs = [s.input(4, 8) for _ in range(6)]
    y = xs[0]
    for x in xs[1:]:
        y = s.add("aten.mul.Tensor", y, x, shape=(4, 8))
    graph = fuse(s.finish(y))
    assert [len(set(node.reads)) for node in graph.nodes] == [3, 4]
    assert [node.index for node in graph.nodes] == [0, 1]


def test_what_others_read_is_kept() -> None:
    s = Sketch()
    x = s.input(4)
    a = s.add("aten.tanh.default", x, shape=(4,))
    b = s.add("aten.exp.default", a, shape=(4,))
    graph = fuse(s.finish(a, b))
    assert [node.name for node in graph.nodes] == ["aten.tanh.default", "aten.exp.default"]


def test_integers_and_state_stay_out_of_chains() -> None:
    s = Sketch()
    x = s.input(4, dtype=DType.int32)
    a = s.add("aten.abs.default", x, shape=(4,), dtype=DType.int32)
    b = s.add("aten.neg.default", a, shape=(4,), dtype=DType.int32)
    cache = s.constant(4)
    c = s.add("aten.tanh.default", cache, shape=(4,))
    s.node("pteron.write_back", [c, cache, None], "sketch")
    d = s.add("aten.exp.default", cache, shape=(4,))
    s.graph.states = [cache]
    names = [node.name for node in s.finish(b, d).nodes]
    assert [node.name for node in fuse(s.graph).nodes] == names


def test_a_chain_takes_the_shape_of_its_inputs_together() -> None:
    s = Sketch()
    a, b = s.input(1, 8), s.input(9, 8)
    c = s.add("aten.tanh.default", a, shape=(1, 8))
    d = s.add("aten.add.Tensor", c, b, 1, shape=(9, 8))
    swept = live(fuse(s.finish(d)))
    swept.resize({b.id: (5, 8)})
    assert shape_of(swept, d) == (5, 8)


def test_a_residual_that_broadcasts_is_added_apart() -> None:
    s = Sketch()
    a, b, weight = s.input(4, 8), s.input(4, 8), s.constant(8)
    total = s.add("aten.add.Tensor", a, b, 1, shape=(4, 8))
    y = s.add("et_vk.rms_norm.default", total, weight, 1e-5, shape=(4, 8))
    swept = live(fuse(s.finish(total, y)))
    assert swept.plans[0] is not None and swept.plans[0].route == "together"
    swept.resize({a.id: (1, 8)})
    assert swept.plans[0].route == "apart"
    assert shape_of(swept, y) == (4, 8)


def test_a_chain_is_made_of_its_operators_own_functions() -> None:
    steps = (("aten.sigmoid.default", ("$0",)), ("aten.add.Tensor", ("%0", "$1", 2)))
    code = compose(steps)
    assert "let t0 = step0(a);" in code
    assert "let t1 = step1(t0, b);" in code
    assert "f32(2.0)" in code


class Product(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(24, 36, generator=torch.Generator().manual_seed(1)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.matrix


def test_a_constant_matrix_becomes_a_weight(device: Device, exported: Callable[..., bytes]) -> None:
    def arguments() -> tuple[Any, ...]:
        return Product(), (torch.zeros(9, 24),), ({0: torch.export.Dim("rows", min=1, max=9)},)

    with pteron.load(exported("product", arguments), device=device) as program:
        method = program.method()
        assert [node.name for node in method.graph.nodes] == ["aten.linear.default"]
        for rows in (9, 1, 4):
            poison(method)
            x = torch.randn(rows, 24)
            np.testing.assert_allclose(method(x), Product()(x).detach(), atol=1e-5, rtol=1e-5)


def test_an_unknown_pass_is_named() -> None:
    with pytest.raises(
        ValueError, match="there is no fusion pass 'chain'; there are linear_weights, add_rms"
    ):
        fuse(Sketch().finish(), ["chain"])
