"""Rewrite operators that the exporter would decompose badly, before it does.

The exporter decomposes `scaled_dot_product_attention` and `rms_norm`. Some of the parts (`any`, `mul.Scalar`,
`add.Scalar`) are not supported by the delegate, so the graph is split at every layer. The delegate has an
operator for attention, but without causal masks, shared heads or boolean masks: these are made explicit here.
It also recognizes the pattern of an RMS norm, if it is written with `add.Tensor`.

The exporter's own decomposition of attention gives the result other strides than torch does. A `view` of this
result, as in GPT-2, is then an error if there are several sequences.
"""

from __future__ import annotations

import torch
from executorch.backends.vulkan import custom_ops_lib  # noqa: F401  registers torch.ops.et_vk
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import statically_known_true

from pteron.tools.exporter.mending import reshape_views

ATTENTION = torch.ops.aten.scaled_dot_product_attention.default
RMS_NORM = torch.ops.aten.rms_norm.default


def rewritten(program: ExportedProgram, delegated: bool) -> ExportedProgram:
    """The same program with these operators rewritten, for the delegate or to be run without one."""
    table = {ATTENTION: attend, RMS_NORM: rms_norm} if delegated else {ATTENTION: spell_out}
    found = {node.target for node in program.graph.nodes} & set(table)
    if ATTENTION in found:
        reshape_views(program)
    return program.run_decompositions(table) if found else program


def rms_norm(
    x: Tensor, normalized_shape: list[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    over = list(range(-len(normalized_shape), 0))
    spread = (x * x).mean(over, keepdim=True)
    y = x * torch.rsqrt(spread + (torch.finfo(x.dtype).eps if eps is None else eps))
    return y if weight is None else y * weight


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attention with the delegate's operator, or spelled out if it does not fit."""
    if dropout_p or not _fits(q, k, v, enable_gqa):
        return spell_out(q, k, v, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    if enable_gqa:
        k, v = _repeated(k, q.shape[1]), _repeated(v, q.shape[1])
    mask, visible = None, None
    if is_causal:
        mask = _causal_mask(q, k)
    elif attn_mask is not None:
        mask, visible = _added_mask(attn_mask, q.dtype)
    if mask is not None:
        mask = mask.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    y = torch.ops.et_vk.sdpa.default(q, k, v, mask, scale)
    return y if visible is None else y * visible


def spell_out(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attention as products and a softmax."""
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.where(attn_mask, 0.0, -torch.inf).to(q.dtype)
    y: Tensor = torch.ops.aten._scaled_dot_product_attention_math.default(
        q, k, v, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )[0]
    return y


def _fits(q: Tensor, k: Tensor, v: Tensor, shared_heads: bool) -> bool:
    return (
        all(x.dim() == 4 and x.dtype in (torch.float32, torch.float16) for x in (q, k, v))
        and statically_known_true(q.shape[0] == k.shape[0])
        and (shared_heads or statically_known_true(q.shape[1] == k.shape[1]))
        and all(statically_known_true(mine == other) for mine, other in zip(k.shape, v.shape, strict=True))
        and statically_known_true(q.shape[3] == k.shape[3])
        and statically_known_true(q.shape[3] % 4 == 0)
    )


def _repeated(x: Tensor, heads: int) -> Tensor:
    """Repeat each head for the queries that share it."""
    sharing = heads // x.shape[1]
    return x if sharing == 1 else x.unsqueeze(2).expand(-1, -1, sharing, -1, -1).flatten(1, 2)


def _hidden(dtype: torch.dtype) -> float:
    """A number that hides a key when added to its score. It is finite: a row of only -inf gives NaN."""
    return -float(torch.finfo(dtype).max) / 2


def _causal_mask(q: Tensor, k: Tensor) -> Tensor:
    queries = torch.arange(q.shape[2], dtype=q.dtype, device=q.device).unsqueeze(1)
    keys = torch.arange(k.shape[2], dtype=q.dtype, device=q.device)
    return (keys - queries).clamp(0, 1) * _hidden(q.dtype)


def _added_mask(mask: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The mask to add, and a factor per row: 0 for a row without a visible key, whose result must be 0."""
    if mask.dtype == torch.bool:
        shown = mask.to(dtype)
        return (1 - shown) * _hidden(dtype), shown.amax(-1, keepdim=True)
    visible = mask.amax(-1, keepdim=True) >= torch.finfo(dtype).min
    return mask.clamp(min=_hidden(dtype)), visible.to(dtype)
