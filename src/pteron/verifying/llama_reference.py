"""The attention operators of ExecuTorch's language models, in plain torch.

ExecuTorch implements them in C++ for its own runtime. Tensors are [batch, sequence, heads, head size].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def update_cache(value: Tensor, cache: Tensor, start: int) -> None:
    cache[:, start : start + value.shape[1]] = value


def sdpa_with_kv_cache(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor,
    values: Tensor,
    start: int,
    seq_len: Any,
    mask: Tensor | None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
    window: int | None = None,
    softcap: float | None = None,
) -> Tensor:
    update_cache(k, keys, start)
    update_cache(v, values, start)
    causal = is_causal or mask is None
    return _attention(q, keys, values, start, mask, causal, scale, window, softcap)


def custom_sdpa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    start: int,
    mask: Tensor | None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
) -> Tensor:
    return _attention(q, k, v, start, mask, is_causal, scale, None, None)


def _attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    start: int,
    mask: Tensor | None,
    causal: bool,
    scale: float | None,
    window: int | None,
    softcap: float | None,
) -> Tensor:
    """Row i is at position `start + i`. It attends to the positions up to its own, or to those in a mask."""
    length, groups = q.shape[1], q.shape[2] // keys.shape[2]
    used = start + length
    q, k, v = (x.float().transpose(1, 2) for x in (q, keys[:, :used], values[:, :used]))
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if mask is not None:
        scores = scores + mask[..., :length, :used]
    row, column = torch.arange(start, used)[:, None], torch.arange(used)[None, :]
    if causal:
        scores = scores.masked_fill(column > row, -torch.inf)
    if window:
        scores = scores.masked_fill(column <= row - window, -torch.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "update_cache.default": update_cache,
    "sdpa_with_kv_cache.default": sdpa_with_kv_cache,
    "pteron.sdpa_with_kv_cache.default": sdpa_with_kv_cache,
    "custom_sdpa.default": custom_sdpa,
}
