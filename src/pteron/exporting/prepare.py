"""Prepare a copy of the module for export, with quantized weights if wanted."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torchao.quantization.granularity import PerGroup
from torchao.quantization.quant_api import IntxWeightOnlyConfig, quantize_

EMBEDDING_BLOCK = 32  # the delegate's embedding reads a row in blocks of this many weights
ATTENTION = "torch's attention reads its weights as tensors of floats"
LINEAR_BLOCK = 4  # the exporter pads scales to a multiple of this, and cannot trace the padded operator


def copy_for_export(module: nn.Module) -> nn.Module:
    """A copy in evaluation mode. It shares the tensors, which are never written, so it needs no memory."""
    tensors = itertools.chain(module.parameters(), module.buffers())
    return copy.deepcopy(module, {id(tensor): tensor for tensor in tensors}).eval()


def quantize_weights(module: nn.Module, bits: int, group_size: int) -> tuple[str, ...]:
    """Quantize linears and embeddings to 4 or 8 bits in place. Returns the unchanged ones, and why."""
    kept = []
    dtype = {4: torch.int4, 8: torch.int8}[bits]
    config = IntxWeightOnlyConfig(weight_dtype=dtype, granularity=PerGroup(group_size))
    inside_attention = {
        id(attention.out_proj): name
        for name, attention in module.named_modules()
        if isinstance(attention, nn.MultiheadAttention)
    }
    for name, layer in module.named_modules():
        if id(layer) in inside_attention:
            kept.append(f"{inside_attention[id(layer)] or 'MultiheadAttention'}: {ATTENTION}")
        elif isinstance(layer, (nn.Linear, nn.Embedding)):
            reason = _obstacle(layer, bits, group_size)
            if reason is None:
                quantize_(layer, config, lambda part, _, layer=layer: part is layer)
            else:
                kept.append(f"{name or type(layer).__name__}: {reason}")
    return tuple(kept)


@contextmanager
def layer_by_layer() -> Iterator[None]:
    """Disable torch's fused transformer layer, which does not support quantized weights."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _obstacle(layer: nn.Linear | nn.Embedding, bits: int, group_size: int) -> str | None:
    """Why the delegate cannot run this layer with quantized weights; None if it can."""
    rows, width = layer.weight.shape
    if not layer.weight.is_floating_point():
        return f"its weights are {layer.weight.dtype}"
    if width % group_size:
        return f"rows of {width} weights are not a multiple of the group size {group_size}"
    if isinstance(layer, nn.Embedding) and layer.max_norm is not None:
        return "max_norm changes its weights"
    if bits == 4 and isinstance(layer, nn.Linear) and rows % LINEAR_BLOCK:
        return f"{rows} outputs are not a multiple of {LINEAR_BLOCK}"
    if bits == 4 and isinstance(layer, nn.Embedding) and width % EMBEDDING_BLOCK:
        return f"rows of {width} weights are not a multiple of {EMBEDDING_BLOCK}"
    return None
