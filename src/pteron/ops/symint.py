"""SymInts: live sizes and integer arithmetic. Pure host work, in the same sweep as the tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from pteron.graph.live import LiveResult, LiveTensor
from pteron.graph.op import op
from pteron.ops.shapes import dimension


@op("sym_size.int", "aten::sym_size.int")
def sym_size(x: LiveTensor, dim: int, out: LiveResult) -> None:
    out.set(x.shape[dimension(dim, x.rank)])


@op("sym_numel.default", "aten::sym_numel")
def sym_numel(x: LiveTensor, out: LiveResult) -> None:
    out.set(x.numel)


def arithmetic(name: str, function: Callable[[Any, Any], Any], *aliases: str) -> None:
    @op(name, f"executorch_prim::{name}.Scalar", *aliases)
    def rule(a: Any, b: Any, out: LiveResult) -> None:
        out.set(function(a, b))


arithmetic("add", operator.add)
arithmetic("sub", operator.sub)
arithmetic("mul", operator.mul)
arithmetic("floordiv", operator.floordiv)
arithmetic("mod", operator.mod)
arithmetic("sym_max", max, "max")
arithmetic("sym_min", min, "min")
arithmetic("eq", operator.eq)
arithmetic("ne", operator.ne)
arithmetic("lt", operator.lt)
arithmetic("le", operator.le)
arithmetic("gt", operator.gt)
arithmetic("ge", operator.ge)


@op("neg", "executorch_prim::neg.Scalar")
def neg(a: Any, out: LiveResult) -> None:
    out.set(-a)
