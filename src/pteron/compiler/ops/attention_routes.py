"""The kernels of attention, and the work that each of them is for.

Scores are not stored: each kernel keeps a running softmax, so memory does not grow with the context.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from pteron.compiler.ir.rule import (
    Bound,
    Define,
    Dispatch,
    LiveInt,
    LiveTensor,
    Number,
    Scratch,
    Shape,
    Shared,
    check,
    describe,
    fold,
    threads,
)
from pteron.compiler.ops.elementwise import wide_target

FEW_QUERIES = 8  # with fewer queries than this, the lanes of a workgroup divide the keys
FLASH_TILE, SMALL_FLASH_TILE = 32, 16  # queries of an attention_flash workgroup
MANY_TILES = 256  # workgroups that keep a GPU busy: with fewer large tiles than this, small ones are faster
MAX_FLASH_WIDTH = 256  # the largest head size whose attention_flash tiles fit into 16 KiB
MAX_PARTS = 1024  # partial results of key chunks in memory; enough workgroups for any GPU

# Store quad d of the row of y that starts at element `first`. If rows are not whole quads, two rows share a
# word, so elements are stored one by one.
STORE_QUADS = "fn store(first: u32, d: u32, value: vec4<f32>) { y_put(first / 4u + d, y_t4(value)); }"
STORE_ELEMENTS = """
fn store(first: u32, d: u32, value: vec4<f32>) {
    let left = min(4u, WIDTH - 4u * d);
    for (var c = 0u; c < left; c++) { y_set(first + 4u * d + c, y_t(value[c])); }
}
"""


@dataclass(frozen=True, slots=True)
class Heads:
    """The four sizes of an attention operand, and its strides."""

    batch: int
    length: int
    heads: int
    width: int
    batch_stride: int
    length_stride: int
    head_stride: int

    @property
    def rows(self) -> int:
        return self.batch * self.heads * self.length

    def blocks(self, queries: int) -> int:
        """The number of blocks. A block has `queries` queries of one head."""
        return self.batch * self.heads * -(-self.length // queries)


Layout: TypeAlias = Callable[[Shape], Heads]


def sequence_first(shape: Shape) -> Heads:
    """[B, S, H, D]"""
    b, s, h, d = shape
    return Heads(b, s, h, d, s * h * d, h * d, d)


def heads_first(shape: Shape) -> Heads:
    """[B, H, S, D]"""
    b, h, s, d = shape
    return Heads(b, s, h, d, h * s * d, d, s * d)


@dataclass(frozen=True, slots=True)
class Operands(Shared):
    """The common part of the dispatches, and the sizes of the queries and keys."""

    queries: Heads
    keys: Heads


def attention_operands(
    q: LiveTensor,
    k: LiveTensor,
    v: LiveTensor,
    out: LiveTensor,
    layouts: tuple[Layout, Layout],
    start_pos: LiveInt,
    causal: bool,
    context: int | None,
    scale: float | None,
    window: int | None,
    softcap: float | None,
    empty_is_zero: bool = False,
) -> Operands:
    """Check the operands of attention without a mask, and resize the output. See `attention`.

    layouts: of the queries and of the keys.
    """
    for name, x in (("query", q), ("key", k), ("value", v)):
        check(x.rank == 4, f"{name} must have 4 dimensions, not shape {describe(x.shape)}")
    queries, keys = layouts[0](q.shape), layouts[1](k.shape)
    check(
        queries.width == keys.width and k.shape == v.shape,
        f"query {describe(q.shape)}, key {describe(k.shape)} and value {describe(v.shape)} do not match",
    )
    width, heads, shared = queries.width, queries.heads, keys.heads
    check(width == q.max_shape[-1], f"the head size is {q.max_shape[-1]} and cannot vary: got {width}")
    check(shared > 0 and heads % shared == 0, f"{heads} query heads cannot share {shared} key heads")
    check(window is None or (causal and window > 0), f"a window must be causal and positive, not {window}")
    check(softcap is None or softcap > 0, f"softcap must be positive, not {softcap}")
    out.resize(q.shape)
    params: dict[str, Number] = {
        "batch": queries.batch,
        "length": queries.length,
        "heads": heads,
        "sharing": heads // shared,
        "context": context or 0,
        "scale": scale if scale is not None else 1 / math.sqrt(width),
        "q_batch": queries.batch_stride,
        "q_length": queries.length_stride,
        "q_head": queries.head_stride,
        "k_batch": keys.batch_stride,
        "k_length": keys.length_stride,
        "k_head": keys.head_stride,
        **({} if softcap is None else {"softcap": softcap}),
    }
    defines: dict[str, Define] = {
        "WIDTH": width,
        "CAUSAL": causal,
        "FROM_POSITION": context is None,
        "WINDOW": window or 0,
        "SOFTCAP": softcap is not None,
        "EMPTY_IS_ZERO": empty_is_zero,
        "MASK": "none",
        "SEGMENTED": False,
        "SPLIT": False,
        "ROLLED": False,
    }
    bindings: dict[str, Bound] = {"q": q, "k": k, "v": v, "y": out, "start_pos": start_pos}
    return Operands(bindings, params, defines, queries, keys)


def suits_tiles(operands: Operands) -> bool:
    """Whether `split_dispatches` and `flash_dispatch` have kernels for this head size."""
    return operands.queries.width % 4 == 0 and operands.queries.width <= MAX_FLASH_WIDTH


def general_dispatches(operands: Operands, out: LiveTensor) -> list[Dispatch]:
    """For every head size and every mask: one invocation per row."""
    whole = out.max_shape[-1] % 4 == 0
    y, narrowing = (out, []) if whole else wide_target(out)
    operands = replace(operands, bindings={**operands.bindings, "y": y})
    code = STORE_QUADS if whole else STORE_ELEMENTS
    return [operands.dispatch("attention", threads(operands.queries.rows), code), *narrowing]


@dataclass(frozen=True, slots=True)
class KeyChunks:
    """How the keys of a row are divided into chunks, one chunk per workgroup.

    The number of visible keys is not known when a grid is planned. So the number of chunks is fixed, and the
    kernels divide the visible keys among the chunks. A grid for the whole cache would need memory for every
    workgroup, and most workgroups would have no keys.
    """

    step: int  # the number of keys of a chunk is a multiple of this
    most: int  # the largest number of chunks; one invocation merges them
    enough: int = MAX_PARTS  # workgroups; with more chunks than this needs, the device has more work to do

    def dispatches(
        self, kernel: str, plain: Operands, masked: Operands, largest: tuple[Heads, Heads], together: int = 1
    ) -> list[Dispatch]:
        """The kernel that computes the result of every chunk, and the kernel that merges these results.

        largest: the largest sizes of the queries and the keys. A workgroup of the first kernel computes
        `together` rows.
        """
        queries, per_row = plain.queries, plain.queries.width // 4
        most = min(self.most, -(-largest[1].length // self.step))
        workgroups = max(queries.rows // together, 1)
        chunks = max(1, min(most, MAX_PARTS // max(queries.rows, 1), self.enough // workgroups))
        few = largest[0].rows
        parts = Scratch("parts", 16 * (per_row + 1) * max(few, min(MAX_PARTS, few * most)))

        def with_parts(operands: Operands, *without: str) -> Operands:
            kept = {name: bound for name, bound in operands.bindings.items() if name not in without}
            return replace(
                operands,
                bindings={**kept, "parts": parts},
                params={**operands.params, "chunks": chunks},
                defines={**operands.defines, "SPLIT": True, "STEP": self.step},
            )

        merging = with_parts(plain, "q", "k", "v")
        return [
            with_parts(masked, "y").dispatch(kernel, fold(queries.rows // together * chunks)),
            merging.dispatch("attention_merge", threads(queries.rows * per_row)),
        ]


def split_dispatches(plain: Operands, masked: Operands, largest: tuple[Heads, Heads]) -> list[Dispatch]:
    """For few queries: one workgroup per chunk of keys."""
    return KeyChunks(step=32, most=32).dispatches("attention_split", plain, masked, largest)


def flash_dispatch(operands: Operands, tile: int = FLASH_TILE) -> Dispatch:
    """For many queries: tiles of queries and keys are in workgroup memory."""
    width = operands.queries.width
    # One lane per element of a head, rounded up to whole subgroups. 16 KiB limit the depth of a slice.
    lanes, depth = 32 * -(-width // 32), 4
    grid = fold(operands.queries.blocks(tile))
    return operands.dispatch("attention_flash", grid, LANES=lanes, SLICE=depth, TILE=tile)
