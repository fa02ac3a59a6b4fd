"""Lookups by index: embeddings, plain and 4-bit."""

from __future__ import annotations

from pteron.graph.dispatch import Dispatch, describe, quads, threads
from pteron.graph.live import LiveTensor
from pteron.graph.op import check, op


@op("aten.embedding.default")
def embedding(
    weight: LiveTensor,
    indices: LiveTensor,
    padding_idx: int,
    scale_grad_by_freq: bool,
    sparse: bool,
    out: LiveTensor,
) -> Dispatch:
    check(weight.rank == 2, f"weight must have 2 dimensions, not shape {describe(weight.shape)}")
    rows, width = weight.shape
    indices.require_contents(0, rows - 1, f"an index into an embedding table of {rows} rows")
    out.resize((*indices.shape, width))
    params = {"quads": quads(out.numel), "width": width, "rows": rows}
    return Dispatch("embedding", {"weight": weight, "indices": indices, "y": out}, params, threads(quads(out.numel)))


@op("et_vk.embedding_q4gsw.default")
def embedding_q4gsw(
    weight: LiveTensor,
    scales: LiveTensor,
    group_size: int,
    indices: LiveTensor,
    is_linear_weight: bool,
    out: LiveTensor,
) -> Dispatch:
    """Rows of [vocabulary, D/2] bytes; a linear weight has its even element in the low nibble."""
    check(weight.rank == 2, f"weight must have 2 dimensions, not shape {describe(weight.shape)}")
    rows, packed = weight.shape
    width = out.max_shape[-1]
    check(
        width == 2 * packed and group_size > 0 and scales.rank == 2 and scales.shape[0] >= rows,
        f"weight {describe(weight.shape)} and scales {describe(scales.shape)} do not make rows of {width}",
    )
    check(
        scales.shape[1] * group_size >= width,
        f"{scales.shape[1]} groups of {group_size} do not cover rows of {width}",
    )
    indices.require_contents(0, rows - 1, f"an index into an embedding table of {rows} rows")
    out.resize((*indices.shape, width))
    params = {
        "quads": quads(out.numel),
        "width": width,
        "rows": rows,
        "group": group_size,
        "groups": scales.shape[1],
    }
    bindings = {"weight": weight, "scales": scales, "indices": indices, "y": out}
    defines = {"LOW_NIBBLE_FIRST": is_linear_weight}
    return Dispatch("embedding_q4", bindings, params, threads(quads(out.numel)), defines)
