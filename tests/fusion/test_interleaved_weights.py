"""The pass that interleaves coded weights: which it changes, and the bytes that are uploaded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pteron.compiler.ir.dispatch import GPU, SOFTWARE, SUBGROUP
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Graph, Joined, Tensor
from pteron.compiler.passes import fuse, fuse_for
from pteron.engine.arrays.numpy_arrays import convert_constant
from tests.support.sketch import Sketch

LINEAR, EMBEDDING = "pteron.linear_affine.default", "pteron.embedding_affine.default"
CPU = (SOFTWARE, SUBGROUP)


def linear(s: Sketch, x: Tensor, words: Any, bits: int = 4, group: int = 32, table: Any = None) -> Tensor:
    """A layer with 8 columns. Its scales are different, so that siblings are not joined."""
    return s.add(LINEAR, x, words, s.constant(8, 64 // group), bits, group, 8, table, None, shape=(3, 8))  # type: ignore[no-any-return]


def numbered(s: Sketch, rows: int, words: int) -> Tensor:
    return s.constant(rows, words, dtype=DType.int32, data=np.arange(rows * words, dtype=np.int32).tobytes())


def words_of(graph: Graph) -> list[Tensor]:
    return [node.args[node.op.parameters.index("weights")] for node in graph.nodes]  # type: ignore[misc]


def uploaded(tensor: Tensor) -> Any:
    return np.frombuffer(convert_constant(tensor), np.int32).reshape(tensor.max_shape)


def interleaved(rows: int, words: int, part: int) -> Any:
    return np.arange(rows * words).reshape(rows // 4, 4, words // part, part).transpose(0, 2, 1, 3)


@pytest.mark.parametrize(("bits", "part"), [(4, 2), (8, 4)])
def test_the_words_of_a_part_of_four_columns_follow_each_other(bits: int, part: int) -> None:
    s = Sketch()
    graph = s.finish(linear(s, s.input(3, 64), numbered(s, 8, 2 * bits), bits))
    (words,) = words_of(fuse_for(CPU, graph))
    np.testing.assert_array_equal(uploaded(words), interleaved(8, 2 * bits, part))


def test_weights_in_bytes() -> None:
    s = Sketch()
    data = np.arange(8 * 32, dtype=np.uint8)
    words = s.constant(8, 32, dtype=DType.uint8, data=data.tobytes())
    out = s.add("et_vk.linear_q4gsw.default", s.input(3, 64), words, s.constant(2, 8), 32, None, shape=(3, 8))
    (words,) = words_of(fuse_for(CPU, s.finish(out)))
    wanted = data.reshape(2, 4, 4, 8).transpose(0, 2, 1, 3)
    assert bytes(convert_constant(words)) == wanted.tobytes()


def test_joined_weights_are_interleaved_one_by_one() -> None:
    s = Sketch()
    x = s.input(3, 64)
    a, b = (
        s.add(LINEAR, x, numbered(s, 8, 8), s.constant(8, 2), 4, 32, 8, None, None, shape=(3, 8))
        for _ in "ab"
    )
    (words,) = words_of(fuse_for(CPU, fuse(s.finish(a, b))))
    assert isinstance(words.constant, Joined)
    np.testing.assert_array_equal(uploaded(words), np.concatenate([interleaved(8, 8, 2)] * 2))


def test_an_embedding_and_the_last_layer_share_their_weights() -> None:
    s = Sketch()
    table = numbered(s, 8, 8)
    same = s.graph.tensor(table.dtype, table.max_shape, "same", table.constant)
    rows = s.add(
        EMBEDDING, same, s.constant(8, 2), 4, 32, 8, None, s.input(3, dtype=DType.int32), shape=(3, 64)
    )
    one, other = words_of(fuse_for(CPU, s.finish(linear(s, rows, table))))
    assert one is other and one.max_shape == (2, 4, 4, 2)


def test_a_weight_that_another_operator_reads_stays() -> None:
    s = Sketch()
    table = numbered(s, 8, 8)
    twice = s.add("aten.add.Tensor", table, table, 1, shape=(8, 8), dtype=DType.int32)
    graph = fuse_for(CPU, s.finish(linear(s, s.input(3, 64), table), twice))
    assert graph.nodes[1].args[1] is table


@pytest.mark.parametrize(
    "features",
    [(), (GPU, SUBGROUP), (SOFTWARE,)],
    ids=str,
)
def test_other_devices_read_columns(features: tuple[str, ...]) -> None:
    s = Sketch()
    graph = s.finish(linear(s, s.input(3, 64), numbered(s, 8, 8)))
    assert words_of(fuse_for(features, graph)) == words_of(graph)
    assert fuse_for(CPU, graph, ()) is graph


@pytest.mark.parametrize(
    ("rows", "words", "how"),
    [
        (8, 12, {"bits": 6}),
        (8, 8, {"group": 16}),
        (8, 9, {}),  # rows that are filled up
        (10, 8, {}),
        (8, 8, {"table": True}),
    ],
)
def test_layers_that_kernels_for_parts_cannot_read_stay(rows: int, words: int, how: dict[str, Any]) -> None:
    s = Sketch()
    table = s.constant(16) if how.pop("table", False) else None
    graph = s.finish(linear(s, s.input(3, 64), numbered(s, rows, words), table=table, **how))
    assert words_of(fuse_for(CPU, graph)) == words_of(graph)
