"""Operators whose result has a length that depends on data: nonzero, masked_select, x[mask].

The result is allocated for the largest length. An integer on the GPU contains the actual length, and the
result is cut to it when it is read back. Shapes are planned before anything runs, so no other node can read
such a result. It can only be an output of the method.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Arg, Tensor

if TYPE_CHECKING:
    from pteron.compiler.lower.instructions import Lowering

NONZERO = "aten.nonzero.default"
MASKED_SELECT = "aten.masked_select.default"
SELECT_ROWS = "pteron.select_rows"
NAMES = {
    NONZERO: "aten::nonzero.out",
    MASKED_SELECT: "aten::masked_select.out",
    SELECT_ROWS: "aten::index.Tensor_out",
}


def lower_data_sized(lowering: Lowering, kernel: str, ids: Sequence[int], where: str) -> bool:
    """Add the node of such a kernel, with a tensor for its count. False: it is another kernel."""
    call = _operator(lowering, kernel, ids)
    if call is None:
        return False
    name, args = call
    out = lowering.write_tensor(ids[-1])
    count = lowering.tensor(DType.int32, (1,), f"{out.name}.count")
    lowering.graph.counts[out.id] = count
    lowering.node(name, [*args, (out, count)], where)
    return True


def _operator(lowering: Lowering, kernel: str, ids: Sequence[int]) -> tuple[str, list[Arg]] | None:
    if len(ids) < 3:
        return None
    if kernel == "aten::nonzero.out":
        return NONZERO, [lowering.read(ids[0])]
    if kernel == "aten::masked_select.out":
        return MASKED_SELECT, [lowering.read(ids[0]), lowering.read(ids[1])]
    if kernel == "aten::index.Tensor_out":
        x, indices = lowering.read(ids[0]), lowering.read(ids[1])
        # An index with only one mask: x[mask].
        mask = indices[0] if isinstance(indices, tuple) and len(indices) == 1 else None
        if isinstance(mask, Tensor) and mask.dtype is DType.bool:
            return SELECT_ROWS, [x, mask]
    return None


def refuse_readers(lowering: Lowering) -> None:
    """Record a problem for every node that reads a result of unknown length."""
    counts = lowering.graph.counts
    makers = {value.id: node for node in lowering.graph.nodes for value in node.writes if value.id in counts}
    for node in lowering.graph.nodes:
        for value in node.reads:
            if value.id in makers:
                maker = makers[value.id]
                lowering.problem(
                    NAMES[maker.name],
                    maker.origin,
                    f"the size of its result depends on the data, and {node.name} ({node.origin}) reads it: "
                    "such a result can only be an output of the method",
                )
