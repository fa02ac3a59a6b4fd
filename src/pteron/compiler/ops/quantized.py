"""Affine quantisation, q = round(x / scale) + zero point: quantize, dequantize, and choose the parameters.

Per tensor, per channel, per token and per block are computed in one way: x is divided into blocks, and each
block has a scale and a zero point. Results are equal to torch's in every bit. torch multiplies by 1 / scale,
and rounds ties to even.
"""

from __future__ import annotations

from collections.abc import Sequence

from pteron.compiler.ir.rule import (
    GPU,
    Bound,
    Dispatch,
    DType,
    LiveTensor,
    Number,
    Route,
    Scratch,
    Shape,
    Unused,
    check,
    describe,
    numel,
    op,
    quads,
    rows_of,
    threads,
)
from pteron.compiler.ops.elementwise import Elementwise, elementwise
from pteron.compiler.ops.reduce import LANES, Reduction, stride_params, workgroup_reduction
from pteron.compiler.ops.shapes import contiguous, dimension, merge

_APPLY = "fn apply(x: vec4<f32>, scale: vec4<f32>, zero: vec4<f32>) -> vec4<f32> {{ return {}; }}"

QUANTIZE = _APPLY.format("clamp(round(x * (1.0 / scale)) + zero, vec4<f32>(p.low), vec4<f32>(p.high))")
DEQUANTIZE = _APPLY.format("(x - zero) * scale")
# Here the zero point is added before rounding, so ties depend on the sum. torch uses double precision.
QUANTIZE_SUM = """
fn apply(x: vec4<f32>, scale: vec4<f32>, zero: vec4<f32>) -> vec4<f32> {
    let v = x * (1.0 / scale);
    let below = floor(v) + zero;
    let part = v - floor(v);
    let odd = below - 2.0 * floor(0.5 * below) == vec4<f32>(1.0);
    let up = (part > vec4<f32>(0.5)) | ((part == vec4<f32>(0.5)) & odd);
    return clamp(below + select(vec4<f32>(0.0), vec4<f32>(1.0), up), vec4<f32>(p.low), vec4<f32>(p.high));
}
"""


def affine_blocks(
    x: LiveTensor,
    out: LiveTensor | Scratch,
    code: str,
    scales: LiveTensor,
    zeros: LiveTensor | None,
    block: Shape,
    bounds: tuple[int, int] = (0, 0),
) -> Dispatch:
    """Quantize or dequantize x with one scale and zero point per block, in row-major order of the blocks."""
    blocks, block = split_into_blocks(x.shape, block)
    for what, given in {"scales": scales, "zero points": zeros}.items():
        if given is not None and x.numel:
            count = numel(blocks)
            check(
                given.numel == count, f"{what} have shape {describe(given.shape)}, but x has {count} blocks"
            )
    if isinstance(out, LiveTensor):
        out.resize(x.shape)
    # Each dimension becomes two: the block, and the position in the block.
    sizes = [n for pair in zip(blocks, block, strict=True) for n in pair]
    strides = [n for step in contiguous(blocks) for n in (step, 0)]
    merged, (walk,) = merge(tuple(sizes), strides)
    params: dict[str, Number] = {
        "quads": quads(x.numel),
        "low": bounds[0],
        "high": bounds[1],
        "rank": len(merged),
        "sizes": merged,
        "strides": walk,
    }
    bindings = {"x": x, "scales": scales, "zeros": zeros or scales, "y": out}
    defines = {"HAS_ZEROS": zeros is not None}
    return Dispatch("affine", bindings, params, threads(quads(x.numel)), defines, code)


def split_into_blocks(shape: Shape, block: Sequence[int]) -> tuple[Shape, Shape]:
    """The number of blocks along each dimension, and the size of a block along it."""
    check(
        len(block) == len(shape),
        f"block_size {describe(tuple(block))} does not fit a shape {describe(shape)}",
    )
    sizes = tuple(max(1, min(b, n)) for b, n in zip(block, shape, strict=True))
    whole = all(n % b == 0 for n, b in zip(shape, sizes, strict=True))
    check(whole, f"shape {describe(shape)} is not a multiple of the block {describe(sizes)}")
    return tuple(n // b for n, b in zip(shape, sizes, strict=True)), sizes


def check_matrix(weights: LiveTensor) -> None:
    """Weights must be a matrix with a fixed shape, because the choice of kernels depends on it."""
    check(
        weights.rank == 2 and weights.shape == weights.max_shape,
        f"weights must be a matrix of a fixed shape, not {describe(weights.shape)}",
    )


def per_channel(shape: Shape, axis: int) -> Shape:
    channel = dimension(axis, len(shape))
    return tuple(1 if d == channel else n for d, n in enumerate(shape))


def per_token(shape: Shape) -> Shape:
    return (*(1 for _ in shape[:-1]), shape[-1])


# -- quantize and dequantize ------------------------------------------------------------------------


@elementwise("quantized_decomposed.quantize_per_tensor.default")
def quantize_per_tensor(
    x: LiveTensor, scale: float, zero: int, quant_min: int, quant_max: int, dtype: Unused, out: LiveTensor
) -> Elementwise:
    # torch computes the inverse in double precision.
    code = f"clamp(round(x * s0) + s1, zero + f32({quant_min}), zero + f32({quant_max}))"
    return Elementwise(code, (1.0 / scale, zero))


@elementwise("quantized_decomposed.dequantize_per_tensor.default")
def dequantize_per_tensor(
    x: LiveTensor,
    scale: float,
    zero: int,
    quant_min: int,
    quant_max: int,
    dtype: Unused,
    out_dtype: Unused,
    out: LiveTensor,
) -> Elementwise:
    return Elementwise("(x - s1) * s0", (scale, zero))


@op("quantized_decomposed.quantize_per_tensor.tensor")
def quantize_per_tensor_tensor(
    x: LiveTensor,
    scale: LiveTensor,
    zero: LiveTensor,
    quant_min: int,
    quant_max: int,
    dtype: Unused,
    out: LiveTensor,
) -> Dispatch:
    return affine_blocks(x, out, QUANTIZE, scale, zero, x.shape, (quant_min, quant_max))


@op("quantized_decomposed.dequantize_per_tensor.tensor")
def dequantize_per_tensor_tensor(
    x: LiveTensor,
    scale: LiveTensor,
    zero: LiveTensor,
    quant_min: int,
    quant_max: int,
    dtype: Unused,
    out_dtype: Unused,
    out: LiveTensor,
) -> Dispatch:
    return affine_blocks(x, out, DEQUANTIZE, scale, zero, x.shape)


@op("quantized_decomposed.quantize_per_channel.default")
def quantize_per_channel(
    x: LiveTensor,
    scales: LiveTensor,
    zeros: LiveTensor,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: Unused,
    out: LiveTensor,
) -> Dispatch:
    return affine_blocks(x, out, QUANTIZE, scales, zeros, per_channel(x.shape, axis), (quant_min, quant_max))


@op("quantized_decomposed.dequantize_per_channel.default")
def dequantize_per_channel(
    x: LiveTensor,
    scales: LiveTensor,
    zeros: LiveTensor | None,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: Unused,
    out_dtype: Unused,
    out: LiveTensor,
) -> Dispatch:
    return affine_blocks(x, out, DEQUANTIZE, scales, zeros, per_channel(x.shape, axis))


@op("quantized_decomposed.quantize_per_token.default", rows=rows_of("x", "scales", "zeros"))
def quantize_per_token(
    x: LiveTensor,
    scales: LiveTensor,
    zeros: LiveTensor,
    quant_min: int,
    quant_max: int,
    dtype: Unused,
    out: LiveTensor,
) -> Dispatch:
    return affine_blocks(x, out, QUANTIZE_SUM, scales, zeros, per_token(x.shape), (quant_min, quant_max))


@op("quantized_decomposed.dequantize_per_token.default", rows=rows_of("x", "scales", "zeros"))
def dequantize_per_token(
    x: LiveTensor,
    scales: LiveTensor,
    zeros: LiveTensor,
    quant_min: int,
    quant_max: int,
    dtype: Unused,
    output_dtype: Unused,
    out: LiveTensor,
) -> Dispatch:
    return affine_blocks(x, out, DEQUANTIZE, scales, zeros, per_token(x.shape))


@op("torchao.quantize_affine.default")
def quantize_affine(
    x: LiveTensor,
    block_size: Shape,
    scale: LiveTensor,
    zero: LiveTensor | None,
    output_dtype: Unused,
    quant_min: int | None,
    quant_max: int | None,
    out: LiveTensor,
) -> Dispatch:
    bounds = quant_range(quant_min, quant_max, out.dtype)
    return affine_blocks(x, out, QUANTIZE, scale, zero, block_size, bounds)


@op("torchao.dequantize_affine.default")
def dequantize_affine(
    x: LiveTensor,
    block_size: Shape,
    scale: LiveTensor,
    zero: LiveTensor | None,
    input_dtype: Unused,
    quant_min: int | None,
    quant_max: int | None,
    output_dtype: Unused,
    out: LiveTensor,
) -> Dispatch:
    return affine_blocks(x, out, DEQUANTIZE, scale, zero, block_size)


def quant_range(low: int | None, high: int | None, dtype: DType) -> tuple[int, int]:
    """The range of quantised values. If the file does not give it, the whole range of the dtype."""
    widest = {DType.int8: (-128, 127), DType.uint8: (0, 255)}.get(dtype)
    check(
        (low is not None and high is not None) or widest is not None,
        f"quant_min and quant_max must be given for {dtype}",
    )
    least, most = widest or (0, 0)
    return (least if low is None else low), (most if high is None else high)


# -- choosing scale and zero point ------------------------------------------------------------------

# The number of invocations (on a GPU: workgroups) that find the range of one block together.
PARTS = 32
LONG_BLOCK = 16384  # a block with more elements than this is divided among several workgroups
RANGE = Reduction(  # the range includes 0
    "state_t(min(f32(x), 0.0), max(f32(x), 0.0))",
    "state_t(min(a.low, b.low), max(a.high, b.high))",
    kind="low: f32, high: f32",
)

_CHOOSE = """
fn choose(low: vec4<f32>, high: vec4<f32>) -> Choice {{
    let span = p.quant_max - p.quant_min;
    {}
}}
"""
# Map the range of x, including 0, to the whole range of quantised values.
ASYMMETRIC = _CHOOSE.format("""
    let scale = max((high - low) / span, vec4<f32>(p.eps));
    let zero = p.quant_min - round(low / scale);
    return Choice(scale, clamp(zero, vec4<f32>(p.quant_min), vec4<f32>(p.quant_max)));
""")
_MIDDLE = "vec4<f32>(trunc((p.quant_max + p.quant_min + 1.0) / 2.0))"
SYMMETRIC = _CHOOSE.format(f"""
    let scale = max(-low, high) / (span / 2.0);
    return Choice(max(scale, vec4<f32>(p.eps)), {_MIDDLE});
""")
SYMMETRIC_NO_CLIPPING_ERR = _CHOOSE.format(f"""
    let by_low = low / p.quant_min;
    let by_high = high / p.quant_max;
    let scale = select(by_high, by_low, by_low > by_high);
    return Choice(max(scale, vec4<f32>(p.eps)), {_MIDDLE});
""")
# The zero point is computed from the end of the range that gives the smaller error.
PER_TOKEN_ASYMMETRIC = _CHOOSE.format("""
    let scale = max((high - low) / span, vec4<f32>(p.eps));
    let from_low = low / scale;
    let from_high = high / scale;
    let by_low = (p.quant_min + from_low) + (p.quant_max + from_high) > vec4<f32>(0.0);
    let zero = select(p.quant_max - from_high, p.quant_min - from_low, by_low);
    return Choice(scale, round(clamp(zero, vec4<f32>(p.quant_min), vec4<f32>(p.quant_max))));
""")
MAPPINGS = {
    "ASYMMETRIC": ASYMMETRIC,
    "SYMMETRIC": SYMMETRIC,
    "SYMMETRIC_NO_CLIPPING_ERR": SYMMETRIC_NO_CLIPPING_ERR,
}

FLOAT32_EPS = 2.0**-23
SMALLEST_NORMAL = {DType.float32: 2.0**-126, DType.float16: 2.0**-14, DType.bfloat16: 2.0**-126}


def choose_blocks(
    x: LiveTensor,
    block: Sequence[int],
    scales: LiveTensor,
    zeros: LiveTensor,
    code: str,
    bounds: tuple[int, int],
    eps: float,
) -> list[Route]:
    """The scale and zero point of each block of x. One kernel finds the ranges, and a second one chooses."""
    blocks, inner = split_into_blocks(x.shape, block)
    steps = contiguous(x.shape)
    outer = blocks, [s * b for s, b in zip(steps, inner, strict=True)]
    outer_sizes, (outer_strides,) = merge(*outer)
    inner_sizes, (inner_strides,) = merge(inner, steps)
    number, count = numel(blocks), numel(inner)
    ranges = Scratch("ranges", 8 * PARTS * number)
    params: dict[str, Number] = {
        "blocks": number,
        "count": count,
        "outer_rank": len(outer_sizes),
        "inner_rank": len(inner_sizes),
        "outer_sizes": outer_sizes,
        "outer_strides": outer_strides,
        "inner_sizes": inner_sizes,
        "inner_strides": inner_strides,
    }
    ends: dict[str, Number] = {"outputs": number, "count": count, "correction": 0.0}
    places = {**stride_params(outer, (inner, steps)), **ends}
    bindings: dict[str, Bound] = {"ranges": ranges, "scales": scales, "zeros": zeros}
    settings = {"blocks": number, "quant_min": bounds[0], "quant_max": bounds[1], "eps": eps}

    def choice(parts: int) -> Dispatch:
        grid = threads(quads(number))
        return Dispatch("choose_qparams", bindings, settings, grid, {"PARTS": parts}, code)

    def by_workgroups(parts: int) -> list[Dispatch]:
        return [workgroup_reduction(RANGE, x, ranges, places, count, parts), choice(parts)]

    grid = threads(number * PARTS)
    by_invocations = Dispatch("block_range", {"x": x, "ranges": ranges}, params, grid, {"PARTS": PARTS})
    long = count > LONG_BLOCK
    return [
        Route("several workgroups per block", by_workgroups(PARTS), when=long, target=GPU),
        Route("one workgroup per block", by_workgroups(1), when=count >= LANES and not long, target=GPU),
        Route("several invocations per block", [by_invocations, choice(PARTS)]),
    ]


@op("torchao.choose_qparams_affine.default")
def choose_qparams_affine(
    x: LiveTensor,
    mapping_type: str,
    block_size: Shape,
    target_dtype: Unused,
    quant_min: int | None,
    quant_max: int | None,
    eps: float | None,
    scale_dtype: Unused,
    zero_point_dtype: Unused,
    keepdim: bool,
    outs: Sequence[LiveTensor],
) -> list[Route]:
    scales, zeros = outs
    check(
        mapping_type in MAPPINGS, f"mapping_type must be one of {', '.join(MAPPINGS)}, not {mapping_type!r}"
    )
    bounds = quant_range(quant_min, quant_max, zeros.dtype)
    blocks, inner = split_into_blocks(x.shape, block_size)
    # A dimension that is a single block is removed, unless that block has only one element.
    gone = [n == 1 and b != 1 and not keepdim for n, b in zip(blocks, inner, strict=True)]
    for out in outs:
        out.resize(tuple(n for n, drop in zip(blocks, gone, strict=True) if not drop))
    eps = SMALLEST_NORMAL.get(x.dtype, FLOAT32_EPS) if eps is None else eps
    return choose_blocks(x, block_size, scales, zeros, MAPPINGS[mapping_type], bounds, eps)


@op("quantized_decomposed.choose_qparams.tensor")
def choose_qparams(
    x: LiveTensor, quant_min: int, quant_max: int, eps: float, dtype: Unused, outs: Sequence[LiveTensor]
) -> list[Route]:
    scale, zero = outs
    for out in outs:
        out.resize((1,))
    return choose_blocks(x, x.shape, scale, zero, ASYMMETRIC, (quant_min, quant_max), eps)


@op("quantized_decomposed.choose_qparams_per_token_asymmetric.default", rows=rows_of("x", mixes=-1))
def choose_qparams_per_token_asymmetric(
    x: LiveTensor, dtype: Unused, outs: Sequence[LiveTensor]
) -> list[Route]:
    scales, zeros = outs
    for out in outs:
        out.resize((*x.shape[:-1], 1))
    return choose_blocks(x, per_token(x.shape), scales, zeros, PER_TOKEN_ASYMMETRIC, (-128, 127), FLOAT32_EPS)
