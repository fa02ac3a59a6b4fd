"""KV caches of another length than the file's: a choice at load.

Caches that begin with zeros can have any length, as far as the tables of rotary embeddings reach. Rows of the
tables beyond the caches are left out.
"""

from __future__ import annotations

from dataclasses import replace

from pteron.compiler.ir.constants import first_rows
from pteron.compiler.ir.values import Constant, Graph, Tensor, ValueId
from pteron.compiler.lower.cache_dtype import used_only_as, with_tensors
from pteron.errors import InputError, UnsupportedError
from pteron.pte.bytesource import Region

# Caches [1, positions, heads, head size] and tables [positions, head size], by operator.
CACHES = {
    "sdpa_with_kv_cache.default": ("key_cache", "value_cache"),
    "pteron.sdpa_with_kv_cache.default": ("key_cache", "value_cache"),
}
TABLES = {"et_vk.apply_rotary_emb_hf.default": ("cos", "sin")}


def with_cache_length(graph: Graph, length: int | None) -> Graph:
    """The graph with KV caches of this many positions."""
    if length is None or not graph.states:
        return graph
    caches, tables = used_only_as(graph, CACHES), used_only_as(graph, TABLES)
    zeros: dict[Region, bool] = {}  # caches share one constant
    new: dict[ValueId, Tensor] = {}
    for tensor in graph.states:
        if tensor.id not in caches or not _begins_empty(tensor, zeros):
            raise UnsupportedError(f"{graph.name}: the length of the state {tensor.name} cannot be changed")
        shape = (tensor.max_shape[0], length, *tensor.max_shape[2:])
        new[tensor.id] = replace(tensor, max_shape=shape, constant=None)
    for tensor in graph.tensors():
        if tensor.id in tables and tensor.constant is not None:
            most = tensor.max_shape[0]
            if length > most:
                raise InputError(f"kv_length is {length}: the program has tables for {most} positions")
            new[tensor.id] = first_rows(tensor, length)
    return with_tensors(graph, new)


def _begins_empty(tensor: Tensor, known: dict[Region, bool]) -> bool:
    constant = tensor.constant
    if not isinstance(constant, Constant):
        return constant is None
    data = constant.data
    if data not in known:
        known[data] = bytes(data).count(0) == len(data)
    return known[data]
