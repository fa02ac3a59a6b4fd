"""A residual sum and the RMS norm of it."""

from __future__ import annotations

from pteron.compiler.ir.rule import Dispatch, LiveTensor, Route, op, threads
from pteron.compiler.ops.elementwise import Elementwise, elementwise_dispatch
from pteron.compiler.ops.rows import rms_norm_dispatch, rms_workgroup_routes
from pteron.compiler.ops.shapes import broadcast


@op("pteron.add_rms_norm")
def add_rms_norm(
    a: LiveTensor, b: LiveTensor, weight: LiveTensor, eps: float, outs: tuple[LiveTensor, LiveTensor]
) -> list[Route]:
    total, y = outs
    total.resize(broadcast(a.shape, b.shape))
    added = elementwise_dispatch(Elementwise("a + s0 * b", (1,)), (a, b), total)
    y.resize(total.shape)
    width = weight.shape[0]
    rows = total.numel // width
    fused = Dispatch(
        "add_rms_norm",
        {"a": a, "b": b, "weight": weight, "total": total, "y": y},
        {"rows": rows, "width": width, "eps": eps},
        threads(rows),
    )
    same_shape = a.shape == b.shape
    return [
        *rms_workgroup_routes(a, weight, eps, y, added=(b, total), when=same_shape),
        Route("one kernel", [fused], when=same_shape),
        Route("two kernels", [added, rms_norm_dispatch(total, weight, eps, y)]),
    ]
