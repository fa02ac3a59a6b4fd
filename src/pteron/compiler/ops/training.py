"""Training: cross-entropy and its gradient, gradients of linear layers, AdamW, requantisation to 4 bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pteron.compiler.ir.integer_rules import indexes
from pteron.compiler.ir.rule import (
    Dispatch,
    LiveArguments,
    LiveTensor,
    Route,
    Scratch,
    Work,
    check,
    copy_dispatch,
    describe,
    fold,
    multiplies,
    numel,
    op,
    quads,
    threads,
)
from pteron.compiler.ops.linear_q4 import check_group_scales
from pteron.compiler.ops.matmul import all_float32, check_rows
from pteron.compiler.ops.products import (
    ANY,
    FEW_ROWS,
    GEMM,
    GEMV,
    Candidate,
    GemmShape,
    KernelKind,
    product_routes,
)
from pteron.compiler.ops.quantized import check_matrix
from pteron.compiler.ops.workgroups import stores, tile_candidates

# The number of invocations per row of logits.
PARTS = 32


@op("et_vk.fused_ce.default", integers=indexes("labels"))
def fused_ce(
    logits: LiveTensor, labels: LiveTensor, n_valid: float, outs: Sequence[LiveTensor]
) -> list[Dispatch]:
    """The cross-entropy and its gradient: the sum over all rows with a label >= 0, divided by n_valid."""
    loss, grad = outs
    check(logits.rank == 2, f"logits must have 2 dimensions, not shape {describe(logits.shape)}")
    rows, width = logits.shape
    check(labels.shape == (rows,), f"labels have shape {describe(labels.shape)}, but there are {rows} rows")
    check(width > 0, "logits must have at least one column")
    loss.resize(loss.max_shape)
    grad.resize(logits.shape)
    most = logits.max_shape[0]
    parts, stats = Scratch("parts", 8 * PARTS * most), Scratch("stats", 16 * most)
    params = {"rows": rows, "width": width}
    scaled = {**params, "n_valid": n_valid}
    shared = {"PARTS": PARTS}
    read = {"logits": logits, "labels": labels}
    return [
        Dispatch("ce_parts", {"logits": logits, "parts": parts}, params, threads(rows * PARTS), shared),
        Dispatch("ce_rows", {**read, "parts": parts, "stats": stats}, scaled, threads(rows), shared),
        Dispatch("ce_loss", {"stats": stats, "loss": loss}, {"rows": rows}, (1, 1, 1)),
        Dispatch("ce_grad", {**read, "stats": stats, "y": grad}, scaled, threads(quads(grad.numel))),
    ]


@op("et_vk.adamw_step.default", mutates=["param", "m", "v"])
def adamw_step(
    param: LiveTensor,
    m: LiveTensor,
    v: LiveTensor,
    grad: LiveTensor,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    bias_correction1: float,
    bias_correction2: float,
    outs: Sequence[LiveTensor],
) -> list[Dispatch]:
    """Update param, m and v in place. The bias corrections are 1 - beta^step."""
    for name, tensor in (("m", m), ("v", v), ("grad", grad)):
        check(
            tensor.shape == param.shape,
            f"{name} has shape {describe(tensor.shape)}, but param has {describe(param.shape)}",
        )
    for out in outs:
        out.resize(param.shape)
    params = {
        "quads": quads(param.numel),
        "lr": lr,
        "keep": 1.0 - lr * weight_decay,
        "beta1": beta1,
        "rest1": 1.0 - beta1,
        "beta2": beta2,
        "rest2": 1.0 - beta2,
        "eps": eps,
        "correction1": bias_correction1,
        "correction2": bias_correction2,
    }
    bindings = {"param": param, "mean": m, "square": v, "grad": grad}
    # The results are the updated tensors. If the file gives the results other ids, they are copied.
    copies = [(a, b) for a, b in zip((param, m, v), outs, strict=True) if a.tensor is not b.tensor]
    return [
        Dispatch("adamw", bindings, params, threads(quads(param.numel))),
        *(copy_dispatch(source, target) for source, target in copies),
    ]


def _weight_gradient_work(call: LiveArguments) -> Work:
    """Each element of the gradient is a sum over all rows."""
    return Work(2 * call["out"].numel * numel(call["x"].shape[:-1]))


@op("et_vk.linear_dW.default", work=_weight_gradient_work)
def linear_dw(d_out: LiveTensor, x: LiveTensor, out: LiveTensor) -> list[Route]:
    """The gradient of the weight of a linear layer: d_out^T @ x, over all rows."""
    check(
        d_out.rank >= 1 and d_out.shape[:-1] == x.shape[:-1],
        f"d_out {describe(d_out.shape)} and x {describe(x.shape)} must have the same number of rows",
    )
    rows, columns, depth = d_out.shape[-1], x.shape[-1], numel(x.shape[:-1])
    out.resize((rows, columns))
    bindings = {"a": d_out, "b": x, "y": out}
    params = {"rows": rows, "columns": columns, "depth": depth}
    gemm = GemmShape(rows, columns)
    product = Dispatch("matmul_ta_group", bindings, params, fold(0))
    candidates = _tile_candidates(product, out, gemm, rows_first=True)
    if all_float32(d_out, x, out):
        tile = Dispatch("matmul_ta", bindings, params, gemm.invocations(4, 4))
        candidates.append(Candidate(GEMM, tile, when=rows % 4 == 0 and columns % 4 == 0))
    candidates.append(Candidate(ANY, Dispatch("matmul_ta_any", bindings, params, gemm.element_quads())))
    return product_routes(gemm, candidates)


def _tile_candidates(
    product: Dispatch, out: LiveTensor, gemm: GemmShape, rows_first: bool = False
) -> list[Candidate]:
    """Tiles, if there are enough rows to fill them. Elements of less than four bytes need whole quads."""
    ragged = out.dtype.itemsize == 4
    fits = gemm.rows > FEW_ROWS and (ragged or gemm.columns % 4 == 0)
    product = replace(product, defines=stores(not ragged))
    return tile_candidates(product, gemm, rows_first=rows_first, columns_first=True, when=fits)


@op("et_vk.linear_q4gsw_backward.default", work=multiplies("d_out"))
def linear_q4gsw_backward(
    d_out: LiveTensor, weights: LiveTensor, scales: LiveTensor, group_size: int, out: LiveTensor
) -> list[Route]:
    """The gradient of the input of a 4-bit linear layer: d_out @ W. W is packed as in the linear layer."""
    check_matrix(weights)
    packed, columns, depth = weights.shape[1], out.max_shape[-1], d_out.max_shape[-1]
    rows = check_rows(d_out, depth, "the weights")
    check(
        depth <= weights.shape[0] and columns <= 2 * packed,
        f"weights {describe(weights.shape)} do not fit rows of {depth} in d_out and {columns} in the output",
    )
    check_group_scales(scales, columns, group_size, depth)
    out.resize((*d_out.shape[:-1], columns))
    bindings = {"x": d_out, "weights": weights, "scales": scales, "y": out}
    params = {
        "rows": rows,
        "columns": columns,
        "depth": depth,
        "packed": packed,
        "group": group_size,
        "scale_row": scales.shape[1],
    }
    gemm = GemmShape(rows, columns)
    candidates = _tile_candidates(Dispatch("matmul_q4_group", bindings, params, fold(0)), out, gemm)

    def portable(kind: KernelKind, height: int) -> Candidate:
        grid = gemm.invocations(height, 8)
        return Candidate(kind, Dispatch("matmul_q4", bindings, params, grid, {"ROWS": height}))

    whole = columns == 2 * packed and packed % 4 == 0 and group_size % 8 == 0
    if whole and all_float32(d_out, scales, out):
        candidates += [portable(GEMV, 1), portable(GEMM, 4)]
    else:
        grid = gemm.element_quads()
        candidates.append(Candidate(ANY, Dispatch("matmul_q4_any", bindings, params, grid)))
    return product_routes(gemm, candidates)


@op("et_vk.q4gsw_requant.default")
def q4gsw_requant(latent: LiveTensor, scales: LiveTensor, group_size: int, out: LiveTensor) -> Dispatch:
    """Quantize trained weights to 4 bits, packed for the 4-bit linear layer. The scales do not change."""
    check(latent.rank == 2, f"latent must have 2 dimensions, not shape {describe(latent.shape)}")
    rows, columns = latent.shape
    check_group_scales(scales, columns, group_size, rows)
    out.resize((rows, -(-columns // 2)))
    params = {
        "rows": rows,
        "columns": columns,
        "packed": out.shape[1],
        "group": group_size,
        "scale_row": scales.shape[1],
    }
    return Dispatch(
        "q4_pack", {"latent": latent, "scales": scales, "y": out}, params, threads(quads(out.numel))
    )
