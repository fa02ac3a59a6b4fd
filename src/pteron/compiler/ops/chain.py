"""Elementwise steps in one kernel.

Each step gives the value that its tensor would contain: integers wrap, and float16 is rounded. All steps are
computed at the shape of the result. This is correct because an elementwise operator gives the same values
before and after broadcasting.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from itertools import count
from typing import Any, NamedTuple, cast

from pteron.compiler.ir.rule import Dispatch, DType, LiveTensor, Scalar, Unused, op, quads, threads
from pteron.compiler.ops.elementwise import Elementwise, as_f32, as_i32, broadcast_params
from pteron.compiler.ops.shapes import broadcast

INPUT_NAMES = "abcd"
MAX_SCALARS = 16


class ChainStep(NamedTuple):
    """One operator of a chain."""

    expression: str
    scalars: tuple[Scalar, ...]
    integer: bool
    operands: tuple[str, ...]  # inputs of the chain, `a` to `d`, or results of steps, `t0`, `t1` and so on
    dtype: str  # of the result


@op("pteron.chain")
def chain(inputs: tuple[LiveTensor, ...], steps: Unused, out: LiveTensor) -> Dispatch:
    """Compute elementwise steps. The result of the last step is the output."""
    listed = tuple(ChainStep(*step) for step in cast(Sequence[Sequence[Any]], steps))
    out.resize(broadcast(*(x.shape for x in inputs)))
    padded = {name: inputs[min(i, len(inputs) - 1)] for i, name in enumerate(INPUT_NAMES)}
    params = {
        "quads": quads(out.numel),
        **broadcast_params(out.shape, padded),
        "scalars": tuple(_bits(value, step.integer) for step in listed for value in step.scalars),
    }
    defines = {"INPUTS": len(inputs)}
    return Dispatch(
        "chain", {**padded, "y": out}, params, threads(quads(out.numel)), defines, compose(listed)
    )


@cache
def compose(steps: tuple[ChainStep, ...]) -> str:
    """The WGSL of a chain: a function for each step, and `apply`, which calls these functions in order."""
    types = {name: f"{name}_t4" for name in INPUT_NAMES}
    places = count()
    functions, calls = [], []
    for number, step in enumerate(steps):
        dtype = _DTYPES[step.dtype]
        types[f"t{number}"] = "vec4<f32>" if dtype.is_float else "vec4<i32>"
        function = Elementwise(step.expression, step.scalars, step.integer)
        takes = [types[operand] for operand in step.operands]
        kind = "i32" if step.integer else "f32"
        numbers = [next(places) for _ in step.scalars]
        scalars = [f"bitcast<{kind}>(p.scalars[{i // 4}][{i % 4}])" for i in numbers]
        functions.append(function.wgsl(f"step{number}", takes, types[f"t{number}"], scalars))
        call = f"step{number}({', '.join(step.operands)})"
        calls.append(f"let t{number} = {call if dtype.itemsize == 4 else f'as_{dtype}({call})'};")
    parameters = ", ".join(f"{name}: {name}_t4" for name in INPUT_NAMES)
    body = f"fn apply({parameters}) -> y_t4 {{ {' '.join(calls)} return t{len(steps) - 1}; }}"
    return "\n".join([*functions, body])


_DTYPES = {dtype.label: dtype for dtype in DType}


def _bits(value: Scalar, integer: bool) -> int:
    """The bits of a scalar parameter. A literal in the shader text could make the driver reorder sums."""
    packed = struct.pack("<i", as_i32(value)) if integer else struct.pack("<f", as_f32(value))
    return int.from_bytes(packed, "little")
