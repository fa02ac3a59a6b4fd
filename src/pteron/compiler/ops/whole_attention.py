"""Attention without a KV cache: softmax(q @ k^T * scale + mask) @ v."""

from __future__ import annotations

from pteron.compiler.ir.rule import LiveArguments, LiveInt, LiveTensor, Route, Work, op
from pteron.compiler.ops.attention import attention
from pteron.compiler.ops.attention_routes import heads_first, sequence_first


def _work(call: LiveArguments) -> Work:
    keys = call["k"].shape[1 if call["keys_by_sequence"] else 2]
    return Work(4 * call["out"].numel * keys)


@op("pteron.attention", work=_work)
def fused_attention(
    q: LiveTensor,
    k: LiveTensor,
    v: LiveTensor,
    mask: LiveTensor | None,
    scale: float,
    queries_by_sequence: bool,
    keys_by_sequence: bool,
    empty_is_zero: bool,
    out: LiveTensor,
) -> list[Route]:
    """Tensors are [B, H, S, D], or [B, S, H, D] if they are by sequence. The output is as the queries."""
    layout = sequence_first if queries_by_sequence else heads_first
    key_layout = sequence_first if keys_by_sequence else heads_first
    return attention(
        q,
        k,
        v,
        out,
        layout,
        key_layout=key_layout,
        start_pos=LiveInt(0, 0, []),
        causal=False,
        context=key_layout(k.shape).length,
        mask=mask,
        scale=scale,
        empty_is_zero=empty_is_zero,
    )
