"""The 4-bit linear: x @ W^T with groups of weights that share a scale."""

from __future__ import annotations

from pteron.graph.dispatch import WORKGROUP, Dispatch, Route, describe, fold
from pteron.graph.live import LiveTensor
from pteron.graph.op import check, op
from pteron.graph.values import numel
from pteron.ops.matmul import all_float32, check_bias, subgroup_routes, tiles_1d

ROWS = 4  # that one invocation of the plain kernel computes


@op("et_vk.linear_q4gsw.default")
def linear_q4gsw(
    x: LiveTensor,
    weights: LiveTensor,
    scales: LiveTensor,
    group_size: int,
    bias: LiveTensor | None,
    out: LiveTensor,
) -> list[Route]:
    """W is [N, ceil(K/2)] bytes, even k in the low nibble; scales are [K/group, N] or wider."""
    check(weights.rank == 2, f"weights must have 2 dimensions, not shape {describe(weights.shape)}")
    check(group_size > 0, f"group_size must be positive, not {group_size}")
    depth, columns = x.shape[-1], out.max_shape[-1]
    packed = weights.shape[1]
    check(depth == x.max_shape[-1], f"x has rows of {depth} elements, but the weights want {x.max_shape[-1]}")
    check(
        weights.shape[0] >= columns and (depth + 1) // 2 <= packed,
        f"weights of shape {describe(weights.shape)} do not fit {columns} columns of {depth} elements",
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
    if not all_float32(x, scales, bias, out) or packed % 4 or group_size % 8 or depth % group_size:
        return [
            Route("any", [Dispatch("linear_q4_any", bindings, params, tiles_1d(rows * columns), defines)])
        ]

    def plain(tile: int) -> Dispatch:
        blocks = -(-columns // WORKGROUP) * -(-rows // tile)
        return Dispatch("linear_q4", bindings, params, fold(blocks), {**defines, "ROWS": tile})

    return [
        *subgroup_routes("linear_q4_subgroup", bindings, params, defines),
        Route("gemv", [plain(1)], when=rows == 1),
        Route("gemm", [plain(ROWS)]),
    ]
