"""The module that is really exported: a copy in which weights may be quantised."""

from __future__ import annotations

import copy
import itertools

import torch
from torch import nn
from torchao.quantization.granularity import PerGroup
from torchao.quantization.quant_api import IntxWeightOnlyConfig, quantize_

EMBEDDING_BLOCK = 32  # the delegate's embedding reads rows in blocks of so many weights
LINEAR_BLOCK = 4  # the exporter pads scales to so many outputs, and then fails to trace its own operator


def copy_for_export(module: nn.Module) -> nn.Module:
    """A copy in evaluation mode. It shares the tensors, which nothing writes to, and so costs no memory."""
    tensors = itertools.chain(module.parameters(), module.buffers())
    return copy.deepcopy(module, {id(tensor): tensor for tensor in tensors}).eval()


def quantize_4bit(module: nn.Module, group_size: int) -> tuple[str, ...]:
    """Quantise linears and embeddings in place. Tells which keep their weights, and why."""
    kept = []
    config = IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(group_size))
    for name, layer in module.named_modules():
        if not isinstance(layer, (nn.Linear, nn.Embedding)):
            continue
        reason = _obstacle(layer, group_size)
        if reason is None:
            quantize_(layer, config, lambda part, _, layer=layer: part is layer)
        else:
            kept.append(f"{name or type(layer).__name__}: {reason}")
    return tuple(kept)


def _obstacle(layer: nn.Linear | nn.Embedding, group_size: int) -> str | None:
    """Why the delegate could not run this layer with 4-bit weights."""
    rows, width = layer.weight.shape
    if not layer.weight.is_floating_point():
        return f"its weights are {layer.weight.dtype}"
    if width % group_size:
        return f"rows of {width} weights do not divide into groups of {group_size}"
    if isinstance(layer, nn.Linear) and rows % LINEAR_BLOCK:
        return f"{rows} outputs do not divide into blocks of {LINEAR_BLOCK}"
    if isinstance(layer, nn.Embedding) and width % EMBEDDING_BLOCK:
        return f"rows of {width} weights do not divide into blocks of {EMBEDDING_BLOCK}"
    if isinstance(layer, nn.Embedding) and layer.max_norm is not None:
        return "max_norm changes its weights"
    return None
