"""Matrix products: linear, mm, bmm and the 4-bit linear.

Every product has a route for float32 operands whose rows are whole vec4s, and one that takes any
shape and dtype. Both compute a small tile of the output per invocation, in registers.
"""

from __future__ import annotations

from pteron.graph.dispatch import WORKGROUP, Dispatch, Grid, Route, describe, fold
from pteron.graph.dtypes import DType
from pteron.graph.live import LiveTensor
from pteron.graph.op import check, op
from pteron.graph.values import Shape, numel

TILE = 4  # rows and columns that one invocation computes


def tiles(rows: int, columns: int, batch: int = 1) -> Grid:
    """One invocation per TILE x TILE block of the output."""
    blocks = -(-rows // TILE) * -(-columns // TILE) * batch
    return fold(-(-blocks // WORKGROUP))


def all_float32(*tensors: LiveTensor | None) -> bool:
    return all(t is None or t.dtype is DType.float32 for t in tensors)


@op("aten.linear.default")
def linear(x: LiveTensor, weight: LiveTensor, bias: LiveTensor | None, out: LiveTensor) -> list[Route]:
    check(weight.rank == 2, f"weight must have 2 dimensions, not shape {describe(weight.shape)}")
    columns, depth = weight.shape
    rows = check_rows(x, depth, "weight")
    check_bias(bias, columns)
    out.resize((*x.shape[:-1], columns))
    bindings = {"x": x, "weight": weight, "bias": bias or weight, "y": out}
    params = {"rows": rows, "columns": columns, "depth": depth}
    defines = {"HAS_BIAS": bias is not None}
    general = Route("any", [Dispatch("linear_any", bindings, params, tiles_1d(rows * columns), defines)])
    if not all_float32(x, weight, bias, out):
        return [general]
    whole = depth % 4 == 0 and columns % 4 == 0
    vec4 = Route("vec4", [Dispatch("linear", bindings, params, tiles(rows, columns), defines)], when=whole)
    return pick([vec4, general], weight.is_fixed)


def pick(routes: list[Route], fixed: bool) -> list[Route]:
    """All routes; or, where what they are chosen by never changes, the one that it always is."""
    return [next(r for r in routes if r.when)] if fixed else routes


def tiles_1d(elements: int) -> Grid:
    """One invocation per four neighbouring elements of the output."""
    return fold(-(-elements // (4 * WORKGROUP)))


def check_rows(x: LiveTensor, depth: int, what: str) -> int:
    """The number of rows of x, whose last dimension must be the depth of the product."""
    check(x.rank >= 1, "x must have at least one dimension")
    check(x.shape[-1] == depth, f"x has rows of {x.shape[-1]} elements, but {what} wants {depth}")
    return numel(x.shape[:-1])


def check_bias(bias: LiveTensor | None, columns: int) -> None:
    if bias is not None:
        check(bias.numel >= columns, f"bias has {bias.numel} elements for {columns} columns")


@op("aten.mm.default")
def mm(a: LiveTensor, b: LiveTensor, out: LiveTensor) -> list[Route]:
    check(a.rank == b.rank == 2, f"both matrices must have 2 dimensions: {describe(a.shape)} @ {describe(b.shape)}")
    return _matmul(a, b, out, batch=1)


@op("aten.bmm.default")
def bmm(a: LiveTensor, b: LiveTensor, out: LiveTensor) -> list[Route]:
    check(a.rank == b.rank == 3, f"both operands must have 3 dimensions: {describe(a.shape)} @ {describe(b.shape)}")
    check(a.shape[0] == b.shape[0], f"batches differ: {describe(a.shape)} @ {describe(b.shape)}")
    return _matmul(a, b, out, batch=a.shape[0])


def _matmul(a: LiveTensor, b: LiveTensor, out: LiveTensor, batch: int) -> list[Route]:
    rows, depth = a.shape[-2:]
    columns = b.shape[-1]
    check(b.shape[-2] == depth, f"inner dimensions differ: {describe(a.shape)} @ {describe(b.shape)}")
    out.resize((*a.shape[:-1], columns))
    bindings = {"a": a, "b": b, "y": out}
    params = {"batch": batch, "rows": rows, "columns": columns, "depth": depth}
    routes = [Route("any", [Dispatch("matmul_any", bindings, params, tiles_1d(batch * rows * columns))])]
    if all_float32(a, b, out):
        fast = depth % 4 == 0 and columns % 4 == 0
        dispatch = Dispatch("matmul", bindings, params, tiles(rows, columns, batch))
        routes.insert(0, Route("vec4", [dispatch], when=fast))
    return routes


@op("et_vk.linear_q4gsw.default")
def linear_q4gsw(
    x: LiveTensor,
    weights: LiveTensor,
    scales: LiveTensor,
    group_size: int,
    bias: LiveTensor | None,
    out: LiveTensor,
) -> list[Route]:
    """x @ W^T with W in 4 bits: [N, ceil(K/2)] bytes, even k in the low nibble, scales [K/group, >= N]."""
    check(weights.rank == 2, f"weights must have 2 dimensions, not shape {describe(weights.shape)}")
    check(group_size > 0, f"group_size must be positive, not {group_size}")
    depth, columns = x.shape[-1], out.max_shape[-1]
    packed = weights.shape[1]
    check(depth == x.max_shape[-1], f"x has rows of {depth} elements, but the weights want {x.max_shape[-1]}")
    check(
        weights.shape[0] >= columns and (depth + 1) // 2 <= packed,
        f"x has rows of {depth} elements for {columns} columns, but weights have shape {describe(weights.shape)}",
    )
    groups = -(-depth // group_size)
    check(
        scales.rank == 2 and scales.shape[0] >= groups and scales.shape[1] >= columns,
        f"scales have shape {describe(scales.shape)}, but {groups} groups of {columns} columns are needed",
    )
    check_bias(bias, columns)
    rows = numel(x.shape[:-1])
    out.resize((*x.shape[:-1], columns))
    bindings = {"x": x, "weights": weights, "scales": scales, "bias": bias or scales, "y": out}
    params = {
        "rows": rows,
        "columns": columns,
        "depth": depth,
        "packed": packed,
        "group": group_size,
        "scale_row": scales.shape[1],
    }
    defines = {"HAS_BIAS": bias is not None}
    routes = [Route("any", [Dispatch("linear_q4_any", bindings, params, tiles_1d(rows * columns), defines)])]
    if all_float32(x, scales, bias, out) and packed % 4 == 0 and group_size % 8 == 0 and depth % 8 == 0:
        gemv = Dispatch("linear_q4_row", bindings, params, fold(-(-columns // WORKGROUP) * rows), defines)
        gemm = Dispatch("linear_q4", bindings, params, q4_grid(rows, columns), defines)
        routes = [Route("gemv", [gemv], when=rows == 1), Route("gemm", [gemm]), *routes]
    return routes


def q4_grid(rows: int, columns: int) -> Grid:
    """Lanes run along the columns; each computes four rows of one column."""
    return fold(-(-columns // WORKGROUP) * -(-rows // TILE))


__all__ = ["Shape", "all_float32", "check_bias", "check_rows", "tiles", "tiles_1d"]
