"""Attention, whose loops are unrolled in the text."""

from __future__ import annotations

from dataclasses import replace

from pteron.compiler.ir.extensions import extra_routes
from pteron.compiler.ir.rule import SOFTWARE, SUBGROUP, Dispatch, DType, LiveTensor, Route, fold
from pteron.compiler.ops.attention import Attention
from pteron.compiler.ops.attention_routes import Heads, KeyChunks, Operands, suits_tiles
from pteron.compiler.ops.matmul import all_float32
from pteron.compiler.ops.segmented import SegmentedAttention

MAX_TILE_ROWS = 32  # queries of an attention_tile workgroup
MAX_MASKED_TILE_ROWS = 16  # the same if there is a mask, which makes the code longer
MAX_TILE_SUMS = 2048  # sums in the registers of an attention_tile workgroup; more would compile for too long
BUSY_CORES = 32  # workgroups that keep the cores of a CPU busy
MAX_DECODE_SUMS = 512  # sums of all heads of an attention_decode workgroup; its loops are unrolled


@extra_routes(Attention)
def attention_routes(problem: Attention) -> list[Route]:
    plain, largest = problem.plain, problem.largest
    routes = []
    if not problem.has_mask and _suits_decode(plain):
        shares_alike = plain.queries.heads * largest[1].heads == plain.keys.heads * largest[0].heads
        fits = problem.are_few and shares_alike
        routes.append(Route("decode", _decode(plain, largest), fits, SUBGROUP, SOFTWARE))
    if suits_tiles(plain):
        routes.append(Route("tile", [_tile(problem.masked)], None, SUBGROUP, SOFTWARE))
    return routes


@extra_routes(SegmentedAttention)
def segmented_routes(problem: SegmentedAttention) -> list[Route]:
    if not _suits_decode(problem.few):
        return []
    dispatches = [*_decode(problem.few, problem.largest), _tile(problem.long)]
    return [Route("decode and tile", dispatches, None, SUBGROUP, SOFTWARE)]


def _suits_decode(operands: Operands) -> bool:
    tensors = [operands.bindings[name] for name in ("q", "y")]
    are_float32 = all_float32(*(tensor for tensor in tensors if isinstance(tensor, LiveTensor)))
    return operands.queries.width % 32 == 0 and are_float32


def _decode(operands: Operands, largest: tuple[Heads, Heads]) -> list[Dispatch]:
    """For few queries: eight keys of a chunk at a time. Heads that share keys are computed together."""
    width = operands.queries.width
    together = _divisor(largest[0].heads // largest[1].heads, max(1, MAX_DECODE_SUMS // width))
    caches = [operands.bindings[name] for name in ("k", "v")]
    are_half = all(cache.dtype is DType.float16 for cache in caches if isinstance(cache, LiveTensor))
    decoding = replace(
        operands,
        defines={
            **operands.defines,
            "TOGETHER": together,
            "EIGHTS": width // 8,
            "SHARE": -(-width // 64),
            "HALF_CACHE": are_half,
        },
    )
    chunks = KeyChunks(step=64, most=8, enough=BUSY_CORES)
    return chunks.dispatches("attention_decode", operands, decoding, largest, together)


def _divisor(n: int, most: int) -> int:
    """The largest divisor of n that is at most `most`."""
    return max(d for d in range(1, most + 1) if n % d == 0)


def _tile(operands: Operands) -> Dispatch:
    """For many queries: a subgroup computes some queries of all heads that share keys, 32 keys at a time."""
    queries, keys = operands.queries, operands.keys
    most = MAX_MASKED_TILE_ROWS if operands.defines["MASK"] != "none" else MAX_TILE_ROWS
    rows = max(8, min(most, MAX_TILE_SUMS // queries.width // 8 * 8))
    blocks = queries.batch * keys.heads * -(-queries.length * (queries.heads // keys.heads) // rows)
    rolled = replace(
        operands,
        params={**operands.params, "quads": queries.width // 4},
        defines={**operands.defines, "ROLLED": True, "ROWS": rows, "SHARE": -(-queries.width // 32)},
    )
    return rolled.dispatch("attention_tile", fold(blocks))
