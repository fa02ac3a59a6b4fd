"""Linear layers with coded weights take over the norm before them, and what follows them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from pteron.compiler.ir.dispatch import GPU
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.passes import fuse, fuse_for
from pteron.engine.devices.opening import Device
from tests.ops.test_affine import arguments, coded
from tests.support.rules import Fixed, check_rule
from tests.support.sketch import Sketch, live, shape_of

ADD = (("a + b", (), False, ("a", "b"), "float32"),)
GATE = (("sigmoid4(x)", (), False, ("a",), "float32"), ("a * b", (), False, ("t0", "b"), "float32"))
TANH = (("tanh4(x)", (), False, ("a",), "float32"),)
FORMS: dict[str, dict[str, Any]] = {
    "norm and halves": {"norm": True, "halves": True, "steps": GATE},
    "residual sum": {"added": True, "steps": ADD, "bias": True},
    "norm and activation": {"norm": True, "steps": TANH, "bias": True},
    "norm, halves and bias": {"norm": True, "halves": True, "steps": GATE, "bias": True},
    "norm, three outputs": {"norm": True, "outs": (24, 8, 8)},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("depth", [160, 1056])
def test_every_route_of_a_fused_layer(routed: Device, form: str, depth: int) -> None:
    how = {"norm": False, "added": False, "halves": False, "steps": (), "bias": False, "outs": (40,)} | FORMS[
        form
    ]
    columns = sum(how["outs"]) * (2 if how["halves"] else 1)
    weight = coded(columns, depth, 4, 32, minima=True)
    matrix = torch.from_numpy(weight.dequantize())
    norm = torch.rand(depth) + 0.5
    bias = torch.randn(columns)

    def wanted(x: Any, *args: Any) -> Any:
        added = args[-2]
        v = functional.rms_norm(x, (depth,), norm, 1e-5) if how["norm"] else x
        y = functional.linear(v, matrix, bias if how["bias"] else None)
        if how["halves"]:
            a, b = y.chunk(2, -1)
            return [torch.sigmoid(a) * b]
        if how["steps"]:
            return [y + added if how["added"] else torch.tanh(y)]
        return list(y.split(how["outs"], -1))

    def args(n: int) -> list[Any]:
        return [
            torch.randn(n, depth) / 32,
            Fixed(norm) if how["norm"] else None,
            1e-5,
            *arguments(weight),
            Fixed(bias) if how["bias"] else None,
            how["steps"],
            torch.randn(n, 40) if how["added"] else None,
            how["halves"],
        ]

    sizes = (37, 1, 3, 9, 37)
    check_rule(routed, "pteron.fused_affine", args, wanted, sizes, rtol=1e-3, atol=1e-3)


def layer(s: Sketch, x: Any, rows: int, depth: int) -> Any:
    words = s.constant(rows, depth // 8, dtype=DType.int32, data=bytes(rows * depth // 2))
    scales = s.constant(rows, depth // 32)
    return s.add("pteron.linear_affine.default", x, words, scales, 4, 32, 8, None, None, shape=(3, rows))


def block(read_twice: bool = False) -> Any:
    """A norm, a gated unit, a residual sum, another norm and a layer."""
    s = Sketch()
    x = s.input(3, 64)
    normed = s.add("et_vk.rms_norm.default", x, s.constant(64), 1e-5, shape=(3, 64))
    gate, up = layer(s, normed, 128, 64), layer(s, normed, 128, 64)
    on = s.add("aten.sigmoid.default", gate, shape=(3, 128))
    product = s.add("aten.mul.Tensor", s.add("aten.mul.Tensor", gate, on, shape=(3, 128)), up, shape=(3, 128))
    down = layer(s, product, 64, 128)
    total = s.add("aten.add.Tensor", x, down, 1, shape=(3, 64))
    second = s.add("et_vk.rms_norm.default", total, s.constant(64), 1e-5, shape=(3, 64))
    last = layer(s, second, 64, 64)
    return s.finish(last, total, second, down) if read_twice else s.finish(last, total)


def test_a_block_is_three_nodes() -> None:
    names = [node.name for node in fuse_for((GPU,), fuse(block())).nodes]
    assert names == ["pteron.fused_affine"] * 3


def test_results_that_others_read_stay() -> None:
    names = [node.name for node in fuse_for((GPU,), fuse(block(read_twice=True))).nodes]
    assert names == [
        "pteron.fused_affine",
        "pteron.linear_affine.default",
        "pteron.add_rms_norm",
        "pteron.linear_affine.default",
    ]


def floats(s: Sketch, x: Any, rows: int, depth: int) -> Any:
    return s.add("aten.linear.default", x, s.constant(rows, depth), None, shape=(3, rows))


@pytest.mark.parametrize("make", [layer, floats])
def test_a_sum_that_may_repeat_a_row_stays(make: Any) -> None:
    """Two independent inputs have the same bound. In a call, one of them may have a single row."""
    s = Sketch()
    product = make(s, s.input(3, 64), 64, 64)
    total = s.add("aten.add.Tensor", product, s.input(3, 64), 1, shape=(3, 64))
    graph = s.finish(total)
    x, added = (port.value.id for port in graph.inputs)
    planned = live(fuse_for((GPU,), fuse(graph)), features=(GPU,))
    for mine, other in ((1, 3), (3, 1), (3, 3), (2, 2)):
        planned.sweep({x: (mine, 64), added: (other, 64)})
        assert shape_of(planned, total) == (max(mine, other), 64)


def test_a_sum_of_tensors_that_vary_together_is_fused() -> None:
    """The rows of the second input must be as many as those of the first, which its product needs."""
    s = Sketch()
    x, mask = s.input(3, 64), s.input(3, 3)
    seen = s.add("aten.mm.default", mask, x, shape=(3, 64))
    total = s.add("aten.add.Tensor", layer(s, seen, 64, 64), seen, 1, shape=(3, 64))
    names = [node.name for node in fuse_for((GPU,), fuse(s.finish(total))).nodes]
    assert names == ["aten.mm.default", "pteron.fused_affine"]
