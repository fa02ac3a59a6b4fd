"""The graph of a method as JSON: values, nodes, groups and edges."""

from __future__ import annotations

from typing import Any

from pteron.compiler.ir.values import Graph, Node, Port, SymInt, Tensor, Value, ValueId
from pteron.compiler.plan.dynamic import find_sizes
from pteron.compiler.plan.method_sizes import MethodSizes, method_sizes
from pteron.compiler.plan.sweep import LiveGraph
from pteron.tools.viewer.fused_nodes import FusedNodes
from pteron.tools.viewer.node_groups import group_nodes

# What operators do, by the start of their name, or else by their module. The page gives each family a colour.
BEGINNINGS = {"linear": "product", "convolution": "convolution", "embedding": "lookup"}
FAMILIES = {
    "product": (
        "matmul", "linear_affine", "linear_int8", "linear_q4", "joined_linears", "fused_affine", "fused_qkv",
        "quantized_weights", "q8ta", "experts", "distances",
    ),
    "attention": (
        "attention", "whole_attention", "quantized_attention", "rotary_attention", "rope", "segmented",
        "delta_rule",
    ),
    "convolution": ("conv", "pool"),
    "normalisation": ("norm", "batch_norm", "rows", "add_rms_norm"),
    "elementwise": (
        "arithmetic", "elementwise", "chain", "complex", "quantized", "affine", "random", "create",
    ),
    "reduction": ("reduce", "counting", "sort", "closeness"),
    "lookup": ("index", "writes", "image", "resampling", "table_parts"),
    "shape": ("views", "symint", "strides", "rolls"),
}  # fmt: skip
FAMILY_OF = {module: family for family, modules in FAMILIES.items() for module in modules}


def graph_form(graph: Graph, unfused: Graph, live: LiveGraph) -> dict[str, Any]:
    fused = FusedNodes(graph, unfused)
    grouping = group_nodes(unfused)  # fusion may cross the border of two blocks
    states = {tensor.id for tensor in graph.states}
    sizes = method_sizes(live, find_sizes(live))
    return {
        "name": graph.name,
        "values": [_value(value, states, sizes) for value in graph.values],
        "nodes": [
            {
                "operator": node.name,
                "family": family(node),
                "group": next((grouping.of_node[old.index] for old in fused.originals(node)), None),
                "reads": [value.id for value in node.reads],
                "writes": [value.id for value in (*node.writes, *node.mutates)],
                "free": not live.routes[node.index],
                "fused": len(fused.sources(node)),
            }
            for node in graph.nodes
        ],
        "groups": [{"name": group.name, "parent": group.parent} for group in grouping.groups],
        "inputs": [_port(port) for port in graph.inputs],
        "outputs": [_port(port) for port in graph.outputs],
        "edges": list(_edges(graph)),
    }


def family(node: Node) -> str:
    name = node.name.partition(".")[2]
    for beginning, found in BEGINNINGS.items():
        if name.startswith(beginning):
            return found
    module = node.op.rule.__module__.rpartition(".")[2]
    return FAMILY_OF.get(module, "other")


def _value(value: Value, states: set[ValueId], sizes: MethodSizes) -> dict[str, Any]:
    formulas = [None if formula is None else str(formula) for formula in sizes.of(value)]
    if isinstance(value, SymInt):
        return {"name": value.name, "kind": "integer", "formulas": formulas}
    kind = "state" if value.id in states else "constant" if value.constant is not None else "tensor"
    return {
        "name": value.name,
        "kind": kind,
        "dtype": value.dtype.label,
        "itemsize": value.dtype.itemsize,
        "shape": list(value.max_shape),
        "formulas": formulas,
    }


def _port(port: Port) -> dict[str, Any]:
    value = port.value
    if isinstance(value, (Tensor, SymInt)):
        return {"name": port.name, "dtype": port.host_type, "value": value.id}
    return {"name": port.name, "dtype": port.host_type, "value": None, "fixed": value}


def _edges(graph: Graph) -> Any:
    """[from, to, value]: a node's number, or "i0" for an input and "o0" for an output."""
    writer: dict[ValueId, Any] = {}
    for number, port in enumerate(graph.inputs):
        if isinstance(port.value, (Tensor, SymInt)):
            writer[port.value.id] = f"i{number}"
    for element in graph.elements:
        if element.source.id in writer:
            writer[element.symint.id] = writer[element.source.id]
    for node in graph.nodes:
        for value in dict.fromkeys(node.reads):
            if value.id in writer:
                yield [writer[value.id], node.index, value.id]
        for value in (*node.writes, *node.mutates):
            writer[value.id] = node.index
    for number, port in enumerate(graph.outputs):
        if isinstance(port.value, (Tensor, SymInt)) and port.value.id in writer:
            yield [writer[port.value.id], f"o{number}", port.value.id]
