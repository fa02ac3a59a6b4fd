"""Results of control flow: the result of the branch that was taken, and the rows that a loop writes."""

from __future__ import annotations

from pteron.compiler.ir.integer_rules import moves
from pteron.compiler.ir.rule import Dispatch, LiveTensor, Route, check, copy_dispatch, describe, op
from pteron.compiler.ops.writes import write_slice


@op("pteron.choose", integers=moves("a", "b"))
def choose(condition: int, a: LiveTensor, b: LiveTensor, out: LiveTensor) -> list[Route]:
    taken = a if condition else b
    out.resize(taken.shape)
    return [
        Route("then", [copy_dispatch(a, out)], when=bool(condition)),
        Route("otherwise", [copy_dispatch(b, out)], when=not condition),
    ]


@op("pteron.first_row", integers=moves("x"))
def first_row(x: LiveTensor, count: int, out: LiveTensor) -> Dispatch:
    """Write the first of `count` rows. Its shape is the shape of all rows."""
    out.resize((count, *x.shape))
    return write_slice(x, out, 0, 0, 1)


@op("pteron.write_row", mutates=["target"], integers=moves("x", "target"))
def write_row(x: LiveTensor, target: LiveTensor, index: int, out: None) -> Dispatch:
    check(
        x.shape == target.shape[1:] and index < target.shape[0],
        f"row {index} of {describe(target.shape)} cannot hold {describe(x.shape)}",
    )
    return write_slice(x, target, 0, index, 1)
