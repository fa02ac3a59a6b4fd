"""Operators that create tensors: full, zeros, ones, empty, arange, scalar_tensor."""

from __future__ import annotations

import math

from pteron.compiler.ir.integer_rules import RAMP, fills
from pteron.compiler.ir.rule import (
    Dispatch,
    DType,
    LiveTensor,
    Scalar,
    Shape,
    Unused,
    check,
    op,
    quads,
    reads_only_shape_of,
    threads,
)
from pteron.compiler.ops.elementwise import as_f32, signed, words_of
from pteron.compiler.ops.reduce import INT64, scalar
from pteron.pte.schema import ScalarType

_VALUE = {
    "f32": "vec4<f32>(p.s_start) + vec4<f32>(i) * p.s_step",
    "i32": "vec4<i32>(p.k_start) + vec4<i32>(i) * p.k_step",
    INT64: "y_t4(int64_value(i.x), int64_value(i.y), int64_value(i.z), int64_value(i.w))",
}
_INT64_VALUE = """
fn int64_value(i: u32) -> vec2<u32> {
    let step = vec2<u32>(bitcast<u32>(p.k_step), p.high_step);
    return add64(vec2<u32>(bitcast<u32>(p.k_start), p.high_start), mul64(vec2<u32>(i, 0u), step));
}
"""


def ramp(out: LiveTensor, start: float | int, step: float | int = 0) -> Dispatch:
    """out[i] = start + i * step, computed in the type of the output. A bool is whether `start` is not 0."""
    if out.dtype is DType.bool:
        start = int(bool(start))
    kind = scalar(out)
    code = f"fn value(i: vec4<u32>) -> y_t4 {{ return {_VALUE[kind]}; }}"
    (low_start, high_start), (low_step, high_step) = words_of(start), words_of(step)
    params = {
        "quads": quads(out.numel),
        "s_start": as_f32(start),
        "s_step": as_f32(step),
        "k_start": signed(low_start),
        "k_step": signed(low_step),
        "high_start": high_start,
        "high_step": high_step,
    }
    code += _INT64_VALUE if kind == INT64 else ""
    return Dispatch("fill", {"y": out}, params, threads(quads(out.numel)), code=code)


@op("aten.full.default", integers=fills("value"))
def full(
    size: Shape, value: Scalar, dtype: Unused, layout: Unused, device: Unused, pin: Unused, out: LiveTensor
) -> Dispatch:
    out.resize(size)
    return ramp(out, value)


@op("aten.full_like.default", work=reads_only_shape_of("x"), integers=fills("value", shapes=("x",)))
def full_like(
    x: LiveTensor,
    value: Scalar,
    dtype: Unused,
    layout: Unused,
    device: Unused,
    pin: Unused,
    memory_format: Unused,
    out: LiveTensor,
) -> Dispatch:
    out.resize(x.shape)
    return ramp(out, value)


def filled_with(name: str, value: int) -> None:
    """Register `aten.<name>` and `aten.<name>_like`, which fill a tensor with one value."""

    @op(f"aten.{name}.default", integers=fills(value))
    def of_size(
        size: Shape, dtype: Unused, layout: Unused, device: Unused, pin: Unused, out: LiveTensor
    ) -> Dispatch:
        out.resize(size)
        return ramp(out, value)

    @op(f"aten.{name}_like.default", work=reads_only_shape_of("x"), integers=fills(value, shapes=("x",)))
    def like(
        x: LiveTensor,
        dtype: Unused,
        layout: Unused,
        device: Unused,
        pin: Unused,
        memory_format: Unused,
        out: LiveTensor,
    ) -> Dispatch:
        out.resize(x.shape)
        return ramp(out, value)


filled_with("zeros", 0)
filled_with("ones", 1)


@op("aten.fill.Scalar", work=reads_only_shape_of("x"), integers=fills("value", shapes=("x",)))
def fill(x: LiveTensor, value: Scalar, out: LiveTensor) -> Dispatch:
    out.resize(x.shape)
    return ramp(out, value)


@op("aten.empty.memory_format", "dim_order_ops._empty_dim_order.default")
def empty(
    size: Shape,
    dtype: Unused,
    layout: Unused,
    device: Unused,
    pin: Unused,
    memory_format_or_dim_order: Unused,
    out: LiveTensor,
) -> None:
    out.resize(size)


@op("aten.scalar_tensor.default", integers=fills("value"))
def scalar_tensor(
    value: Scalar, dtype: Unused, layout: Unused, device: Unused, pin: Unused, out: LiveTensor
) -> Dispatch:
    out.resize(())
    return ramp(out, value)


@op("aten.arange.default", integers=RAMP)
def arange_to(
    end: Scalar, dtype: int | None, layout: Unused, device: Unused, pin: Unused, out: LiveTensor
) -> Dispatch:
    return arange(0, end, 1, dtype, layout, device, pin, out)  # type: ignore[no-any-return]


@op("aten.arange.start_step", integers=RAMP)
def arange(
    start: Scalar,
    end: Scalar,
    step: Scalar,
    dtype: int | None,
    layout: Unused,
    device: Unused,
    pin: Unused,
    out: LiveTensor,
) -> Dispatch:
    if dtype == ScalarType.LONG:  # torch cuts off their fractions before it counts
        start, end, step = map(math.trunc, (start, end, step))
    check(step != 0, "step must not be 0")
    if isinstance(start, int) and isinstance(end, int) and isinstance(step, int):
        length = -((start - end) // step)
    else:
        length = math.ceil((end - start) / step)
    out.resize((max(0, length),))
    return ramp(out, start, step)
