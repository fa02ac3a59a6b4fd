"""Linear layers and embeddings with quantised weights and float activations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pteron.compiler.ir.integer_rules import indexes
from pteron.compiler.ir.rule import (
    WORKGROUP,
    Dispatch,
    LiveTensor,
    Route,
    Scratch,
    Unused,
    check,
    describe,
    fold,
    looked_up,
    looks_up,
    multiplies,
    numel,
    op,
    quads,
    rows_of,
    threads,
)
from pteron.compiler.ops.linear_q4 import linear_q4gsw
from pteron.compiler.ops.matmul import all_float32, check_rows
from pteron.compiler.ops.products import ANY, GEMM, GEMV, Candidate, GemmShape, KernelKind, product_routes
from pteron.compiler.ops.quantized import affine_blocks, check_matrix, per_token
from pteron.compiler.ops.workgroups import stores, team_candidates, tile_candidates

# -- one scale per column ---------------------------------------------------------------------------

BYTES = (
    """
fn columns_quad(column: u32, k: u32) -> vec4<f32> {
    return vec4<f32>(weight_quad(column * p.packed / 4u + k));
}
""",
    "fn columns_at(column: u32, k: u32) -> f32 { return f32(weight_at(column * p.packed + k)); }",
)
# Two weights per byte. The even one is in the high nibble. A nibble is the weight plus 8.
NIBBLES = (
    """
fn columns_quad(column: u32, k: u32) -> vec4<f32> {
    let first = column * p.packed + 2u * k;
    let bytes = vec4<i32>(vec2<i32>(weight_at(first)), vec2<i32>(weight_at(first + 1u)));
    return vec4<f32>((bytes >> vec4<u32>(4u, 0u, 4u, 0u)) & vec4<i32>(15)) - vec4<f32>(8.0);
}
""",
    """
fn columns_at(column: u32, k: u32) -> f32 {
    let byte = weight_at(column * p.packed + k / 2u);
    return f32((byte >> (4u * (1u - k % 2u))) & 15) - 8.0;
}
""",
)


@op("et_vk.linear_qcs4w.default", work=multiplies("x"), rows=rows_of("x", mixes=-1))
def linear_qcs4w(x: LiveTensor, weight: LiveTensor, scales: LiveTensor, out: LiveTensor) -> list[Route]:
    return channelwise(x, weight, scales, out, NIBBLES, per_byte=2)


@op("aten._weight_int8pack_mm.default", work=multiplies("x"), rows=rows_of("x", mixes=-1))
def weight_int8pack_mm(x: LiveTensor, weight: LiveTensor, scales: LiveTensor, out: LiveTensor) -> list[Route]:
    return channelwise(x, weight, scales, out, BYTES, per_byte=1)


def channelwise(
    x: LiveTensor,
    weight: LiveTensor,
    scales: LiveTensor,
    out: LiveTensor,
    unpack: tuple[str, str],
    per_byte: int,
) -> list[Route]:
    """(x @ W^T) * scale. W is [columns, packed] bytes. A row of W may have one element more than x has."""
    check_matrix(weight)
    columns, packed = weight.shape
    depth = x.max_shape[-1]
    rows = check_rows(x, depth, "the weight")
    check(
        -(-depth // per_byte) <= packed,
        f"weight {describe(weight.shape)} is too small for rows of {depth}",
    )
    check(scales.numel >= columns, f"there are {scales.numel} scales for {columns} columns")
    out.resize((*x.shape[:-1], columns))
    bindings = {"x": x, "weight": weight, "scales": scales, "y": out}
    params = {"rows": rows, "columns": columns, "depth": depth, "packed": packed}
    gemm = GemmShape(rows, columns)
    in_quads = depth % 4 == 0 and (packed % 4 == 0 or per_byte > 1)
    whole = columns % 4 == 0
    candidates = []
    if in_quads and (whole or out.dtype.itemsize == 4):
        product = Dispatch("linear_channelwise_group", bindings, params, fold(0), stores(whole), unpack[0])
        candidates += team_candidates(product, gemm) + tile_candidates(product, gemm)

    def portable(kind: KernelKind, height: int) -> Candidate:
        grid = gemm.workgroups(height, WORKGROUP)
        defines = {"ROWS": height}
        return Candidate(kind, Dispatch("linear_channelwise", bindings, params, grid, defines, unpack[0]))

    if in_quads and all_float32(x, scales, out):
        candidates += [portable(GEMV, 1), portable(GEMM, 4)]
    else:
        grid = gemm.element_quads()
        candidates.append(
            Candidate(ANY, Dispatch("linear_channelwise_any", bindings, params, grid, code=unpack[1]))
        )
    return product_routes(gemm, candidates)


# -- 4-bit groups, activations quantised at run time ------------------------------------------------

# Quantize x and dequantize the result.
FAKE_QUANTIZE = """
fn apply(x: vec4<f32>, scale: vec4<f32>, zero: vec4<f32>) -> vec4<f32> {
    let q = clamp(round(x * (1.0 / scale)) + zero, vec4<f32>(p.low), vec4<f32>(p.high));
    return (q - zero) * scale;
}
"""


@op(
    "et_vk.linear_dq8ca_q4gsw.default",
    work=multiplies("x"),
    rows=rows_of("x", "input_scales", "input_zeros", mixes=-1),
)
def linear_dq8ca_q4gsw(
    x: LiveTensor,
    input_scales: LiveTensor,
    input_zeros: LiveTensor,
    weights: LiveTensor,
    weight_sums: LiveTensor,
    scales: LiveTensor,
    group_size: int,
    bias: LiveTensor | None,
    out: LiveTensor,
) -> list[Route]:
    """Each row of x is quantised to 8 bits and dequantised. Then the 4-bit linear layer follows."""
    coarse = Scratch("coarse", 4 * numel(x.max_shape))
    quantize = affine_blocks(
        x, coarse, FAKE_QUANTIZE, input_scales, input_zeros, per_token(x.shape), (-128, 127)
    )
    routes: list[Route] = linear_q4gsw(x, weights, scales, group_size, bias, out)
    return [
        replace(route, dispatches=[quantize, *map(_with_input(coarse), route.dispatches)]) for route in routes
    ]


def _with_input(source: Scratch) -> Any:
    """A function that replaces x in the bindings of a dispatch."""
    return lambda dispatch: replace(dispatch, bindings={**dispatch.bindings, "x": source})


# -- embeddings -------------------------------------------------------------------------------------

ROW_LOOKUP = looks_up("weight", "scales", "zeros", by="indices")


def embedding(name: str, per_byte: int) -> None:
    """Register both overloads of an embedding whose table has `per_byte` weights per byte."""

    @op(
        f"quantized_decomposed.{name}.default",
        work=ROW_LOOKUP,
        rows=looked_up("indices"),
        integers=indexes("indices"),
    )
    def default(
        weight: LiveTensor,
        scales: LiveTensor,
        zeros: LiveTensor | None,
        quant_min: int,
        quant_max: int,
        indices: LiveTensor,
        out: LiveTensor,
    ) -> Dispatch:
        return affine_embedding(weight, scales, zeros, indices, out, per_byte)

    @op(
        f"quantized_decomposed.{name}.dtype",
        work=ROW_LOOKUP,
        rows=looked_up("indices"),
        integers=indexes("indices"),
    )
    def with_dtype(
        weight: LiveTensor,
        scales: LiveTensor,
        zeros: LiveTensor | None,
        quant_min: int,
        quant_max: int,
        indices: LiveTensor,
        dtype: Unused,
        out: LiveTensor,
    ) -> Dispatch:
        return affine_embedding(weight, scales, zeros, indices, out, per_byte)


embedding("embedding_2bit", per_byte=4)
embedding("embedding_4bit", per_byte=2)
embedding("embedding_byte", per_byte=1)


def affine_embedding(
    weight: LiveTensor,
    scales: LiveTensor,
    zeros: LiveTensor | None,
    indices: LiveTensor,
    out: LiveTensor,
    per_byte: int,
) -> Dispatch:
    """Look up rows of a table. Scales are [rows], or [rows, groups] if a row has several groups."""
    check(weight.rank == 2, f"weight must have 2 dimensions, not shape {describe(weight.shape)}")
    rows, width = weight.shape[0], weight.shape[1] * per_byte
    groups = numel(scales.shape[1:])
    check(
        scales.shape[0] == rows and groups > 0 and width % groups == 0,
        f"scales {describe(scales.shape)} do not fit {rows} rows of {width} elements",
    )
    check(zeros is None or zeros.numel == scales.numel, "zero points must have the shape of the scales")
    indices.require_contents(0, rows - 1, f"an index into an embedding table of {rows} rows")
    out.resize((*indices.shape, width))
    params = {
        "quads": quads(out.numel),
        "width": width,
        "rows": rows,
        "group": width // groups,
        "groups": groups,
    }
    bindings = {"weight": weight, "scales": scales, "zeros": zeros or scales, "indices": indices, "y": out}
    defines = {"PER_BYTE": per_byte, "HAS_ZEROS": zeros is not None}
    return Dispatch("embedding_affine", bindings, params, threads(quads(out.numel)), defines)
