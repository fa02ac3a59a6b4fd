"""Prepare a copy of the module for export, with quantized weights if wanted."""

from __future__ import annotations

import copy
import inspect
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree
from torchao.quantization.granularity import PerGroup
from torchao.quantization.quant_api import IntxWeightOnlyConfig, quantize_
from torchao.quantization.quant_primitives import MappingType

from pteron.errors import InputError
from pteron.tools.exporter.affine_layers import PER_WORD, AffineEmbedding, AffineLinear, encoded

Layer: TypeAlias = "nn.Linear | nn.Embedding"

EMBEDDING_BLOCK = 32  # the delegate's embedding reads a row in blocks of this many weights
ATTENTION = "torch's attention reads its weights as tensors of floats"
LINEAR_BLOCK = 4  # the exporter pads scales to a multiple of this, and cannot trace the padded operator


def open_source(source: Any) -> nn.Module | ExportedProgram:
    """Open what to export: a program of torch, also from a file, or a copy of a module or function."""
    if isinstance(source, ExportedProgram):
        return source
    if isinstance(source, nn.Module):
        return copy_for_export(source)
    if isinstance(source, (str, os.PathLike)):
        return torch.export.load(source)
    if not callable(source):
        raise InputError(
            "expected a torch module, a function, an ExportedProgram or a .pt2 file, "
            f"got {type(source).__name__}"
        )
    owner = getattr(source, "__self__", None)
    if isinstance(owner, nn.Module):  # a method of a module other than forward
        module = copy_for_export(owner)
        module.forward = getattr(module, source.__name__)
        return module
    module = nn.Module()
    # torch.export asks for the names of the arguments, which functions written in C do not have.
    module.forward = (lambda *inputs: source(*inputs)) if inspect.isbuiltin(source) else source
    return module


def copy_for_export(module: nn.Module) -> nn.Module:
    """A copy in evaluation mode. It shares the tensors, which are never written, so it needs no memory."""
    tensors = itertools.chain(module.parameters(), module.buffers())
    return copy.deepcopy(module, {id(tensor): tensor for tensor in tensors}).eval()


def distinct(module: nn.Module | ExportedProgram, examples: Any) -> Any:
    """Examples of which none is the same tensor as another one or a weight.

    torch.export takes equal tensors for one input. The program would then ignore the others.
    """
    if isinstance(module, ExportedProgram):
        return examples
    seen = {id(tensor) for tensor in itertools.chain(module.parameters(), module.buffers())}

    def own(example: Any) -> Any:
        if isinstance(example, Tensor) and id(example) in seen:
            return example.detach().clone()
        seen.add(id(example))
        return example

    return pytree.tree_map(own, examples)


def quantize_weights(
    module: nn.Module, bits: int, group_size: int, symmetric: bool
) -> tuple[nn.Module, tuple[str, ...]]:
    """Quantize linears and embeddings. Returns the module, and the unchanged layers with the reasons."""
    kept = []
    quantizer: Quantizer = TorchaoWeights(bits, group_size, symmetric)
    if bits == 4 and not symmetric:  # neither torchao's exporter nor the delegate has an operator for these
        quantizer = AffineLayers(group_size)
    inside_attention = {
        id(attention.out_proj): name
        for name, attention in module.named_modules()
        if isinstance(attention, nn.MultiheadAttention)
    }
    for name, layer in list(module.named_modules()):
        if id(layer) in inside_attention:
            kept.append(f"{inside_attention[id(layer)] or 'MultiheadAttention'}: {ATTENTION}")
        elif isinstance(layer, (nn.Linear, nn.Embedding)):
            reason = _obstacle(layer, group_size) or quantizer.obstacle(layer)
            if reason is None:
                module = _with_layer(module, name, quantizer.quantized(layer))
            else:
                kept.append(f"{name or type(layer).__name__}: {reason}")
    return module, tuple(kept)


class Quantizer(Protocol):
    def obstacle(self, layer: Layer) -> str | None:
        """Why this layer cannot be quantized; None if it can."""

    def quantized(self, layer: Layer) -> nn.Module:
        """The layer with quantized weights: the same object, or another."""


class TorchaoWeights:
    """Quantizes with torchao. The delegate has operators for the result."""

    def __init__(self, bits: int, group_size: int, symmetric: bool) -> None:
        self._bits = bits
        self._config = IntxWeightOnlyConfig(
            weight_dtype={4: torch.int4, 8: torch.int8}[bits],
            granularity=PerGroup(group_size),
            mapping_type=MappingType.SYMMETRIC if symmetric else MappingType.ASYMMETRIC,
        )

    def obstacle(self, layer: Layer) -> str | None:
        rows, width = layer.weight.shape
        if self._bits == 4 and isinstance(layer, nn.Linear) and rows % LINEAR_BLOCK:
            return f"{rows} outputs are not a multiple of {LINEAR_BLOCK}"
        if self._bits == 4 and isinstance(layer, nn.Embedding) and width % EMBEDDING_BLOCK:
            return f"rows of {width} weights are not a multiple of {EMBEDDING_BLOCK}"
        return None

    def quantized(self, layer: Layer) -> nn.Module:
        quantize_(layer, self._config, lambda part, _: part is layer)
        return layer


class AffineLayers:
    """Replaces layers by layers with Pteron's operators. A weight that layers share is stored once."""

    def __init__(self, group_size: int) -> None:
        self._group_size = group_size
        self._encoded: dict[int, tuple[Tensor, Tensor]] = {}

    def obstacle(self, layer: Layer) -> str | None:
        width = layer.weight.shape[1]
        return f"rows of {width} weights are not a multiple of {PER_WORD}" if width % PER_WORD else None

    def quantized(self, layer: Layer) -> nn.Module:
        key = id(layer.weight)
        if key not in self._encoded:
            self._encoded[key] = encoded(layer.weight, self._group_size)
        if isinstance(layer, nn.Linear):
            return AffineLinear(layer, self._encoded[key], self._group_size)
        return AffineEmbedding(self._encoded[key], self._group_size)


def _with_layer(module: nn.Module, name: str, layer: nn.Module) -> nn.Module:
    """The module with the named layer replaced. The empty name is the module itself."""
    if not name:
        return layer
    parent, _, child = name.rpartition(".")
    setattr(module.get_submodule(parent), child, layer)
    return module


@contextmanager
def layer_by_layer() -> Iterator[None]:
    """Disable torch's fused transformer layer, which does not support quantized weights."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _obstacle(layer: Layer, group_size: int) -> str | None:
    """Why no operator can run this layer with quantized weights; None if some can."""
    width = layer.weight.shape[1]
    if not layer.weight.is_floating_point():
        return f"its weights are {layer.weight.dtype}"
    if width % group_size:
        return f"rows of {width} weights are not a multiple of the group size {group_size}"
    if isinstance(layer, nn.Embedding) and layer.max_norm is not None:
        return "max_norm changes its weights"
    return None
