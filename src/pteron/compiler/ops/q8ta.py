"""Operators on int8 activations. Each tensor has one scale and one zero point, which are in the file.

Sums are exact integers. Only the final sum is scaled and quantised to the output's scale.
"""

from __future__ import annotations

from math import frexp, ldexp

from pteron.compiler.ir.rule import (
    Dispatch,
    LiveArguments,
    LiveTensor,
    Number,
    Route,
    Shape,
    Work,
    check,
    describe,
    fold,
    multiplies,
    numel,
    op,
    quads,
    rows_of,
    threads,
)
from pteron.compiler.ops.elementwise import nearest_f32
from pteron.compiler.ops.matmul import check_bias, check_rows
from pteron.compiler.ops.products import (
    ANY,
    GEMM,
    GEMV,
    MIN_TILE_ROWS,
    Candidate,
    GemmShape,
    KernelKind,
    product_routes,
)
from pteron.compiler.ops.quantized import check_matrix
from pteron.compiler.ops.shapes import broadcast, broadcast_walks, contiguous, merge
from pteron.compiler.ops.window import Window, as_3d, per_dimension
from pteron.compiler.ops.workgroups import SQUARE_TILES, stores, team_candidates, tile_candidates

# The largest number of products (9 bits times 8 bits) whose sum always fits in 32 bits.
FACTOR_BITS = 21  # of the larger factor of a sum in fixed point
LONGEST_SUM = 2**31 // (255 * 128)


def is_relu(activation: str) -> bool:
    check(activation in ("none", "relu"), f"activation must be 'none' or 'relu', not {activation!r}")
    return activation == "relu"


# -- linear -----------------------------------------------------------------------------------------


@op(
    "et_vk.q8ta_linear.default",
    "et_vk.q8ta_linear_gemv.default",
    work=multiplies("x"),
    rows=rows_of("x", mixes=-1),
)
def q8ta_linear(
    x: LiveTensor,
    input_scale: float,
    input_zero: int,
    weights: LiveTensor,
    weight_sums: LiveTensor,
    scales: LiveTensor,
    output_scale: float,
    output_zero: int,
    bias: LiveTensor | None,
    activation: str,
    out: LiveTensor,
) -> list[Route]:
    requantize = {"out_inverse": 1.0 / output_scale, "out_zero": output_zero}
    return _linear(x, input_scale, input_zero, weights, scales, bias, is_relu(activation), requantize, out)


@op("et_vk.linear_q8ta_q8csw.default", work=multiplies("x"), rows=rows_of("x", mixes=-1))
def linear_q8ta_q8csw(
    x: LiveTensor,
    input_scale: float,
    input_zero: int,
    weights: LiveTensor,
    weight_sums: LiveTensor,
    scales: LiveTensor,
    bias: LiveTensor | None,
    out: LiveTensor,
) -> list[Route]:
    """The same, with a float result."""
    check(
        out.dtype.is_float,
        f"the output must be float, not {out.dtype}: the file has no scale for it",
    )
    return _linear(x, input_scale, input_zero, weights, scales, bias, False, None, out)


def _linear(
    x: LiveTensor,
    input_scale: float,
    input_zero: int,
    weights: LiveTensor,
    scales: LiveTensor,
    bias: LiveTensor | None,
    relu: bool,
    requantize: dict[str, float | int] | None,
    out: LiveTensor,
) -> list[Route]:
    check_matrix(weights)
    depth, columns = weights.shape[1], out.max_shape[-1]
    rows = check_rows(x, depth, "weights")
    check(weights.shape[0] >= columns, f"weights {describe(weights.shape)} do not have {columns} rows")
    check(depth <= LONGEST_SUM, f"sums of {depth} products of 8-bit integers do not fit 32 bits")
    check(scales.numel >= columns, f"there are {scales.numel} scales for {columns} columns")
    check_bias(bias, columns)
    out.resize((*x.shape[:-1], columns))
    bindings = {"x": x, "weights": weights, "scales": scales, "bias": bias or scales, "y": out}
    params = {
        "rows": rows,
        "columns": columns,
        "depth": depth,
        "in_zero": input_zero,
        "in_scale": input_scale,
        **(requantize or {"out_inverse": 1.0, "out_zero": 0}),
    }
    defines = {"HAS_BIAS": bias is not None, "RELU": relu, "REQUANTIZE": requantize is not None}
    gemm = GemmShape(rows, columns)
    whole = columns % 4 == 0
    candidates = []
    if depth % 4 == 0 and (whole or out.dtype.itemsize == 4):
        product = Dispatch("q8ta_linear_group", bindings, params, fold(0), {**defines, **stores(whole)})
        candidates += team_candidates(product, gemm) + tile_candidates(
            product, gemm, packed=True, kinds=SQUARE_TILES
        )

    def portable(kind: KernelKind, height: int) -> Candidate:
        grid = gemm.invocations(height, 4)
        return Candidate(kind, Dispatch("q8ta_linear", bindings, params, grid, {**defines, "ROWS": height}))

    if depth % 4 == 0 and whole:
        candidates += [portable(GEMV, 1), portable(GEMM, 4)]
    else:
        grid = gemm.element_quads()
        candidates.append(Candidate(ANY, Dispatch("q8ta_linear_any", bindings, params, grid, defines)))
    return product_routes(gemm, candidates)


# -- convolution ------------------------------------------------------------------------------------


def _conv2d_work(call: LiveArguments) -> Work:
    """Each element of the output is a product with one window over the channels of its group."""
    filters = numel(call["kernel_size"]) * (call["x"].shape[1] // call["groups"])
    return Work(2 * filters * call["out"].numel)


def _transposed_conv2d_work(call: LiveArguments) -> Work:
    """Each element of the input is added to one window over the channels of its group."""
    filters = numel(call["kernel_size"]) * (call["out"].shape[1] // call["groups"])
    return Work(2 * filters * call["x"].numel)


@op("et_vk.q8ta_conv2d.default", "et_vk.q8ta_conv2d_pw.default", work=_conv2d_work)
def q8ta_conv2d(
    x: LiveTensor,
    input_scale: float,
    input_zero: int,
    weights: LiveTensor,
    weight_sums: LiveTensor,
    scales: LiveTensor,
    output_scale: float,
    output_zero: int,
    bias: LiveTensor | None,
    kernel_size: Shape,
    stride: Shape,
    padding: Shape,
    dilation: Shape,
    groups: int,
    activation: str,
    out: LiveTensor,
) -> list[Route]:
    """Weights are [out_channels, kernel elements * in_channels / groups]. Rows may be padded."""
    window = Window.of(kernel_size, stride, padding, dilation)
    out.resize((x.shape[0], weights.shape[0], *window.output(x.shape[-2:])))
    ins = x.shape[1] // groups
    check_taps(weights, window, ins)
    quantized = input_scale, input_zero, output_scale, output_zero
    steps = weights.shape[1], ins
    return _conv2d(x, weights, steps, scales, bias, window, groups, quantized, activation, out)


@op("et_vk.q8ta_conv2d_dw.default", work=_conv2d_work)
def q8ta_conv2d_dw(
    x: LiveTensor,
    input_scale: float,
    input_zero: int,
    weights: LiveTensor,
    weight_sums: LiveTensor,
    scales: LiveTensor,
    output_scale: float,
    output_zero: int,
    bias: LiveTensor | None,
    kernel_size: Shape,
    stride: Shape,
    padding: Shape,
    dilation: Shape,
    groups: int,
    activation: str,
    out: LiveTensor,
) -> list[Route]:
    """Depthwise. Weights are [kernel height, kernel width, channels]."""
    window = Window.of(kernel_size, stride, padding, dilation)
    check(
        weights.shape[:2] == tuple(kernel_size) and groups == x.shape[1] <= weights.shape[-1],
        f"weights {describe(weights.shape)} do not fit kernel_size {describe(tuple(kernel_size))} "
        f"and {x.shape[1]} channels in {groups} groups",
    )
    out.resize((x.shape[0], groups, *window.output(x.shape[-2:])))
    quantized = input_scale, input_zero, output_scale, output_zero
    return _conv2d(
        x, weights, (1, weights.shape[2]), scales, bias, window, groups, quantized, activation, out
    )


@op("et_vk.q8ta_conv2d_transposed.default", work=_transposed_conv2d_work)
def q8ta_conv2d_transposed(
    x: LiveTensor,
    input_scale: float,
    input_zero: int,
    weights: LiveTensor,
    weight_sums: LiveTensor,
    scales: LiveTensor,
    output_scale: float,
    output_zero: int,
    bias: LiveTensor | None,
    kernel_size: Shape,
    stride: Shape,
    padding: Shape,
    output_padding: Shape,
    dilation: Shape,
    groups: int,
    activation: str,
    out: LiveTensor,
) -> list[Route]:
    """Weights have the layout of the plain convolution. All groups share the scales of one group."""
    window = Window.of(kernel_size, stride, padding, dilation)
    size = window.transposed_output(x.shape[-2:], per_dimension(output_padding, 2))
    out.resize((x.shape[0], weights.shape[0], *size))
    ins = x.shape[1] // groups
    check_taps(weights, window, ins)
    quantized = input_scale, input_zero, output_scale, output_zero
    steps = weights.shape[1], ins
    return _conv2d(
        x, weights, steps, scales, bias, window, groups, quantized, activation, out, transposed=True
    )


def check_taps(weights: LiveTensor, window: Window, ins: int) -> None:
    check(
        weights.rank == 2 and weights.shape[1] >= numel(window.kernel) * ins,
        f"weights {describe(weights.shape)} are too small for a kernel of {describe(window.kernel)} "
        f"and {ins} channels",
    )


def _conv2d(
    x: LiveTensor,
    weights: LiveTensor,
    steps: tuple[int, int],
    scales: LiveTensor,
    bias: LiveTensor | None,
    window: Window,
    groups: int,
    quantized: tuple[float, int, float, int],
    activation: str,
    out: LiveTensor,
    *,
    transposed: bool = False,
) -> list[Route]:
    """`steps`: the strides of the weights for output channels, and for elements of the window."""
    check(x.rank == 4, f"x must have 4 dimensions, not shape {describe(x.shape)}")
    channels = out.shape[1]
    check(
        x.shape[1] % groups == 0 and channels % groups == 0,
        f"{x.shape[1]} input and {channels} output channels cannot be split into {groups} groups",
    )
    check(
        numel(window.kernel) * (x.shape[1] // groups) <= LONGEST_SUM,
        f"a sum of more than {LONGEST_SUM} products may not fit in 32 bits",
    )
    period = channels // groups if transposed else channels
    check(scales.numel >= period, f"there are {scales.numel} scales for {period} channels")
    check_bias(bias, channels)
    input_scale, input_zero, output_scale, output_zero = quantized
    params: dict[str, Number] = {
        "total": out.numel,
        "in_channels": x.shape[1],
        "out_channels": channels,
        "groups": groups,
        "channel_step": steps[0],
        "tap_step": steps[1],
        "scale_period": period,
        "in_zero": input_zero,
        "in_scale": input_scale,
        "out_inverse": 1.0 / output_scale,
        "out_zero": output_zero,
        "input": as_3d(x.shape[-2:], 1),
        "output": as_3d(out.shape[-2:], 1),
        **window.params,
    }
    bindings = {"x": x, "weights": weights, "scales": scales, "bias": bias or scales, "y": out}
    defines = {"HAS_BIAS": bias is not None, "RELU": is_relu(activation), "TRANSPOSED": transposed}
    positions = numel(out.shape[-2:])
    gemm = GemmShape(channels // groups, positions, x.shape[0] * groups)
    candidates = [Candidate(ANY, Dispatch("q8ta_conv2d", bindings, params, gemm.element_quads(), defines))]
    # A tile needs enough channels, and rows of weights that are whole words.
    most = weights.max_shape[0] // groups
    if not transposed and most >= MIN_TILE_ROWS and weights.rank == 2 and steps[0] % 4 == 0:
        product = Dispatch("q8ta_conv2d_group", bindings, params, fold(0), defines)
        candidates += tile_candidates(
            product, gemm, columns_first=True, when=positions % 4 == 0, packed=True, kinds=SQUARE_TILES
        )
    return product_routes(gemm, candidates)


# -- elementwise ------------------------------------------------------------------------------------


@op("et_vk.q8ta_add.default")
def q8ta_add(
    a: LiveTensor,
    b: LiveTensor,
    a_scale: float,
    a_zero: int,
    b_scale: float,
    b_zero: int,
    output_scale: float,
    output_zero: int,
    alpha: float,
    out: LiveTensor,
) -> Dispatch:
    shape = broadcast(a.shape, b.shape)
    out.resize(shape)
    params: dict[str, Number] = {
        "quads": quads(out.numel),
        "a_scale": a_scale,
        "a_zero": a_zero,
        "b_scale": b_scale,
        "b_zero": b_zero,
        "alpha": alpha,
        "out_inverse": 1.0 / output_scale,
        "out_zero": output_zero,
        "zero": 0,
        **broadcast_walks(shape, {"a": a, "b": b}),
    }
    return Dispatch("q8ta_add", {"a": a, "b": b, "y": out}, params, threads(quads(out.numel)))


@op("pteron.add_codes")
def add_codes(
    a: LiveTensor,
    b: LiveTensor,
    a_scale: float,
    a_zero: int,
    b_scale: float,
    b_zero: int,
    output_scale: float,
    output_zero: int,
    out: LiveTensor,
) -> Dispatch:
    """a + b as XNNPACK adds codes: in fixed point, ties up. A negative scale of b subtracts."""
    shape = broadcast(a.shape, b.shape)
    out.resize(shape)
    ratios = [nearest_f32(scale / output_scale) for scale in (a_scale, b_scale)]
    largest = max(map(abs, ratios))
    check(2**-10 <= largest < 2**8, f"the scales of the operands are {ratios} of that of the sum")
    shift = FACTOR_BITS - frexp(largest)[1]
    a_factor, b_factor = (round(ldexp(ratio, shift)) for ratio in ratios)
    params: dict[str, Number] = {
        "quads": quads(out.numel),
        "a_factor": a_factor,
        "b_factor": b_factor,
        "offset": (1 << shift - 1) - a_factor * a_zero - b_factor * b_zero,
        "shift": shift,
        "out_zero": output_zero,
        **broadcast_walks(shape, {"a": a, "b": b}),
    }  # fmt: skip
    return Dispatch("add_codes", {"a": a, "b": b, "y": out}, params, threads(quads(out.numel)))


@op("et_vk.q8ta_relu.default")
def q8ta_relu(
    x: LiveTensor, input_scale: float, input_zero: int, output_scale: float, output_zero: int, out: LiveTensor
) -> Dispatch:
    out.resize(x.shape)
    quantized = input_scale, input_zero, 1.0 / output_scale, output_zero
    return _map(x, out, x.shape, contiguous(x.shape), quantized, relu=True)


@op("et_vk.q8ta_pixel_shuffle.default")
def q8ta_pixel_shuffle(
    x: LiveTensor,
    input_scale: float,
    input_zero: int,
    output_inverse: float,
    output_zero: int,
    factor: int,
    out: LiveTensor,
) -> Dispatch:
    """[.., C r^2, H, W] becomes [.., C, H r, W r]. The file contains the inverse of the output's scale."""
    check(x.rank >= 3, f"x must have at least 3 dimensions, not shape {describe(x.shape)}")
    *batch, channels, height, width = x.shape
    check(factor > 0 and channels % factor**2 == 0, f"{channels} channels cannot be shuffled by {factor}")
    out.resize((*batch, channels // factor**2, height * factor, width * factor))
    area = height * width
    # The output as (batch and channel, row, row within r, column, column within r), and its strides in x.
    sizes = (numel(tuple(batch)) * channels // factor**2, height, factor, width, factor)
    strides = (factor**2 * area, width, factor * area, 1, area)
    # ExecuTorch inverts twice. Doing the same gives the same last bit.
    quantized = input_scale, input_zero, 1.0 / (1.0 / output_inverse), output_zero
    return _map(x, out, sizes, strides, quantized, relu=False)


def _map(
    x: LiveTensor,
    out: LiveTensor,
    sizes: Shape,
    strides: tuple[int, ...],
    quantized: tuple[float, int, float, int],
    *,
    relu: bool,
) -> Dispatch:
    merged, (walk,) = merge(sizes, strides)
    in_scale, in_zero, out_inverse, out_zero = quantized
    params: dict[str, Number] = {
        "quads": quads(out.numel),
        "rank": len(merged),
        "in_scale": in_scale,
        "in_zero": in_zero,
        "out_inverse": out_inverse,
        "out_zero": out_zero,
        "sizes": merged,
        "strides": walk,
    }
    return Dispatch("q8ta_map", {"x": x, "y": out}, params, threads(quads(out.numel)), {"RELU": relu})
