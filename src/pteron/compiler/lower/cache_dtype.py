"""KV caches in another type than the file's: a choice at load.

float16 caches take half of the memory of float32 caches. Keys and values are rounded when they are stored.
Attention computes in float32, so no device feature is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Graph, Node, Tensor, ValueId, values_in
from pteron.errors import InputError

KV_DTYPES = {"f16": DType.float16, "f32": DType.float32}

# The arguments that are caches, of operators that take caches of any float type.
CACHES = {
    "sdpa_with_kv_cache.default": ("key_cache", "value_cache"),
    "pteron.sdpa_with_kv_cache.default": ("key_cache", "value_cache"),
    "update_cache.default": ("cache",),
    "custom_sdpa.default": ("k", "v"),
}


def with_cache_dtype(graphs: Mapping[str, Graph], kv_dtype: str | None) -> dict[str, Graph]:
    """The methods with their KV caches in this type. A cache that other operators use too stays as it is."""
    if kv_dtype is None:
        return dict(graphs)
    if kv_dtype not in KV_DTYPES:
        raise InputError(f"kv_dtype must be {' or '.join(map(repr, KV_DTYPES))}, not {kv_dtype!r}")
    caches = {name: _only_caches(graph) for name, graph in graphs.items()}
    # Methods that share a buffer use it with the same type.
    other = {
        graph.shared[tensor.id]
        for name, graph in graphs.items()
        for tensor in graph.states
        if tensor.id in graph.shared and tensor.id not in caches[name]
    }
    return {
        name: with_tensors(
            graph,
            {
                id: replace(tensor, dtype=KV_DTYPES[kv_dtype])
                for id, tensor in caches[name].items()
                if graph.shared.get(id) not in other
            },
        )
        for name, graph in graphs.items()
    }


def _only_caches(graph: Graph) -> dict[ValueId, Tensor]:
    """The states that are KV caches, and nothing else."""
    used = used_only_as(graph, CACHES)
    return {tensor.id: tensor for tensor in graph.states if tensor.dtype.is_float and tensor.id in used}


def used_only_as(graph: Graph, arguments: Mapping[str, Sequence[str]]) -> set[ValueId]:
    """The tensors that are nothing else than these arguments of operators."""
    used, used_otherwise = set[ValueId](), {tensor.id for tensor in graph.results}
    for node in graph.nodes:
        for name, tensor in _tensors_of(node):
            (used if name in arguments.get(node.name, ()) else used_otherwise).add(tensor.id)
    return used - used_otherwise


def _tensors_of(node: Node) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a node, each with the name of its argument."""
    for name, arg in node.named.items():
        for value in values_in(arg):
            if isinstance(value, Tensor):
                yield name, value


def with_tensors(graph: Graph, new: Mapping[ValueId, Tensor]) -> Graph:
    """The graph with other tensors in the place of those with the same id."""

    def swapped(arg: Any) -> Any:
        if isinstance(arg, tuple):
            return tuple(map(swapped, arg))
        return new.get(arg.id, arg) if isinstance(arg, Tensor) else arg

    nodes = [
        node.op.node(swapped(node.args), node.origin, index=node.index, when=node.when)
        for node in graph.nodes
    ]
    values, states = (list(map(swapped, tensors)) for tensors in (graph.values, graph.states))
    inputs, outputs = (
        [replace(port, value=swapped(port.value)) for port in ports]
        for ports in (graph.inputs, graph.outputs)
    )
    return replace(
        graph,
        nodes=nodes,
        values=values,
        states=states,
        inputs=inputs,
        outputs=outputs,
        elements=[replace(element, source=swapped(element.source)) for element in graph.elements],
        counts={value: swapped(count) for value, count in graph.counts.items()},
    )
