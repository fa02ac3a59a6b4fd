"""Matrix products: linear, mm, bmm and their relatives.

Every product has a route for float32 operands whose rows are whole vec4s, and one that takes any
shape and dtype. Both compute a small tile of the output per invocation, in registers.
"""

from __future__ import annotations

from collections.abc import Mapping

from pteron.graph.dispatch import (
    SOFTWARE,
    SUBGROUP,
    WORKGROUP,
    Bound,
    Define,
    Dispatch,
    Grid,
    Number,
    Route,
    describe,
    fold,
    settle,
)
from pteron.graph.dtypes import DType
from pteron.graph.live import LiveTensor
from pteron.graph.op import check, op
from pteron.graph.values import Shape, numel
from pteron.ops.shapes import broadcast, broadcast_strides

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
    plain = settle([vec4, general], weight.is_fixed)
    if weight.is_fixed and depth % 8:
        return plain
    fits = None if weight.is_fixed else depth % 8 == 0
    return [*subgroup_routes("linear_subgroup", bindings, params, defines, when=fits), *plain]


SUBGROUP_LANES, SUBGROUP_ROWS = 32, 8


def subgroup_routes(
    kernel: str,
    bindings: Mapping[str, Bound],
    params: Mapping[str, Number],
    defines: Mapping[str, Define],
    when: bool | None = None,
) -> list[Route]:
    """Kernels whose lanes share x: for one row, and for tiles of eight. Each lane has four columns."""
    rows, columns = params["rows"], params["columns"]
    assert isinstance(rows, int) and isinstance(columns, int)

    def dispatch(tile: int) -> Dispatch:
        blocks = -(-columns // (4 * SUBGROUP_LANES)) * -(-rows // tile)
        return Dispatch(
            kernel, bindings, params, fold(blocks), {**defines, "ROWS": tile, "LANES": SUBGROUP_LANES}
        )

    one = rows == 1 and when is not False
    return [
        Route("subgroup gemv", [dispatch(1)], when=one, needs=SUBGROUP, home=SOFTWARE),
        Route("subgroup gemm", [dispatch(SUBGROUP_ROWS)], when=when, needs=SUBGROUP, home=SOFTWARE),
    ]


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
    return _matmul(a, b, out, rank=2)


@op("aten.bmm.default")
def bmm(a: LiveTensor, b: LiveTensor, out: LiveTensor) -> list[Route]:
    return _matmul(a, b, out, rank=3)


@op("aten.addmm.default")
def addmm(
    c: LiveTensor, a: LiveTensor, b: LiveTensor, beta: float, alpha: float, out: LiveTensor
) -> list[Route]:
    return _matmul(a, b, out, rank=2, added=(c, beta, alpha))


@op("aten.baddbmm.default")
def baddbmm(
    c: LiveTensor, a: LiveTensor, b: LiveTensor, beta: float, alpha: float, out: LiveTensor
) -> list[Route]:
    return _matmul(a, b, out, rank=3, added=(c, beta, alpha))


def _matmul(
    a: LiveTensor,
    b: LiveTensor,
    out: LiveTensor,
    *,
    rank: int,
    added: tuple[LiveTensor, float, float] | None = None,
) -> list[Route]:
    """out = a @ b, or alpha * (a @ b) + beta * c where `added` is (c, beta, alpha)."""
    product = f"{describe(a.shape)} @ {describe(b.shape)}"
    check(a.rank == b.rank == rank, f"both operands must have {rank} dimensions: {product}")
    check(a.shape[:-2] == b.shape[:-2], f"batches differ: {product}")
    check(b.shape[-2] == a.shape[-1], f"inner dimensions differ: {product}")
    batch, rows, depth, columns = numel(a.shape[:-2]), a.shape[-2], a.shape[-1], b.shape[-1]
    out.resize((*a.shape[:-1], columns))
    c, beta, alpha = added or (a, 0.0, 1.0)
    strides = (0, 0, 0)
    if added:
        check(
            broadcast(c.shape, out.shape) == out.shape,
            f"{describe(c.shape)} does not broadcast to {describe(out.shape)}",
        )
        padded = (1,) * (3 - c.rank) + c.shape
        strides = broadcast_strides(padded, (batch, rows, columns))  # type: ignore[assignment]
    bindings = {"a": a, "b": b, "c": c, "y": out}
    params: dict[str, Number] = {
        "batch": batch,
        "rows": rows,
        "columns": columns,
        "depth": depth,
        "alpha": alpha,
        "beta": beta,
        **dict(zip(("c_batch", "c_row", "c_column"), strides, strict=True)),
    }
    defines: dict[str, Define] = {"HAS_C": added is not None}
    general = Dispatch("matmul_any", bindings, params, tiles_1d(batch * rows * columns), defines)
    routes = [Route("any", [general])]
    if all_float32(a, b, c, out):
        fast = depth % 4 == 0 and columns % 4 == 0
        dispatch = Dispatch("matmul", bindings, params, tiles(rows, columns, batch), defines)
        routes.insert(0, Route("vec4", [dispatch], when=fast))
    return routes


__all__ = ["Shape", "all_float32", "check_bias", "check_rows", "tiles", "tiles_1d"]
