"""Queries, keys and values from one product with coded weights, for GPUs.

A team of lanes rotates what it has computed, and writes keys and values to their caches. After tiles, another
kernel does. The pass `fused_qkv` finds where this can be done.
"""

from __future__ import annotations

from dataclasses import replace

from pteron.compiler.ir.rule import (
    Bound,
    Define,
    Dispatch,
    DType,
    LiveArguments,
    LiveInt,
    LiveTensor,
    Number,
    Route,
    Scratch,
    Shared,
    Work,
    check,
    describe,
    first_rows,
    op,
    quads,
    threads,
)
from pteron.compiler.ops.affine import AffineWeights
from pteron.compiler.ops.fused_affine import Around
from pteron.compiler.ops.linear_affine import AffineProduct
from pteron.compiler.ops.matmul import check_bias
from pteron.compiler.ops.outputs import NAMES
from pteron.compiler.ops.products import GemmShape, product_routes
from pteron.compiler.ops.rope import Rotation


def _work(call: LiveArguments) -> Work:
    length, depth = call["x"].shape
    columns = call["weights"].shape[0]
    tables = {name: first_rows(call[name], length) for name in ("cos", "sin", "turns")}
    caches = {name: first_rows(call[name], length, dim=1) for name in ("key_cache", "value_cache")}
    return Work(2 * length * depth * columns, {**tables, **caches})


@op(
    "pteron.fused_qkv",
    mutates=["key_cache", "value_cache"],
    uniforms=["row", "start_pos"],
    work=_work,
)
def fused_qkv(
    x: LiveTensor,
    norm: LiveTensor | None,
    eps: float,
    weights: LiveTensor,
    scales: LiveTensor,
    bits: int,
    group_size: int,
    zero: int,
    table: LiveTensor | None,
    bias: LiveTensor | None,
    cos: LiveTensor,
    sin: LiveTensor,
    turns: LiveTensor,
    row: LiveInt,
    key_cache: LiveTensor,
    value_cache: LiveTensor,
    start_pos: LiveInt,
    out: LiveTensor,
) -> list[Route]:
    """The rotated queries [1, S, H, D]. Keys and values are written to the caches [1, capacity, Hkv, D].

    x is [S, depth]. turns: the tables side by side, which have as many columns as a head has elements.
    """
    length = x.shape[0]
    heads, width = out.max_shape[2:]
    out.resize((1, length, heads, width))
    capacity, shared = key_cache.shape[1:3]
    check(
        cos.shape == sin.shape == (turns.shape[0], width) and width % 8 == 0,
        f"tables {describe(cos.shape)} must have a column for each of {width} elements of a head",
    )
    row.require(0, cos.shape[0] - length, f"position {{value}} plus {length} tokens is beyond the tables")
    start_pos.require(
        0,
        capacity - length,
        f"position {{value}} plus {length} new tokens does not fit the cache of {capacity} positions",
    )
    weight = AffineWeights.of_words(weights, scales, x.max_shape[-1], bits, group_size, zero, table)
    ends = (heads * width, (heads + shared) * width, (heads + 2 * shared) * width)
    check(x.shape[-1] == weight.depth, f"x has rows of {x.shape[-1]} elements, the weights {weight.depth}")
    check(weight.rows >= ends[2], f"weights of {weight.rows} rows do not fit {ends[2]} columns")
    check_bias(bias, ends[2])
    sizes = dict(zip(("second", "third", "columns"), ends, strict=True))
    bindings: dict[str, Bound] = {"x": x, **weight.bindings, **({"bias": bias} if bias else {})}
    params: dict[str, Number] = {**weight.params, **sizes, "rows": length}
    defines: dict[str, Define] = {**weight.defines, "EXPERTS": False, "HAS_BIAS": bias is not None}
    gemm = GemmShape(length, ends[2])
    around = Around(x, norm, eps, length)
    in_place: dict[str, Bound] = {
        "y": out,
        "turns": turns,
        "key_cache": key_cache,
        "value_cache": value_cache,
        "start": row,
        "start_pos": start_pos,
    }
    rotating = {
        "OUTPUTS": 1,
        "ROTARY": True,
        "HEAD": width,
        "IN_HALVES": key_cache.dtype is DType.float16,
    }
    by_teams = AffineProduct(weight, gemm, Shared({**bindings, **in_place}, params, {**defines, **rotating}))
    most = x.max_shape[0]
    widths = (heads * width, shared * width, shared * width)
    apart = {name: Scratch(name, 4 * most * columns) for name, columns in zip(NAMES, widths, strict=True)}
    by_tiles = AffineProduct(weight, gemm, Shared({**bindings, **apart}, params, {**defines, "OUTPUTS": 3}))
    turn = Rotation(cos, sin, row, width, halves=True, in_quads=True)
    stored = Dispatch(
        "rope_cache",
        {
            **dict(zip("qkv", apart.values(), strict=True)),
            "y": out,
            "key_cache": key_cache,
            "value_cache": value_cache,
            "start_pos": start_pos,
            **turn.bindings,
        },
        {
            "q_quads": quads(length * widths[0]),
            "k_quads": quads(length * widths[1]),
            "q_heads": heads,
            "k_heads": shared,
            "width": width,
            "length": length,
            "capacity": capacity,
            **turn.params,
        },
        threads(quads(length * widths[0]) + quads(length * widths[1])),
        turn.defines,
    )

    tiles = [*by_tiles.packed_candidates(norm, eps), *map(around.by_tiles, by_tiles.tile_candidates())]

    return product_routes(
        gemm,
        [
            *map(around.by_teams, by_teams.team_candidates()),
            *(replace(tile, after=stored) for tile in tiles),
        ],
    )
