"""Layers that read int8 weights directly: the same numbers, without a matrix of floats in every call."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import pteron
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Graph
from pteron.compiler.passes import fuse
from pteron.engine.devices.opening import Device
from tests.conftest import Once
from tests.support.calls import Call, check_calls
from tests.support.rules import Fixed, check_rule
from tests.support.sketch import Sketch

DEQUANTIZE, LINEAR = "torchao.dequantize_affine.default", "aten.linear.default"


class Model(nn.Module):
    """An embedding, siblings, and a head that shares its weight with the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(44, 64)
        self.q, self.k, self.v = nn.Linear(64, 64), nn.Linear(64, 32), nn.Linear(64, 32)
        self.head = nn.Linear(64, 44, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.table(tokens)
        return self.head(torch.tanh(self.q(x)) + torch.cat([self.k(x), self.v(x)], -1))


@pytest.mark.parametrize("symmetric", [True, False])
def test_int8_weights_are_read_directly(device: Device, once: Once, symmetric: bool) -> None:
    def make(folder: Path) -> None:
        torch.manual_seed(0)
        length = ({1: torch.export.Dim("length", min=1, max=19)},)
        tokens = torch.zeros(1, 19, dtype=torch.int64)
        done = pteron.export(Model(), (tokens,), dynamic_shapes=length, quantize="8bit", symmetric=symmetric)
        done.save(folder / "program.pte")

    path = once(f"int8 weights/{symmetric}", make) / "program.pte"
    with pteron.load(path, device=device) as fused, pteron.load(path, device=device, fuse=()) as unfused:
        names = Counter(node.name for node in fused.method().graph.nodes)
        assert (names["pteron.linears_int8"], names["pteron.linear_int8"]) == (1, 1)
        assert names["pteron.embedding_int8"] == 1
        assert not names[DEQUANTIZE] and not names[LINEAR]
        inputs = ([torch.randint(0, 44, (1, length))] for length in (19, 1, 8, 19))
        check_calls(fused.method(), [Call(x, [unfused(*x)]) for x in inputs], 1e-4, 1e-5)


# Group size, the types of the scales and of the zero points.
FORMS: list[tuple[int, Any, Any]] = [
    (32, torch.float32, None),
    (64, torch.float16, torch.int8),
    (16, torch.float32, torch.int32),
    (20, torch.float16, torch.int8),
]


@pytest.mark.parametrize(("group", "scale_type", "zero_type"), FORMS)
def test_linear(routed: Device, group: int, scale_type: Any, zero_type: Any) -> None:
    depth, rows = 3 * group, 70
    codes = torch.randint(-128, 128, (rows, depth), dtype=torch.int8)
    scales = (torch.rand(rows, 3) / 100).to(scale_type)
    zeros = None if zero_type is None else torch.randint(-20, 20, (rows, 3)).to(zero_type)
    each = codes.float().view(rows, 3, group) - (0 if zeros is None else zeros.float()[..., None])
    matrix, bias = (each * scales.float()[..., None]).view(rows, depth), torch.linspace(-1, 1, rows)

    def make(n: int) -> list[Any]:
        fixed = [Fixed(codes), Fixed(scales), None if zeros is None else Fixed(zeros), group, Fixed(bias)]
        return [torch.randn(n, depth), *fixed]

    def product(x: torch.Tensor, *rest: Any) -> torch.Tensor:
        return nn.functional.linear(x, matrix, bias)

    check_rule(routed, "pteron.linear_int8", make, product, (19, 1, 8, 19), rtol=1e-4, atol=1e-4)


def drawn(
    *,
    block: tuple[int, ...] = (1, 16),
    codes: DType = DType.int8,
    floats: DType = DType.float32,
    shown: bool = False,
    other_reader: bool = False,
) -> Graph:
    """A graph of a dequantized matrix and a linear layer."""
    s = Sketch()
    weight, scales = s.constant(8, 32, dtype=codes), s.constant(8, 2)
    matrix = s.value(8, 32, dtype=floats)
    s.node(DEQUANTIZE, [weight, block, scales, None, 1, None, None, 6, matrix])
    results = [s.add(LINEAR, s.input(4, 32), matrix, None, shape=(4, 8))]
    if other_reader:
        results.append(s.add("aten.tanh.default", matrix, shape=(8, 32)))
    return s.finish(*results, *([matrix] if shown else []))


def is_fused(graph: Graph) -> bool:
    return "pteron.linear_int8" in [node.name for node in fuse(graph).nodes]


def test_the_matrix_is_gone() -> None:
    assert is_fused(drawn())
    assert [node.name for node in fuse(drawn()).nodes] == ["pteron.linear_int8"]


@pytest.mark.parametrize(
    "options",
    [
        {"block": (2, 32)},  # rows share a scale
        {"codes": DType.uint8},
        {"floats": DType.float16},  # the matrix is rounded
        {"shown": True},
        {"other_reader": True},
    ],
)
def test_matrices_that_stay_as_they_are(options: dict[str, Any]) -> None:
    assert not is_fused(drawn(**options))
