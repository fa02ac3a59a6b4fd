"""Resizing with wider filters: bicubic, and bilinear and bicubic with antialiasing."""

from __future__ import annotations

from collections.abc import Sequence

from pteron.compiler.ir.rule import Dispatch, LiveTensor, Shape, check, describe, op
from pteron.compiler.ops.image import resized, upsample

# The cubic convolution kernel with the parameter A.
CUBIC = """
fn cubic(x: f32) -> f32 {
    let d = abs(x);
    if (d < 1.0) { return ((A + 2.0) * d - (A + 3.0)) * d * d + 1.0; }
    if (d < 2.0) { return ((A * d - 5.0 * A) * d + 8.0 * A) * d - 4.0 * A; }
    return 0.0;
}
"""

BICUBIC = (
    "const A = -0.75;\n"
    + CUBIC
    + """
fn source(at: u32, scale: f32) -> f32 {
    if (ALIGN_CORNERS) { return f32(at) * scale; }
    return (f32(at) + 0.5) * scale - 0.5;
}
fn sample(plane: u32, down: u32, across: u32) -> f32 {
    let y0 = source(down, p.scale_y);
    let x0 = source(across, p.scale_x);
    var sum = 0.0;
    for (var dy = -1; dy < 3; dy++) {
        let top = floor(y0) + f32(dy);
        let row = plane + u32(clamp(i32(top), 0, i32(p.in_height) - 1)) * p.in_width;
        for (var dx = -1; dx < 3; dx++) {
            let left = floor(x0) + f32(dx);
            let column = u32(clamp(i32(left), 0, i32(p.in_width) - 1));
            sum += cubic(y0 - top) * cubic(x0 - left) * f32(x_at(row + column));
        }
    }
    return sum;
}
"""
)

# With antialiasing, the filter covers all input elements that belong to an output element.
ANTIALIASED = """
struct Span { first: i32, end: i32, center: f32, squeeze: f32 }
fn span(at: u32, scale: f32, size: u32) -> Span {
    let stretch = max(scale, 1.0);
    let center = scale * (f32(at) + 0.5);
    let first = max(i32(center - RADIUS * stretch + 0.5), 0);
    let end = min(i32(center + RADIUS * stretch + 0.5), i32(size));
    return Span(first, end, center, 1.0 / stretch);
}
fn weight(s: Span, at: i32) -> f32 { return filtered((f32(at) - s.center + 0.5) * s.squeeze); }
fn total(s: Span) -> f32 {
    var sum = 0.0;
    for (var at = s.first; at < s.end; at++) { sum += weight(s, at); }
    return sum;
}
fn sample(plane: u32, down: u32, across: u32) -> f32 {
    let rows = span(down, p.scale_y, p.in_height);
    let columns = span(across, p.scale_x, p.in_width);
    // Weights of the sum 1: the largest numbers do not overflow.
    let inverse = 1.0 / (total(rows) * total(columns));
    var sum = 0.0;
    for (var y = rows.first; y < rows.end; y++) {
        let vertical = weight(rows, y) * inverse;
        let row = plane + u32(y) * p.in_width;
        for (var x = columns.first; x < columns.end; x++) {
            sum += vertical * weight(columns, x) * f32(x_at(row + u32(x)));
        }
    }
    return sum;
}
"""
BILINEAR_AA = f"""
const RADIUS = 1.0;
fn filtered(x: f32) -> f32 {{ return max(1.0 - abs(x), 0.0); }}
{ANTIALIASED}"""
BICUBIC_AA = f"""
const RADIUS = 2.0;
const A = -0.5;
{CUBIC}
fn filtered(x: f32) -> f32 {{ return cubic(x); }}
{ANTIALIASED}"""


def register_filter(name: str, code: str) -> None:
    """Register both overloads of a filter: with an output size, and with scale factors."""

    @op(f"aten.{name}.vec")
    def by_factors(
        x: LiveTensor,
        output_size: Shape | None,
        align_corners: bool,
        scale_factors: Sequence[float] | None,
        out: LiveTensor,
    ) -> Dispatch:
        check(x.dtype.is_float, f"x must be a float tensor, not {x.dtype}")
        return upsample(x, output_size, scale_factors, out, code, align_corners)

    @op(f"aten.{name}.default")
    def by_size(
        x: LiveTensor,
        output_size: Shape,
        align_corners: bool,
        scales_h: float | None,
        scales_w: float | None,
        out: LiveTensor,
    ) -> Dispatch:
        check(
            x.dtype.is_float and x.rank == 4 and all(x.shape[2:]),
            f"x must hold float images, not {x.dtype} of shape {describe(x.shape)}",
        )
        target = tuple(output_size)
        factors = (scales_h, scales_w)
        scales = [
            1.0 / factor if factor else n / m
            for n, m, factor in zip(x.shape[2:], target, factors, strict=True)
        ]
        return resized(x, target, scales, out, code, align_corners)


register_filter("upsample_bicubic2d", BICUBIC)
register_filter("_upsample_bilinear2d_aa", BILINEAR_AA)
register_filter("_upsample_bicubic2d_aa", BICUBIC_AA)
