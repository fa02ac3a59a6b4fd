"""SymInts: live sizes, and arithmetic on them. The host computes them in the same sweep as live shapes.

An operator has one name inside a delegate (`add`) and another outside (`executorch_prim::add.Scalar`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from pteron.compiler.ir.integer_rules import OF_SHAPE
from pteron.compiler.ir.rule import LiveResult, LiveTensor, OpError, Scalar, op
from pteron.compiler.ops.shapes import dimension


@op("sym_size.int", "aten::sym_size.int", integers=OF_SHAPE)
def sym_size(x: LiveTensor, dim: int, out: LiveResult) -> None:
    out.set(x.shape[dimension(dim, x.rank)])


@op("sym_numel.default", "aten::sym_numel", integers=OF_SHAPE)
def sym_numel(x: LiveTensor, out: LiveResult) -> None:
    out.set(x.numel)


def unary(name: str, function: Callable[[Any], Any], *aliases: str) -> None:
    @op(name, f"executorch_prim::{name}.Scalar", *aliases)
    def rule(a: Scalar, out: LiveResult) -> None:
        out.set(function(a))


def binary(name: str, function: Callable[[Any, Any], Any], *aliases: str) -> None:
    @op(name, f"executorch_prim::{name}.Scalar", *aliases)
    def rule(a: Scalar, b: Scalar, out: LiveResult) -> None:
        out.set(function(a, b))


def power(a: Any, b: Any) -> Any:
    """a to the power of b. A huge integer result is refused before it is computed."""
    if isinstance(a, int) and isinstance(b, int) and abs(a) > 1 and b > 63:
        raise OpError(f"{a} to the power of {b} does not fit in 64 bits")
    return a**b


binary("add", operator.add)
binary("sub", operator.sub)
binary("mul", operator.mul)
binary("floordiv", operator.floordiv, "executorch_prim::floordiv.int")
binary("truediv", operator.truediv)
binary("mod", operator.mod, "executorch_prim::mod.int")
binary("pow", power)
binary("sym_max", max, "max")
binary("sym_min", min, "min")
binary("sym_and", lambda a, b: bool(a) and bool(b))
binary("eq", operator.eq)
binary("ne", operator.ne)
binary("lt", operator.lt)
binary("le", operator.le)
binary("gt", operator.gt)
binary("ge", operator.ge)

unary("neg", operator.neg)
unary("sym_not", operator.not_)
unary("sym_float", float)
unary("sym_int", int)
unary("ceil", math.ceil)
unary("floor", math.floor)
unary("round", round)
unary("trunc", math.trunc)


@op("sym_ite", "executorch_prim::sym_ite.Scalar")
def sym_ite(condition: Scalar, a: Scalar, b: Scalar, out: LiveResult) -> None:
    out.set(a if condition else b)
