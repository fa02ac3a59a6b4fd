"""Random numbers, and dropout.

The generator is Philox. It computes random bits from a counter, so all elements are independent. The counter
is mutable state of the method (see `Method.new_state` and `reset`). Every call draws new numbers. A new or
reset state draws the same numbers again.
"""

from __future__ import annotations

from collections.abc import Sequence

from pteron.compiler.ir.rule import Dispatch, DType, LiveTensor, Shape, check, describe, op, quads, threads
from pteron.compiler.ops.copies import strided
from pteron.compiler.ops.create import ramp
from pteron.compiler.ops.shapes import contiguous

UNIFORM = "fn drawn(bits: vec4<u32>) -> vec4<f32> { return vec4<f32>(bits >> vec4<u32>(8u)) * 0x1p-24; }"
# The Box-Muller transform: two uniform numbers give two normal numbers.
NORMAL = """
fn drawn(bits: vec4<u32>) -> vec4<f32> {
    let uniform4 = (vec4<f32>(bits >> vec4<u32>(8u)) + vec4<f32>(1.0, 0.0, 1.0, 0.0)) * 0x1p-24;
    let radius = sqrt(-2.0 * log4(uniform4.xxzz));
    let angle = 6.283185307179586 * uniform4.yyww;
    return radius * vec4<f32>(cos(angle.x), sin(angle.y), cos(angle.z), sin(angle.w));
}
"""


@op("aten.rand.default", mutates=["counter"])
def rand(size: Shape, counter: LiveTensor, out: LiveTensor) -> list[Dispatch]:
    return draw(size, counter, out, UNIFORM)


@op("aten.randn.default", mutates=["counter"])
def randn(size: Shape, counter: LiveTensor, out: LiveTensor) -> list[Dispatch]:
    return draw(size, counter, out, NORMAL)


def draw(size: Shape, counter: LiveTensor, out: LiveTensor, code: str) -> list[Dispatch]:
    """`counter` contains the number of the call, and a number that is different for every node."""
    check(out.dtype.is_float, f"random numbers are floats, not {out.dtype}")
    check(
        counter.dtype is DType.int32 and counter.numel == 2,
        f"the counter must be two int32 numbers, not {counter.dtype}{describe(counter.shape)}",
    )
    out.resize(tuple(size))
    count = quads(out.numel)
    return [
        Dispatch("random", {"counter": counter, "y": out}, {"quads": count}, threads(count), code=code),
        Dispatch("count_call", {"counter": counter}, {"by": 1}, (1, 1, 1)),
    ]


@op("aten.native_dropout.default")
def native_dropout(x: LiveTensor, p: float, train: bool | None, outs: Sequence[LiveTensor]) -> list[Dispatch]:
    """Without training, dropout keeps all elements."""
    check(
        not train or p == 0, f"dropout in training (p = {p}) is not supported: export the model with .eval()"
    )
    y, kept = outs
    y.resize(x.shape)
    kept.resize(x.shape)
    return [strided(x, y, contiguous(x.shape)), ramp(kept, 1)]
