"""Attention: with a KV cache, without one, and with a mask.

Scores are not stored: each kernel keeps a running softmax, so memory does not grow with the context. The
position is a uniform, so a decode step changes it without a new plan.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from pteron.ir.rule import (
    GPU,
    SOFTWARE,
    SUBGROUP,
    Bound,
    Define,
    Dispatch,
    LiveArguments,
    LiveInt,
    LiveTensor,
    Route,
    RowArguments,
    Scratch,
    Segmented,
    Shape,
    Shared,
    Unused,
    Work,
    check,
    describe,
    first_rows,
    fold,
    op,
    threads,
)
from pteron.ops.elementwise import wide_target
from pteron.ops.matmul import all_float32
from pteron.ops.shapes import broadcast_strides
from pteron.ops.writes import cache_update

FEW_QUERIES = 8  # with fewer queries than this, the lanes of a workgroup divide the keys
MAX_TILE_SUMS = 2048  # sums in the registers of an attention_tile workgroup; more would compile for too long
FLASH_TILE = 32  # queries of an attention_flash workgroup
MAX_FLASH_WIDTH = 256  # the largest head size whose attention_flash tiles fit into 16 KiB
MAX_PARTS = 1024  # partial results of key chunks in memory; enough workgroups for any GPU
MAX_HEADS_TOGETHER = 8  # query heads that one attention_decode workgroup computes

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


def sequence_first(shape: Shape) -> Heads:
    """[B, S, H, D]"""
    b, s, h, d = shape
    return Heads(b, s, h, d, s * h * d, h * d, d)


def heads_first(shape: Shape) -> Heads:
    """[B, H, S, D]"""
    b, h, s, d = shape
    return Heads(b, s, h, d, h * s * d, d, s * d)


def attention(
    q: LiveTensor,
    k: LiveTensor,
    v: LiveTensor,
    out: LiveTensor,
    layout: Any,
    *,
    start_pos: LiveInt,
    causal: bool,
    context: int | None = None,
    mask: LiveTensor | None = None,
    scale: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
) -> list[Route]:
    """softmax(q k^T * scale + mask) v, over the first `context` keys. None: the first start_pos + S keys.

    With a window, a query sees its own key and those just before it: `window` keys at most. With a soft-cap,
    scores become softcap * tanh(score / softcap) before the mask.
    """
    for name, x in (("query", q), ("key", k), ("value", v)):
        check(x.rank == 4, f"{name} must have 4 dimensions, not shape {describe(x.shape)}")
    queries, keys = layout(q.shape), layout(k.shape)
    check(
        queries.batch == keys.batch and queries.width == keys.width and k.shape == v.shape,
        f"query {describe(q.shape)}, key {describe(k.shape)} and value {describe(v.shape)} do not match",
    )
    width, heads, shared = queries.width, queries.heads, keys.heads
    check(width == q.max_shape[-1], f"the head size is {q.max_shape[-1]} and cannot vary: got {width}")
    check(shared > 0 and heads % shared == 0, f"{heads} query heads cannot share {shared} key heads")
    if mask is not None and mask.shape[-1:] != (1,):
        seen = mask.shape[-1] if mask.rank else 1
        if context is None:
            start_pos.require(
                0,
                seen - queries.length,
                f"position {{value}} is beyond the {seen} keys that the mask covers",
            )
        else:
            check(seen == context, f"mask {describe(mask.shape)} does not cover {context} keys")
    check(window is None or (causal and window > 0), f"a window must be causal and positive, not {window}")
    check(softcap is None or softcap > 0, f"softcap must be positive, not {softcap}")
    out.resize(q.shape)
    params = {
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
    }
    bindings: dict[str, Bound] = {"q": q, "k": k, "v": v, "y": out, "start_pos": start_pos}
    plain = Operands(bindings, params, defines, queries, keys)
    masked = plain
    if mask is not None:
        strides = _mask_strides(mask, (queries.batch, heads, queries.length), keys.length)
        kind = {"HAS_MASK": True, "MASK_IS_BOOL": mask.dtype.label == "bool"}
        masked = Operands(
            {**bindings, "mask": mask}, {**params, **strides}, {**defines, **kind}, queries, keys
        )
    largest = layout(q.max_shape), layout(k.max_shape)
    routes = []
    if width % 4 == 0 and width <= MAX_FLASH_WIDTH:
        routes += [_split(plain, masked, largest), _flash(masked)]
    if mask is None and width % 32 == 0 and all_float32(q, out):
        routes += [_decode(plain, largest), _tile(plain)]
    return [*routes, _general(masked, out)]


@dataclass(frozen=True, slots=True)
class Operands(Shared):
    """The common part of the dispatches, and the sizes of the queries and keys."""

    queries: Heads
    keys: Heads


def _general(operands: Operands, out: LiveTensor) -> Route:
    """For every head size and every mask: one invocation per row."""
    whole = out.max_shape[-1] % 4 == 0
    y, narrowing = (out, []) if whole else wide_target(out)
    operands = replace(operands, bindings={**operands.bindings, "y": y})
    code = STORE_QUADS if whole else STORE_ELEMENTS
    return Route("any", [operands.dispatch("attention", threads(operands.queries.rows), code), *narrowing])


@dataclass(frozen=True, slots=True)
class KeyChunks:
    """How the keys of a row are divided into chunks, one chunk per workgroup.

    The number of visible keys is not known when a grid is planned. So the number of chunks is fixed, and the
    kernels divide the visible keys among the chunks. A grid for the whole cache would need memory for every
    workgroup, and most workgroups would have no keys.
    """

    step: int  # the number of keys of a chunk is a multiple of this
    most: int  # the largest number of chunks; one invocation merges them

    def dispatches(
        self, kernel: str, plain: Operands, masked: Operands, largest: tuple[Heads, Heads], together: int = 1
    ) -> list[Dispatch]:
        """The kernel that computes the result of every chunk, and the kernel that merges these results.

        A workgroup of the first kernel computes `together` rows.
        """
        queries, per_row = plain.queries, plain.queries.width // 4
        most = min(self.most, -(-largest[1].length // self.step))
        chunks = max(1, min(most, MAX_PARTS // max(queries.rows, 1)))
        few = replace(largest[0], length=min(largest[0].length, FEW_QUERIES - 1)).rows
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


def _split(plain: Operands, masked: Operands, largest: tuple[Heads, Heads]) -> Route:
    """For few queries: one workgroup per chunk of keys."""
    dispatches = KeyChunks(step=32, most=32).dispatches("attention_split", plain, masked, largest)
    return Route("split", dispatches, when=plain.queries.length < FEW_QUERIES, home=GPU)


def _decode(operands: Operands, largest: tuple[Heads, Heads]) -> Route:
    """For few queries: lanes divide the keys of a chunk. Heads that share keys are computed together."""
    together = _divisor(largest[0].heads // largest[1].heads, MAX_HEADS_TOGETHER)
    rolled = replace(
        operands,
        params={**operands.params, "quads": operands.queries.width // 4},
        defines={**operands.defines, "ROLLED": True, "TOGETHER": together},
    )
    dispatches = KeyChunks(step=64, most=8).dispatches(
        "attention_decode", operands, rolled, largest, together
    )
    fits = (
        operands.queries.length < FEW_QUERIES
        and operands.queries.heads // operands.keys.heads % together == 0
    )
    return Route("decode", dispatches, when=fits, needs=SUBGROUP, home=SOFTWARE)


def _divisor(n: int, most: int) -> int:
    """The largest divisor of n that is at most `most`."""
    return max(d for d in range(1, most + 1) if n % d == 0)


def _tile(operands: Operands) -> Route:
    """For many queries: a subgroup computes some queries of all heads that share keys, 32 keys at a time."""
    queries, keys = operands.queries, operands.keys
    rows = max(8, min(32, MAX_TILE_SUMS // queries.width // 8 * 8))
    blocks = keys.batch * keys.heads * -(-queries.length * (queries.heads // keys.heads) // rows)
    rolled = replace(
        operands,
        params={**operands.params, "quads": queries.width // 4},
        defines={**operands.defines, "ROLLED": True, "ROWS": rows, "SHARE": queries.width // 32},
    )
    return Route("tile", [rolled.dispatch("attention_tile", fold(blocks))], needs=SUBGROUP, home=SOFTWARE)


def _flash(operands: Operands) -> Route:
    """For many queries: tiles of queries and keys are in workgroup memory."""
    width = operands.queries.width
    # One lane per element of a head, rounded up to whole subgroups. 16 KiB limit the depth of a slice.
    lanes, depth = 32 * -(-width // 32), 8 if width < MAX_FLASH_WIDTH else 4
    grid = fold(operands.queries.blocks(FLASH_TILE))
    flash = operands.dispatch("attention_flash", grid, LANES=lanes, SLICE=depth, TILE=FLASH_TILE)
    return Route("flash", [flash], home=GPU)


def _mask_strides(mask: LiveTensor, rows: Shape, keys: int) -> dict[str, int]:
    """Strides of a mask that broadcasts to [batch, heads, queries, keys]."""
    names = ("mask_batch", "mask_head", "mask_length", "mask_key")
    check(mask.rank <= 4, f"mask must have at most 4 dimensions, not shape {describe(mask.shape)}")
    full = (1,) * (4 - mask.rank) + mask.shape
    for have, want in zip(full[:3], rows, strict=True):
        check(
            have in (1, want), f"mask {describe(mask.shape)} does not broadcast to {describe((*rows, keys))}"
        )
    return dict(zip(names, broadcast_strides(full, (*rows, max(full[3], keys))), strict=True))


def has_mask(call: RowArguments) -> str | None:
    """Why the rows of several sequences cannot be computed together."""
    return None if call["mask"] is None else "its mask is for the positions of one sequence"


def _cached_work(call: LiveArguments, causal: bool, window: int | None, *caches: str) -> Work:
    """Only the visible rows of the caches are read. A query and a key need two multiply-adds per element."""
    batch, length, heads, width = call["q"].shape
    end = (call["start_pos"] or 0) + length
    seen = end if window is None else min(end, window + length - 1)
    pairs = length * end
    if causal:
        pairs = sum(min(last, window or last) for last in range(end - length + 1, end + 1))
    rows = {name: first_rows(call[name], seen, dim=1) for name in caches}
    return Work(4 * batch * heads * width * pairs, rows)


def sdpa_with_kv_cache_work(call: LiveArguments, window: int | None = None) -> Work:
    causal = call["is_causal"] or call["mask"] is None
    return _cached_work(call, causal, window, "key_cache", "value_cache")


def windowed_sdpa_work(call: LiveArguments) -> Work:
    return sdpa_with_kv_cache_work(call, call["window"])


def _custom_sdpa_work(call: LiveArguments) -> Work:
    return _cached_work(call, call["is_causal"], None, "k", "v")


def _sdpa_work(call: LiveArguments) -> Work:
    return Work(4 * call["out"].numel * call["k"].shape[-2])


@op(
    "sdpa_with_kv_cache.default",
    mutates=["key_cache", "value_cache"],
    uniforms=["start_pos"],
    work=sdpa_with_kv_cache_work,
    rows=Segmented(
        "pteron.segmented_sdpa_with_kv_cache",
        at="start_pos",
        rows=("q", "k", "v"),
        caches=("key_cache", "value_cache"),
        refuses=has_mask,
    ),
)
def sdpa_with_kv_cache(
    q: LiveTensor,
    k: LiveTensor,
    v: LiveTensor,
    key_cache: LiveTensor,
    value_cache: LiveTensor,
    start_pos: LiveInt,
    seq_len: Unused,
    mask: LiveTensor | None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
    out: LiveTensor,
) -> list[Route]:
    return _updating_attention(
        q, k, v, key_cache, value_cache, start_pos, mask, dropout, is_causal, scale, None, None, out
    )


@op(
    "pteron.sdpa_with_kv_cache.default",
    mutates=["key_cache", "value_cache"],
    uniforms=["start_pos"],
    work=windowed_sdpa_work,
    rows=Segmented(
        "pteron.segmented_windowed_sdpa",
        at="start_pos",
        rows=("q", "k", "v"),
        caches=("key_cache", "value_cache"),
        refuses=has_mask,
    ),
)
def windowed_sdpa_with_kv_cache(
    q: LiveTensor,
    k: LiveTensor,
    v: LiveTensor,
    key_cache: LiveTensor,
    value_cache: LiveTensor,
    start_pos: LiveInt,
    seq_len: Unused,
    mask: LiveTensor | None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
    window: int | None,
    softcap: float | None,
    out: LiveTensor,
) -> list[Route]:
    """As ExecuTorch's operator, with a sliding window and soft-capping."""
    return _updating_attention(
        q, k, v, key_cache, value_cache, start_pos, mask, dropout, is_causal, scale, window, softcap, out
    )


def _updating_attention(
    q: LiveTensor,
    k: LiveTensor,
    v: LiveTensor,
    key_cache: LiveTensor,
    value_cache: LiveTensor,
    start_pos: LiveInt,
    *rest: Any,
) -> list[Route]:
    """Store this call's keys and values in the caches. Then `cached_attention`, which takes the rest."""
    check(q.rank == 4 and k.rank == 4 and q.shape[1] == k.shape[1], "query and key must have the same length")
    updates = [cache_update(k, key_cache, start_pos), cache_update(v, value_cache, start_pos)]
    routes = cached_attention(q, key_cache, value_cache, start_pos, *rest)
    return [replace(route, dispatches=[*updates, *route.dispatches]) for route in routes]


def cached_attention(
    q: LiveTensor,
    key_cache: LiveTensor,
    value_cache: LiveTensor,
    start_pos: LiveInt,
    mask: LiveTensor | None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
    window: int | None,
    softcap: float | None,
    out: LiveTensor,
) -> list[Route]:
    """Attention over caches that already contain the tokens of this call. Causal, unless there is a mask."""
    check_dropout(dropout)
    causal = is_causal or mask is None
    return attention(
        q,
        key_cache,
        value_cache,
        out,
        sequence_first,
        start_pos=start_pos,
        causal=causal,
        mask=mask,
        scale=scale,
        window=window,
        softcap=softcap,
    )


def check_dropout(dropout: float) -> None:
    check(dropout == 0, f"dropout must be 0 at run time, not {dropout}: export the model with .eval()")


@op(
    "custom_sdpa.default",
    uniforms=["start_pos"],
    work=_custom_sdpa_work,
    rows=Segmented(
        "pteron.segmented_custom_sdpa",
        at="start_pos",
        rows=("q",),
        caches=("k", "v"),
        refuses=lambda call: has_mask(call) or (None if call["is_causal"] else "it is not causal"),
    ),
)
def custom_sdpa(
    q: LiveTensor,
    k: LiveTensor,
    v: LiveTensor,
    start_pos: LiveInt,
    mask: LiveTensor | None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
    out: LiveTensor,
) -> list[Route]:
    check_dropout(dropout)
    length, capacity = q.shape[1], k.shape[1]
    start_pos.require(
        0,
        capacity - length,
        f"position {{value}} plus {length} tokens is beyond the {capacity} positions of the keys",
    )
    return attention(
        q, k, v, out, sequence_first, start_pos=start_pos, causal=is_causal, mask=mask, scale=scale
    )


@op("et_vk.sdpa.default", work=_sdpa_work)
def sdpa(
    q: LiveTensor, k: LiveTensor, v: LiveTensor, mask: LiveTensor | None, scale: float | None, out: LiveTensor
) -> list[Route]:
    check(k.rank == 4, f"key must have 4 dimensions, not shape {describe(k.shape)}")
    start = LiveInt(0, 0, [])
    context = heads_first(k.shape).length
    return attention(
        q, k, v, out, heads_first, start_pos=start, causal=False, context=context, mask=mask, scale=scale
    )
