"""Inputs whose contents matter before a call: elements that become integers, and indices."""

from __future__ import annotations

from pteron.ir.values import Element, Tensor, ValueId, numel
from pteron.plan.sweep import LiveGraph


def input_elements(live: LiveGraph) -> list[Element]:
    """The elements that become integers, as positions in the inputs that their tensors are views of."""
    return [_in_input(element, live) for element in live.graph.elements]


def _in_input(element: Element, live: LiveGraph) -> Element:
    root = live.graph.values[live.layout.storage[element.source.id]]
    assert isinstance(root, Tensor)
    if root is element.source:
        return element
    # The element [0.., index, ..0] of a view is at a flat offset in the input.
    after = numel(element.source.max_shape[element.dim + 1 :]) if element.dim >= 0 else 1
    return Element(element.symint, root, -1, element.index * after)


def index_inputs(live: LiveGraph) -> list[tuple[int, ValueId, int]]:
    """The inputs that are used as indices: (node, tensor in the rule, input number)."""
    places = {p.value.id: n for n, p in enumerate(live.graph.inputs) if isinstance(p.value, Tensor)}
    roots = live.layout.storage
    return [
        (index, tensor.id, places[roots[tensor.id]])
        for index in live.indexing
        for tensor in live.graph.nodes[index].reads
        if isinstance(tensor, Tensor) and roots[tensor.id] in places
    ]
