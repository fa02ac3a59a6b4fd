"""Operators for several sequences, in programs that spell attention otherwise than converted models do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pteron.api.method import Method
from pteron.api.segmented_method import SegmentedMethod
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Element, Port, SymInt, Tensor
from pteron.compiler.plan.sweep import plan
from pteron.compiler.segments.graph import Batching
from pteron.compiler.segments.rewrite import with_segments
from pteron.engine.arrays.numpy_arrays import convert_constant
from pteron.engine.devices.opening import Device
from pteron.engine.weight_store import WeightStore
from tests.support.memory import poison
from tests.support.sketch import Sketch

S, HEADS, SIZE, CAPACITY = 12, 2, 8, 20
WIDTH = HEADS * SIZE


class Attention(Sketch):
    """x [1, S, WIDTH] and its position: attention with x as queries, keys and values."""

    def __init__(self, one_position_per_row: bool = False) -> None:
        super().__init__()
        self.x = self.input(1, S, WIDTH)
        places = self.input(S if one_position_per_row else 1, dtype=DType.int32, host="int64")
        self.position = self.graph.symint("position")
        self.graph.elements.append(Element(self.position, places, 0, 0))
        self.length: SymInt = self.graph.symint("length")
        self.node("sym_size.int", [self.x, 1, self.length])
        self.caches = [self.value(1, CAPACITY, HEADS, SIZE) for _ in range(2)]
        self.graph.states += self.caches
        self.heads = self.value(1, S, HEADS, SIZE)
        self.node("aten.view_copy.default", [self.x, (1, self.length, HEADS, SIZE), self.heads])

    def attend(self) -> Tensor:
        """ExecuTorch's newer spelling: the caches are updated by operators of their own."""
        out = self.value(1, S, HEADS, SIZE)
        for cache in self.caches:
            self.node("update_cache.default", [self.heads, cache, self.position, None])
        args = (self.heads, *self.caches, self.position, None, 0.0, True, None)
        self.node("custom_sdpa.default", [*args, out])
        return out

    def returns(self, *tensors: Tensor) -> None:
        self.graph.outputs += [Port(f"output{n}", t, "float32", True) for n, t in enumerate(tensors)]


def all_rows() -> Attention:
    g = Attention()
    g.returns(g.attend())
    return g


def all_and_last_rows() -> Attention:
    """The last row is chosen by a slice, and squeezed."""
    g = Attention(one_position_per_row=True)
    y = g.attend()
    flat, last, row = g.value(1, S, WIDTH), g.value(1, 1, WIDTH), g.value(1, WIDTH)
    g.node("aten.view_copy.default", [y, (1, g.length, WIDTH), flat])
    g.node("aten.slice_copy.Tensor", [flat, 1, -1, 2**63 - 1, 1, last])
    g.node("aten.squeeze_copy.dims", [last, (1,), row])
    halves = [g.value(1, WIDTH // 2) for _ in range(2)]
    g.node("aten.split_with_sizes_copy.default", [row, (WIDTH // 2,) * 2, 1, tuple(halves)])
    g.returns(flat, *halves)
    return g


def methods(g: Sketch, device: Device) -> tuple[Method, SegmentedMethod]:
    features = device.route_features
    weights = WeightStore(device, convert_constant)
    segmented = with_segments(g.graph, Batching(3))
    return (
        Method(plan(g.graph, features), device, weights),
        SegmentedMethod(plan(segmented, features), device, weights),
    )


@pytest.mark.parametrize("make", [all_rows, all_and_last_rows])
def test_each_segment_gets_its_own_outputs(make: Callable[[], Attention], device: Device) -> None:
    one, many = methods(make(), device)
    random = np.random.default_rng(0)
    alone, states = [one.new_state() for _ in range(3)], [many.new_state() for _ in range(3)]
    lengths = [0, 0, 0]
    try:
        for mixture in ([(0, 3), (2, 1)], [(1, 8), (0, 1), (2, 2)], [(2, 9)], [(0, 1), (1, 1)]):
            inputs = [_inputs(one, count, lengths[c], random) for c, count in mixture]
            poison(many)
            found = many.execute_many([(x, states[c]) for x, (c, _) in zip(inputs, mixture, strict=True)])
            for x, (c, count), outputs in zip(inputs, mixture, found, strict=True):
                for output, expected in zip(outputs, one.execute(x, state=alone[c]), strict=True):
                    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-6)
                lengths[c] += count
    finally:
        one.close()
        many.close()


def _inputs(method: Method, count: int, position: int, random: np.random.Generator) -> tuple[Any, ...]:
    x = random.standard_normal((1, count, WIDTH)).astype(np.float32)
    each = count if method.inputs[1].max_shape[0] > 1 else 1
    return x, np.arange(position, position + each)
