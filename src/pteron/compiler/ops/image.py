"""Operators on images: resizing, sampling, padding, pixel shuffle and im2col."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pteron.compiler.ir.integer_rules import moves, or_scalar
from pteron.compiler.ir.rule import (
    Dispatch,
    LiveTensor,
    Number,
    Scalar,
    Shape,
    check,
    describe,
    numel,
    op,
    quads,
    threads,
)
from pteron.compiler.ops.copies import strided
from pteron.compiler.ops.elementwise import as_f32, words_of
from pteron.compiler.ops.reduce import INT64, scalar
from pteron.compiler.ops.shapes import MAX_RANK
from pteron.compiler.ops.window import Window, as_3d

# -- resizing -------------------------------------------------------------------------------------

NEAREST = """
fn nearest(at: u32, scale: f32, size: u32) -> u32 { return min(u32(f32(at) * scale), size - 1u); }
fn sample(plane: u32, down: u32, across: u32) -> x_t {
    let row = plane + nearest(down, p.scale_y, p.in_height) * p.in_width;
    return x_at(row + nearest(across, p.scale_x, p.in_width));
}
"""
BILINEAR = """
fn source(at: u32, scale: f32) -> f32 {
    if (ALIGN_CORNERS) { return f32(at) * scale; }
    return max((f32(at) + 0.5) * scale - 0.5, 0.0);
}
fn sample(plane: u32, down: u32, across: u32) -> f32 {
    let y0 = source(down, p.scale_y);
    let x0 = source(across, p.scale_x);
    let top = min(u32(y0), p.in_height - 1u);
    let left = min(u32(x0), p.in_width - 1u);
    let upper = plane + top * p.in_width;
    let lower = plane + min(top + 1u, p.in_height - 1u) * p.in_width;
    let right = min(left + 1u, p.in_width - 1u);
    let t = x0 - f32(left);
    let above = mix(f32(x_at(upper + left)), f32(x_at(upper + right)), t);
    let below = mix(f32(x_at(lower + left)), f32(x_at(lower + right)), t);
    return mix(above, below, y0 - f32(top));
}
"""


@op("aten.upsample_nearest2d.vec")
def upsample_nearest2d(
    x: LiveTensor, output_size: Shape | None, scale_factors: Sequence[float] | None, out: LiveTensor
) -> Dispatch:
    return upsample(x, output_size, scale_factors, out, NEAREST, align_corners=False)


@op("aten.upsample_bilinear2d.vec")
def upsample_bilinear2d(
    x: LiveTensor,
    output_size: Shape | None,
    align_corners: bool,
    scale_factors: Sequence[float] | None,
    out: LiveTensor,
) -> Dispatch:
    check(x.dtype.is_float, f"x must be a float tensor, not {x.dtype}")
    return upsample(x, output_size, scale_factors, out, BILINEAR, align_corners)


def upsample(
    x: LiveTensor,
    output_size: Shape | None,
    scale_factors: Sequence[float] | None,
    out: LiveTensor,
    code: str,
    align_corners: bool,
) -> Dispatch:
    check(x.rank >= 2, f"x must have a height and a width, not shape {describe(x.shape)}")
    size = x.shape[-2:]
    check(all(size), f"an image of {describe(size)} cannot be resized")
    if output_size:
        target = tuple(output_size)
        scales = [n / m if m else 0.0 for n, m in zip(size, target, strict=True)]
    else:
        factors = tuple(scale_factors or ())
        check(
            len(factors) == 2 and min(factors) > 0,
            f"scale_factors must be two positive numbers, not {factors}",
        )
        target = tuple(math.floor(n * f) for n, f in zip(size, factors, strict=True))
        scales = [1.0 / f for f in factors]
    return resized(x, target, scales, out, code, align_corners)


def resized(
    x: LiveTensor, target: Shape, scales: Sequence[float], out: LiveTensor, code: str, align_corners: bool
) -> Dispatch:
    """Resize every plane of x to a new height and width. `scales`: input elements per output element."""
    size = x.shape[-2:]
    if align_corners:
        scales = [(n - 1) / (m - 1) if m > 1 else 0.0 for n, m in zip(size, target, strict=True)]
    out.resize((*x.shape[:-2], *target))
    params = {
        "quads": quads(out.numel),
        "in_height": size[0],
        "in_width": size[1],
        "height": target[0],
        "width": target[1],
        "scale_y": scales[0],
        "scale_x": scales[1],
    }
    defines = {"ALIGN_CORNERS": align_corners}
    return Dispatch("upsample", {"x": x, "y": out}, params, threads(quads(out.numel)), defines, code)


# -- sampling -------------------------------------------------------------------------------------


@op("aten.grid_sampler_2d.default")
def grid_sampler_2d(
    x: LiveTensor,
    grid: LiveTensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    out: LiveTensor,
) -> Dispatch:
    check(
        x.rank == grid.rank == 4 and grid.shape[3] == 2 and grid.shape[0] == x.shape[0],
        f"grid {describe(grid.shape)} does not give two coordinates for each image of x {describe(x.shape)}",
    )
    check(interpolation_mode in (0, 1, 2), f"interpolation_mode must be 0, 1 or 2, not {interpolation_mode}")
    check(padding_mode in (0, 1, 2), f"padding_mode must be 0, 1 or 2, not {padding_mode}")
    batch, channels, in_height, in_width = x.shape
    check(in_height > 0 and in_width > 0, f"an image of {describe(x.shape)} cannot be sampled")
    _, height, width, _ = grid.shape
    out.resize((batch, channels, height, width))
    params = {
        "quads": quads(out.numel),
        "channels": channels,
        "in_height": in_height,
        "in_width": in_width,
        "positions": height * width,
    }
    defines = {"INTERPOLATION": interpolation_mode, "PADDING": padding_mode, "ALIGN_CORNERS": align_corners}
    return Dispatch(
        "grid_sample", {"x": x, "grid": grid, "y": out}, params, threads(quads(out.numel)), defines
    )


@op("et_vk.grid_priors.default")
def grid_priors(x: LiveTensor, stride: int, offset: float, out: LiveTensor) -> Dispatch:
    check(x.rank >= 2, f"x must have a height and a width, not shape {describe(x.shape)}")
    height, width = x.shape[-2:]
    out.resize((height * width, 2))
    params = {"quads": quads(out.numel), "width": width, "stride": float(stride), "offset": offset}
    return Dispatch("grid_priors", {"y": out}, params, threads(quads(out.numel)))


# -- padding --------------------------------------------------------------------------------------

CONSTANT = "fn inner(i: i32, size: i32) -> i32 { return select(-1, i, i < size); }"
REPLICATION = "fn inner(i: i32, size: i32) -> i32 { return clamp(i, 0, size - 1); }"
REFLECTION = "fn inner(i: i32, size: i32) -> i32 { return size - 1 - abs(size - 1 - abs(i)); }"


@op("aten.constant_pad_nd.default", integers=moves("x", interval=or_scalar("value")))
def constant_pad_nd(x: LiveTensor, pad: Shape, value: Scalar, out: LiveTensor) -> Dispatch:
    return padded(x, pad, out, CONSTANT, value)


def _edge_pad(rank: int) -> None:
    @op(f"aten.replication_pad{rank}d.default", integers=moves("x"))
    def replication_pad(x: LiveTensor, pad: Shape, out: LiveTensor) -> Dispatch:
        check(all(x.shape[-rank:]), f"x has live shape {describe(x.shape)}: there is nothing to replicate")
        return padded(x, pad, out, REPLICATION)

    @op(f"aten.reflection_pad{rank}d.default", integers=moves("x"))
    def reflection_pad(x: LiveTensor, pad: Shape, out: LiveTensor) -> Dispatch:
        for d, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
            size = x.shape[x.rank - 1 - d]
            check(
                max(before, after) < size,
                f"padding {max(before, after)} must be less than the live size {size}",
            )
        return padded(x, pad, out, REFLECTION)


for _rank in (1, 2, 3):
    _edge_pad(_rank)


def padded(x: LiveTensor, pad: Shape, out: LiveTensor, code: str, value: Scalar = 0) -> Dispatch:
    """Pad x. A negative number removes elements. `pad` lists (before, after), the last dimension first."""
    check(len(pad) % 2 == 0 and len(pad) <= 2 * x.rank, f"pad {describe(pad)} does not fit rank {x.rank}")
    pairs = [(0, 0)] * (x.rank - len(pad) // 2) + list(zip(pad[::2], pad[1::2], strict=True))[::-1]
    out.resize(tuple(n + before + after for n, (before, after) in zip(x.shape, pairs, strict=True)))
    sizes, befores = merge_unpadded(x.shape, pairs)
    low, high = words_of(value)
    params: dict[str, Number] = {
        "quads": quads(out.numel),
        "rank": len(sizes),
        "value": as_f32(value),
        "low": low,
        "high": high,
        "sizes": tuple(n + sum(pair) for n, pair in zip(sizes, befores, strict=True)),
        "in_sizes": sizes,
        "before": tuple(before for before, _ in befores),
    }
    padding = {"f32": "p.value", "i32": "bitcast<i32>(p.low)", INT64: "vec2<u32>(p.low, p.high)"}[scalar(out)]
    code += f"\nfn padding() -> y_t {{ return {padding}; }}"
    return Dispatch("pad", {"x": x, "y": out}, params, threads(quads(out.numel)), code=code)


def merge_unpadded(shape: Shape, pairs: Sequence[tuple[int, int]]) -> tuple[Shape, list[tuple[int, int]]]:
    """Merge neighbouring dimensions without padding, so that kernels divide less and the rank stays small."""
    sizes: list[int] = []
    kept: list[tuple[int, int]] = []
    for n, pair in zip(shape, pairs, strict=True):
        if kept and pair == kept[-1] == (0, 0):
            sizes[-1] *= n
        else:
            sizes.append(n)
            kept.append(pair)
    check(len(sizes) <= MAX_RANK, f"more than {MAX_RANK} padded dimensions: {describe(shape)}")
    return tuple(sizes), kept


# -- rearranging pixels ---------------------------------------------------------------------------


@op("aten.pixel_shuffle.default", integers=moves("x"))
def pixel_shuffle(x: LiveTensor, upscale_factor: int, out: LiveTensor) -> Dispatch:
    """[.., C * r * r, H, W] becomes [.., C, H * r, W * r]."""
    r = upscale_factor
    check(x.rank >= 3 and r > 0, f"x {describe(x.shape)} must have channels, a height and a width")
    *lead, deep, height, width = x.shape
    check(deep % (r * r) == 0, f"{deep} channels cannot be split by {r} * {r}")
    out.resize((*lead, deep // (r * r), height * r, width * r))
    planes, area = numel(out.shape[:-2]), height * width
    return strided(x, out, (r * r * area, width, r * area, 1, area), viewed=(planes, height, r, width, r))


@op("aten.pixel_unshuffle.default", integers=moves("x"))
def pixel_unshuffle(x: LiveTensor, downscale_factor: int, out: LiveTensor) -> Dispatch:
    """[.., C, H * r, W * r] becomes [.., C * r * r, H, W]."""
    r = downscale_factor
    check(x.rank >= 3 and r > 0, f"x {describe(x.shape)} must have channels, a height and a width")
    *lead, channels, tall, wide = x.shape
    check(tall % r == wide % r == 0, f"an image of {tall} x {wide} cannot be split by {r}")
    out.resize((*lead, channels * r * r, tall // r, wide // r))
    planes = numel(x.shape[:-2])
    return strided(x, out, (tall * wide, wide, 1, r * wide, r), viewed=(planes, r, r, tall // r, wide // r))


@op("preprocess.tile_crop.default")
def tile_crop(x: LiveTensor, tile_size: int, out: LiveTensor) -> Dispatch:
    """[C, H, W] becomes [tiles, C, tile_size, tile_size], row by row."""
    t = tile_size
    check(x.rank == 3 and t > 0, f"x {describe(x.shape)} must have channels, a height and a width")
    channels, tall, wide = x.shape
    check(tall % t == wide % t == 0, f"an image of {tall} x {wide} has no tiles of {t} x {t}")
    out.resize((tall // t * (wide // t), channels, t, t))
    return strided(x, out, (t * wide, t, tall * wide, wide, 1), viewed=(tall // t, wide // t, channels, t, t))


@op("aten.im2col.default")
def im2col(
    x: LiveTensor, kernel_size: Shape, dilation: Shape, padding: Shape, stride: Shape, out: LiveTensor
) -> Dispatch:
    """[.., C, H, W] becomes [.., C * kernel elements, window positions]."""
    check(x.rank in (3, 4), f"x must have channels, a height and a width, not shape {describe(x.shape)}")
    window = Window.of(tuple(kernel_size), stride, padding, dilation)
    size = x.shape[-2:]
    places = window.output(size)
    out.resize((*x.shape[:-3], x.shape[-3] * numel(window.kernel), numel(places)))
    params: dict[str, Number] = {
        "quads": quads(out.numel),
        "input": as_3d(size, 1),
        "output": as_3d(places, 1),
        **window.params,
    }
    return Dispatch("im2col", {"x": x, "y": out}, params, threads(quads(out.numel)))
